//! Whether the generator offered when it meant to, by the intended times in
//! its stamps.
//!
//! The observer does not know what was asked of a generator, so it warns only;
//! INVALID is for the generator's own verdict. A generator that lags because a
//! limiter blocks it, or because it was taken off its CPU, is not overloaded:
//! then the check names what it is and leaves the rest to the others.

use super::{Seen, cause, figures, finding};
use crate::diagnose::evidence::{Sample, Stretch};
use crate::diagnose::{FLOOR_NS, entry};
use crate::model::{nanoseconds, seconds, stats, theil_sen};
use crate::report::{Finding, Level};
use crate::view::units::{duration, percent};

/// Seconds of lag gained per second above this: it falls behind.
pub const SLOPE: f64 = 0.01;
/// A p99 of the lag above this and a hundred intervals is its own tail.
pub const LAG_NS: u64 = 1_000_000;
/// Datagrams and time below which nothing is said.
const NEEDED: (usize, u64) = (1_000, 200_000_000);
/// Share of the time from which on something explains the lag.
const EXPLAINS: f64 = 0.05;

/// How far a stream's offers lag behind their intended times: the stream that
/// lags most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lag {
    /// Datagrams looked at.
    pub datagrams: u64,
    /// Rate offered over the rate intended.
    pub achieved: f64,
    /// Seconds of lag gained per second.
    pub slope: f64,
    /// Its p99, ns.
    pub p99_ns: u64,
    /// Its maximum, ns.
    pub max_ns: u64,
    /// Mean interval intended, ns.
    pub interval_ns: u64,
    /// Most datagrams are wanted at the same time as the one before.
    pub in_bursts: bool,
}

impl Lag {
    /// Whether it falls behind for good.
    pub fn grows(&self) -> bool {
        self.slope > SLOPE
    }

    /// Whether the generator did not keep up. Of a burst that is wanted all at
    /// once the last must be late.
    pub fn is_behind(&self) -> bool {
        self.grows() || (!self.in_bursts && self.p99_ns > LAG_NS.max(self.interval_ns.saturating_mul(100)))
    }
}

/// The lag of the stream that lags most, over its latest samples; `None` where
/// stamps carry no schedule, or there is too little.
pub fn lag(stretches: &[Stretch<'_>]) -> Option<Lag> {
    let latest = stretches.last()?;
    let mut flows: Vec<(u64, Vec<&Sample>)> = Vec::new();
    for s in latest.samples.iter().filter(|s| s.intended_ns != 0 && s.offer_ns >= s.intended_ns) {
        if let Some(of) = entry(&mut flows, s.flow, 64) {
            of.push(*s);
        }
    }
    flows.into_iter().filter_map(|(_, samples)| of_stream(samples)).max_by_key(|lag| lag.p99_ns)
}

fn of_stream(mut samples: Vec<&Sample>) -> Option<Lag> {
    samples.sort_by_key(|s| s.intended_ns);
    let (first, last) = (samples.first()?, samples.last()?);
    let intended = last.intended_ns - first.intended_ns;
    let offered = last.offer_ns.checked_sub(first.offer_ns).filter(|ns| *ns > 0)?;
    let scheduled = samples.iter().any(|s| s.offer_ns != s.intended_ns);
    if samples.len() < NEEDED.0 || intended.max(offered) < NEEDED.1 || intended == 0 || !scheduled {
        return None;
    }
    let lags = stats::sorted(samples.iter().map(|s| seconds(s.offer_ns - s.intended_ns)));
    let points: Vec<(f64, f64)> = samples
        .iter()
        .map(|s| (seconds(s.intended_ns - first.intended_ns), seconds(s.offer_ns - s.intended_ns)))
        .collect();
    let at_once =
        samples.windows(2).filter(|w| matches!(w, [a, b] if a.intended_ns == b.intended_ns)).count();
    Some(Lag {
        in_bursts: at_once * 2 > samples.len(),
        datagrams: samples.len() as u64,
        achieved: (intended as f64 / offered as f64).min(1.0),
        slope: theil_sen::slope(&points)?,
        p99_ns: nanoseconds(stats::quantile(&lags, 0.99)?),
        max_ns: nanoseconds(*lags.last()?),
        interval_ns: intended / (samples.len() as u64 - 1),
    })
}

/// The send lag of all that was delivered, by its p99; absent with too few
/// datagrams for one.
pub(crate) fn offered_on_time(seen: &Seen<'_>) -> Option<Finding> {
    let lag = &seen.report.send_lag.as_ref()?.distribution;
    let p99 = lag.p99_ns?;
    let max = lag.max_ns.map_or_else(|| "—".to_owned(), duration);
    let observed = format!("send lag p99 {}, largest {max}", duration(p99));
    let evidence =
        [("send_lag_p99_ns", Some(p99 as f64)), ("send_lag_max_ns", lag.max_ns.map(|ns| ns as f64))];
    if p99 < FLOOR_NS {
        let means = "the application offered when it meant to";
        let passed = finding("offered-on-time", Level::Passed, observed, means, String::new());
        return Some(Finding { evidence: figures(&evidence), ..passed });
    }
    Some(Finding {
        detail: "measured from the intended time, latency is longer by the send lag".to_owned(),
        ..cause(
            "offered-on-time",
            observed,
            "datagrams were offered later than their schedule wanted: that wait is in no component",
            "the application or the generator was late, stopped, or blocked in a send call before",
            &evidence,
        )
    })
}

/// What the lag is explained by, if not by the generator.
pub(crate) fn explained(seen: &Seen<'_>) -> Option<&'static str> {
    let report = seen.report;
    let span = report.to_ns.saturating_sub(report.from_ns).max(1) as f64;
    let blocked = report.waits.send_buffer.total_ns as f64 / span;
    let stalled = seen.diagnosis.limiter.as_ref().is_some_and(|l| l.stall_share > EXPLAINS);
    if blocked > EXPLAINS {
        Some("its sends were blocked on a full send buffer")
    } else if stalled {
        Some("it stood still as a whole")
    } else {
        None
    }
}

/// Whether the generator kept up with its own schedule.
pub(crate) fn generator_kept_up(seen: &Seen<'_>) -> Option<Finding> {
    let lag = seen.diagnosis.generator?;
    let observed = format!(
        "offered {} of the intended rate; send lag p99 {}, longest {}, growing by {} of the time",
        percent(lag.achieved),
        duration(lag.p99_ns),
        duration(lag.max_ns),
        percent(lag.slope.max(0.0))
    );
    let evidence = [
        ("achieved", Some(lag.achieved)),
        ("send_lag_slope", Some(lag.slope)),
        ("send_lag_p99_ns", Some(lag.p99_ns as f64)),
        ("datagrams", Some(lag.datagrams as f64)),
    ];
    if !lag.is_behind() {
        let means = "the load was offered when it was meant to be";
        let passed = finding("generator-kept-up", Level::Passed, observed, means, String::new());
        return Some(Finding { evidence: figures(&evidence), ..passed });
    }
    Some(match explained(seen) {
        Some(why) => Finding {
            detail: why.to_owned(),
            ..cause(
                "generator-kept-up",
                observed,
                "the load was offered late, and latency from the offer does not show it",
                "judge by the time from the intended offer (`total` of `load recv`)",
                &evidence,
            )
        },
        None => cause(
            "generator-kept-up",
            observed,
            "the generator is overloaded: it did not offer the load it was asked for",
            "lower the rate, spread it over more streams, or give the generator more CPUs",
            &evidence,
        ),
    })
}
