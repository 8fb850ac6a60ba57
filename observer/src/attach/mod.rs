//! The same pictures in another process: a daemon that observes, with a Unix
//! socket, and clients without privileges that attach to it.
//!
//! ```text
//! observer --listen PATH: watch of Update ─▶ server (own thread) ─▶ socket ─▶ client ─▶ terminal UI
//! ```
//!
//! Who may attach is decided by the socket file's owner, group and mode alone.
//! A client can only read. One that reads too slowly skips pictures; one that
//! does not read at all is dropped; neither is noticed by the pipeline.

pub mod client;
pub mod server;
pub mod wire;

pub use client::Remote;
pub use server::{Access, Server};

use std::io;
use std::path::PathBuf;

/// Why nobody can attach, or be attached to.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Nobody listens there.
    #[error("nobody listens at {path}: {source}; start `observer --listen {path}` as root first")]
    Nobody {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// This user may not.
    #[error("may not attach to {path}: its owner and group may; start the daemon with `--listen-group`")]
    Refused {
        /// The socket.
        path: PathBuf,
    },
    /// The other side is not an observer of this version.
    #[error("{path} is no observer that this one understands ({why}); use the same version on both sides")]
    Foreign {
        /// The socket.
        path: PathBuf,
        /// What is wrong with what it said.
        why: String,
    },
    /// It ends the connection before it says anything.
    #[error("{path} hangs up: too many are attached, or it is no observer; try again when somebody has left")]
    HungUp {
        /// The socket.
        path: PathBuf,
    },
    /// The place for the socket is taken.
    #[error("cannot listen at {path}: {why}")]
    Taken {
        /// The socket.
        path: PathBuf,
        /// By what.
        why: &'static str,
    },
    /// There is no such group.
    #[error("no group {0}; `getent group` lists them")]
    NoGroup(String),
    /// The socket cannot be made.
    #[error("cannot listen at {path}: {source}")]
    Listen {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}
