//! The queues in a few lines: what drains, what limits, what reads.

use super::paint::{Paint, wrap};
use crate::diagnose::limiter::{Basis, Limiter};
use crate::diagnose::receiver::{ReceiverCause, ReceiverQueue};
use crate::diagnose::sender::{SenderCause, SenderQueue};
use crate::model::question::time;
use crate::model::stats::Interval;
use crate::model::two_sided::Kind;
use crate::report::Report;
use crate::view::units::{bit_rate, bytes, count, percent, rate};

/// Columns of the labels on the left.
const LABEL: usize = 10;

/// The section, or nothing where there is nothing to say.
pub(super) fn section(report: &Report, paint: Paint) -> String {
    let lines: Vec<(&str, String)> = [
        ("sender", report.sender_queue.as_ref().and_then(sender)),
        ("limiter", report.limiter.as_ref().and_then(limiter)),
        ("receiver", report.receiver_queue.as_ref().and_then(receiver)),
    ]
    .into_iter()
    .filter_map(|(label, text)| Some((label, text?)))
    .collect();
    if lines.is_empty() {
        return String::new();
    }
    let mut out = super::section("queues", paint);
    for (label, text) in lines {
        out += &super::labelled(label, &wrap(LABEL, &text));
    }
    out
}

/// `1.60 M/s (1.58 to 1.61 M/s, at worst 1.30 M/s) over 12 bursts …`
pub(crate) fn sender(q: &SenderQueue) -> Option<String> {
    let d = q.drain.as_ref();
    if q.cause == SenderCause::None && d.is_none() {
        return None;
    }
    let mut text = match d {
        Some(d) => format!(
            "drains {}{}, at worst {}, over {} bursts of up to {}; N/max would say {}",
            rate(d.typical_per_s),
            between(d.typical_interval, rate),
            rate(d.conservative_per_s),
            count(q.bursts),
            count(q.burst),
            d.n_over_max_per_s.map_or_else(|| "—".to_owned(), rate)
        ),
        None => format!("starts up to {} late", time(q.start_latency_s)),
    };
    text += &format!("; longest wait {}", time(q.measured_max_wait_s));
    if let Some(answer) = &q.answer {
        text += &format!(", by the model {}", time(answer.max_wait_s));
    }
    Some(text)
}

fn between(interval: Option<Interval>, show: impl Fn(f64) -> String) -> String {
    interval.map_or_else(String::new, |i| format!(" ({} to {})", show(i.low), show(i.high)))
}

/// `tbf 20.0 Mbit/s, …; tbf on eth0 says …; 5,460 of 9,000 held back …`
pub(crate) fn limiter(l: &Limiter) -> Option<String> {
    let mut text = match l.kind {
        Kind::None => return None,
        Kind::NotEnoughEvidence if l.throttled == 0 => return None,
        Kind::Unknown | Kind::NotEnoughEvidence | Kind::SenderStall => {
            format!("{}: {}", l.kind.name(), l.why)
        }
        Kind::Tbf | Kind::Credit => {
            format!("{} {}{}", l.kind.name(), l.figures(), between(l.interval.rate_bit_s, bit_rate))
        }
    };
    if l.basis == Basis::OneSided {
        text += ", somewhere on the way";
    }
    if let Some(c) = l.configured.as_ref().filter(|c| c.rate_bit_s.is_some()) {
        text += &format!(
            "; {} on {} says {}, {}",
            c.kind,
            c.device,
            c.rate_bit_s.map_or_else(|| "—".to_owned(), |r| bit_rate(r as f64)),
            c.burst_bytes.map_or_else(|| "—".to_owned(), |b| bytes(b as f64))
        );
    }
    text +=
        &format!("; {} of {} held back, up to {}", count(l.throttled), count(l.passages), time(l.max_wait_s));
    Some(text)
}

fn receiver(q: &ReceiverQueue) -> Option<String> {
    if q.cause == ReceiverCause::None {
        return None;
    }
    let b = &q.buffer;
    let per_s = |r: Option<f64>| r.map_or_else(|| "—".to_owned(), rate);
    Some(format!(
        "{} arrive, {} are read while any wait, {} of the time; the worst burst needs {} of buffer, the socket has \
         {}; {} dropped",
        per_s(q.arrival_per_s),
        per_s(q.drain_per_s),
        percent(q.busy_share),
        bytes(b.needed_bytes as f64),
        b.granted_bytes.map_or_else(|| "—".to_owned(), |g| bytes(g as f64)),
        count(q.dropped)
    ))
}
