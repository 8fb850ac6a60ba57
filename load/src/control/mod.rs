//! The control connection: a sender and a receiver on different hosts agree
//! on one run, and the receiver's counts come back to whoever judges it.
//!
//! ```text
//! sender                          receiver
//!        ◀── greeting, nonce ────            both derive a key from token and nonces
//!        ─── greeting, nonce ───▶
//!        ─── Announce ──────────▶            the first frame proves the token
//!        ◀── Ready | Refused ────            and so does the answer
//!        ─── Start ─────────────▶
//!             datagrams
//!        ─── Finished ──────────▶
//!        ◀── Report ─────────────            counts and histograms
//! ```
//!
//! The token is never sent. Every frame carries a tag (HMAC-SHA-256 over the
//! direction, its number and its content, under the key of this connection),
//! so that frames cannot be forged, replayed or exchanged. They can be read:
//! there are no secrets in them.
//!
//! Everything that comes in is bounded: three requests of at most
//! [`MAX_REQUEST`] bytes from a sender, one answer of at most [`MAX_REPORT`]
//! from a receiver, each by a deadline; one sender at a time. Memory grows
//! with what has come, never with what a length announces.

mod channel;
mod clock_id;
mod message;
mod remote;
mod serve;
mod token;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use remote::{RemoteError, RemoteReport, run};
pub use serve::{ServeError, Service, Session};
pub use token::Token;

/// Longest request a receiver reads, bytes.
pub const MAX_REQUEST: usize = 1 << 10;
/// Longest report a sender reads, bytes.
pub const MAX_REPORT: usize = 4 << 20;

/// A sender that has not proved that it has the token by then is let go.
const PROOF: Duration = Duration::from_secs(3);
/// Most time for one answer, once the token is proved.
const ANSWER: Duration = Duration::from_secs(10);
/// Added to twice the announced length of a run before it counts as lost.
const GRACE: Duration = Duration::from_secs(60);
/// Longest run that is waited for.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// What can go wrong on a control connection.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No usable token.
    #[error("token file {}: {why}", file.display())]
    Token {
        /// Its file.
        file: PathBuf,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// The address of the control connection has no meaning.
    #[error("cannot find the address of {address}: {why}; write HOST:PORT, as in 10.0.0.2:9001")]
    Resolve {
        /// As it was given.
        address: String,
        /// Why not.
        why: String,
    },
    /// No listening socket.
    #[error("cannot listen for control connections on {local}: {source}; choose another address or port")]
    Listen {
        /// Where.
        local: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// No connection.
    #[error(
        "cannot reach a receiver's control connection at {peer}: {source}; is `load recv --control` running there?"
    )]
    Connect {
        /// Where.
        peer: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The connection broke.
    #[error("control connection with {peer}: {source}")]
    Io {
        /// The other end.
        peer: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The other end closed it.
    #[error("{peer} closed the control connection {when}")]
    Closed {
        /// The other end.
        peer: SocketAddr,
        /// At what point, and what that may mean.
        when: &'static str,
    },
    /// The other end was silent for too long.
    #[error("{peer} said nothing for {} s {when}", after.as_secs())]
    Slow {
        /// The other end.
        peer: SocketAddr,
        /// How long was waited.
        after: Duration,
        /// At what point, and what that may mean.
        when: &'static str,
    },
    /// Not this protocol.
    #[error("{peer} does not speak load-control/1: {why}")]
    Garbage {
        /// The other end.
        peer: SocketAddr,
        /// What was wrong.
        why: String,
    },
    /// A tag that does not fit.
    #[error(
        "{peer} has another token (or its frames were changed on the way); both ends need the same token file"
    )]
    Unauthenticated {
        /// The other end.
        peer: SocketAddr,
    },
    /// More than is accepted.
    #[error("{peer} announced a frame of {length} B; at most {limit} are accepted")]
    TooLong {
        /// The other end.
        peer: SocketAddr,
        /// What it announced.
        length: u64,
        /// The limit.
        limit: usize,
    },
    /// The receiver cannot serve this run.
    #[error("the receiver at {peer} refused: {why}")]
    Refused {
        /// The other end.
        peer: SocketAddr,
        /// Its reason.
        why: String,
    },
    /// Stopped from here.
    #[error("stopped while talking to {peer}")]
    Stopped {
        /// The other end.
        peer: SocketAddr,
    },
}

impl ControlError {
    /// True if the request itself is wrong, false if the system or the other
    /// end refused it.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Token { .. })
    }
}

#[cfg(test)]
mod tests;
