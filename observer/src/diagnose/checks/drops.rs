//! What was dropped, and where.

use super::{Seen, figures, finding};
use crate::diagnose::receiver::FULL_BUFFER;
use crate::report::{Finding, Level};
use crate::view::units::count;

/// Drops at a full receive buffer.
pub(crate) fn receiver_kept_up(seen: &Seen<'_>) -> Option<Finding> {
    let c = &seen.report.counts;
    let full: u64 = FULL_BUFFER.iter().filter_map(|r| c.dropped.get(*r)).sum();
    let observed = format!("{} datagrams dropped at a full receive buffer", count(full));
    let evidence = figures(&[("dropped", Some(full as f64))]);
    if full == 0 {
        let passed =
            finding("receiver-kept-up", Level::Passed, observed, "the reader was fast enough", String::new());
        return Some(Finding { evidence, ..passed });
    }
    let detail = "the latencies are those of the datagrams that got through".to_owned();
    Some(Finding {
        advice: "read faster, or raise SO_RCVBUF to ride out bursts".to_owned(),
        evidence,
        ..finding("receiver-kept-up", Level::Warning, observed, "the reader fell behind", detail)
    })
}

/// Drops that are not the reader's fault: a full qdisc, a closed port, no
/// neighbour, a firewall.
pub(crate) fn dropped_on_the_way(seen: &Seen<'_>) -> Option<Finding> {
    let c = &seen.report.counts;
    let elsewhere =
        || c.dropped.iter().filter(|(reason, n)| !FULL_BUFFER.contains(&reason.as_str()) && **n > 0);
    let reasons: Vec<String> = elsewhere().map(|(reason, n)| format!("{reason} {}", count(*n))).collect();
    if reasons.is_empty() {
        return None;
    }
    let (level, means, advice) = if c.delivered == 0 {
        (Level::Invalid, "nothing arrives", "check the address, the port and the way there")
    } else {
        (Level::Warning, "some datagrams die on the way", "")
    };
    let detail = "they have no latency; the reasons are the kernel's".to_owned();
    Some(Finding {
        advice: advice.to_owned(),
        evidence: elsewhere().map(|(reason, n)| (reason.clone(), *n as f64)).collect(),
        ..finding("dropped-on-the-way", level, reasons.join(", "), means, detail)
    })
}
