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
use crate::recv::{Delivery, Receiver, RecvConfig, RecvError, RecvReport};
use crate::stop::Stop;

/// After the last datagram came, the receiver waits this long for more.
const DRAIN: Duration = Duration::from_millis(300);
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
    let receiver = receiver.measuring(config.run, start.saturating_add(duration_ns(config.warmup)));
    let before = CpuTime::now();
    let over = Stop::new();
    // The counts may have seen other runs.
    let earlier = progress.received();
    let (sent, received) = std::thread::scope(|scope| {
        let body = || receiver.run_with(&over, progress, log);
        let reader = std::thread::Builder::new()
            .name("load-recv".into())
            .spawn_scoped(scope, body)
            .map_err(PairError::Thread)?;
        let sent = send_with(&config, stop, progress);
        if let Ok(report) = &sent {
            await_arrival(progress, earlier + report.sent);
        }
        over.set();
        let received = match reader.join() {
            Ok(r) => r,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let (sent, mut received) = (sent?, received?);
        // The reader has no end of its own: it is this run's.
        received.interrupted = sent.interrupted;
        Ok::<_, PairError>((sent, received))
    })?;
    let host = before.zip(CpuTime::now()).map(|(a, b)| a.until(b));
    Ok(PairReport { sent, received, host })
}

/// Returns when `progress` has `expected` datagrams received, or none came
/// for a while.
pub(crate) fn await_arrival(progress: &Progress, expected: u64) {
    let (mut seen, mut since) = (progress.received(), Instant::now());
    while progress.received() < expected && since.elapsed() < DRAIN {
        std::thread::sleep(Duration::from_millis(5));
        if progress.received() != seen {
            (seen, since) = (progress.received(), Instant::now());
        }
    }
}
