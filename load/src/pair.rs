//! Both ends in one process: a reading thread beside the sender, started
//! before it and ended when everything that was sent has arrived or nothing
//! comes any more.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::clock;
use crate::engine::{SendConfig, SendError, SendReport, send_with};
use crate::host::{CpuTime, HostReport};
use crate::num::duration_ns;
use crate::progress::Progress;
use crate::recv::{Delivery, Receiver, RecvConfig, RecvError, RecvReport, Waiting};
use crate::stop::Stop;

/// After the last datagram came, and with none waiting to be read, the
/// receiver waits this long for more.
const DRAIN: Duration = Duration::from_millis(300);
/// Once a stop was asked for, what is waiting has this long to be read.
const DRAIN_STOPPED: Duration = Duration::from_secs(1);
/// Time from here to the first slot: the reader is running by then.
pub(crate) const LEAD_NS: i64 = 20_000_000;

/// One of the ends cannot work.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// The sending one.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The receiving one.
    #[error(transparent)]
    Recv(#[from] RecvError),
    /// No thread.
    #[error("cannot start a thread: {0}; check `ulimit -u`")]
    Thread(#[source] std::io::Error),
}

/// What both ends say.
#[derive(Clone, Debug)]
pub struct PairReport {
    /// The sending end.
    pub sent: SendReport,
    /// The receiving end.
    pub received: RecvReport,
    /// The host meanwhile.
    pub host: Option<HostReport>,
}

/// Receives as `recv` says what `send` makes of the address bound; `log` sees
/// every datagram, on the reading thread.
///
/// # Errors
/// [`PairError`] if either end cannot work.
pub fn run(
    recv: &RecvConfig,
    send: impl FnOnce(SocketAddr) -> SendConfig,
    stop: &Stop,
    progress: &Progress,
    log: impl FnMut(&Delivery) + Send,
) -> Result<PairReport, PairError> {
    let receiver = Receiver::bind(recv)?;
    let mut config = send(receiver.local_addr());
    config.check()?;
    let start = config.start_at_ns.unwrap_or_else(|| clock::now_ns() + LEAD_NS);
    config.start_at_ns = Some(start);
    let waiting = receiver.waiting()?;
    let receiver = receiver.measuring(config.run, start.saturating_add(duration_ns(config.warmup)));
    let before = CpuTime::now();
    let over = Stop::new();
    // The counts may have seen other runs.
    let earlier = progress.received();
    let mut all_read = true;
    let (sent, received) = std::thread::scope(|scope| {
        let body = || receiver.run_with(&over, progress, log);
        let reader = std::thread::Builder::new()
            .name("load-recv".into())
            .spawn_scoped(scope, body)
            .map_err(PairError::Thread)?;
        let sent = send_with(&config, stop, progress);
        if let Ok(report) = &sent {
            all_read = await_arrival(progress, earlier + report.sent, &waiting, stop, Duration::MAX);
        }
        over.set();
        let received = match reader.join() {
            Ok(r) => r,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let (sent, mut received) = (sent?, received?);
        // The reader has no end of its own: it is this run's.
        received.interrupted = sent.interrupted || !all_read;
        received.unread = !all_read;
        Ok::<_, PairError>((sent, received))
    })?;
    let host = before.zip(CpuTime::now()).map(|(a, b)| a.until(b));
    Ok(PairReport { sent, received, host })
}

/// Waits until `progress` has `expected` datagrams received, or none came for a
/// while and none is waiting to be read: a reader that stands still has not lost
/// what its socket holds. Gives up on such a reader after `most`, or soon after a
/// stop; true if it left nothing.
pub(crate) fn await_arrival(
    progress: &Progress,
    expected: u64,
    waiting: &Waiting,
    stop: &Stop,
    most: Duration,
) -> bool {
    let begin = Instant::now();
    let (mut seen, mut since, mut stopped) = (progress.received(), begin, None);
    while progress.received() < expected {
        let given_up =
            begin.elapsed() >= most || stopped.is_some_and(|at: Instant| at.elapsed() >= DRAIN_STOPPED);
        if given_up || since.elapsed() >= DRAIN {
            let left = waiting.any();
            if given_up || !left {
                return !left;
            }
        }
        std::thread::sleep(Duration::from_millis(5));
        if progress.received() != seen {
            (seen, since) = (progress.received(), Instant::now());
        }
        if stop.is_set() {
            stopped.get_or_insert_with(Instant::now);
        }
    }
    true
}
