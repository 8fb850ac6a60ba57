//! What the demo needs of an observer.
//!
//! The demo owns the hosts and the load; whoever attaches to the kernel
//! implements [`Observe`]. Between [`start`](Observe::start) and
//! [`finish`](Observe::finish) exactly one run is sent, so that one
//! attachment can serve all scenarios.

use std::error::Error;

use crate::lab::scenario::Outcome;
use crate::report::Report;

/// What is about to be sent, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The scenario's name.
    pub scenario: &'static str,
    /// The run id in every stamp.
    pub run: u32,
    /// Inode of the sending host's network namespace.
    pub sender_netns: u64,
    /// Inode of the receiving host's network namespace.
    pub receiver_netns: u64,
    /// The receiver's port.
    pub port: u16,
}

/// An observer, as far as the demo is concerned.
pub trait Observe {
    /// Follows a run from its first datagram; returns when nothing of it can
    /// be missed any more.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from observing.
    fn start(&mut self, watch: &Watch) -> Result<(), ObserveError>;

    /// Stops following it, and says what was seen. The hosts are still there;
    /// `outcome` has the applications' counts.
    ///
    /// # Errors
    ///
    /// Whatever kept it from observing.
    fn finish(&mut self, outcome: &Outcome) -> Result<Report, ObserveError>;
}

/// Why an observer could not observe.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct ObserveError {
    /// The process's exit code: 4 without permission, else 2.
    pub exit_code: u8,
    /// The reason, in the observer's words.
    pub source: Box<dyn Error + Send + Sync>,
}

impl ObserveError {
    /// No permission (exit code 4).
    pub fn permission(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { exit_code: 4, source: source.into() }
    }

    /// Anything else that makes the run invalid (exit code 2).
    pub fn invalid(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { exit_code: 2, source: source.into() }
    }
}
