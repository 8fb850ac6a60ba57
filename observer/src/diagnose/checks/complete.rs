//! Whether everything was seen, and in order.

use super::{Seen, figures, finding, ratio};
use crate::metrics::counts::RECORDS_MISSING;
use crate::metrics::{Latency, Quantile};
use crate::report::{Counts, Finding, Level};
use crate::view::units::{count, duration, duration_or_dash, percent};

/// Datagrams without a known end, or records lost: above this the figures are
/// not those of the run.
pub const INCOMPLETE_INVALID: f64 = 0.01;

/// Lost events that may have hit any UDP socket of the host: whether they hit
/// a followed datagram shows in what is unobserved or partial.
const AMBIGUOUS: [&str; 6] =
    ["paged", "kernel_read_failed", "user_read_failed", "no_user_buffer", "short_read", "thread_conflict"];

/// Datagrams without a known end or record, with the bounds that puts on the
/// quantiles.
pub(crate) fn observer_complete(seen: &Seen<'_>) -> Option<Finding> {
    let c = &seen.report.counts;
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
    let evidence = figures(&[("missing", Some(missing as f64)), ("sent", Some(sent as f64))]);
    Some(Finding {
        evidence,
        ..finding("observer-complete", level, observed, means, completeness(c, missing, seen.total))
    })
}

/// Share of the datagrams delivered that lack a component they should have. A
/// sender elsewhere is none that is lacking.
fn partial(c: &Counts) -> f64 {
    if c.sent.is_none() { 0.0 } else { ratio(c.partial, c.delivered) }
}

/// Points of one datagram must not step back by more than two CPUs' clocks
/// may differ: if they do, they are not of the same datagram or not of the
/// same clock.
pub(crate) fn points_in_order(seen: &Seen<'_>) -> Option<Finding> {
    let report = seen.report;
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
    let evidence = figures(&[("out_of_order", Some(errors as f64)), ("negatives", Some(negatives as f64))]);
    Some(Finding { evidence, ..finding("points-in-order", level, observed, means, String::new()) })
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
