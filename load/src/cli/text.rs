//! Reports as people read them.

use load::confidence::Intervals;
use load::units::{show_count, show_ns};
use load::verdict::{self, Finding, Verdict};
use load::{LatencyHistogram, RecvReport, SendReport};

fn rate(per_second: Option<f64>) -> String {
    per_second.map_or("—".into(), |r| format!("{}/s", thousands(r)))
}

/// A rate with thousands separated, rounded to a whole number.
fn thousands(r: f64) -> String {
    format!("{r:.0}").parse().map_or_else(|_| format!("{r:.0}"), show_count)
}

fn ns(value: Option<u64>) -> String {
    value.map_or("—".into(), |v| show_ns(i64::try_from(v).unwrap_or(i64::MAX)))
}

/// A quantile, with half its confidence interval where that is known.
fn quantile(value: Option<u64>, interval: Option<[u64; 2]>) -> String {
    let half = value.zip(interval).map(|(v, [_, high])| format!(" ± {}", ns(Some(high.saturating_sub(v)))));
    ns(value) + half.as_deref().unwrap_or("")
}

fn latency(name: &str, h: &LatencyHistogram) -> String {
    let s = h.summary();
    let of = |get: fn(&Intervals) -> Option<[u64; 2]>| s.ci95.as_ref().and_then(get);
    let mut line = format!(
        "  {name:<14} n={}  p50={}  p90={}  p99={}  p99.9={}  max={}\n",
        show_count(s.count),
        quantile(s.p50_ns, of(|i| i.p50_ns)),
        quantile(s.p90_ns, of(|i| i.p90_ns)),
        quantile(s.p99_ns, of(|i| i.p99_ns)),
        quantile(s.p99_9_ns, of(|i| i.p99_9_ns)),
        s.max_ns.map_or("—".into(), show_ns)
    );
    if s.underflow + s.overflow > 0 {
        line.push_str(&format!(
            "  {:<14} outside the range: {} negative, {} above ten minutes\n",
            "",
            show_count(s.underflow),
            show_count(s.overflow)
        ));
    }
    line
}

/// The sending side.
pub(crate) fn send(r: &SendReport) -> String {
    let mut out = format!(
        "  {:<14} {}  ({}, asked {}) in {}, run {}\n",
        "offered",
        show_count(r.offered),
        rate(r.achieved_per_s),
        if r.unthrottled { "no rate".into() } else { rate(r.offered_per_s) },
        show_ns(r.length_ns),
        r.run
    );
    out.push_str(&format!("  {:<14} {}", "sent", show_count(r.sent)));
    for (name, n) in &r.refused {
        out.push_str(&format!(", refused {} ({name})", show_count(*n)));
    }
    if r.discarded > 0 {
        out.push_str(&format!(", discarded {}", show_count(r.discarded)));
    }
    if r.skipped > 0 {
        out.push_str(&format!(", slots skipped {}", show_count(r.skipped)));
    }
    if r.blocked > 0 {
        out.push_str(&format!(", blocked for 50 ms {} times", show_count(r.blocked)));
    }
    for (name, n) in &r.reported {
        out.push_str(&format!(", {} answers {name}", show_count(*n)));
    }
    out.push('\n');
    if let Some(ring) = &r.ring {
        out.push_str(&format!(
            "  {:<14} peak {} of {}, back-pressured {}\n",
            "ring",
            show_count(ring.peak),
            show_count(ring.capacity),
            show_count(ring.back_pressured)
        ));
    }
    if !r.unthrottled {
        out.push_str(&latency("send lag", &r.send_lag));
    }
    out
}

/// The receiving side.
pub(crate) fn recv(r: &RecvReport) -> String {
    let t = &r.total;
    let mut out = format!(
        "  {:<14} {}  ({}) in {} reads; lost {}, duplicated {}, reordered {}\n",
        "received",
        show_count(t.unique),
        rate(r.received_per_s),
        show_count(r.reads),
        show_count(t.lost),
        show_count(t.duplicated),
        show_count(t.reordered)
    );
    match r.socket_drops {
        Some(0) => {}
        Some(n) => out.push_str(&format!(
            "  {:<14} {} (its buffer of {} B was full)\n",
            "socket dropped",
            show_count(u64::from(n)),
            show_count(u64::try_from(r.rcvbuf).unwrap_or(0))
        )),
        None => out.push_str(&format!("  {:<14} not told by this kernel\n", "socket dropped")),
    }
    let odd = [
        ("unstamped", r.unstamped),
        ("foreign", r.foreign),
        ("stale", t.stale),
        ("implausible", t.implausible),
    ];
    for (name, n) in odd.into_iter().filter(|(_, n)| *n > 0) {
        out.push_str(&format!("  {name:<14} {}\n", show_count(n)));
    }
    if t.stale + t.implausible > 0 {
        out.push_str(
            "                 stamps that do not fit the run: --from ADDR:PORT hears only its sender\n",
        );
    }
    if r.flows.len() > 1 {
        for f in r.flows.iter().take(32) {
            out.push_str(&format!(
                "  {:<14} received {}, lost {}, duplicated {}, reordered {}\n",
                format!("{}/{}", f.run, f.stream),
                show_count(f.counts.unique),
                show_count(f.counts.lost),
                show_count(f.counts.duplicated),
                show_count(f.counts.reordered)
            ));
        }
    }
    if let Some(h) = &r.from_offer {
        out.push_str(&latency("from offer", h));
    }
    if let Some(h) = &r.from_intended {
        out.push_str(&latency("from intended", h));
    }
    if let Some(why) = r.no_latency {
        out.push_str(&format!("  {:<14} — ({why})\n", "latency"));
    }
    out
}

/// The findings and the verdict.
pub(crate) fn verdict(findings: &[Finding]) -> String {
    let verdict = verdict::worst(findings);
    let why = match verdict {
        Verdict::Passed => "",
        Verdict::Warning => " — sound, with what is said above",
        Verdict::Failed => " — sound, and an objective was missed",
        Verdict::Invalid => " — this run did not measure what it was asked to",
    };
    format!("{}\n  result: {}{why}\n", verdict::show(findings), verdict.name())
}
