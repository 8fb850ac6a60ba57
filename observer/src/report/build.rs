//! Metrics and counts → a report.

use super::{
    ComponentReport, Components, Counts, Distribution, FlowReport, Hook, Host, Kind, OtherFlows, Report,
    SCHEMA, SendLag, Waits, findings,
};
use crate::component::{Component, Part};
use crate::correlate::FlowBook;
use crate::correlate::stages::TOTAL;
use crate::culprit;
use crate::metrics::counts::Totals;
use crate::metrics::flows::SHOWN;
use crate::metrics::{FlowMetrics, Window};
use crate::report::Balance;
use crate::source::{ProgramStats, SourceMeta, Tables};

/// What a report is made of.
#[derive(Debug)]
pub struct Ingredients<'a> {
    /// Whether the run goes on.
    pub kind: Kind,
    /// Start and end of what it covers, ns.
    pub span_ns: (u64, u64),
    /// The source.
    pub meta: &'a SourceMeta,
    /// The tables last read.
    pub tables: &'a Tables,
    /// The distributions over the span.
    pub window: &'a Window,
    /// The counts over the span.
    pub counts: Counts,
    /// The counts since the start.
    pub totals: &'a Totals,
    /// Distributions by flow since the start.
    pub flows: &'a FlowMetrics,
    /// Who the flows are.
    pub book: &'a FlowBook,
    /// Waits since the start.
    pub waits: Waits,
}

/// Makes the report.
pub fn report(of: Ingredients<'_>) -> Report {
    let host = host(of.meta, of.tables);
    let tail = culprit::shares::tails(of.window);
    let culprit = culprit::judge(&tail, &of.counts, &host);
    let components = components(of.window);
    let (from_ns, to_ns) = of.span_ns;
    let (flows, other_flows) = flows(&of);
    let mut counts = of.counts;
    counts.complete = of.window.tail.count();
    counts.partial = of.window.partial_journeys;
    let mut report = Report {
        schema: SCHEMA.to_owned(),
        kind: of.kind,
        from_ns,
        to_ns,
        detail: of.meta.detail.into(),
        verdict: super::Level::Passed,
        culprit,
        findings: Vec::new(),
        counts,
        by_run: of.totals.by_run.clone(),
        components,
        send_lag: (of.window.send_lag.count() > 0)
            .then(|| SendLag { distribution: of.window.send_lag.report(), early: of.window.offered_early }),
        tail,
        flows,
        other_flows,
        waits: of.waits,
        hooks: hooks(of.meta, &of.tables.programs),
        host,
        sender_queue: None,
        limiter: None,
    };
    report.findings = findings::all(&report, &findings::Evidence::of(of.window, of.totals));
    report.verdict = findings::verdict(&report.findings);
    report
}

fn host(meta: &SourceMeta, tables: &Tables) -> Host {
    Host {
        name: meta.host.clone(),
        kernel: meta.kernel.clone(),
        clock: meta.clock.clone(),
        cpus: tables.host.cpus,
        steal_ratio: tables.host.steal_ratio,
        busy_ratio: tables.host.busy_ratio,
    }
}

fn components(window: &Window) -> Components {
    let of = |c: Component| component(window, c);
    Components {
        sender_queue: of(Component::SenderQueue),
        shaper: ComponentReport { slowest_hop: window.tail.slowest_hop(), ..of(Component::Shaper) },
        wire: of(Component::Wire),
        receiver: of(Component::Receiver),
        total: ComponentReport {
            distribution: window.total.report(),
            partial: window.partial[TOTAL],
            negatives: window.negatives[TOTAL],
            out_of_order: window.out_of_order[TOTAL],
            ..ComponentReport::default()
        },
    }
}

fn component(window: &Window, c: Component) -> ComponentReport {
    let i = c as usize;
    let part = |p: Part| -> Option<(String, Distribution)> {
        let latency = &window.parts[p as usize];
        (p.component() == c && latency.count() > 0).then(|| (p.name().to_owned(), latency.report()))
    };
    ComponentReport {
        distribution: window.components[i].report(),
        partial: window.partial[i],
        negatives: window.negatives[i],
        out_of_order: window.out_of_order[i],
        parts_out_of_order: window.parts_out_of_order[i],
        parts: Part::ALL.into_iter().filter_map(part).collect(),
        slowest_hop: None,
    }
}

/// The flows with distributions of their own, busiest first, and the rest.
fn flows(of: &Ingredients<'_>) -> (Vec<FlowReport>, Option<OtherFlows>) {
    let mut shown = Vec::new();
    let mut others = OtherFlows::default();
    let with_latency = of.flows.shown().count();
    for (id, balance) in &of.totals.flows {
        let latency = of.flows.get(*id);
        // A flow without a datagram delivered has counts alone.
        let room = shown.len() < SHOWN && with_latency < SHOWN;
        if latency.is_some() || room {
            shown.push(FlowReport {
                key: of.book.key(*id),
                counts: balance.clone(),
                components: latency.map(|l| l.report()).unwrap_or_default(),
            });
        } else {
            others.flows += 1;
            let sum: &mut Balance = &mut others.counts;
            sum.add(balance);
        }
    }
    if let Some(latency) = of.flows.others() {
        others.components = latency.report();
    }
    let any = others.flows > 0 || others.components.receiver.count > 0;
    (shown, any.then_some(others))
}

/// The hook of each point with the cost of its program. Programs at points of
/// which the source says nothing (waits, counters) follow.
fn hooks(meta: &SourceMeta, programs: &[ProgramStats]) -> Vec<Hook> {
    let mut taken = vec![false; programs.len()];
    let mut hooks: Vec<Hook> = meta
        .hooks
        .iter()
        .map(|chosen| {
            let found = programs.iter().position(|p| p.point == chosen.point && p.hook == chosen.hook);
            if let Some(t) = found.and_then(|i| taken.get_mut(i)) {
                *t = true;
            }
            hook(&chosen.point, &chosen.hook, &chosen.kind, found.and_then(|i| programs.get(i)))
        })
        .collect();
    let rest = programs.iter().zip(taken).filter(|(_, taken)| !taken);
    hooks.extend(rest.map(|(p, _)| hook(&p.point, &p.hook, &p.kind, Some(p))));
    hooks
}

fn hook(point: &str, hook: &str, kind: &str, program: Option<&ProgramStats>) -> Hook {
    let measured = program.filter(|p| p.runs > 0);
    #[expect(clippy::cast_precision_loss, reason = "a mean cost needs a few digits")]
    let ns_per_call = measured.map(|p| (p.run_ns as f64 / p.runs as f64 * 10.0).round() / 10.0);
    Hook {
        point: point.to_owned(),
        hook: hook.to_owned(),
        kind: kind.to_owned(),
        ns_per_call,
        calls: measured.map(|p| p.runs),
        missed: program.map_or(0, |p| p.missed),
    }
}
