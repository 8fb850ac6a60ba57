//! Whether there was anything, and whether the counts add up.

use super::{Seen, figures, finding};
use crate::report::{Finding, Kind, Level};
use crate::view::units::count;

/// Final: whether anything was followed.
pub(crate) fn datagrams_seen(seen: &Seen<'_>) -> Option<Finding> {
    if seen.report.kind != Kind::Final {
        return None;
    }
    let c = &seen.report.counts;
    let followed = c.sent.unwrap_or(0).saturating_add(c.received_only);
    let observed = format!(
        "{} datagrams followed; {} unstamped, {} foreign",
        count(followed),
        count(c.unstamped_sent.saturating_add(c.unstamped_received)),
        count(c.foreign)
    );
    let found = |level, means| finding("datagrams-seen", level, observed.clone(), means, String::new());
    Some(if followed > 0 {
        found(Level::Passed, "there was something to measure")
    } else {
        Finding {
            advice: "check that the sender stamps its datagrams and that the filters match one end"
                .to_owned(),
            ..found(Level::Invalid, "nothing was measured")
        }
    })
}

/// Final: whether every datagram is accounted for.
pub(crate) fn counts_reconcile(seen: &Seen<'_>) -> Option<Finding> {
    if seen.report.kind != Kind::Final {
        return None;
    }
    let c = &seen.report.counts;
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
    if seen.reasons_surplus != 0 {
        why.push(format!("drops by reason differ from drops by flow by {:+}", seen.reasons_surplus));
    }
    if seen.records_surplus > 0 {
        why.push(format!("{} records more than datagrams counted", count(seen.records_surplus)));
    }
    let (level, means) = match () {
        () if c.unaccounted != 0 => (Level::Invalid, "the counts contradict each other"),
        () if !why.is_empty() => (Level::Warning, "two ways of counting differ"),
        () => (Level::Passed, "every datagram is accounted for"),
    };
    let evidence = figures(&[("unaccounted", Some(c.unaccounted as f64))]);
    Some(Finding { evidence, ..finding("counts-reconcile", level, observed, means, why.join("; ")) })
}
