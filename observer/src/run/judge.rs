//! The findings of an observed run: what `load` found without the observer,
//! with the checks that the observer can make better put in their place.
//! A check that passes says nothing, as in `load`.

use load::workload::expect::{Component as Of, Expectation, Measured, Metric, Point};
use load::{Finding, Verdict};

use super::accounts::{Account, reconcile};
use super::seen::quantile_of;
use crate::component::{Component, Part};
use crate::culprit::{FLOOR_NS, speaks_for};
use crate::diagnose::checks::complete::INCOMPLETE_INVALID;
use crate::diagnose::checks::host::{STEAL_INVALID, STEAL_WARNING};
use crate::report::{Blame, Counts, Distribution, Level, Report};
use crate::view::units::{count, duration, duration_or_dash, percent};

/// The checks of `load` that are made anew here.
const REPLACED: [&str; 3] = ["counts-reconcile", "receiver-kept-up", "host-was-quiet"];

/// Share of a latency objective from which on waiting for a CPU is worth
/// knowing.
const NOTABLE: f64 = 0.1;

/// All findings of the run, worst first.
pub fn findings(expect: &[Expectation], report: &Report, account: &Account, own: &[Finding]) -> Vec<Finding> {
    let mut all: Vec<Finding> = own.iter().filter(|f| !REPLACED.contains(&f.check)).cloned().collect();
    let own_quiet = own.iter().find(|f| f.check == "host-was-quiet");
    all.extend(observer_complete(report, account));
    all.extend(points_in_order(report));
    all.extend(reconcile(report, account));
    all.extend(host_was_quiet(expect, report, own_quiet));
    let missed = loss_missed(expect, account);
    all.extend(
        [Blame::Receiver, Blame::Shaper, Blame::None].into_iter().filter_map(|b| kept_up(b, report, missed)),
    );
    all.sort_by_key(|f| std::cmp::Reverse(f.level));
    all
}

/// A level in `load`'s words.
pub fn verdict(level: Level) -> Verdict {
    match level {
        Level::Passed => Verdict::Passed,
        Level::Warning => Verdict::Warning,
        Level::Failed => Verdict::Failed,
        Level::Invalid => Verdict::Invalid,
    }
}

/// The observer's own finding of that name, unless it passed.
fn of_report(report: &Report, check: &'static str) -> Option<Finding> {
    let f = report.findings.iter().find(|f| f.check == check && f.level > Level::Passed)?;
    Some(Finding {
        check,
        level: verdict(f.level),
        observed: f.observed.clone(),
        means: f.means.clone(),
        detail: f.detail.clone(),
    })
}

fn points_in_order(report: &Report) -> Option<Finding> {
    of_report(report, "points-in-order")
}

fn observer_complete(report: &Report, account: &Account) -> Option<Finding> {
    let c = &report.counts;
    let nobody_reads = account.read.is_none() && c.delivered == 0 && c.dropped.is_empty();
    if account.sent == 0 || !nobody_reads {
        let found = of_report(report, "observer-complete")?;
        return Some(if is_paged(c, account) { Finding { level: Verdict::Invalid, ..found } } else { found });
    }
    Some(Finding {
        check: "observer-complete",
        level: Verdict::Invalid,
        observed: format!("none of {} datagrams was read or dropped on this host", count(account.sent)),
        means: "the receiver is on another host, or nobody listens: no journey could be measured to its end"
            .into(),
        detail: "let the receiver run on this host, in a network namespace if need be; or use `load run`"
            .into(),
    })
}

/// Whether it was the run's own datagrams whose stamps could not be read: both
/// ends are known, and what lacks a component is as much as what was unreadable.
fn is_paged(c: &Counts, account: &Account) -> bool {
    let paged = c.lost_events.get("paged").copied().unwrap_or(0);
    let share = |n: u64, of: u64| n as f64 > INCOMPLETE_INVALID * of as f64;
    share(paged, account.sent) && share(c.partial, c.delivered)
}

/// Waiting for a CPU at one end, ns at a point of its distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Delay {
    ns: u64,
    end: &'static str,
}

/// The longest wait for a CPU that `component`'s figure at `point` contains.
fn run_queue(report: &Report, component: Of, point: Point) -> Option<Delay> {
    let part = |c: Component, part: Part, end| {
        let d: &Distribution = report.components.get(c).parts.get(part.name())?;
        Some(Delay { ns: quantile_of(d, point)?, end })
    };
    let sender = || part(Component::SenderQueue, Part::SenderRunQueue, "sender");
    let wire = || part(Component::Wire, Part::WireRunQueue, "sender, while delivering");
    let receiver = || part(Component::Receiver, Part::ReceiverRunQueue, "receiver");
    match component {
        Of::SenderQueue => sender(),
        Of::Wire => wire(),
        Of::Receiver => receiver(),
        Of::Total | Of::Intended => [sender(), wire(), receiver()].into_iter().flatten().max(),
        Of::Shaper | Of::SendLag => None,
    }
}

/// Steal, and the flow's threads waiting for a CPU: worth knowing from a tenth
/// of an objective on; INVALID where the wait alone breaks the objective and
/// is longer than any wake-up takes.
fn host_was_quiet(expect: &[Expectation], report: &Report, own: Option<&Finding>) -> Option<Finding> {
    let steal = report.host.steal_ratio;
    let by_steal = match steal {
        Some(s) if s > STEAL_INVALID => Verdict::Invalid,
        Some(s) if s > STEAL_WARNING => Verdict::Warning,
        _ => Verdict::Passed,
    };
    let targets: Vec<(Of, Point, f64, String)> = expect
        .iter()
        .filter_map(|e| match e.metric {
            Metric::Latency(c, p) => Some((c, p, e.bound, e.metric.to_string())),
            _ => None,
        })
        .collect();
    #[expect(clippy::cast_precision_loss, reason = "a comparison of magnitudes")]
    let judged = targets.iter().filter_map(|(c, p, bound, name)| {
        let delay = run_queue(report, *c, *p)?;
        let ns = delay.ns as f64;
        let level = match () {
            () if ns > *bound && delay.ns > FLOOR_NS => Verdict::Invalid,
            () if ns > NOTABLE * bound => Verdict::Warning,
            () => Verdict::Passed,
        };
        let said = format!("{} of {name} ({})", duration(delay.ns), delay.end);
        Some((level, delay, said))
    });
    let worst = judged.max_by_key(|(level, delay, _)| (*level, *delay));
    let without_target = of_report(report, "host-was-quiet").filter(|_| targets.is_empty());
    let (by_delay, said) = match (worst, &without_target) {
        (Some((level, _, said)), _) => (level, Some(said)),
        (None, Some(f)) => (f.level, None),
        (None, None) => (Verdict::Passed, None),
    };
    let level = by_steal.max(by_delay).max(own.map_or(Verdict::Passed, |f| f.level));
    if level == Verdict::Passed {
        return None;
    }
    let waits = &report.waits.run_queue;
    Some(Finding {
        check: "host-was-quiet",
        level,
        observed: match (said, without_target) {
            (Some(said), _) => {
                format!("steal {}, waiting for a CPU {said}", steal.map_or_else(|| "—".into(), percent))
            }
            (None, Some(f)) => f.observed,
            (None, None) => {
                own.map_or_else(|| format!("steal {}", steal.map_or_else(|| "—".into(), percent)), |f| f.observed.clone())
            }
        },
        means: if level == Verdict::Invalid {
            "the host kept the CPUs from the flow's threads: the latency is the host's and says nothing about \
             the system. Repeat on a quieter host, or with CPUs of their own"
        } else {
            "part of the latency is the host's, not a queue's"
        }
        .into(),
        detail: format!(
            "the flow's threads waited for a CPU {} times, {} in all, {} at most{}",
            count(waits.count),
            duration(waits.total_ns),
            duration(waits.max_ns),
            report.host.busy_ratio.map_or_else(String::new, |b| format!("; CPUs {} busy", percent(b)))
        ),
    })
}

/// Whether more was lost than the file allows.
fn loss_missed(expect: &[Expectation], account: &Account) -> bool {
    let Some(loss) = account.loss() else { return false };
    expect.iter().any(|e| e.metric == Metric::Loss && e.judge(Measured::Value(loss)).is_some())
}

/// Drops by where they happened: the socket, a qdisc, or anywhere else on the
/// way. FAILED where they break the file's loss objective.
fn kept_up(whose: Blame, report: &Report, loss_missed: bool) -> Option<Finding> {
    let (total, reasons) = dropped(&report.counts, whose);
    if total == 0 {
        return None;
    }
    let (check, place, means) = match whose {
        Blame::Receiver => (
            "receiver-kept-up",
            "at the receiving socket",
            "the reader was slower than the load, or its buffer too small for a burst: read faster, raise \
             net.core.rmem_max and rcvbuf, or ask for less",
        ),
        Blame::Shaper => (
            "shaper-kept-up",
            "in a qdisc",
            "the load was above what the qdisc passes for longer than its queue holds: that rate is the ceiling",
        ),
        _ => (
            "wire-kept-up",
            "elsewhere on the way",
            "the kernel names the reason: a filter, a missing route or listener, a damaged datagram",
        ),
    };
    Some(Finding {
        check,
        level: if loss_missed { Verdict::Failed } else { Verdict::Warning },
        observed: format!("{} datagrams were dropped {place} ({reasons})", count(total)),
        means: means.into(),
        detail: inside(whose, report),
    })
}

fn dropped(c: &Counts, whose: Blame) -> (u64, String) {
    let of_it: Vec<_> = c.dropped.iter().filter(|(r, _)| speaks_for(r) == whose).collect();
    let total = of_it.iter().fold(0_u64, |sum, (_, n)| sum.saturating_add(**n));
    let reasons: Vec<_> = of_it.iter().map(|(r, n)| format!("{r} {}", count(**n))).collect();
    (total, reasons.join(", "))
}

/// What those that got through say about the place.
fn inside(whose: Blame, report: &Report) -> String {
    let c = &report.components;
    match whose {
        Blame::Receiver => {
            let p99 = |part: Part| duration_or_dash(c.receiver.parts.get(part.name()).and_then(|d| d.p99_ns));
            let buffers = report.flows.iter().filter_map(|f| f.key.receiver.as_ref()).map(|e| e.buffer_bytes);
            let buffer =
                buffers.min().map_or_else(String::new, |b| format!("; SO_RCVBUF {} B", count(b.into())));
            format!(
                "p99 of those read: {} in the socket queue, {} in the softirq, of it {} the reader without a CPU{buffer}",
                p99(Part::SocketQueue),
                p99(Part::Softirq),
                p99(Part::ReceiverRunQueue)
            )
        }
        Blame::Shaper => format!(
            "p99 of those that passed: {}{}",
            duration_or_dash(c.shaper.distribution.p99_ns),
            c.shaper.slowest_hop.map_or_else(String::new, |h| format!(
                "; slowest hop ifindex {}, {}",
                h.ifindex,
                duration(h.span_ns)
            ))
        ),
        _ => format!("p99 of the wire: {}", duration_or_dash(c.wire.distribution.p99_ns)),
    }
}
