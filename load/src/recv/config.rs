//! How to receive, and why that can be impossible.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::io::Errno;

use crate::batch::ReadCall;
use crate::socket::{Buffer, SocketError};
use crate::thread::PinError;

/// A receiver to be.
#[derive(Clone, Debug)]
pub struct RecvConfig {
    /// Local address.
    pub bind: SocketAddr,
    /// Hear only this sender.
    pub connect: Option<SocketAddr>,
    /// Receive buffer.
    pub rcvbuf: Buffer,
    /// The system call used.
    pub call: ReadCall,
    /// Most messages in one call.
    pub batch: usize,
    /// Bytes of a datagram that are kept; the rest is only counted.
    pub keep: usize,
    /// Take several datagrams of one flow as one message (UDP GRO).
    pub gro: bool,
    /// After the last datagram, look again without sleeping for this long.
    pub spin: Duration,
    /// Where the queue is empty, sleep this long and look again, instead of
    /// waiting in the kernel. Adds up to so much to the latency and spares
    /// the sender waking the reader for each datagram: on two cores, twice
    /// the rate. 0: wait in the kernel.
    pub poll: Duration,
    /// Pause after every read call: a slow receiver.
    pub read_delay: Duration,
    /// Stand still once: after this long from the first datagram, for this long.
    pub stall: Option<(Duration, Duration)>,
    /// Follow only this run; others are foreign.
    pub run: Option<u32>,
    /// Finish after this many different datagrams.
    pub count: Option<u64>,
    /// Finish after this long.
    pub duration: Option<Duration>,
    /// Finish when nothing came for this long, once something has.
    pub idle: Option<Duration>,
    /// Latency is kept of datagrams offered in this span, ns of the sender's
    /// CLOCK_MONOTONIC.
    pub window: Option<(i64, i64)>,
    /// CPU for the reading thread.
    pub pin: Option<usize>,
}

impl RecvConfig {
    /// Everything from anyone at `bind`, by recvmmsg, until stopped.
    pub fn new(bind: SocketAddr) -> Self {
        Self {
            bind,
            connect: None,
            rcvbuf: Buffer::Large,
            call: ReadCall::default(),
            batch: 64,
            keep: 2048,
            gro: false,
            spin: Duration::ZERO,
            poll: Duration::ZERO,
            read_delay: Duration::ZERO,
            stall: None,
            run: None,
            count: None,
            duration: None,
            idle: None,
            window: None,
            pin: None,
        }
    }
}

/// A receiver that cannot work.
#[derive(Debug, thiserror::Error)]
pub enum RecvError {
    /// Figures that make no sense.
    #[error("{0}")]
    Config(String),
    /// No socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// No such CPU.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// The socket cannot be read.
    #[error("cannot read from {local}: {source}; the socket is not usable any more")]
    Read {
        /// Its address.
        local: SocketAddr,
        /// The kernel's answer.
        source: Errno,
    },
}

impl RecvError {
    /// True if the request itself is wrong, false if the system refused it.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Config(_) | Self::Pin(_))
    }
}
