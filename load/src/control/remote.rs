//! The sending host: announces a run, offers it, and fetches what came of it.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::channel::{Channel, Patience};
use super::clock_id::ClockId;
use super::message::{Answer, Request, received};
use super::token::{Role, Token};
use super::{ANSWER, ControlError, MAX_REPORT, MAX_REQUEST, PROOF};
use crate::clock;
use crate::engine::{SendConfig, SendError, SendReport, send_with};
use crate::host::{CpuTime, HostReport};
use crate::num::duration_ns;
use crate::progress::Progress;
use crate::recv::RecvReport;
use crate::stop::Stop;

/// Time from the start's announcement to the first slot, beside the round
/// trip: the reader is running by then.
const LEAD_NS: i64 = 20_000_000;
/// Most time for a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// A run between two hosts that could not begin.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The sending end.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The control connection.
    #[error(transparent)]
    Control(#[from] ControlError),
}

impl RemoteError {
    /// True if the request itself is wrong, false if the system or the other
    /// end refused it.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Send(e) => e.is_usage(),
            Self::Control(e) => e.is_usage(),
        }
    }
}

/// What both ends say.
#[derive(Debug)]
pub struct RemoteReport {
    /// The sending end.
    pub sent: SendReport,
    /// The receiving end, or why it is not known.
    pub received: Result<RecvReport, ControlError>,
    /// The sending host meanwhile.
    pub host: Option<HostReport>,
}

/// Offers `config` to a receiver that waits at `control` (HOST:PORT). `starts`
/// is told the time of the first slot (CLOCK_MONOTONIC ns) before it is due.
///
/// # Errors
/// [`RemoteError`] for a run that did not begin. Once it has, a connection
/// that fails costs the receiver's half of the report only.
pub fn run(
    control: &str,
    token: &Token,
    config: &SendConfig,
    stop: &Stop,
    progress: &Progress,
    starts: impl FnOnce(i64),
) -> Result<RemoteReport, RemoteError> {
    config.check()?;
    let (stream, peer) = connect(control)?;
    let patience =
        Patience::new(PROOF, "before greeting; it may be serving another sender, or be no `load recv`", stop);
    let mut channel = Channel::open(stream, peer, Role::Sender, token, patience)?;
    let asked = Instant::now();
    let length_ms = length(config).and_then(|d| u64::try_from(d.as_millis()).ok());
    channel.write(&Request::Announce { run: config.run, length_ms, clock: ClockId::here() }, patience)?;
    let patience =
        Patience::new(ANSWER, "when the run was announced; do both ends have the same token?", stop);
    match channel.read(MAX_REQUEST, patience)? {
        Answer::Ready => {}
        Answer::Refused { why } => return Err(ControlError::Refused { peer, why: printable(&why) }.into()),
        Answer::Report { .. } => return Err(out_of_turn(peer).into()),
    }
    let start = clock::now_ns() + LEAD_NS + duration_ns(asked.elapsed());
    let measure_from_ns = start.saturating_add(duration_ns(config.warmup));
    channel.write(&Request::Start { measure_from_ns }, patience.at("when the run was started"))?;
    starts(start);
    let config = SendConfig { start_at_ns: Some(start), ..config.clone() };
    let before = CpuTime::now();
    let sent = send_with(&config, stop, progress)?;
    let host = before.zip(CpuTime::now()).map(|(a, b)| a.until(b));
    let received = fetch(&mut channel, sent.sent);
    Ok(RemoteReport { sent, received, host })
}

/// The receiver's half; a run that was stopped has one, too.
fn fetch(channel: &mut Channel, sent: u64) -> Result<RecvReport, ControlError> {
    let never = Stop::new();
    let patience = Patience::new(ANSWER, "before it told what it received", &never);
    channel.write(&Request::Finished { sent }, patience)?;
    let peer = channel.peer;
    match channel.read(MAX_REPORT, patience)? {
        Answer::Report { report, from_offer, from_intended } => {
            received(*report, from_offer, from_intended).map_err(|why| ControlError::Garbage { peer, why })
        }
        Answer::Ready | Answer::Refused { .. } => Err(out_of_turn(peer)),
    }
}

fn out_of_turn(peer: SocketAddr) -> ControlError {
    ControlError::Garbage { peer, why: "an answer out of its turn".into() }
}

/// Text from the other end, fit for a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(500).collect()
}

/// How long the run should take, as far as its configuration says.
fn length(c: &SendConfig) -> Option<Duration> {
    let own = c.schedule.length_ns().map(Duration::from_nanos);
    let by_count = c.count.zip(c.schedule.interval_ns()).map(|(n, i)| n as f64 * i / 1e9);
    let by_count = by_count.and_then(|s| Duration::try_from_secs_f64(s).ok());
    [own, by_count, c.duration].into_iter().flatten().min()
}

fn connect(control: &str) -> Result<(TcpStream, SocketAddr), ControlError> {
    let unknown = |why: String| ControlError::Resolve { address: control.to_owned(), why };
    let mut failure = unknown("it has none".into());
    for peer in control.to_socket_addrs().map_err(|e| unknown(e.to_string()))? {
        match TcpStream::connect_timeout(&peer, CONNECT) {
            Ok(stream) => return Ok((stream, peer)),
            Err(source) => failure = ControlError::Connect { peer, source },
        }
    }
    Err(failure)
}
