//! Whether the host left the flow's threads their CPUs.

use super::{Seen, figures, finding};
use crate::report::{Finding, Level};
use crate::view::units::{duration, percent};

/// Steal above this is worth knowing.
pub const STEAL_WARNING: f64 = 0.01;
/// Steal above this makes latencies the hypervisor's.
pub const STEAL_INVALID: f64 = 0.05;
/// Run-queue delay of the flow's threads above this, at p99, is worth knowing:
/// it is where a tail is worth naming.
pub const RUN_QUEUE_WARNING_NS: u64 = crate::culprit::FLOOR_NS;

/// Steal, and the flow's threads waiting for a CPU.
pub(crate) fn host_was_quiet(seen: &Seen<'_>) -> Option<Finding> {
    let host = &seen.report.host;
    let steal = host.steal_ratio;
    let worst = seen.run_queue.iter().filter_map(|(side, ns)| ns.map(|ns| (ns, *side))).max();
    let level = match steal {
        Some(s) if s > STEAL_INVALID => Level::Invalid,
        Some(s) if s > STEAL_WARNING => Level::Warning,
        _ if worst.is_some_and(|(ns, _)| ns > RUN_QUEUE_WARNING_NS) => Level::Warning,
        _ => Level::Passed,
    };
    let observed = format!(
        "steal {}, run-queue delay p99 {}",
        steal.map_or_else(|| "—".to_owned(), percent),
        worst.map_or_else(|| "—".to_owned(), |(ns, side)| format!("{} ({side})", duration(ns))),
    );
    let (means, advice) = match level {
        Level::Passed => ("the host left the flow's threads their CPUs", ""),
        Level::Invalid => (
            "the hypervisor took the CPUs away: latencies are its, not the system's",
            "measure on a dedicated instance, or when its neighbours are quiet",
        ),
        _ => (
            "part of the latency is the host's, not a queue's",
            "keep other work off the flow's CPUs (isolcpus, cpuset, taskset)",
        ),
    };
    let detail = host.busy_ratio.map_or_else(String::new, |busy| format!("CPUs {} busy", percent(busy)));
    let evidence = figures(&[("steal_ratio", steal), ("run_queue_p99_ns", worst.map(|(ns, _)| ns as f64))]);
    Some(Finding {
        advice: advice.to_owned(),
        evidence,
        ..finding("host-was-quiet", level, observed, means, detail)
    })
}
