//! A file's workloads, one after the other: the one loop behind `load run` and
//! `observer run`. What was measured is kept whatever becomes of the rest.

use super::Workload;
use super::run::{RunError, run};
use crate::progress::Progress;
use crate::report::Report;
use crate::stop::Stop;
use crate::watch::Watch;

/// What became of a file's workloads.
#[derive(Debug)]
pub struct Played {
    /// The report of those that were run.
    pub report: Report,
    /// What kept the others from it, if anything but a stop did.
    pub failure: Option<RunError>,
}

impl Played {
    /// Whether there is anything to report: not if the first could not be run.
    pub fn is_worth_reporting(&self) -> bool {
        self.failure.is_none() || !self.report.workloads.is_empty()
    }
}

/// Runs the workloads in order until all are run, one cannot be, or `stop` is
/// set, each watched by `watch`. `begins` is told of each; what it returns is
/// dropped when that one is over.
pub fn play<T>(
    workloads: &[Workload],
    mut watch: Option<&mut dyn Watch>,
    stop: &Stop,
    mut begins: impl FnMut(&Workload, &Progress) -> T,
) -> Played {
    let mut outcomes = Vec::with_capacity(workloads.len());
    let mut failure = None;
    for w in workloads {
        if stop.is_set() {
            break;
        }
        let progress = Progress::new();
        let shown = begins(w, &progress);
        let watch = watch.as_mut().map(|watch| &mut **watch as &mut dyn Watch);
        let outcome = run(w, watch, stop, &progress);
        drop(shown);
        match outcome {
            Ok(outcome) => outcomes.push(outcome),
            Err(e) => {
                failure = Some(e);
                break;
            }
        }
    }
    let not_run = workloads.iter().skip(outcomes.len()).map(|w| w.name.clone()).collect();
    Played { report: Report::new(outcomes, not_run), failure }
}
