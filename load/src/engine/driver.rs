//! Engine `driver`: publishers offer into a bounded ring, one Sender thread
//! drains it. This is the system the sender-queue models describe: offered at
//! P, drained at D, the difference waits in the ring.
//!
//! A datagram's offer time is taken at its first attempt to enter the ring,
//! so that waiting for room (back-pressure) is part of the sender queue.

use std::thread;
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use observer_ebpf::stamp::Stamp;
use serde::Serialize;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::config::{Idle, SendConfig, SendError};
use super::join;
use super::outlet::{Outlet, SendTally};
use super::publish::{Published, Publisher, Taker};
use crate::batch::SendBatch;
use crate::num::count;
use crate::progress::Progress;
use crate::socket::TxSocket;
use crate::stop::Stop;

/// What happened at the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RingReport {
    /// Datagrams it holds.
    pub capacity: u64,
    /// Most that waited in it, looked at before each drain: the peak backlog.
    pub peak: u64,
    /// Datagrams that found it full at first.
    pub back_pressured: u64,
    /// Further attempts those took.
    pub retries: u64,
}

/// A publisher's end of the ring.
struct Offer<'a> {
    ring: &'a ArrayQueue<Stamp>,
    stop: &'a Stop,
    progress: &'a Progress,
    pending: u64,
    back_pressured: u64,
    retries: u64,
}

impl Taker for Offer<'_> {
    #[inline]
    fn take(&mut self, stamp: &Stamp) -> bool {
        let mut stamp = *stamp;
        let mut first = true;
        while let Err(back) = self.ring.push(stamp) {
            stamp = back;
            if std::mem::take(&mut first) {
                self.back_pressured += 1;
            } else {
                self.retries += 1;
            }
            if self.stop.is_set() {
                return false;
            }
            // The Sender needs a CPU to make room.
            thread::yield_now();
        }
        self.pending += 1;
        if self.pending >= 1024 {
            self.settle();
        }
        true
    }

    fn settle(&mut self) {
        self.progress.add_offered(std::mem::take(&mut self.pending));
    }
}

/// Counts down when a publisher ends, however it ends.
struct Alive<'a>(&'a AtomicUsize);

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Runs the publishers and the Sender to their end. A thread that cannot
/// start sets `stop` for the others.
pub(crate) fn run(
    config: &SendConfig,
    (capacity, idle): (usize, Idle),
    sockets: Vec<TxSocket>,
    publishers: Vec<Publisher>,
    stop: &Stop,
    progress: &Progress,
) -> Result<(Vec<Published>, SendTally, RingReport), SendError> {
    let Some(socket) = sockets.into_iter().next() else {
        return Err(SendError::Config("the driver engine has no socket".into()));
    };
    let ring = &ArrayQueue::new(capacity);
    let alive = &AtomicUsize::new(publishers.len());
    // Taken now: a publisher that is never started counts as ended, too.
    let publishers: Vec<_> = publishers.into_iter().map(|p| (p, Alive(alive))).collect();
    let messages = config.messages_per_call();
    thread::scope(|scope| {
        let sender = move || -> Result<_, SendError> {
            config.settle_thread(0)?;
            let target = (!config.connect).then_some(config.target);
            let batch = SendBatch::new(messages, config.segments, config.size, target);
            let outlet = Outlet::new(socket, batch, config.call, config.size, stop, progress);
            Ok(drain(outlet, ring, alive, idle, stop))
        };
        // If the Sender cannot run, nothing would ever leave the ring.
        let started = thread::Builder::new().name("load-sender".into()).spawn_scoped(scope, move || {
            let result = sender();
            if result.is_err() {
                stop.set();
            }
            result
        });
        let sender = started.map_err(SendError::Thread)?;
        let mut running = Vec::with_capacity(publishers.len());
        let mut failed = None;
        for (i, (publisher, guard)) in publishers.into_iter().enumerate() {
            let body = move || -> Result<_, SendError> {
                let _guard = guard;
                config.settle_thread(i + 1).inspect_err(|_| stop.set())?;
                let mut offer = Offer { ring, stop, progress, pending: 0, back_pressured: 0, retries: 0 };
                let published = publisher.run(&mut offer, stop);
                Ok((published, offer.back_pressured, offer.retries))
            };
            match thread::Builder::new().name(format!("load-pub-{i}")).spawn_scoped(scope, body) {
                Ok(handle) => running.push(handle),
                Err(e) => {
                    failed = Some(SendError::Thread(e));
                    stop.set();
                    break;
                }
            }
        }
        let ends: Vec<_> = running.into_iter().map(join).collect();
        let (tally, peak) = join(sender)?;
        if let Some(e) = failed {
            return Err(e);
        }
        let mut report = RingReport { capacity: count(capacity), peak: count(peak), ..RingReport::default() };
        let mut published = Vec::with_capacity(ends.len());
        for end in ends {
            let (p, back_pressured, retries) = end?;
            report.back_pressured += back_pressured;
            report.retries += retries;
            published.push(p);
        }
        Ok((published, tally, report))
    })
}

/// The Sender: until no publisher is left and the ring is empty, or stopped.
fn drain(
    mut outlet: Outlet<'_>,
    ring: &ArrayQueue<Stamp>,
    alive: &AtomicUsize,
    idle: Idle,
    stop: &Stop,
) -> (SendTally, usize) {
    let mut peak = 0;
    loop {
        // Before the look at the ring: what the last publisher pushed is seen.
        let over = alive.load(Ordering::Acquire) == 0;
        peak = peak.max(ring.len());
        while !outlet.batch.is_full() {
            match ring.pop() {
                Some(stamp) => {
                    if !outlet.batch.push(&stamp) {
                        break;
                    }
                }
                None => break,
            }
        }
        if !outlet.batch.is_empty() {
            outlet.flush();
        } else if over {
            break;
        } else {
            rest(idle, stop);
        }
        if stop.is_set() && (over || alive.load(Ordering::Acquire) == 0) {
            while ring.pop().is_some() {
                outlet.tally.discarded += 1;
            }
            break;
        }
    }
    (outlet.tally, peak)
}

fn rest(idle: Idle, stop: &Stop) {
    match idle {
        Idle::BusySpin => std::hint::spin_loop(),
        Idle::Yield => thread::yield_now(),
        Idle::Sleep(d) => stop.sleep(d.max(Duration::from_nanos(1))),
    }
}
