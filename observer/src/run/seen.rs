//! The observer's report in the terms of a workload file: what each objective
//! is judged on, and the cause to name when it is missed.

use load::Finding;
use load::watch::{Delivered, Seen, Watched};
use load::workload::expect::{Component as Of, Expectation, Metric, Point};
use load::workload::ramp::RampStop;

use crate::component::{Component, Part};
use crate::report::{Blame, ComponentReport, Distribution, Report};
use crate::view::units::{count, duration};

/// Everything `load` is told of an observed run.
///
/// # Errors
/// Only if the report cannot be made JSON, which is a defect.
pub fn watched(
    expect: &[Expectation],
    report: &Report,
    findings: Vec<Finding>,
) -> Result<Watched, serde_json::Error> {
    let ended = report.counts.delivered > 0 || !report.counts.dropped.is_empty();
    let causes = expect.iter().filter_map(|e| Some((e.metric, cause(e.metric, report)?))).collect();
    Ok(Watched {
        seen: components(report),
        delivered: ended.then_some(Delivered {
            measured: report.components.total.distribution.count,
            all: report.counts.delivered,
        }),
        findings,
        causes,
        culprit: culprit(report),
        stop: report.culprit.as_ref().and_then(|c| stop(c.component)),
        report: serde_json::to_value(report)?,
    })
}

/// The four components and the total.
fn components(report: &Report) -> Vec<Seen> {
    let c = &report.components;
    [
        (Of::SenderQueue, &c.sender_queue),
        (Of::Shaper, &c.shaper),
        (Of::Wire, &c.wire),
        (Of::Receiver, &c.receiver),
        (Of::Total, &c.total),
    ]
    .into_iter()
    .map(|(component, of)| {
        let d = &of.distribution;
        Seen {
            component,
            count: d.count,
            quantiles: [d.p50_ns, d.p90_ns, d.p99_ns, d.p99_9_ns],
            max_ns: d.max_ns,
        }
    })
    .collect()
}

/// A point of a distribution; beyond p99.9, that one.
pub(super) fn quantile_of(d: &Distribution, point: Point) -> Option<u64> {
    match point {
        Point::Max => d.max_ns,
        Point::Quantile(q) if q > 0.99 => d.p99_9_ns,
        Point::Quantile(q) if q > 0.9 => d.p99_ns,
        Point::Quantile(q) if q > 0.5 => d.p90_ns,
        Point::Quantile(_) => d.p50_ns,
    }
}

/// `receiver: 97 % of the excess above p99.9 …`
fn culprit(report: &Report) -> Option<String> {
    report.culprit.as_ref().map(|c| format!("{}: {}", c.component.name(), c.cause))
}

/// What stops a ramp when that is where the time or the datagrams went.
fn stop(culprit: Blame) -> Option<RampStop> {
    match culprit {
        Blame::Shaper => Some(RampStop::LimiterEngaged),
        Blame::Receiver => Some(RampStop::ReceiverBehind),
        Blame::HostNoise => Some(RampStop::HostNoise),
        Blame::SenderQueue | Blame::Wire | Blame::None => None,
    }
}

/// Why a metric is what it is; `None` where the observer has nothing to add.
fn cause(metric: Metric, report: &Report) -> Option<String> {
    let culprit = || culprit(report).map(|c| format!("culprit {c}"));
    let component = |c: Component, point| {
        let inside = inside(c, report.components.get(c), point);
        let whole = culprit().map_or_else(String::new, |c| format!("; of the total, {c}"));
        Some(format!("culprit {}{inside}{whole}", c.name()))
    };
    match metric {
        Metric::Latency(Of::SenderQueue, point) => component(Component::SenderQueue, point),
        Metric::Latency(Of::Shaper, point) => component(Component::Shaper, point),
        Metric::Latency(Of::Wire, point) => component(Component::Wire, point),
        Metric::Latency(Of::Receiver, point) => component(Component::Receiver, point),
        Metric::Latency(Of::Total | Of::Intended, _) => culprit(),
        Metric::Latency(Of::SendLag, _) => None,
        Metric::Throughput | Metric::Loss => match drops(report) {
            Some(drops) => Some(culprit().map_or_else(|| drops.clone(), |c| format!("{drops}; {c}"))),
            None => culprit(),
        },
    }
}

/// `, at p99: socket queue 4.90 ms, softirq 12.0 µs`: the parts of a
/// component, largest first.
fn inside(component: Component, of: &ComponentReport, point: Point) -> String {
    let mut parts: Vec<(u64, &str)> = Part::ALL
        .into_iter()
        .filter(|p| p.component() == component)
        .filter_map(|p| Some((quantile_of(of.parts.get(p.name())?, point)?, p.name())))
        .filter(|(ns, _)| *ns > 0)
        .collect();
    if parts.is_empty() {
        return String::new();
    }
    parts.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    let parts: Vec<_> =
        parts.iter().map(|(ns, name)| format!("{} {}", name.replace('_', " "), duration(*ns))).collect();
    let at = match point {
        Point::Max => "at most".to_owned(),
        Point::Quantile(q) => format!("at {}", crate::culprit::quantile_name(q)),
    };
    format!(", {at}: {}", parts.join(", "))
}

/// `dropped SOCKET_RCVBUFF 12, QDISC_DROP 3`
fn drops(report: &Report) -> Option<String> {
    let mut reasons: Vec<_> = report.counts.dropped.iter().collect();
    reasons.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    let reasons: Vec<_> = reasons.iter().map(|(r, n)| format!("{r} {}", count(**n))).collect();
    (!reasons.is_empty()).then(|| format!("dropped {}", reasons.join(", ")))
}
