//! A request to finish: one flag shared by every thread of a run, set by a
//! caller, a signal handler or the run's own supervisor, looked at between
//! batches and during waits (at least every 50 ms).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest time a thread of this crate goes without looking at its [`Stop`].
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// A cheap, cloneable stop flag; all clones are the same flag.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks everything that holds a clone to finish.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// True once [`set`](Self::set) was called.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// The flag itself, for a signal handler: storing to it is all that
    /// async-signal-safety allows.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}
