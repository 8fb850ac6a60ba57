//! A limiter in user space: two TAP devices, one in each host's namespace,
//! and threads that carry frames between them, one of them by a [`Rule`].
//!
//! ```text
//!   sender's eth0 (entry) ─▶ read ─▶ queue ─▶ rule ─▶ write ─▶ receiver's eth0 (exit)
//!                         ◀─ write ◀──────────────── read ◀─
//! ```
//!
//! For limiters that this kernel has no qdisc for. The two devices together
//! are the shaper: a datagram enters it when it is handed to the entry's
//! driver and leaves it when it enters the stack at the exit, so the observer
//! is told the two as a [pair](crate::correlate::pair). The rule is arithmetic
//! on times ([`credit`], [`stall`]) and knows nothing of devices; the
//! forwarder waits by absolute timers and spins the last [`SPIN_NS`].
//!
//! Reading needs a CPU of its own now and then: how late it ran is in its
//! [`Account`], so that a figure that is off can be told from a forwarder
//! that was not given its time.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use serde::{Deserialize, Serialize};

use super::{LabError, Namespace, priority};
use crate::host::monotonic_ns;

pub mod credit;
pub mod stall;
mod tap;

#[cfg(test)]
mod tests;

use credit::{Credit, CreditConfig, Release};
use stall::{Stall, StallConfig};
use tap::{FRAME, Tap};

/// How long before a release the forwarder stops sleeping and spins, ns.
pub const SPIN_NS: u64 = 60_000;

/// What decides when a frame leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Rule {
    /// At once.
    Pass,
    /// Xen netback's credit.
    Credit(CreditConfig),
    /// The forwarder itself stands still by turns: what a guest sends while
    /// its driver domain is off the CPU. (A *sender* off its CPU is
    /// [`deschedule`](super::deschedule).)
    Stall(StallConfig),
}

/// A forwarder to be put between the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardConfig {
    /// Frames from the sender to the receiver leave by this rule; those the
    /// other way at once.
    pub rule: Rule,
    /// Frames held back at most; more are dropped and counted.
    #[serde(default = "queue_default")]
    pub queue_packets: usize,
}

fn queue_default() -> usize {
    100_000
}

impl ForwardConfig {
    /// `rule`, with room for 100,000 frames.
    pub fn new(rule: Rule) -> Self {
        Self { rule, queue_packets: queue_default() }
    }
}

/// What a forwarder did so far, sender to receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Account {
    /// Frames that left.
    pub packets: u64,
    /// Their bytes, Ethernet headers included.
    pub bytes: u64,
    /// Frames dropped because too many were held back, or because the exit
    /// refused them.
    pub dropped: u64,
    /// Times it held frames back and released them at a set time.
    pub waits: u64,
    /// The latest of these releases, ns behind its time.
    pub late_max_ns: u64,
    /// Releases more than a millisecond late.
    pub late: u64,
    /// Frames carried from receiver to sender.
    pub back: u64,
}

#[derive(Debug, Default)]
struct Counters {
    packets: AtomicU64,
    bytes: AtomicU64,
    dropped: AtomicU64,
    waits: AtomicU64,
    late_max_ns: AtomicU64,
    late: AtomicU64,
    back: AtomicU64,
}

impl Counters {
    fn read(&self) -> Account {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Account {
            packets: of(&self.packets),
            bytes: of(&self.bytes),
            dropped: of(&self.dropped),
            waits: of(&self.waits),
            late_max_ns: of(&self.late_max_ns),
            late: of(&self.late),
            back: of(&self.back),
        }
    }

    fn released(&self, late_ns: u64) {
        add(&self.waits, 1);
        self.late_max_ns.fetch_max(late_ns, Ordering::Relaxed);
        if late_ns > 1_000_000 {
            add(&self.late, 1);
        }
    }
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// A running forwarder. Dropping it ends its threads and, with them, both
/// devices.
#[derive(Debug)]
pub struct Forwarder {
    stop: Arc<OwnedFd>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    counters: Arc<Counters>,
}

impl Forwarder {
    /// Makes device `name` in both namespaces, and starts carrying frames
    /// between them.
    ///
    /// # Errors
    ///
    /// [`LabError::Tap`] if a device cannot be made, [`LabError::Forwarder`]
    /// if the threads cannot be started.
    pub fn start(
        config: ForwardConfig,
        sender: &Namespace,
        receiver: &Namespace,
        name: &'static str,
    ) -> Result<Self, LabError> {
        let entry = Arc::new(Tap::create(sender, name)?);
        let exit = Arc::new(Tap::create(receiver, name)?);
        let counters = Arc::new(Counters::default());
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(|e| LabError::Forwarder(e.into()))?);
        let mut forwarder = Self { stop: Arc::clone(&stop), threads: Vec::new(), counters };
        let there = Lane {
            from: Arc::clone(&entry),
            to: Arc::clone(&exit),
            stop: Arc::clone(&stop),
            counters: Arc::clone(&forwarder.counters),
        };
        let back = Lane { from: exit, to: entry, stop, counters: Arc::clone(&forwarder.counters) };
        forwarder.spawn("lab-forward", move || there.by_rule(config))?;
        forwarder.spawn("lab-back", move || back.at_once())?;
        Ok(forwarder)
    }

    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Result<(), LabError> {
        let raised = || {
            priority::raise(priority::Role::Reader);
            work()
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(raised);
        self.threads.push(thread.map_err(LabError::Forwarder)?);
        Ok(())
    }

    /// What it did so far.
    pub fn account(&self) -> Account {
        self.counters.read()
    }

    /// Ends it, and gives its account.
    ///
    /// # Errors
    ///
    /// [`LabError::Forwarder`] if a device failed while it ran.
    pub fn finish(mut self) -> Result<Account, LabError> {
        self.end().map_err(LabError::Forwarder)?;
        Ok(self.account())
    }

    fn end(&mut self) -> io::Result<()> {
        rustix::io::write(&*self.stop, &1_u64.to_ne_bytes())?;
        self.threads.drain(..).try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        if !self.threads.is_empty() && !std::thread::panicking() {
            // A device that failed has failed the test or scenario by itself.
            let _ = self.end();
        }
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
    }
}

/// The rule with its state.
enum Gate {
    Pass,
    Credit(Credit),
    Stall(Stall),
}

impl Gate {
    fn new(rule: Rule, now_ns: u64) -> Self {
        match rule {
            Rule::Pass => Self::Pass,
            Rule::Credit(config) => Self::Credit(Credit::new(config, now_ns)),
            Rule::Stall(config) => Self::Stall(Stall::new(config, now_ns)),
        }
    }

    fn ask(&mut self, now_ns: u64, bytes: u64) -> Release {
        match self {
            Self::Pass => Release::Now,
            Self::Credit(credit) => credit.ask(now_ns, bytes),
            Self::Stall(stall) => stall.until(now_ns).map_or(Release::Now, Release::At),
        }
    }

    /// Whether nothing is even looked at before a time.
    fn still_until(&self, now_ns: u64) -> Option<u64> {
        match self {
            Self::Stall(stall) => stall.until(now_ns),
            _ => None,
        }
    }
}

/// One direction.
struct Lane {
    from: Arc<Tap>,
    to: Arc<Tap>,
    stop: Arc<OwnedFd>,
    counters: Arc<Counters>,
}

/// What a wait ended with.
#[derive(PartialEq, Eq)]
enum Woken {
    ByTime,
    ByFrame,
    Stopped,
}

impl Lane {
    fn at_once(&self) -> io::Result<()> {
        let mut frame = Box::new([0; FRAME]);
        loop {
            while let Some(length) = self.from.read(&mut frame)? {
                if self.to.write(frame.get(..length).unwrap_or_default()).is_ok() {
                    add(&self.counters.back, 1);
                }
            }
            if wait(&[self.from.as_fd()], &self.stop)? == Woken::Stopped {
                return Ok(());
            }
        }
    }

    fn by_rule(&self, config: ForwardConfig) -> io::Result<()> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        let mut gate = Gate::new(config.rule, monotonic_ns());
        let mut queue = VecDeque::<Vec<u8>>::new();
        loop {
            if let Some(until) = gate.still_until(monotonic_ns()) {
                if self.sleep_until(&timer, until, false)? == Woken::Stopped {
                    return Ok(());
                }
                self.counters.released(monotonic_ns().saturating_sub(until));
            }
            self.take(&mut queue, config.queue_packets)?;
            let woken = match self.release(&mut queue, &mut gate) {
                None => wait(&[self.from.as_fd()], &self.stop)?,
                Some(until) => {
                    let woken = self.sleep_until(&timer, until, true)?;
                    if woken == Woken::ByTime {
                        self.counters.released(monotonic_ns().saturating_sub(until));
                    }
                    woken
                }
            };
            if woken == Woken::Stopped {
                return Ok(());
            }
        }
    }

    /// Takes in what has been sent.
    fn take(&self, queue: &mut VecDeque<Vec<u8>>, most: usize) -> io::Result<()> {
        let mut frame = [0; FRAME];
        while let Some(length) = self.from.read(&mut frame)? {
            if queue.len() < most {
                queue.push_back(frame.get(..length).unwrap_or_default().to_vec());
            } else {
                add(&self.counters.dropped, 1);
            }
        }
        Ok(())
    }

    /// Lets go of what may leave; the time at which the next one may, if one
    /// is left.
    fn release(&self, queue: &mut VecDeque<Vec<u8>>, gate: &mut Gate) -> Option<u64> {
        while let Some(frame) = queue.front() {
            let bytes = frame.len() as u64;
            match gate.ask(monotonic_ns(), bytes) {
                Release::At(at) => return Some(at),
                Release::Now => {}
            }
            if self.to.write(frame).is_ok() {
                add(&self.counters.packets, 1);
                add(&self.counters.bytes, bytes);
            } else {
                add(&self.counters.dropped, 1);
            }
            queue.pop_front();
        }
        None
    }

    /// Sleeps until shortly before `until`, then spins; with `frames`, a frame
    /// that comes ends the sleep.
    fn sleep_until(&self, timer: &OwnedFd, until: u64, frames: bool) -> io::Result<Woken> {
        let early = until.saturating_sub(SPIN_NS);
        if monotonic_ns() < early {
            let at = Itimerspec { it_interval: timespec(0), it_value: timespec(early) };
            timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &at)?;
            let fds = [timer.as_fd(), self.from.as_fd()];
            match wait(&fds[..if frames { 2 } else { 1 }], &self.stop)? {
                Woken::Stopped => return Ok(Woken::Stopped),
                _ if monotonic_ns() < early => return Ok(Woken::ByFrame),
                _ => {}
            }
        }
        while monotonic_ns() < until {
            std::hint::spin_loop();
        }
        Ok(Woken::ByTime)
    }
}

/// Waits until one of `fds` can be read, or `stop`.
fn wait(fds: &[std::os::fd::BorrowedFd<'_>], stop: &OwnedFd) -> io::Result<Woken> {
    let mut polled: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    polled.push(PollFd::new(stop, PollFlags::IN));
    match poll(&mut polled, None::<&Timespec>) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(e) => return Err(e.into()),
    }
    let stopped = polled.last().is_some_and(|p| !p.revents().is_empty());
    Ok(if stopped { Woken::Stopped } else { Woken::ByFrame })
}

fn timespec(ns: u64) -> Timespec {
    let seconds = i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX);
    // Below a billion, so it fits whatever type this platform has.
    #[expect(clippy::cast_possible_wrap, reason = "below 10^9")]
    let nanos = (ns % 1_000_000_000) as _;
    Timespec { tv_sec: seconds, tv_nsec: nanos }
}
