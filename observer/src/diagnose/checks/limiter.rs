//! What holds datagrams back between the stack and the wire.

use super::{Seen, cause, figures, finding};
use crate::diagnose::FLOOR_NS;
use crate::diagnose::limiter::{Basis, Limiter, against_lost_tokens};
use crate::model::question::time;
use crate::model::seconds;
use crate::model::two_sided::Kind;
use crate::report::{Finding, Level};
use crate::view::units::{bit_rate, bytes, count, percent};

/// Share by which a rate differs from what is configured to be worth saying.
const DIFFERS: f64 = 0.02;

/// The limiter, if it holds anything back for longer than is worth naming.
fn holding<'a>(seen: &'a Seen<'_>) -> Option<&'a Limiter> {
    let limits =
        |l: &&Limiter| matches!(l.kind, Kind::Tbf | Kind::Credit) && l.max_wait_s >= seconds(FLOOR_NS);
    seen.diagnosis.limiter.as_ref().filter(limits)
}

fn evidence(l: &Limiter) -> [(&'static str, Option<f64>); 6] {
    [
        ("rate_bit_s", l.rate_bit_s),
        ("burst_bytes", l.burst_bytes),
        ("offered_bit_s", l.offered_bit_s),
        ("needed_burst_bytes", l.needed_burst_bytes),
        ("throttled", Some(l.throttled as f64)),
        ("max_wait_s", Some(l.max_wait_s)),
    ]
}

fn described(l: &Limiter) -> String {
    let place = match (&l.configured, l.basis) {
        (Some(c), _) => format!("{} on {}", c.kind, c.device),
        (None, Basis::TwoSided) => match l.kind {
            Kind::Credit => "a credit limiter".to_owned(),
            _ => "a token bucket".to_owned(),
        },
        (None, Basis::OneSided) => "a limiter on the way".to_owned(),
    };
    format!(
        "{place}: {}; {} datagrams held back, up to {}",
        l.figures(),
        count(l.throttled),
        time(l.max_wait_s)
    )
}

/// More is offered than the rate, all the time.
pub(crate) fn limiter_rate(seen: &Seen<'_>) -> Option<Finding> {
    let l = holding(seen).filter(|l| l.is_sustained() && !l.is_losing())?;
    Some(cause(
        "limiter-rate",
        described(l),
        "more is offered than the limiter lets through: the queue in front of it stays full",
        &l.advice,
        &evidence(l),
    ))
}

/// Bursts beyond the bucket or quantum, below the rate on average.
pub(crate) fn limiter_burst(seen: &Seen<'_>) -> Option<Finding> {
    let l = holding(seen).filter(|l| !l.is_sustained() && !l.is_losing())?;
    Some(cause(
        "limiter-burst",
        described(l),
        "bursts are larger than the limiter lets through at once, though the rate would do",
        &l.advice,
        &evidence(l),
    ))
}

/// Tokens lost behind late timers.
pub(crate) fn tokens_lost(seen: &Seen<'_>) -> Option<Finding> {
    let l = holding(seen).filter(|l| l.loses_tokens())?;
    let lost = l.tokens_lost?;
    let observed = format!(
        "{} came through, {} less than the rate; the longest gap {}, the bucket lasts {}",
        bit_rate(lost.throughput_bit_s),
        percent(lost.lost_share),
        time(lost.longest_gap_s),
        time(lost.bucket_s)
    );
    Some(cause(
        "tokens-lost",
        observed,
        "timers fire later than the bucket lasts: tokens overflow, and the limiter passes less than its rate",
        &against_lost_tokens(l),
        &[
            ("throughput_bit_s", Some(lost.throughput_bit_s)),
            ("rate_bit_s", l.rate_bit_s),
            ("longest_gap_s", Some(lost.longest_gap_s)),
            ("bucket_s", Some(lost.bucket_s)),
        ],
    ))
}

/// Measured against configured.
pub(crate) fn limiter_as_configured(seen: &Seen<'_>) -> Option<Finding> {
    let l = seen.diagnosis.limiter.as_ref().filter(|l| l.kind == Kind::Tbf)?;
    let c = l.configured.as_ref()?;
    let (says, measured) = (c.rate_bit_s? as f64, l.rate_bit_s?);
    let burst = |b: Option<f64>| b.map_or_else(|| "—".to_owned(), bytes);
    let observed = format!(
        "{} says {} and a bucket of {}; measured {} and {}",
        c.kind,
        bit_rate(says),
        burst(c.burst_bytes.map(|b| b as f64)),
        bit_rate(measured),
        burst(l.burst_bytes)
    );
    let off = measured / says - 1.0;
    let evidence = figures(&[
        ("configured_bit_s", Some(says)),
        ("measured_bit_s", Some(measured)),
        ("configured_burst_bytes", c.burst_bytes.map(|b| b as f64)),
        ("measured_burst_bytes", l.burst_bytes),
    ]);
    let (level, means, advice) = match off {
        _ if off.abs() <= DIFFERS || l.loses_tokens() => {
            (Level::Passed, "the limiter does what it is configured to", "")
        }
        _ if off < 0.0 => (
            Level::Warning,
            "less comes through than is configured",
            "other traffic shares the limiter, or datagrams were not seen: compare its own counters (tc -s)",
        ),
        _ => (
            Level::Warning,
            "more comes through than is configured",
            "it was changed meanwhile, or another device limits: look at tc qdisc show",
        ),
    };
    Some(Finding {
        advice: advice.to_owned(),
        evidence,
        ..finding("limiter-as-configured", level, observed, means, String::new())
    })
}

/// Credit that lasted seconds or minutes.
pub(crate) fn long_term_credit(seen: &Seen<'_>) -> Option<Finding> {
    let long = seen.diagnosis.limiter.as_ref()?.long_term?;
    let observed = format!(
        "{} for {}, then {}",
        bit_rate(long.before_bit_s),
        time(long.after_s),
        bit_rate(long.after_bit_s)
    );
    Some(cause(
        "long-term-credit",
        observed,
        "the rate fell once a credit was used up: what is measured before that does not last",
        &format!(
            "measure for longer than {} after the credit is gone, or plan with the later rate; the credit was {}",
            time(long.after_s),
            bytes(long.credit_bytes)
        ),
        &[
            ("before_bit_s", Some(long.before_bit_s)),
            ("after_bit_s", Some(long.after_bit_s)),
            ("after_s", Some(long.after_s)),
            ("credit_bytes", Some(long.credit_bytes)),
        ],
    ))
}

/// The sender stood still as a whole.
pub(crate) fn sender_stall(seen: &Seen<'_>) -> Option<Finding> {
    let l = seen.diagnosis.limiter.as_ref().filter(|l| l.kind == Kind::SenderStall)?;
    let observed = format!(
        "the sender stood still for {} of the time; steal {}",
        percent(l.stall_share),
        l.steal_ratio.map_or_else(|| "—".to_owned(), percent)
    );
    Some(cause(
        "sender-stall",
        observed,
        "the gaps are the sender's own, at entry and exit alike: no limiter, but a process or machine without CPU",
        &l.advice,
        &[
            ("stall_share", Some(l.stall_share)),
            ("steal_ratio", l.steal_ratio),
            ("datagrams", Some(l.passages as f64)),
        ],
    ))
}
