//! Whether there is enough to quote a tail from.

use super::{Seen, figures, finding};
use crate::metrics::Quantile;
use crate::report::{Finding, Kind, Level};
use crate::view::units::{count, duration};

/// Shorter runs see too few of a host's rare events (timers, cron, writeback).
pub const LONG_ENOUGH_NS: u64 = 30_000_000_000;

/// Final: whether rare events had time to show.
pub(crate) fn run_was_long_enough(seen: &Seen<'_>) -> Option<Finding> {
    let report = seen.report;
    if report.kind != Kind::Final {
        return None;
    }
    let ns = report.to_ns.saturating_sub(report.from_ns);
    let (level, means) = if ns >= LONG_ENOUGH_NS {
        (Level::Passed, "rare events had time to show")
    } else {
        (Level::Warning, "too short for rare events: timers, writeback, neighbours")
    };
    let detail = format!("{} is the least", duration(LONG_ENOUGH_NS));
    let evidence = figures(&[("length_ns", Some(ns as f64))]);
    Some(Finding { evidence, ..finding("run-was-long-enough", level, duration(ns), means, detail) })
}

/// Final: whether every quantile can be quoted.
pub(crate) fn quantile_quotable(seen: &Seen<'_>) -> Option<Finding> {
    if seen.report.kind != Kind::Final {
        return None;
    }
    let n = seen.report.components.total.distribution.count;
    let short = Quantile::ALL.into_iter().find(|q| !q.quotable(n));
    let (level, means, detail) = match short {
        None => (Level::Passed, "every quantile stands on at least ten datagrams above it", String::new()),
        Some(q) => (
            Level::Warning,
            "the higher quantiles are not quoted",
            format!("{} takes {}", q.name(), count(q.needs())),
        ),
    };
    let evidence = figures(&[("totals", Some(n as f64))]);
    let observed = format!("{} totals", count(n));
    Some(Finding { evidence, ..finding("quantile-quotable", level, observed, means, detail) })
}
