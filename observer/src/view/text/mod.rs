//! Reports as text: the live table, one screen of 80 columns, and the final
//! report with everything behind the figures.
//!
//! Whether to colour is the caller's decision (a terminal, no NO_COLOR).

pub(crate) mod diagnosis;
pub mod paint;
pub mod table;

use std::collections::BTreeMap;

use crate::component::Component;
use crate::culprit::quantile_name;
use crate::diagnose::limiter::Limiter;
use crate::report::{
    Balance, Counts, Finding, FlowReport, Hook, Kind, Level, OtherFlows, Report, Tail, WaitTotals,
};
use crate::snapshot::Snapshot;
use crate::view::units::{count, duration, duration_or_dash, percent, rate};
use paint::{Paint, wrap};

/// Columns of the labels on the left.
const LABEL: usize = 10;
/// Flows listed one by one.
const FLOWS: usize = 8;

/// The live table: the last interval's rates, and its distributions once they
/// can be quoted; counts, drops and losses since the start.
pub fn live(snapshot: &Snapshot, colour: bool) -> String {
    let paint = Paint { colour };
    let (total, interval) = (&*snapshot.total, &*snapshot.interval);
    let mut out = header(total, interval, paint);
    out += &balance(&total.counts, paint);
    out.push('\n');
    let span = format!("last {}", duration(interval.to_ns.saturating_sub(interval.from_ns)));
    out += &table::components(&interval.components, &span, false, paint);
    out.push('\n');
    out += &ends(&total.counts, paint);
    out += &culprit(interval, paint);
    for finding in interval.findings.iter().filter(|f| f.level > Level::Warning) {
        out += &one_finding(finding, paint);
    }
    out
}

/// The final report.
pub fn report(report: &Report, colour: bool) -> String {
    let paint = Paint { colour };
    let mut out = header(report, report, paint);
    out += &balance(&report.counts, paint);
    out.push('\n');
    out += &table::components(&report.components, "", true, paint);
    out += &send_lag(report, paint);
    out += &oddities(report, paint);
    out.push('\n');
    out += &ends(&report.counts, paint);
    out += &culprit(report, paint);
    out += &tails(&report.tail, paint);
    out += &diagnosis::section(report, paint);
    out += &runs(report, paint);
    out += &flows(&report.flows, report.other_flows.as_ref(), paint);
    out += &behind(report, paint);
    out += &findings(&report.findings, paint);
    let verdict = paint.level(report.verdict, report.verdict.name());
    out + &labelled("verdict", &verdict)
}

/// What holds datagrams back, and why it is thought so, in a few lines.
pub fn limiter(l: &Limiter) -> String {
    let found = diagnosis::limiter(l).unwrap_or_else(|| l.kind.name().to_owned());
    let lines = [("limiter", found.as_str()), ("because", &l.why), ("advice", &l.advice)];
    let said = lines.into_iter().filter(|(_, text)| !text.is_empty());
    said.map(|(label, text)| labelled(label, &wrap(LABEL, text))).collect()
}

/// Shown where anything was late: it is in no component.
fn send_lag(report: &Report, paint: Paint) -> String {
    let Some(lag) = report.send_lag.as_ref().filter(|lag| lag.distribution.max_ns > Some(0)) else {
        return String::new();
    };
    format!("{}\n", paint.faint(table::row("+ send lag", &lag.distribution)))
}

fn labelled(label: &str, text: &str) -> String {
    format!("{label:<LABEL$}{text}\n")
}

fn section(title: &str, paint: Paint) -> String {
    format!("\n{}\n", paint.heading(title))
}

/// `observer  12.0 s  sent 50.0 k/s  delivered 49.9 k/s`
fn header(total: &Report, recent: &Report, paint: Paint) -> String {
    let c = &recent.counts;
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let per_second = |n: u64| rate(n as f64 / recent.seconds().max(1e-3));
    let sent = c.sent.map_or_else(|| "—".to_owned(), per_second);
    let state = match total.kind {
        Kind::Interval => "live",
        Kind::Final => "final",
    };
    let time = duration(total.to_ns.saturating_sub(total.from_ns));
    format!(
        "{} {state} {time}   sent {sent}   delivered {}   dropped {}\n",
        paint.heading("observer"),
        per_second(c.delivered),
        per_second(c.dropped_total()),
    )
}

fn detail(report: &Report) -> &'static str {
    match report.detail {
        crate::report::Detail::Full => "full",
        crate::report::Detail::Tail => "tail",
        crate::report::Detail::Summary => "summary",
    }
}

/// The balance, in one line where it fits.
fn balance(c: &Counts, paint: Paint) -> String {
    let sent = c.sent.map_or_else(|| "—".to_owned(), count);
    let mut text = format!("sent {sent}");
    if c.received_only > 0 {
        text += &format!(" + received only {}", count(c.received_only));
    }
    text += &format!(
        " = delivered {} + dropped {} + in flight {} + unobserved {}",
        count(c.delivered),
        count(c.dropped_total()),
        count(c.in_flight),
        count(c.unobserved)
    );
    if c.unaccounted != 0 {
        text += &format!(
            " {} {} unaccounted",
            if c.unaccounted < 0 { '-' } else { '+' },
            count(c.unaccounted.unsigned_abs())
        );
    }
    let text = wrap(0, &text);
    format!("{}\n", if c.unaccounted == 0 { text } else { paint.alarm(text) })
}

/// Drops and lost events, and what was set aside.
fn ends(c: &Counts, paint: Paint) -> String {
    let dropped = list(&c.dropped).unwrap_or_else(|| "none".to_owned());
    let mut out = labelled("dropped", &wrap(LABEL, &dropped));
    out += &match list(&c.lost_events) {
        None => labelled("lost", "no events"),
        Some(lost) => labelled("lost", &paint.alarm(wrap(LABEL, &lost))),
    };
    let aside = [
        ("duplicated", c.duplicated),
        ("partial", c.partial),
        ("foreign", c.foreign),
        ("unstamped", c.unstamped_sent.saturating_add(c.unstamped_received)),
        ("send errors", c.send_errors),
    ];
    let aside: Vec<_> =
        aside.iter().filter(|(_, n)| *n > 0).map(|(k, n)| format!("{k} {}", count(*n))).collect();
    if !aside.is_empty() {
        out += &labelled("aside", &wrap(LABEL, &aside.join(", ")));
    }
    out
}

fn list(counts: &BTreeMap<String, u64>) -> Option<String> {
    let mut sorted: Vec<_> = counts.iter().collect();
    sorted.sort_by(|a, b| b.1.cmp(a.1));
    let listed: Vec<_> = sorted.iter().map(|(name, n)| format!("{name} {}", count(**n))).collect();
    (!listed.is_empty()).then(|| listed.join(", "))
}

fn culprit(report: &Report, paint: Paint) -> String {
    match &report.culprit {
        None => labelled("culprit", "too few datagrams to say"),
        Some(c) => {
            let name = c.component.name();
            let text = wrap(LABEL, &format!("{name}: {}", c.cause));
            let rest = text.strip_prefix(name).unwrap_or(&text).to_owned();
            labelled("culprit", &(paint.heading(name) + &rest))
        }
    }
}

/// Components with something odd about them.
fn oddities(report: &Report, paint: Paint) -> String {
    let mut said = Vec::new();
    for component in Component::ALL {
        let c = report.components.get(component);
        let odd = [
            ("not known", c.partial),
            ("stepped back below 1 µs", c.negatives),
            ("out of order", c.out_of_order),
            ("parts out of order", c.parts_out_of_order),
            ("above an hour", c.distribution.overflow),
        ];
        said.extend(
            odd.iter()
                .filter(|(_, n)| *n > 0)
                .map(|(what, n)| format!("{} {what} for {}", component.title(), count(*n))),
        );
    }
    if report.waits.forgotten > 0 {
        said.push(format!("waits forgotten for {}", count(report.waits.forgotten)));
    }
    if said.is_empty() {
        return String::new();
    }
    format!("{}\n", paint.faint(wrap(0, &said.join(", "))))
}

fn tails(tails: &[Tail], paint: Paint) -> String {
    if tails.is_empty() {
        return String::new();
    }
    let mut out = section("tail", paint);
    let head = format!(
        "{:<18}{:>10}{:>10}{:>13}{:>9}{:>9}{:>9}",
        "above", "datagrams", "mean", "sender queue", "shaper", "wire", "receiver"
    );
    out += &format!("{}\n", paint.faint(head));
    for tail in tails {
        let name = format!("{} {}", quantile_name(tail.quantile), duration(tail.threshold_ns));
        let first = format!("{name:<18}{:>10}{:>10}", count(tail.count), duration(tail.mean_ns));
        out += &share_row(&first, &tail.share);
        if let Some(excess) = &tail.excess_share {
            out += &share_row(&format!("{:<38}", "  of the excess over the median"), excess);
        }
    }
    out
}

fn share_row(first: &str, shares: &crate::report::Shares) -> String {
    let [sender, shaper, wire, receiver] = Component::ALL.map(|c| percent(shares.get(c)));
    format!("{first}{sender:>13}{shaper:>9}{wire:>9}{receiver:>9}\n")
}

/// The balance of each run, where there is more than one.
fn runs(report: &Report, paint: Paint) -> String {
    if report.by_run.len() < 2 {
        return String::new();
    }
    let mut out = section("runs", paint);
    for run in &report.by_run {
        let text = format!("{:#010x} ({}) {}", run.run, run.origin, short_balance(&run.balance));
        out += &format!("{}\n", wrap(2, &text));
    }
    out
}

fn short_balance(b: &Balance) -> String {
    let mut text = format!(
        "sent {}, delivered {}, dropped {}, in flight {}, unobserved {}",
        b.sent.map_or_else(|| "—".to_owned(), count),
        count(b.delivered),
        count(b.dropped),
        count(b.in_flight),
        count(b.unobserved)
    );
    if b.unaccounted != 0 {
        text += &format!(", unaccounted {:+}", b.unaccounted);
    }
    text
}

fn flows(flows: &[FlowReport], others: Option<&OtherFlows>, paint: Paint) -> String {
    if flows.is_empty() {
        return String::new();
    }
    let mut out = section("flows", paint);
    for flow in flows.iter().take(FLOWS) {
        out += &one_flow(flow, paint);
    }
    if let Some(hidden) = flows.len().checked_sub(FLOWS).filter(|n| *n > 0) {
        out += &format!("  {hidden} more with their own figures in the JSON report\n");
    }
    if let Some(others) = others {
        let text = format!("  {} more together: {}", count(others.flows), short_balance(&others.counts));
        out += &format!("{}\n", wrap(2, &text));
    }
    out
}

fn one_flow(flow: &FlowReport, paint: Paint) -> String {
    let key = &flow.key;
    let end = |e: &Option<crate::report::Endpoint>| {
        e.as_ref().map_or_else(
            || "(not seen here)".to_owned(),
            |e| e.pid.map_or_else(|| e.comm.clone(), |pid| format!("{}[{pid}]", e.comm)),
        )
    };
    let address = |a: &Option<String>| a.clone().unwrap_or_else(|| "?".to_owned());
    let title = format!(
        "{:#010x}.{} {} {} → {} {}",
        key.run,
        key.stream,
        end(&key.sender),
        address(&key.source),
        end(&key.receiver),
        address(&key.destination)
    );
    let total = &flow.components.total;
    let figures = format!(
        "{}; total p50 {}, p99 {}, p99.9 {}, max {}",
        short_balance(&flow.counts),
        duration_or_dash(total.p50_ns),
        duration_or_dash(total.p99_ns),
        duration_or_dash(total.p99_9_ns),
        duration_or_dash(total.max_ns)
    );
    format!("{}\n    {}\n", wrap(2, &title), paint.faint(wrap(4, &figures)))
}

/// What the figures come from: host, clock, waits, hooks.
fn behind(report: &Report, paint: Paint) -> String {
    let host = &report.host;
    let mut out = section("behind the figures", paint);
    let ratio = |r: Option<f64>| r.map_or_else(|| "—".to_owned(), percent);
    let cpus = host.cpus.map_or_else(|| "—".to_owned(), |n| n.to_string());
    let text = format!(
        "{}, kernel {}, {cpus} CPUs {} busy, steal {}",
        host.name,
        host.kernel,
        ratio(host.busy_ratio),
        ratio(host.steal_ratio)
    );
    out += &labelled("host", &wrap(LABEL, &text));
    let text = format!("{} at every point; detail {}", host.clock, detail(report));
    out += &labelled("clock", &text);
    let w = &report.waits;
    let text = format!("run queue {}; send buffer {}", waits(&w.run_queue), waits(&w.send_buffer));
    out += &labelled("waits", &wrap(LABEL, &text));
    out += &hooks(&report.hooks, paint);
    out
}

fn waits(w: &WaitTotals) -> String {
    if w.count == 0 {
        return "none".to_owned();
    }
    format!("{} in all {}, longest {}", count(w.count), duration(w.total_ns), duration(w.max_ns))
}

fn hooks(hooks: &[Hook], paint: Paint) -> String {
    let head = format!("{:<14}{:<34}{:<12}{:>9}{:>9}", "point", "hook", "kind", "ns/call", "missed");
    let mut out = format!("{}\n", paint.faint(head));
    for h in hooks {
        let cost = h.ns_per_call.map_or_else(|| "—".to_owned(), |ns| format!("{ns:.0}"));
        out += &format!("{:<14}{:<34}{:<12}{cost:>9}{:>9}\n", h.point, h.hook, h.kind, count(h.missed));
    }
    out
}

/// What did not pass, with its meaning; what passed, by name.
fn findings(findings: &[Finding], paint: Paint) -> String {
    let mut out = section("findings", paint);
    for finding in findings.iter().filter(|f| f.level > Level::Passed) {
        out += &one_finding(finding, paint);
    }
    let passed: Vec<_> =
        findings.iter().filter(|f| f.level == Level::Passed).map(|f| f.check.as_str()).collect();
    if !passed.is_empty() {
        let text = wrap(LABEL, &passed.join(", "));
        out += &format!("{}{text}\n", paint.level(Level::Passed, format!("{:<LABEL$}", "passed")));
    }
    out
}

fn one_finding(finding: &Finding, paint: Paint) -> String {
    let level = paint.level(finding.level, format!("{:<LABEL$}", finding.level.name()));
    let text = wrap(LABEL, &format!("{}: {} ({})", finding.check, finding.means, finding.observed));
    let mut out = format!("{level}{text}\n");
    if !finding.detail.is_empty() {
        let detail = wrap(LABEL, &finding.detail);
        out += &format!("{:<LABEL$}{}\n", "", paint.faint(detail));
    }
    if !finding.advice.is_empty() {
        out += &format!("{:<LABEL$}{}\n", "", wrap(LABEL + 2, &format!("→ {}", finding.advice)));
    }
    out
}
