//! Sending: a [`SendConfig`] in, datagrams out, a [`SendReport`] back.
//!
//! Each stream is one publisher thread that walks its share of the schedule
//! (`publish`). What it hands its datagrams to is the engine: `direct`
//! (the publisher itself calls sendmmsg) or `driver` (a bounded ring that
//! one Sender thread drains). All sockets are made on the calling thread,
//! before the first datagram, and all threads are spawned from it: they send
//! in its network namespace.

mod config;
mod direct;
mod driver;
mod outlet;
mod publish;
mod report;

use std::thread;

pub(crate) use config::LONGEST_SLEEP;
pub use config::{Engine, Idle, SendConfig, SendError};
pub use driver::RingReport;
pub use outlet::DrainMark;
pub use report::{SendReport, StreamReport};

use crate::clock;
use crate::num::{duration_ns, signed};
use crate::progress::Progress;
use crate::socket::{self, TxOptions, TxSocket};
use crate::stop::Stop;
use publish::Publisher;

/// Time between the decision to start and the first slot, ns: threads are
/// running and pinned by then.
const LEAD_NS: i64 = 5_000_000;

/// When a run happens, ns of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// The grid's origin.
    pub(crate) start: i64,
    /// Figures count from here.
    pub(crate) measure: i64,
    /// Nothing is offered from here on.
    pub(crate) end: i64,
}

/// Sends as configured; returns when everything is sent, or soon after
/// `stop` is set.
///
/// # Errors
/// [`SendError`] for figures that make no sense and sockets that cannot be
/// had. Datagrams the kernel refuses are counted, not errors.
pub fn send(config: &SendConfig, stop: &Stop) -> Result<SendReport, SendError> {
    send_with(config, stop, &Progress::new())
}

/// As [`send`], showing its counts in `progress` while it runs.
///
/// # Errors
/// As [`send`].
pub fn send_with(config: &SendConfig, stop: &Stop, progress: &Progress) -> Result<SendReport, SendError> {
    config.check()?;
    let driver = matches!(config.engine, Engine::Driver { .. });
    let sockets = open(config, if driver { 1 } else { config.streams })?;
    let start = config.start_at_ns.unwrap_or_else(|| clock::now_ns() + LEAD_NS);
    let span = Span {
        start,
        measure: start.saturating_add(duration_ns(config.warmup)),
        end: config.duration.map_or(i64::MAX, |d| start.saturating_add(duration_ns(d))),
    };
    let halt = &stop.child();
    let publishers: Vec<Publisher> =
        (0..config.streams).map(|stream| Publisher::new(config, stream, span)).collect();
    let mut report = SendReport::begin(config, span, &sockets);
    match config.engine {
        Engine::Direct { .. } => {
            let ends = direct::run(config, sockets, publishers, halt, progress)?;
            for (published, tally) in ends {
                report.add_stream(published, Some(&tally));
                report.add_sent(&tally);
            }
        }
        Engine::Driver { ring, idle, .. } => {
            let (published, tally, ring) =
                driver::run(config, (ring, idle), sockets, publishers, halt, progress)?;
            for p in published {
                report.add_stream(p, None);
            }
            report.add_sent(&tally);
            report.add_ring(ring);
        }
    }
    report.finish(span, stop.is_set());
    Ok(report)
}

fn open(config: &SendConfig, sockets: u16) -> Result<Vec<TxSocket>, SendError> {
    let options = TxOptions {
        target: config.target,
        bind: config.bind,
        connect: config.connect,
        sndbuf: config.sndbuf,
        size: config.size,
        segments: config.segments,
        share_port: sockets > 1 && config.bind.is_some_and(|b| b.port() != 0),
    };
    (0..sockets).map(|_| socket::sender(&options).map_err(SendError::from)).collect()
}

/// Joins a thread of the run; a panic in one is passed on, being a defect.
fn join<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    match handle.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Length of a run that ended by itself: until its schedule's end, or the
/// last offer where that was later, ns.
fn run_length(schedule_ns: Option<u64>, span: Span, last_offer: Option<i64>) -> i64 {
    let by_schedule = schedule_ns.map_or(0, signed);
    by_schedule.max(last_offer.map_or(0, |t| t - span.start))
}
