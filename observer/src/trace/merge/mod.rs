//! `observer merge`: the halves that two hosts recorded, joined.
//!
//! A journey between two hosts leaves a half on each: at the sender up to
//! xmit, at the receiver from rx on. Both halves carry the sender's stamp, so
//! that run, stream, sequence and offer time join them. The first pass finds
//! the pairs and, from them, the [`clock`]s' difference; the second writes the
//! journeys, on the sending host's clock, as a trace like any other.
//!
//! In: two traces. Out: a third, whose meta.json says how far its wire times
//! can be trusted, and how many halves found no other.

pub mod clock;
mod pairs;
mod source;

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::record::{RecordOptions, Recorder};
use super::{Trace, TraceError, drive};
use crate::report::Detail;
use crate::snapshot::Snapshot;
use crate::source::SourceError;
use clock::{Bounds, Clock};
use pairs::{Found, Pairs};

/// What came of a merge; `merged` in meta.json.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Merged {
    /// The trace whose clock the times are on.
    pub tx: String,
    /// The other.
    pub rx: String,
    /// The other host's clock less this one's, at `at_ns` of the other's, ns.
    pub offset_ns: i64,
    /// See `offset_ns`.
    pub at_ns: u64,
    /// How fast it grows, parts per million.
    pub drift_ppm: f64,
    /// How far offset and every wire time may be off, ns. Null with traffic in
    /// one direction: wire times are then relative to the shortest.
    pub within_ns: Option<u64>,
    /// Of that, because the clocks did not drift evenly, ns.
    pub bent_ns: u64,
    /// Whether wire times are relative to the shortest of them.
    pub wire_is_relative: bool,
    /// Journeys from the first host to the other, joined.
    pub forth: u64,
    /// Journeys the other way, joined.
    pub back: u64,
    /// Halves of a sender whose receiver's half was not found: lost between
    /// the hosts, or not recorded.
    pub unmatched_sent: u64,
    /// Halves of a receiver whose sender's half was not found.
    pub unmatched_received: u64,
    /// Journeys that stayed on one host.
    pub local: u64,
    /// Wire times below 0 by what the clocks allow for; they are counted in
    /// the report as negative or out of order.
    pub negative_wire: u64,
}

/// Joins the traces `tx` and `rx` into a new one in `out`.
///
/// # Errors
///
/// [`TraceError::Refused`] if they have no journey in common, else what is
/// wrong with one of the three.
pub fn merge(
    tx: &Trace,
    rx: &Trace,
    out: &Path,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(Merged, Arc<Snapshot>), TraceError> {
    for trace in [tx, rx] {
        if trace.meta.detail != Detail::Full {
            let why =
                format!("{} has no record of every datagram: halves cannot be joined", trace.dir().display());
            return Err(TraceError::Refused(why));
        }
    }
    let steps = 2 * (tx.numbers().len() + rx.numbers().len());
    let mut merged = Merged {
        tx: tx.dir().display().to_string(),
        rx: rx.dir().display().to_string(),
        ..Merged::default()
    };
    let clock = bounds(tx, rx, &mut merged, &mut |done| progress(done, steps))?;
    let Some(clock) = clock else {
        return Err(TraceError::Refused(format!(
            "no journey has a half in {} and one in {}: do both have the same runs, at the same time?",
            merged.tx, merged.rx
        )));
    };
    merged.offset_ns = clock.offset_ns;
    merged.at_ns = clock.at_ns;
    merged.drift_ppm = clock.drift * 1e6;
    merged.within_ns = clock.within_ns;
    merged.bent_ns = clock.bent_ns;
    merged.wire_is_relative = clock.within_ns.is_none();

    let mut joined = source::Joined::new(tx, rx, clock)?;
    merged.negative_wire = joined.negative_wire()?;
    let mut recorder = Recorder::create(RecordOptions {
        dir: out.to_owned(),
        command_line: std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect(),
        qdiscs: tx.meta.qdiscs.clone(),
        pairs: tx.meta.pairs.clone(),
        interval: std::time::Duration::from_secs(1),
        ..RecordOptions::default()
    })?;
    recorder.merged(serde_json::to_value(&merged).unwrap_or_default());
    let status = recorder.status();
    let snapshot = drive::record(&mut joined, recorder, 1_000_000_000).map_err(|e| match e {
        SourceError::Trace { path, why } => TraceError::Damaged { path: path.into(), why },
        other => TraceError::Refused(other.to_string()),
    })?;
    progress(steps, steps);
    match status.failed() {
        Some(why) => Err(TraceError::Refused(why)),
        None => Ok((merged, snapshot)),
    }
}

/// The first pass: what the pairs say of the clocks, and how many there are.
fn bounds(
    tx: &Trace,
    rx: &Trace,
    merged: &mut Merged,
    progress: &mut dyn FnMut(usize),
) -> Result<Option<Clock>, TraceError> {
    let mut bounds = Bounds::default();
    let mut pairs = Pairs::new(tx, rx);
    while let Some(found) = pairs.next()? {
        match found {
            Found::Pair { sent, received, forth: true } => {
                merged.forth += 1;
                if sent.xmit_ns != 0 && received.rx_ns != 0 {
                    bounds.forth(sent.xmit_ns, received.rx_ns);
                }
            }
            Found::Pair { sent, received, forth: false } => {
                merged.back += 1;
                if sent.xmit_ns != 0 && received.rx_ns != 0 {
                    bounds.back(sent.xmit_ns, received.rx_ns);
                }
            }
            Found::Sent { .. } => merged.unmatched_sent += 1,
            Found::Received { .. } => merged.unmatched_received += 1,
            Found::Local { .. } => merged.local += 1,
        }
        progress(pairs.segments_done());
    }
    Ok(bounds.clock())
}
