//! `observer run FILE`: the workload file of `load run`, with the observer
//! attached to every run of it.
//!
//! ```text
//! workloads ─▶ load::workload::suite::play ─▶ load's Report, with `observer` in each workload
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

use load::workload::Workload;
use load::workload::expect::{Component, Metric, Point};

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

#[cfg(test)]
mod tests;
