//! Somebody who watches a workload's runs from outside: the observer in the
//! kernel, which knows where on its way a datagram lost its time.
//!
//! ```text
//! workload::run ─ begin(run id) ─▶ Watch        nothing of the run can be missed from here on
//!               ─ measure_from ──▶              what figures leave out
//!               ─ end(both ends) ▶ Watched ───▶ objectives, findings, ramp, report
//! ```
//!
//! `load` itself needs none of it; without a watcher a workload runs the same.

use std::error::Error;

use serde_json::Value;

use crate::engine::SendReport;
use crate::hist::samples_needed;
use crate::recv::RecvReport;
use crate::verdict::Finding;
use crate::workload::Workload;
use crate::workload::expect::{Component, Measured, Metric, Point};
use crate::workload::ramp::RampStop;

/// Watches one run at a time.
pub trait Watch {
    /// Follows run `run` of `workload`; returns when nothing of it can be
    /// missed any more. Its first datagram has not been offered.
    ///
    /// # Errors
    /// What keeps it from watching; the run is not made then.
    fn begin(&mut self, workload: &Workload, run: u32) -> Result<(), WatchError>;

    /// Figures leave out what is offered before `from_ns` (CLOCK_MONOTONIC,
    /// the end of the warm-up). Called before the first datagram.
    fn measure_from(&mut self, from_ns: i64);

    /// The run is over: what was seen, held against what both ends say.
    ///
    /// # Errors
    /// What kept it from watching to the end.
    fn end(&mut self, workload: &Workload, ends: Ends<'_>) -> Result<Watched, WatchError>;
}

/// What the two ends of a run say.
#[derive(Clone, Copy, Debug)]
pub struct Ends<'a> {
    /// The sending end.
    pub sent: &'a SendReport,
    /// The receiving end, where it is in this process.
    pub received: Option<&'a RecvReport>,
    /// What there is to say without a watcher, worst first.
    pub findings: &'a [Finding],
}

/// A watcher that cannot watch.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct WatchError {
    /// The process's exit code: 4 without permission or target, 2 if it broke on the way.
    pub exit_code: u8,
    /// The reason, in the watcher's words.
    pub source: Box<dyn Error + Send + Sync>,
}

/// One component's distribution as the watcher saw it, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Of what.
    pub component: Component,
    /// Datagrams.
    pub count: u64,
    /// The quantiles it quotes, in ascending order; `None`: too few samples.
    pub quantiles: [Option<u64>; 4],
    /// The largest, exactly.
    pub max_ns: Option<u64>,
}

/// The quantiles of [`Seen::quantiles`].
pub const SEEN_QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

impl Seen {
    /// A point of the distribution.
    pub fn measured(&self, point: Point) -> Measured {
        let q = match point {
            Point::Max => {
                return self.max_ns.map_or(Measured::TooFew(0, 1), |ns| Measured::Value(ns as f64));
            }
            Point::Quantile(q) => q,
        };
        let quoted = SEEN_QUANTILES.iter().zip(self.quantiles).find(|(known, _)| **known == q);
        match quoted {
            None => Measured::Unmeasured("the observer quotes p50, p90, p99, p99_9 and max"),
            Some((_, Some(ns))) => Measured::Value(ns as f64),
            Some((_, None)) if self.count < samples_needed(q) => {
                Measured::TooFew(self.count, samples_needed(q))
            }
            Some((_, None)) => Measured::Unmeasured("the quantile lies outside the range told apart"),
        }
    }
}

/// Datagrams the watcher saw an application read, each once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Those offered in the measured time.
    pub measured: u64,
    /// All of the run.
    pub all: u64,
}

/// What a watcher saw of a run.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// The components it can tell apart, and the total.
    pub seen: Vec<Seen>,
    /// What was read, for a receiver that is not in this process; `None` if it
    /// is not on this host either.
    pub delivered: Option<Delivered>,
    /// Every finding about the run, those of [`Ends::findings`] that still
    /// stand included.
    pub findings: Vec<Finding>,
    /// Why a metric is what it is, for the objectives that may be missed:
    /// the culprit, with its figures.
    pub causes: Vec<(Metric, String)>,
    /// Where the tail hides, in one sentence.
    pub culprit: Option<String>,
    /// What stops a ramp whose step did not hold.
    pub stop: Option<RampStop>,
    /// Its own report, which becomes `observer` in the JSON document.
    pub report: Value,
}

impl Watched {
    /// What it measured of `component` at `point`; `None` if it knows nothing
    /// of that.
    pub fn measured(&self, component: Component, point: Point) -> Option<Measured> {
        self.seen.iter().find(|s| s.component == component).map(|s| s.measured(point))
    }

    /// Why `metric` is what it is.
    pub fn cause(&self, metric: Metric) -> Option<&str> {
        self.causes.iter().find(|(m, _)| *m == metric).map(|(_, why)| why.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_a_value_too_few_or_not_quoted_at_all() {
        let seen = Seen {
            component: Component::Receiver,
            count: 5_000,
            quantiles: [Some(1), Some(2), Some(3), None],
            max_ns: Some(9),
        };
        assert_eq!(seen.measured(Point::Quantile(0.99)), Measured::Value(3.0));
        assert_eq!(seen.measured(Point::Quantile(0.999)), Measured::TooFew(5_000, 10_000));
        assert!(matches!(seen.measured(Point::Quantile(0.9999)), Measured::Unmeasured(_)));
        assert_eq!(seen.measured(Point::Max), Measured::Value(9.0));
        let overflown = Seen { count: 50_000, ..seen };
        assert!(matches!(overflown.measured(Point::Quantile(0.999)), Measured::Unmeasured(_)));
        assert_eq!(Seen { count: 0, max_ns: None, ..seen }.measured(Point::Max), Measured::TooFew(0, 1));
    }
}
