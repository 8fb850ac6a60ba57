//! What the pipeline publishes: one immutable picture per interval.
//!
//! A view keeps the `Arc` it was given for as long as it likes; freezing a
//! screen is keeping the snapshot. Everything in it is bounded, whatever the
//! length of a run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::correlate::Journey;
use crate::metrics::SendCalls;
use crate::report::Report;
use crate::timeline::Moment;

/// Everything there is to show at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// Counts up from 0 with each snapshot.
    pub number: u64,
    /// Everything since the start.
    pub total: Arc<Report>,
    /// The last interval alone.
    pub interval: Arc<Report>,
    /// Everything since somebody asked to start over, see
    /// [`Marker`](crate::session::Marker); `None` until then. A report's
    /// verdict never rests on it.
    #[serde(skip)]
    pub marked: Option<Arc<Report>>,
    /// The slowest complete journeys since the start, slowest first, at most
    /// [`crate::metrics::SLOWEST`], each with all of its points.
    pub slowest: Arc<[Journey]>,
    /// Datagrams per send call since the start.
    pub sending: SendCalls,
    /// The last minutes, oldest first, this interval the last.
    #[serde(skip, default = "no_moments")]
    pub timeline: Arc<[Arc<Moment>]>,
}

fn no_moments() -> Arc<[Arc<Moment>]> {
    Arc::new([])
}
