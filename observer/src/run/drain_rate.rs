//! A case of the recipe `kind = "drain-rate"`: what the report of the
//! observer says about the Sender, and whether that is its drain rate.
//!
//! In: the case, its report. Out: [`Drained`] for the recipe's table, and the
//! findings of the check `drain-rate`: INVALID where no D could be measured,
//! a WARNING where what was measured is something else's rate.

use load::watch::Drained;
use load::workload::Workload;
use load::workload::drain_rate::LEAST_BURSTS;
use load::{Finding, Verdict};

use crate::diagnose::sender::SenderQueue;
use crate::model::stats::Interval;
use crate::report::Report;
use crate::view::units::{count, percent, rate};

/// The check's name.
pub const CHECK: &str = "drain-rate";

/// Offered less than so many times faster than drained, a burst hardly waits.
const HARDLY: f64 = 1.1;
/// How far the two ways of measuring may be apart.
const AGREE: f64 = 0.03;
/// Share of the waiting from which on something else is its cause.
const CAUSE: f64 = 0.5;
/// Share of it without a CPU worth saying: D is low by about as much.
const STARVED: f64 = 0.1;

/// How the Sender that waited longest drained; `None` without a burst.
pub fn drained(report: &Report) -> Option<Drained> {
    let q = report.sender_queue.as_ref()?;
    let d = q.drain.as_ref()?;
    let ends = |i: Option<Interval>| i.map(|i| [i.low, i.high]);
    Some(Drained {
        bursts: d.bursts as u64,
        typical_per_s: d.typical_per_s,
        typical_interval: ends(d.typical_interval),
        theil_sen_per_s: d.theil_sen_per_s,
        conservative_per_s: d.conservative_per_s,
        conservative_interval: ends(d.conservative_interval),
        n_over_max_per_s: d.n_over_max_per_s,
        dispatch_per_s: d.dispatch_per_s,
        start_latency_s: q.start_latency_s,
        max_wait_s: q.measured_max_wait_s,
        model_wait_s: q.answer.as_ref().map(|a| a.max_wait_s),
    })
}

/// What there is to say about the measurement itself; nothing for a workload
/// that is no case of the recipe.
pub fn findings(w: &Workload, report: &Report) -> Vec<Finding> {
    if w.drain_rate.is_none() {
        return Vec::new();
    }
    let q = report.sender_queue.as_ref();
    let Some((q, d)) = q.zip(drained(report)).filter(|(_, d)| d.bursts >= LEAST_BURSTS) else {
        return vec![too_few(q.map_or(0, |q| q.bursts))];
    };
    [of_a_limiter(q), of_the_host(q), hardly_faster(&d), apart(&d)].into_iter().flatten().collect()
}

fn finding(level: Verdict, observed: String, means: &str, detail: String) -> Finding {
    Finding { check: CHECK, level, observed, means: means.into(), detail }
}

fn too_few(bursts: u64) -> Finding {
    finding(
        Verdict::Invalid,
        format!("{} bursts could be told apart, {LEAST_BURSTS} are needed", count(bursts)),
        "D was not measured: the Sender had not drained one burst when the next came, or datagrams went unseen; \
         give a longer `every` or a smaller burst",
        "a burst is what waits from an offer that finds the Sender idle until it is idle again".to_owned(),
    )
}

fn of_a_limiter(q: &SenderQueue) -> Option<Finding> {
    (q.blocked_share > CAUSE).then(|| {
        finding(
            Verdict::Warning,
            format!("{} of the waiting the Sender was blocked on a full send buffer", percent(q.blocked_share)),
            "what was measured is how fast the limiter behind it lets datagrams go, and not the Sender: lift the \
             limiter, or give target.sndbuf = \"large\"",
            "r = D times the bytes of a datagram with its Ethernet header".to_owned(),
        )
    })
}

fn of_the_host(q: &SenderQueue) -> Option<Finding> {
    (q.run_queue_share > STARVED).then(|| {
        finding(
            Verdict::Warning,
            format!("{} of the waiting the Sender had no CPU", percent(q.run_queue_share)),
            "what was measured is how much of a CPU the host gave it: pin it (target.pin), or measure on a \
             quieter host",
            "other threads ran on its CPU, the reader's and the observer's included".to_owned(),
        )
    })
}

fn hardly_faster(d: &Drained) -> Option<Finding> {
    let p = d.dispatch_per_s.filter(|p| *p < HARDLY * d.typical_per_s)?;
    Some(finding(
        Verdict::Warning,
        format!("offered at {}, drained at {}", rate(p), rate(d.typical_per_s)),
        "bursts came hardly faster than they were drained: the Sender may do more. Raise `dispatch`, or leave it \
         out",
        format!("P/D = {:.2}", p / d.typical_per_s),
    ))
}

fn apart(d: &Drained) -> Option<Finding> {
    let slope = d.theil_sen_per_s?;
    let off = slope / d.typical_per_s - 1.0;
    (off.abs() > AGREE).then(|| {
        finding(
            Verdict::Warning,
            format!("D by the slope of the waits is {}, by the span {}", rate(slope), rate(d.typical_per_s)),
            "the Sender did not drain evenly: it was interrupted, or the host was busy. Plan with the conservative D",
            format!("{:+.1} % apart; on a quiet host both agree within 3 %", off * 100.0),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::sender::SenderCause;
    use crate::model::drain::Drain;
    use crate::pipeline::Pipeline;
    use crate::source::synthetic::{Plan, Spread, Synthetic};

    fn case() -> Workload {
        load::workload::parse("f.toml", "kind = \"drain-rate\"\n[target]\nsize = 160\nidle = \"yield\"")
            .unwrap()
            .remove(0)
    }

    /// A report whose Sender drained as `d` says.
    fn report(d: Option<Drain>, change: impl Fn(&mut SenderQueue)) -> Report {
        let plan = Plan { sender_queue: Spread::Uniform(1_000, 9_000_000), ..Plan::default() };
        let mut report = Pipeline::run(&mut Synthetic::new(plan)).unwrap().total.as_ref().clone();
        let q = report.sender_queue.as_mut().unwrap();
        q.bursts = d.as_ref().map_or(0, |d| d.bursts as u64);
        q.drain = d;
        (q.cause, q.blocked_share, q.run_queue_share) = (SenderCause::Drain, 0.0, 0.0);
        change(q);
        report
    }

    fn drain() -> Drain {
        Drain {
            bursts: 12,
            typical_per_s: 2e5,
            typical_interval: Some(Interval { low: 1.9e5, high: 2.1e5 }),
            theil_sen_per_s: Some(2.02e5),
            conservative_per_s: 1.5e5,
            conservative_interval: None,
            n_over_max_per_s: Some(3e5),
            dispatch_per_s: Some(6e5),
        }
    }

    fn said(d: Option<Drain>, change: impl Fn(&mut SenderQueue)) -> Vec<(Verdict, String)> {
        let found = findings(&case(), &report(d, change));
        assert!(found.iter().all(|f| f.check == CHECK));
        found.into_iter().map(|f| (f.level, f.observed)).collect()
    }

    #[test]
    fn a_sound_measurement_is_a_row_and_no_finding() {
        let r = report(Some(drain()), |_| ());
        assert_eq!(said(Some(drain()), |_| ()), []);
        let row = drained(&r).unwrap();
        assert_eq!((row.bursts, row.typical_per_s, row.typical_interval), (12, 2e5, Some([1.9e5, 2.1e5])));
        assert_eq!((row.n_over_max_per_s, row.dispatch_per_s), (Some(3e5), Some(6e5)));
    }

    #[test]
    fn what_is_no_drain_rate_is_said() {
        let few = said(Some(Drain { bursts: 9, ..drain() }), |_| ());
        assert!(few[0].0 == Verdict::Invalid && few[0].1.starts_with("9 bursts"), "{few:?}");
        assert_eq!(said(None, |_| ())[0].0, Verdict::Invalid);
        for (found, word) in [
            (said(Some(drain()), |q| q.blocked_share = 0.9), "blocked on a full send buffer"),
            (said(Some(drain()), |q| q.run_queue_share = 0.2), "had no CPU"),
            (said(Some(Drain { dispatch_per_s: Some(2.1e5), ..drain() }), |_| ()), "offered at"),
            (said(Some(Drain { theil_sen_per_s: Some(2.1e5), ..drain() }), |_| ()), "by the slope"),
        ] {
            assert_eq!((found.len(), found[0].0), (1, Verdict::Warning), "{found:?}");
            assert!(found[0].1.contains(word), "{found:?}");
        }
    }

    #[test]
    fn a_plain_load_is_not_asked_for_its_drain_rate() {
        let plain = Workload { drain_rate: None, ..case() };
        assert_eq!(findings(&plain, &report(None, |_| ())), []);
    }
}
