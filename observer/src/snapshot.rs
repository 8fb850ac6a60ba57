//! What the pipeline publishes: one immutable picture per interval.
//!
//! A view keeps the `Arc` it was given for as long as it likes; freezing a
//! screen is keeping the snapshot.

use std::sync::Arc;

use crate::correlate::Journey;
use crate::report::Report;

/// Everything there is to show at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Counts up from 0 with each snapshot.
    pub number: u64,
    /// Everything since the start.
    pub total: Arc<Report>,
    /// The last interval alone.
    pub interval: Arc<Report>,
    /// The slowest complete journeys since the start, slowest first, at most
    /// [`crate::metrics::SLOWEST`], each with all of its points.
    pub slowest: Arc<[Journey]>,
}
