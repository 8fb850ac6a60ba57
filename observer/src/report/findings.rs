//! What is checked about every report, and what each outcome means.
//!
//! A plain observation has no objectives, so nothing here says FAILED: a
//! finding passes, warns, or says that the run did not measure what it was
//! asked to (INVALID). The checks that need the end of a run are made in final
//! reports only.

use std::cmp::Reverse;

use super::{Counts, Finding, Kind, Level, Report, SendLag};
use crate::culprit::FLOOR_NS;
use crate::metrics::counts::{RECORDS_MISSING, Totals};
use crate::metrics::{Latency, Quantile, Window};
use crate::view::units::{count, duration, duration_or_dash, percent};

/// Datagrams without a known end, or records lost: above this the figures are
/// not those of the run.
pub const INCOMPLETE_INVALID: f64 = 0.01;
/// Steal above this is worth knowing.
pub const STEAL_WARNING: f64 = 0.01;
/// Steal above this makes latencies the hypervisor's.
pub const STEAL_INVALID: f64 = 0.05;
/// Run-queue delay of the flow's threads above this, at p99, is worth knowing:
/// it is where a tail is worth naming.
pub const RUN_QUEUE_WARNING_NS: u64 = FLOOR_NS;
/// Shorter runs see too few of a host's rare events (timers, cron, writeback).
pub const LONG_ENOUGH_NS: u64 = 30_000_000_000;

/// Drop reasons of a receive buffer that was full.
const FULL_BUFFER: [&str; 2] = ["SOCKET_RCVBUFF", "PROTO_MEM"];

/// Lost events that may have hit any UDP socket of the host: whether they hit
/// a followed datagram shows in what is unobserved or partial.
const AMBIGUOUS: [&str; 6] =
    ["paged", "kernel_read_failed", "user_read_failed", "no_user_buffer", "short_read", "thread_conflict"];

/// What the checks need beyond the report itself.
#[derive(Debug)]
pub struct Evidence<'a> {
    total: &'a Latency,
    run_queue: Vec<(&'static str, Option<u64>)>,
    reasons_surplus: i64,
    records_surplus: u64,
}

impl<'a> Evidence<'a> {
    /// From the distributions and the counts since the start.
    pub fn of(window: &'a Window, totals: &Totals) -> Self {
        use crate::component::Part::{ReceiverRunQueue, SenderRunQueue};
        let p99 = |p: crate::component::Part| window.parts[p as usize].quantile(Quantile::P99);
        Self {
            total: &window.total,
            run_queue: vec![("sender", p99(SenderRunQueue)), ("receiver", p99(ReceiverRunQueue))],
            reasons_surplus: totals.reasons_surplus,
            records_surplus: totals.records_surplus,
        }
    }
}

/// The worst level.
pub fn verdict(findings: &[Finding]) -> Level {
    findings.iter().map(|f| f.level).max().unwrap_or(Level::Passed)
}

/// Makes every check that applies.
pub fn all(report: &Report, evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut findings = vec![
        observer_complete(report, evidence),
        points_in_order(report),
        host_was_quiet(report, evidence),
        receiver_kept_up(&report.counts),
    ];
    findings.extend(dropped_elsewhere(&report.counts));
    findings.extend(report.send_lag.as_ref().and_then(offered_on_time));
    if report.kind == Kind::Final {
        findings.extend([
            datagrams_seen(&report.counts),
            counts_reconcile(&report.counts, evidence),
            run_was_long_enough(report),
            quantile_quotable(report),
        ]);
    }
    findings.sort_by_key(|f| Reverse(f.level));
    findings
}

fn finding(check: &str, level: Level, observed: String, means: &str, detail: String) -> Finding {
    Finding { check: check.to_owned(), level, observed, means: means.to_owned(), detail }
}

fn datagrams_seen(c: &Counts) -> Finding {
    let followed = c.sent.unwrap_or(0).saturating_add(c.received_only);
    let observed = format!(
        "{} datagrams followed; {} unstamped, {} foreign",
        count(followed),
        count(c.unstamped_sent.saturating_add(c.unstamped_received)),
        count(c.foreign)
    );
    if followed > 0 {
        return finding(
            "datagrams-seen",
            Level::Passed,
            observed,
            "there was something to measure",
            String::new(),
        );
    }
    finding(
        "datagrams-seen",
        Level::Invalid,
        observed,
        "nothing was measured",
        "check that the sender stamps its datagrams and that the filters match one end".to_owned(),
    )
}

fn observer_complete(report: &Report, evidence: &Evidence<'_>) -> Finding {
    let c = &report.counts;
    let lost = |name: &str| c.lost_events.get(name).copied().unwrap_or(0);
    let missing = c.unobserved.saturating_add(lost("ring_full")).saturating_add(lost(RECORDS_MISSING));
    let sent = c.sent.unwrap_or(0).saturating_add(c.received_only);
    let share = ratio(missing, sent);
    let certain: u64 =
        c.lost_events.iter().filter(|(k, _)| !AMBIGUOUS.contains(&k.as_str())).map(|(_, n)| n).sum();
    let level = match () {
        () if share > INCOMPLETE_INVALID => Level::Invalid,
        () if missing > 0 || certain > 0 || partial(c) > INCOMPLETE_INVALID => Level::Warning,
        () => Level::Passed,
    };
    let observed = format!(
        "{} of {} datagrams without a known end or record ({}), {} lost events",
        count(missing),
        count(sent),
        percent(share),
        count(c.lost_total())
    );
    let means = match level {
        Level::Passed => "the figures are those of every datagram",
        Level::Invalid => "too much is missing: the figures are not those of the run",
        _ if missing == 0 && certain == 0 => "some components miss some datagrams",
        _ => "the figures miss some datagrams",
    };
    finding("observer-complete", level, observed, means, completeness(c, missing, evidence.total))
}

/// Share of the datagrams delivered that lack a component they should have. A
/// sender elsewhere is none that is lacking.
fn partial(c: &Counts) -> f64 {
    if c.sent.is_none() { 0.0 } else { ratio(c.partial, c.delivered) }
}

/// Points of one datagram must not step back by more than two CPUs' clocks
/// may differ: if they do, they are not of the same datagram or not of the
/// same clock.
fn points_in_order(report: &Report) -> Finding {
    let c = &report.components;
    let all = [&c.sender_queue, &c.shaper, &c.wire, &c.receiver, &c.total];
    let errors = all.iter().fold(0_u64, |sum, c| sum + c.out_of_order + c.parts_out_of_order);
    let negatives = all.iter().fold(0_u64, |sum, c| sum + c.negatives);
    let level = match ratio(errors, report.counts.delivered) {
        _ if errors == 0 => Level::Passed,
        share if share > INCOMPLETE_INVALID => Level::Invalid,
        _ => Level::Warning,
    };
    let observed =
        format!("{} differences of -1 µs or less, {} above that taken as 0", count(errors), count(negatives));
    let means = match level {
        Level::Passed => "every journey's points are in order",
        _ => "points out of order: the components they bound are left out",
    };
    finding("points-in-order", level, observed, means, String::new())
}

fn completeness(c: &Counts, missing: u64, total: &Latency) -> String {
    let mut said = Vec::new();
    if missing > 0 {
        said.extend(Quantile::ALL[2..].iter().filter_map(|q| bounds(total, *q, missing)));
    }
    if c.partial > 0 {
        said.push(format!("{} journeys are partial", count(c.partial)));
    }
    if c.lost_events.contains_key("run_table_full") {
        said.push(
            "runs beyond the table's 16, or beyond 8 of one process, are not followed: start observer anew, or \
             name the run with --run"
                .to_owned(),
        );
    }
    if let Some(paged) = c.lost_events.get("paged") {
        said.push(format!(
            "{} packets have their payload in page fragments (UDP GSO, zero copy), where a stamp cannot be read: \
             send without segmentation offload to follow them",
            count(*paged)
        ));
    }
    said.extend(c.lost_events.iter().map(|(cause, n)| format!("{cause} {}", count(*n))));
    said.join("; ")
}

/// Where a quantile can lie if the missing datagrams were all faster or all
/// slower than it.
fn bounds(total: &Latency, q: Quantile, missing: u64) -> Option<String> {
    total.quantile(q)?;
    let rank = q.rank(total.count().saturating_add(missing));
    let low = total.at_rank(rank.saturating_sub(missing).max(1));
    let high = total.at_rank(rank);
    let high = high.map_or_else(|| "anything above".to_owned(), duration);
    Some(format!("total_{} lies between {} and {high}", q.name(), duration_or_dash(low)))
}

fn counts_reconcile(c: &Counts, evidence: &Evidence<'_>) -> Finding {
    let observed = format!(
        "sent {} + received only {} = delivered {} + dropped {} + in flight {} + unobserved {}{}",
        c.sent.map_or_else(|| "—".to_owned(), count),
        count(c.received_only),
        count(c.delivered),
        count(c.dropped_total()),
        count(c.in_flight),
        count(c.unobserved),
        if c.unaccounted == 0 { String::new() } else { format!(" {:+} unaccounted", c.unaccounted) },
    );
    let mut why = Vec::new();
    if evidence.reasons_surplus != 0 {
        why.push(format!("drops by reason differ from drops by flow by {:+}", evidence.reasons_surplus));
    }
    if evidence.records_surplus > 0 {
        why.push(format!("{} records more than datagrams counted", count(evidence.records_surplus)));
    }
    let (level, means) = match () {
        () if c.unaccounted != 0 => (Level::Invalid, "the counts contradict each other"),
        () if !why.is_empty() => (Level::Warning, "two ways of counting differ"),
        () => (Level::Passed, "every datagram is accounted for"),
    };
    finding("counts-reconcile", level, observed, means, why.join("; "))
}

fn host_was_quiet(report: &Report, evidence: &Evidence<'_>) -> Finding {
    let steal = report.host.steal_ratio;
    let worst = evidence.run_queue.iter().filter_map(|(side, ns)| ns.map(|ns| (ns, *side))).max();
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
    let means = match level {
        Level::Passed => "the host left the flow's threads their CPUs",
        Level::Invalid => "the hypervisor took the CPUs away: latencies are its, not the system's",
        _ => "part of the latency is the host's, not a queue's",
    };
    let detail = match report.host.busy_ratio {
        Some(busy) => format!("CPUs {} busy", percent(busy)),
        None => String::new(),
    };
    finding("host-was-quiet", level, observed, means, detail)
}

/// `None` with too few samples for a p99.
fn offered_on_time(lag: &SendLag) -> Option<Finding> {
    let p99 = lag.distribution.p99_ns?;
    let max = lag.distribution.max_ns.map_or_else(|| "—".to_owned(), duration);
    let observed = format!("send lag p99 {}, largest {max}", duration(p99));
    let late = p99 >= FLOOR_NS;
    Some(finding(
        "offered-on-time",
        if late { Level::Warning } else { Level::Passed },
        observed,
        if late {
            "datagrams were offered later than their schedule wanted: that wait is in no component"
        } else {
            "the application offered when it meant to"
        },
        if late {
            "measured from the intended time, latency is longer by the send lag; the application or the generator \
             was late, stopped, or blocked in a send call before"
                .to_owned()
        } else {
            String::new()
        },
    ))
}

fn receiver_kept_up(c: &Counts) -> Finding {
    let full: u64 = FULL_BUFFER.iter().filter_map(|r| c.dropped.get(*r)).sum();
    let observed = format!("{} datagrams dropped at a full receive buffer", count(full));
    if full == 0 {
        return finding(
            "receiver-kept-up",
            Level::Passed,
            observed,
            "the reader was fast enough",
            String::new(),
        );
    }
    finding(
        "receiver-kept-up",
        Level::Warning,
        observed,
        "the reader fell behind",
        "the latencies are those of the datagrams that got through; read faster, or raise SO_RCVBUF to ride out \
         bursts"
            .to_owned(),
    )
}

/// Drops that are not the reader's fault: a full qdisc, a closed port, no
/// neighbour, a firewall.
fn dropped_elsewhere(c: &Counts) -> Option<Finding> {
    let reasons: Vec<String> = c
        .dropped
        .iter()
        .filter(|(reason, n)| !FULL_BUFFER.contains(&reason.as_str()) && **n > 0)
        .map(|(reason, n)| format!("{reason} {}", count(*n)))
        .collect();
    if reasons.is_empty() {
        return None;
    }
    let (means, detail) = if c.delivered == 0 {
        ("nothing arrives", "check the address, the port and the way there; the reasons are the kernel's")
    } else {
        ("some datagrams die on the way", "their latency is none; the reasons are the kernel's")
    };
    Some(finding("dropped-on-the-way", Level::Warning, reasons.join(", "), means, detail.to_owned()))
}

fn run_was_long_enough(report: &Report) -> Finding {
    let ns = report.to_ns.saturating_sub(report.from_ns);
    let (level, means) = if ns >= LONG_ENOUGH_NS {
        (Level::Passed, "rare events had time to show")
    } else {
        (Level::Warning, "too short for rare events: timers, writeback, neighbours")
    };
    let detail = format!("{} is the least", duration(LONG_ENOUGH_NS));
    finding("run-was-long-enough", level, duration(ns), means, detail)
}

fn quantile_quotable(report: &Report) -> Finding {
    let n = report.components.total.distribution.count;
    let short = Quantile::ALL.into_iter().find(|q| !q.quotable(n));
    let observed = format!("{} totals", count(n));
    match short {
        None => finding(
            "quantile-quotable",
            Level::Passed,
            observed,
            "every quantile stands on at least ten datagrams above it",
            String::new(),
        ),
        Some(q) => finding(
            "quantile-quotable",
            Level::Warning,
            observed,
            "the higher quantiles are not quoted",
            format!("{} takes {}", q.name(), count(q.needs())),
        ),
    }
}

fn ratio(part: u64, of: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a share needs a few digits")]
    let share = part as f64 / of.max(part).max(1) as f64;
    share
}
