//! The checks, by what they look at. Each is a function from [`Seen`] to a
//! finding, or to nothing where it does not apply or there is too little to
//! say; [`super::registry`] lists them.
//!
//! A plain observation has no objectives, so nothing here says FAILED: a
//! finding passes, warns, or says that the run did not measure what it was
//! asked to (INVALID).

pub mod complete;
pub mod counts;
pub mod drops;
pub mod generator;
pub mod host;
pub mod length;
pub mod limiter;
pub mod receiver;
pub mod sender;

use std::collections::BTreeMap;

use super::Diagnosis;
use crate::component::Part;
use crate::metrics::counts::Totals;
use crate::metrics::{Latency, Quantile, Window};
use crate::report::{Finding, Level, Report};

/// What the checks see.
#[derive(Debug)]
pub struct Seen<'a> {
    /// The report, without its findings.
    pub report: &'a Report,
    /// What was found about the queues.
    pub diagnosis: &'a Diagnosis,
    /// The totals' distribution.
    pub(crate) total: &'a Latency,
    /// The p99 of the time without a CPU, by end.
    pub(crate) run_queue: Vec<(&'static str, Option<u64>)>,
    pub(crate) reasons_surplus: i64,
    pub(crate) records_surplus: u64,
}

impl<'a> Seen<'a> {
    /// From the distributions and the counts since the start.
    pub fn new(report: &'a Report, diagnosis: &'a Diagnosis, window: &'a Window, totals: &Totals) -> Self {
        let p99 = |p: Part| window.parts[p as usize].quantile(Quantile::P99);
        Self {
            report,
            diagnosis,
            total: &window.total,
            run_queue: vec![("sender", p99(Part::SenderRunQueue)), ("receiver", p99(Part::ReceiverRunQueue))],
            reasons_surplus: totals.reasons_surplus,
            records_surplus: totals.records_surplus,
        }
    }
}

/// A finding without advice and figures.
pub(crate) fn finding(check: &str, level: Level, observed: String, means: &str, detail: String) -> Finding {
    Finding {
        check: check.to_owned(),
        level,
        observed,
        means: means.to_owned(),
        detail,
        advice: String::new(),
        evidence: BTreeMap::new(),
    }
}

/// A warning with the advice and the figures it rests on; a figure that is not
/// known is left out.
pub(crate) fn cause(
    check: &str,
    observed: String,
    means: &str,
    advice: &str,
    evidence: &[(&str, Option<f64>)],
) -> Finding {
    Finding {
        advice: advice.to_owned(),
        evidence: figures(evidence),
        ..finding(check, Level::Warning, observed, means, String::new())
    }
}

/// The figures that are known, by name.
pub(crate) fn figures(evidence: &[(&str, Option<f64>)]) -> BTreeMap<String, f64> {
    let known = evidence.iter().filter_map(|(name, value)| Some(((*name).to_owned(), (*value)?)));
    known.filter(|(_, value)| value.is_finite()).collect()
}

pub(crate) fn ratio(part: u64, of: u64) -> f64 {
    part as f64 / of.max(part).max(1) as f64
}
