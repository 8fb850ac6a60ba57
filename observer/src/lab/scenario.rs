//! A scenario: a lab, a load and a reader, run to the end, with the accounts
//! of everybody who counted.
//!
//! ```text
//! Scenario ─▶ Stage::set (lab built, receiver bound) ─▶ Stage::run ─▶ Outcome
//!                         └ here an observer attaches     └ and here it reads out
//! ```
//!
//! The two steps are apart so that an observer can be told the namespaces
//! before the first datagram, and read its tables before they are gone.
//!
//! Sender and reader run at a raised [`priority`](super::priority): other
//! work on the machine is not what a scenario is meant to show. Where it
//! shows all the same, the observer's run-queue figures say so. They must not
//! spin, so a load sleeps up to its next time
//! ([`SendConfig::spin_ns`] is taken as 0).

use std::net::SocketAddr;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use load::{Delivery, Progress, Receiver, RecvConfig, RecvError, RecvReport};
use load::{SendConfig, SendError, SendReport, Stop};
use serde::Serialize;

use super::priority::{Role, raise};
use super::{Lab, LabConfig, LabError, Qdisc, UdpCounters};

/// The receiver's port. Both hosts are empty, so it is free.
pub const PORT: u16 = 9077;

/// The reader has finished when all that was sent is there, or when nothing
/// has come for this long after the sender is done, while no queue holds
/// anything.
const SETTLED: Duration = Duration::from_millis(500);

/// The reader is ended after this long without the sender, whatever a queue
/// still holds.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often the end is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// Where a scenario's load goes to.
pub fn target() -> SocketAddr {
    (super::RECEIVER_V4, PORT).into()
}

/// As [`target`], over IPv6.
pub fn target_v6() -> SocketAddr {
    (super::RECEIVER_V6, PORT).into()
}

/// A reader that stands still again and again, as one does that collects
/// garbage or writes a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pauses {
    /// From the start of one pause to the start of the next; the first comes
    /// after half of it.
    pub every: Duration,
    /// Length of a pause.
    pub lasts: Duration,
}

/// What is to happen.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The hosts and what stands between them.
    pub lab: LabConfig,
    /// The load; its target is [`target`] or [`target_v6`].
    pub load: SendConfig,
    /// The reader; bound to the load's target, and stopped when everything
    /// is over.
    pub reader: RecvConfig,
    /// Pauses of the reader.
    pub pauses: Option<Pauses>,
}

impl Scenario {
    /// `load` to a reader of the default kind over a plain link.
    pub fn new(load: SendConfig) -> Self {
        let reader = RecvConfig::new(load.target);
        Self { lab: LabConfig::default(), load, reader, pauses: None }
    }
}

/// A scenario whose hosts are there and whose receiver is bound.
#[derive(Debug)]
pub struct Stage {
    lab: Lab,
    load: SendConfig,
    receiver: Receiver,
    pauses: Option<Pauses>,
}

/// The accounts of a scenario that was run. All counts are of datagrams.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The sender's.
    pub sent: SendReport,
    /// The receiver's.
    pub received: RecvReport,
    /// The kernel's on the sending host.
    pub sender_udp: UdpCounters,
    /// The kernel's on the receiving host.
    pub receiver_udp: UdpCounters,
    /// The qdisc's at the sender's way out.
    pub way_out: Qdisc,
}

impl Outcome {
    /// Sent − (read + dropped at the socket + dropped at the qdisc): 0 when
    /// the applications' and the kernel's accounts agree and no queue was left
    /// filled. Counts datagrams; not meaningful where a qdisc drops packets
    /// that carry several.
    pub fn unaccounted(&self) -> i128 {
        let known = [self.received.total.unique, self.receiver_udp.rcvbuf_errors, self.way_out.drops];
        i128::from(self.sent.sent) - known.into_iter().map(i128::from).sum::<i128>()
    }
}

/// Why a scenario could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// The sending side.
    #[error("the lab's sender: {0}")]
    Send(#[from] SendError),
    /// The receiving side.
    #[error("the lab's receiver: {0}")]
    Recv(#[from] RecvError),
    /// A thread ended without a result.
    #[error("the lab's {0} ended without a report; this is a bug in observer")]
    Lost(&'static str),
}

impl Stage {
    /// Builds the hosts and binds the receiver.
    ///
    /// # Errors
    ///
    /// That of [`Lab::build`], or [`ScenarioError::Recv`].
    pub fn set(scenario: &Scenario) -> Result<Self, LabError> {
        let lab = Lab::build(&scenario.lab)?;
        let reader = RecvConfig { bind: scenario.load.target, ..scenario.reader.clone() };
        let bound = lab.receiver().namespace.enter(|| Receiver::bind(&reader))?;
        let receiver = bound.map_err(ScenarioError::from)?;
        let load = SendConfig { spin_ns: 0, ..scenario.load.clone() };
        Ok(Self { lab, load, receiver, pauses: scenario.pauses })
    }

    /// The two hosts.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Runs the load until everything has arrived or is lost, or until `stop`
    /// is set. The hosts stay until the returned [`Lab`] is dropped.
    ///
    /// # Errors
    ///
    /// [`ScenarioError`] from either side, or that of reading the counters.
    pub fn run(self, stop: &Stop, progress: &Progress) -> Result<(Outcome, Lab), LabError> {
        let Self { lab, load, receiver, pauses } = self;
        let (sender_host, receiver_host) = (&lab.sender().namespace, &lab.receiver().namespace);
        let sender_before = UdpCounters::read(sender_host)?;
        let receiver_before = UdpCounters::read(receiver_host)?;

        let finished = Stop::new();
        let end_reading = SetAtEnd(finished.clone());
        let reading = {
            let (finished, progress) = (finished.clone(), progress.clone());
            receiver_host.spawn(move || {
                raise(Role::Reader);
                receiver.run_with(&finished, &progress, pausing(pauses))
            })?
        };
        let sent = sender_host.enter(|| {
            raise(Role::Sender);
            load::send_with(&load, stop, progress)
        });
        if let Ok(Ok(sent)) = &sent {
            settle(&lab, &reading, sent.sent, pauses, stop, progress);
        }
        drop(end_reading);
        let received = reading.join().map_err(|_| ScenarioError::Lost("receiver"))??;
        let outcome = Outcome {
            sent: sent?.map_err(ScenarioError::from)?,
            received: received.map_err(ScenarioError::from)?,
            sender_udp: UdpCounters::read(sender_host)?.since(&sender_before),
            receiver_udp: UdpCounters::read(receiver_host)?.since(&receiver_before),
            way_out: lab.way_out()?,
        };
        Ok((outcome, lab))
    }
}

/// Ends the reader on every way out, a panic of the sender included.
struct SetAtEnd(Stop);

impl Drop for SetAtEnd {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// What the reader does after each datagram: nothing, or now and then a pause.
fn pausing(pauses: Option<Pauses>) -> impl FnMut(&Delivery) {
    let ns = |d: Duration| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX);
    let mut next = None;
    move |delivery| {
        let Some(Pauses { every, lasts }) = pauses else { return };
        let due = *next.get_or_insert(delivery.received_ns.saturating_add(ns(every) / 2));
        if delivery.received_ns >= due {
            next = Some(due.saturating_add(ns(every)));
            sleep(lasts);
        }
    }
}

/// Waits until nothing more can come.
fn settle<T>(
    lab: &Lab,
    reading: &JoinHandle<T>,
    sent: u64,
    pauses: Option<Pauses>,
    stop: &Stop,
    progress: &Progress,
) {
    let quiet = SETTLED + pauses.map_or(Duration::ZERO, |p| p.lasts);
    let started = Instant::now();
    let (mut seen, mut since) = (progress.received(), started);
    while progress.received() < sent
        && !reading.is_finished()
        && !stop.is_set()
        && started.elapsed() < PATIENCE
    {
        sleep(LOOK);
        if progress.received() != seen {
            (seen, since) = (progress.received(), Instant::now());
        } else if since.elapsed() > quiet {
            // A queue that still holds something is waited for; one that
            // cannot be read is not.
            match lab.way_out() {
                Ok(qdisc) if qdisc.backlog_packets > 0 => since = Instant::now(),
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use load::{Buffer, Engine, Idle, Schedule};

    use super::*;
    use crate::lab::{Tbf, needs_root};

    fn play(scenario: &Scenario) -> Outcome {
        let stage = Stage::set(scenario).unwrap();
        stage.run(&Stop::new(), &Progress::new()).unwrap().0
    }

    fn longest(outcome: &Outcome) -> Duration {
        let longest = outcome.received.from_offer.as_ref().unwrap().max().unwrap();
        Duration::from_nanos(longest.try_into().unwrap())
    }

    #[test]
    fn all_accounts_agree_on_a_plain_link() {
        needs_root!();
        let engines = [Engine::DIRECT, Engine::Driver { ring: 1 << 12, batch: 32, idle: Idle::Yield }];
        for (engine, target) in engines.into_iter().zip([target(), target_v6()]) {
            let count = Some(5_000);
            let schedule = Schedule::Constant { rate: 10_000.0 };
            let outcome =
                play(&Scenario::new(SendConfig { engine, count, schedule, ..SendConfig::new(target) }));
            assert_eq!((outcome.sent.offered, outcome.sent.sent), (5_000, 5_000));
            assert_eq!((outcome.received.total.unique, outcome.unaccounted()), (5_000, 0));
            assert_eq!((outcome.sender_udp.out_datagrams, outcome.receiver_udp.in_datagrams), (5_000, 5_000));
        }
    }

    /// N·L = 404 kB through 1 MB/s with a bucket of 20 kB: 384 ms.
    #[test]
    fn a_shaped_burst_waits_as_long_as_the_closed_form_says() {
        needs_root!();
        for bridge in [false, true] {
            let shaper = Tbf { rate_bit_per_s: 8_000_000, burst_bytes: 20_000, limit_bytes: 1_000_000 };
            let burst = Schedule::Bursts { size: 2_000, dispatch: None, every: None, repeat: None };
            let load = SendConfig {
                schedule: burst,
                count: Some(2_000),
                sndbuf: Buffer::Bytes(4 << 20),
                ..SendConfig::new(target())
            };
            let lab = LabConfig { shaper: Some(shaper), bridge, ..LabConfig::default() };
            let outcome = play(&Scenario { lab, ..Scenario::new(load) });
            assert_eq!((outcome.received.total.unique, outcome.unaccounted()), (2_000, 0));
            let waited = longest(&outcome).as_secs_f64();
            assert!((0.365..0.600).contains(&waited), "{waited} s");
        }
    }

    #[test]
    fn a_pausing_reader_loses_what_its_buffer_cannot_hold_and_the_kernel_agrees() {
        needs_root!();
        let schedule = Schedule::Constant { rate: 4_000.0 };
        let load = SendConfig { schedule, count: Some(4_000), ..SendConfig::new(target()) };
        let mut scenario = Scenario::new(load);
        scenario.reader.rcvbuf = Buffer::Bytes(64 << 10);
        scenario.pauses =
            Some(Pauses { every: Duration::from_millis(600), lasts: Duration::from_millis(250) });
        let outcome = play(&scenario);
        assert!(outcome.receiver_udp.rcvbuf_errors > 500, "{outcome:?}");
        assert_eq!(outcome.unaccounted(), 0);
        assert!(longest(&outcome) > Duration::from_millis(240));
    }

    #[test]
    fn a_stopped_scenario_ends_at_once_with_its_accounts() {
        needs_root!();
        let load = SendConfig { duration: Some(Duration::from_secs(60)), ..SendConfig::new(target()) };
        let stage = Stage::set(&Scenario::new(load)).unwrap();
        let stop = Stop::new();
        let started = Instant::now();
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(Duration::from_millis(300));
                stop.set();
            });
            stage.run(&stop, &Progress::new()).unwrap().0
        });
        assert!(started.elapsed() < Duration::from_secs(20));
        assert!(outcome.sent.interrupted && outcome.sent.sent < 59_000, "{outcome:?}");
    }

    #[test]
    fn what_cannot_be_sent_is_an_error_and_not_a_wait() {
        needs_root!();
        let stage =
            Stage::set(&Scenario::new(SendConfig { size: 9_000, ..SendConfig::new(target()) })).unwrap();
        let e = stage.run(&Stop::new(), &Progress::new()).unwrap_err();
        assert!(matches!(e, LabError::Scenario(ScenarioError::Send(_))), "{e}");
    }
}
