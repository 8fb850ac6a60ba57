//! Every check there is: its name, when it speaks, and the function that makes
//! it. Text, JSON and every other view take their findings from here.
//!
//! [`findings`] runs them all and puts the worst first; of equally bad ones
//! that which names the cause. `docs/findings.md` documents each, which a test
//! below enforces.

use super::checks::{self, Seen};
use crate::report::{Blame, Finding, Level};

/// A check.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Its name in the report.
    pub name: &'static str,
    /// When it speaks, in a sentence.
    pub condition: &'static str,
    /// Whom it blames: it comes first where that is the culprit.
    blames: Option<Blame>,
    make: fn(&Seen<'_>) -> Option<Finding>,
}

const fn check(
    name: &'static str,
    condition: &'static str,
    blames: Option<Blame>,
    make: fn(&Seen<'_>) -> Option<Finding>,
) -> Check {
    Check { name, condition, blames, make }
}

const SENDER: Option<Blame> = Some(Blame::SenderQueue);
const SHAPER: Option<Blame> = Some(Blame::Shaper);
const RECEIVER: Option<Blame> = Some(Blame::Receiver);

/// All checks. Where neither level nor culprit decides, they stand in this
/// order.
pub const ALL: &[Check] = &[
    check(
        "no-tail",
        "nobody is to blame: no tail worth naming, nothing dropped, and the queues and the generator say nothing else",
        Some(Blame::None),
        no_tail,
    ),
    check(
        "sender-stall",
        "the sender stood still for more than 5 % of the time, at entry and exit of the device alike",
        None,
        checks::limiter::sender_stall,
    ),
    check(
        "generator-kept-up",
        "stamps carry a schedule: a lag that grows by more than 1 %, or (where it is not of bursts) has its p99 above 1 ms and 100 intervals, warns",
        None,
        checks::generator::generator_kept_up,
    ),
    check(
        "sender-drain",
        "waits of 1 ms and more in bursts of 100 and more, and none of the other causes has half of the waiting",
        SENDER,
        checks::sender::sender_drain,
    ),
    check(
        "sender-start-latency",
        "more than half of the waiting is in bursts whose first datagram waited more than half of the longest wait",
        SENDER,
        checks::sender::sender_start_latency,
    ),
    check(
        "sender-window",
        "the backlog stops at less than half of the burst, and publishers go on late and at the drain rate",
        SENDER,
        checks::sender::sender_window,
    ),
    check(
        "limiter-rate",
        "a limiter holds datagrams back for 1 ms and more, 95 % of its rate or more are offered on average, and it is not for lost tokens alone",
        SHAPER,
        checks::limiter::limiter_rate,
    ),
    check(
        "limiter-burst",
        "a limiter holds datagrams back for 1 ms and more, less than 95 % of its rate is offered on average, and it is not for lost tokens alone",
        SHAPER,
        checks::limiter::limiter_burst,
    ),
    check(
        "tokens-lost",
        "a token bucket with gaps longer than it lasts, and more than 1 % of the throughput lost to them",
        SHAPER,
        checks::limiter::tokens_lost,
    ),
    check(
        "long-term-credit",
        "the rate falls for good by more than 10 % after 0.15 s and more, and datagrams are held back from then on",
        SHAPER,
        checks::limiter::long_term_credit,
    ),
    check(
        "reader-late",
        "more than half of the waiting is in periods whose first datagram waited 1 ms and more than half of the longest wait",
        RECEIVER,
        checks::receiver::reader_late,
    ),
    check(
        "reader-slow",
        "drops or waits of 1 ms and more, and the socket's queue holds something for more than 90 % of the time",
        RECEIVER,
        checks::receiver::reader_slow,
    ),
    check(
        "receive-buffer",
        "datagrams dropped at the full buffer of a reader that is neither late nor slow",
        RECEIVER,
        checks::receiver::receive_buffer,
    ),
    check(
        "reader-burst",
        "waits of 1 ms and more without drops, for a reader that is neither late nor slow",
        RECEIVER,
        checks::receiver::reader_burst,
    ),
    check(
        "receive-softirq",
        "more than half of the waiting lies between the stack's entry and the socket",
        RECEIVER,
        checks::receiver::softirq,
    ),
    check(
        "observer-complete",
        "always: datagrams without an end or record warn, above 1 % invalid; so do lost events and 1 % partial journeys",
        None,
        checks::complete::observer_complete,
    ),
    check(
        "points-in-order",
        "always: differences of -1 µs and less warn, above 1 % invalid",
        None,
        checks::complete::points_in_order,
    ),
    check(
        "host-was-quiet",
        "always: steal above 1 % or a run-queue delay above 1 ms at p99 warn, steal above 5 % invalid",
        Some(Blame::HostNoise),
        checks::host::host_was_quiet,
    ),
    check(
        "limiter-as-configured",
        "a token bucket and the rate netlink tells: more than 2 % apart warn",
        None,
        checks::limiter::limiter_as_configured,
    ),
    check(
        "receiver-kept-up",
        "always: drops at a full receive buffer warn",
        None,
        checks::drops::receiver_kept_up,
    ),
    check(
        "dropped-on-the-way",
        "drops for any other reason warn, INVALID where nothing arrives",
        None,
        checks::drops::dropped_on_the_way,
    ),
    check(
        "offered-on-time",
        "stamps carry a schedule: a send lag of 1 ms and more at p99 warns",
        None,
        checks::generator::offered_on_time,
    ),
    check("datagrams-seen", "final: nothing followed is invalid", None, checks::counts::datagrams_seen),
    check(
        "counts-reconcile",
        "final: counts that do not add up are invalid, two ways of counting that differ warn",
        None,
        checks::counts::counts_reconcile,
    ),
    check("run-was-long-enough", "final: below 30 s warns", None, checks::length::run_was_long_enough),
    check(
        "quantile-quotable",
        "final: too few totals for p99.9 warn",
        None,
        checks::length::quantile_quotable,
    ),
];

/// Makes every check that applies, worst first.
pub fn findings(seen: &Seen<'_>) -> Vec<Finding> {
    let culprit = seen.report.culprit.as_ref().map(|c| c.component);
    let mut made: Vec<(usize, Finding)> = ALL
        .iter()
        .enumerate()
        .filter_map(|(place, check)| {
            let finding = (check.make)(seen)?;
            let to_blame = check.blames.is_some() && check.blames == culprit;
            Some((rank(check, finding.level, to_blame, seen, place), finding))
        })
        .collect();
    made.sort_by(|a, b| b.1.level.cmp(&a.1.level).then(a.0.cmp(&b.0)));
    made.into_iter().map(|(_, finding)| finding).collect()
}

/// Smaller comes first: a sender that stood still or a generator that fell
/// behind of itself explains what else there is to see; then what blames the
/// culprit; then the rest in their order.
fn rank(check: &Check, level: Level, to_blame: bool, seen: &Seen<'_>, place: usize) -> usize {
    let first = match check.name {
        "sender-stall" => true,
        "generator-kept-up" => {
            level > Level::Passed
                && seen.diagnosis.generator.is_some_and(|lag| lag.grows())
                && checks::generator::explained(seen).is_none()
        }
        _ => false,
    };
    match (first, to_blame) {
        (true, _) => place,
        (false, true) => ALL.len() + place,
        (false, false) => 2 * ALL.len() + place,
    }
}

/// The worst level.
pub fn verdict(findings: &[Finding]) -> Level {
    findings.iter().map(|f| f.level).max().unwrap_or(Level::Passed)
}

/// Nothing to say.
fn no_tail(seen: &Seen<'_>) -> Option<Finding> {
    use super::receiver::ReceiverCause;
    use super::sender::SenderCause;
    use crate::model::two_sided::Kind;
    let culprit = seen.report.culprit.as_ref().filter(|c| c.component == Blame::None)?;
    let d = seen.diagnosis;
    let quiet = seen.report.counts.dropped_total() == 0
        && d.sender_queue.as_ref().is_none_or(|q| q.cause == SenderCause::None)
        && d.receiver_queue.as_ref().is_none_or(|q| q.cause == ReceiverCause::None)
        && d.limiter.as_ref().is_none_or(|l| matches!(l.kind, Kind::None | Kind::NotEnoughEvidence))
        && d.generator.is_none_or(|lag| !lag.is_behind());
    let total = &seen.report.components.total.distribution;
    quiet.then(|| Finding {
        evidence: checks::figures(&[
            ("total_p99_ns", total.p99_ns.map(|ns| ns as f64)),
            ("total_p99_9_ns", total.p99_9_ns.map(|ns| ns as f64)),
            ("datagrams", Some(total.count as f64)),
        ]),
        ..checks::finding(
            "no-tail",
            Level::Passed,
            culprit.cause.clone(),
            "every queue was short",
            String::new(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_is_documented_and_named_once() {
        let docs = include_str!("../../../docs/findings.md");
        let mut names: Vec<_> = ALL.iter().map(|c| c.name).collect();
        for c in ALL {
            assert!(docs.contains(&format!("\n## `{}`\n", c.name)), "{} is not in docs/findings.md", c.name);
            assert!(docs.contains(c.condition), "the condition of {} is not in docs/findings.md", c.name);
        }
        let documented = docs.lines().filter(|l| l.starts_with("## `")).count();
        assert_eq!(documented, ALL.len(), "docs/findings.md describes checks there are none of");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
