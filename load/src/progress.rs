//! Counts of a run in progress, for whoever wants to show them: added to once
//! per batch, read at any time, exact once the run is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
struct Counts {
    offered: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

/// Counts shared between a run and its display; clones are the same counts.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Counts>);

impl Progress {
    /// Counts that stand at 0.
    pub fn new() -> Self {
        Self::default()
    }

    #[inline]
    pub(crate) fn add_offered(&self, n: u64) {
        self.0.offered.fetch_add(n, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn add_sent(&self, n: u64) {
        self.0.sent.fetch_add(n, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn add_received(&self, n: u64) {
        self.0.received.fetch_add(n, Ordering::Relaxed);
    }

    /// Datagrams handed over by the application.
    pub fn offered(&self) -> u64 {
        self.0.offered.load(Ordering::Relaxed)
    }

    /// Datagrams the kernel took.
    pub fn sent(&self) -> u64 {
        self.0.sent.load(Ordering::Relaxed)
    }

    /// Stamped datagrams received, copies included.
    pub fn received(&self) -> u64 {
        self.0.received.load(Ordering::Relaxed)
    }
}
