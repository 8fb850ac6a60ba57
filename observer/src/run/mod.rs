//! `observer run FILE`: the workload file of `load run`, with the observer
//! attached to every run of it.
//!
//! ```text
//! workloads ─▶ load::workload::run_watched ─▶ load's Report, with `observer` in each workload
//!                │ begin, end      ▲ components, findings, causes
//!                ▼                 │
//!              live (a Session per run) ─▶ accounts, judge, seen
//! ```
//!
//! [`live`] attaches; [`accounts`] holds the observer's counts against the
//! sockets' and qdiscs' own; [`judge`] makes the findings; [`seen`] says what
//! the objectives are judged on, and why one was missed.

pub mod accounts;
pub mod judge;
pub mod live;
pub mod seen;

use load::report::Report;
use load::watch::Watch;
use load::workload::Workload;
use load::workload::expect::{Component, Metric, Point};
use load::workload::run::{RunError, run_watched};
use load::{Progress, Stop};

/// What became of a file's workloads.
#[derive(Debug)]
pub struct Played {
    /// The report of those that were run.
    pub report: Report,
    /// What kept the others from it, if anything but a stop did.
    pub failure: Option<RunError>,
}

/// An objective that no report of the observer can answer.
#[derive(Debug, thiserror::Error)]
#[error(
    "{file}: workload {workload:?}: {metric} cannot be judged: the observer quotes its components up to \
     p99.9; use p99_9 or max"
)]
pub struct Unanswerable {
    file: String,
    workload: String,
    metric: Metric,
}

/// Refuses objectives that could only end in INVALID, before anything is sent.
///
/// # Errors
/// [`Unanswerable`] for the first of them.
pub fn check(file: &str, workloads: &[Workload]) -> Result<(), Unanswerable> {
    use Component::{Receiver, SenderQueue, Shaper, Wire};
    for w in workloads {
        let beyond = |m: &Metric| matches!(m, Metric::Latency(SenderQueue | Shaper | Wire | Receiver, Point::Quantile(q)) if *q > 0.999);
        if let Some(metric) = w.expect.iter().map(|e| e.metric).find(beyond) {
            return Err(Unanswerable { file: file.to_owned(), workload: w.name.clone(), metric });
        }
    }
    Ok(())
}

/// Runs the workloads in order until all are run, one cannot be, or `stop` is
/// set. `begins` is told of each; what it returns is dropped when that one is
/// over.
pub fn play<T>(
    workloads: &[Workload],
    watch: &mut dyn Watch,
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
        let outcome = run_watched(w, watch, stop, &progress);
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

#[cfg(test)]
mod tests;
