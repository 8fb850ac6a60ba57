//! A ramp: the same workload at rising rates until one does not hold, then
//! bisection, then the best rate once more, since a rate is quoted only if it
//! holds twice.

use std::time::Duration;

use serde::Serialize;

use super::expect::Metric;
use super::run::{Outcome, RunError, Runner};
use super::{Ramp, Workload};
use crate::stop::Stop;
use crate::verdict::{self, Finding, Verdict};

/// Why a ramp stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RampStop {
    /// A latency objective broke.
    LatencyBudget,
    /// The loss objective broke, or datagrams were lost without one.
    LossBudget,
    /// The receiving socket dropped.
    ReceiverBehind,
    /// The generator could not keep its schedule.
    GeneratorCeiling,
    /// The delivered rate stays at a level below the offered one.
    LimiterEngaged,
    /// The highest rate to be tried holds.
    MaxRate,
    /// The host itself stood still.
    HostNoise,
    /// Stopped from outside.
    Interrupted,
}

/// One step of a ramp.
#[derive(Clone, Debug, Serialize)]
pub struct RampStep {
    /// The rate asked for, per second.
    pub rate: f64,
    /// Whether it held; else why not.
    pub stop: Option<RampStop>,
    /// Its delivered rate.
    pub delivered_per_s: Option<f64>,
    /// Its verdict.
    pub verdict: Verdict,
}

/// What a ramp found.
#[derive(Clone, Debug, Serialize)]
pub struct RampReport {
    /// The highest rate that held, and held again when repeated.
    pub best_per_s: Option<f64>,
    /// Whether the last good step held when it was repeated.
    pub confirmed: bool,
    /// What stopped it.
    pub stop: RampStop,
    /// Every step, in order.
    pub steps: Vec<RampStep>,
}

/// Least share of the offered rate that must be delivered for no limiter to
/// be suspected.
const DELIVERED: f64 = 0.99;

/// Why this step did not hold; `None` if it did. Causes before symptoms: a
/// load that was not offered says nothing about the rest.
fn why_not(o: &Outcome) -> Option<RampStop> {
    let found = |check: &str, level: Verdict| o.findings.iter().any(|f| f.check == check && f.level >= level);
    if o.send.interrupted {
        return Some(RampStop::Interrupted);
    }
    if found("host-was-quiet", Verdict::Invalid) {
        return Some(RampStop::HostNoise);
    }
    if found("generator-kept-up", Verdict::Invalid) {
        return Some(RampStop::GeneratorCeiling);
    }
    if o.recv.as_ref().and_then(|r| r.socket_drops).is_some_and(|d| d > 0) {
        return Some(RampStop::ReceiverBehind);
    }
    // Whoever watched knows more of the cause than the symptoms tell.
    let seen = o.watched.as_ref().and_then(|w| w.stop);
    let behind = o.delivered_per_s.zip(o.sent_per_s).is_some_and(|(d, s)| d < DELIVERED * s);
    if behind {
        return Some(seen.unwrap_or(RampStop::LimiterEngaged));
    }
    if o.missed.contains(&Metric::Loss) {
        Some(RampStop::LossBudget)
    } else if o.missed.iter().any(|m| matches!(m, Metric::Latency(..))) {
        Some(seen.unwrap_or(RampStop::LatencyBudget))
    } else if o.missed.contains(&Metric::Throughput) {
        Some(RampStop::LimiterEngaged)
    } else {
        None
    }
}

/// Walks up, narrows down, and repeats the best.
///
/// # Errors
/// [`RunError`] if a step could not be run.
pub(super) fn climb(w: &Workload, ramp: Ramp, runner: &mut Runner<'_>) -> Result<Outcome, RunError> {
    let stop = runner.stop;
    let mut steps: Vec<RampStep> = Vec::new();
    let mut attempt =
        |rate: f64, steps: &mut Vec<RampStep>| -> Result<(Outcome, Option<RampStop>), RunError> {
            // What one step leaves in queues must not become the next one's tail.
            settle(stop);
            let o = runner.once(&w.at_rate(rate, ramp.step_for))?;
            let why = why_not(&o);
            steps.push(RampStep { rate, stop: why, delivered_per_s: o.delivered_per_s, verdict: o.verdict });
            Ok((o, why))
        };
    let (mut good, mut bad): (Option<f64>, Option<f64>) = (None, None);
    let mut rate = ramp.start;
    let mut reason = RampStop::MaxRate;
    let mut last;
    loop {
        let (o, why) = attempt(rate, &mut steps)?;
        last = o;
        match why {
            Some(why) => {
                (bad, reason) = (Some(rate), why);
                break;
            }
            None if rate >= ramp.max => {
                good = Some(rate);
                break;
            }
            None => {
                good = Some(rate);
                rate = (rate + ramp.step).min(ramp.max);
            }
        }
    }
    for _ in 0..ramp.refine {
        let Some((low, high)) = good.zip(bad) else { break };
        if stop.is_set() {
            break;
        }
        let middle = f64::midpoint(low, high);
        let (_, why) = attempt(middle, &mut steps)?;
        match why {
            None => good = Some(middle),
            Some(why) => (bad, reason) = (Some(middle), why),
        }
    }
    // A rate is quoted only if it holds twice.
    let mut confirmed = false;
    if let Some(rate) = good.filter(|_| !stop.is_set()) {
        let (o, why) = attempt(rate, &mut steps)?;
        confirmed = why.is_none();
        last = o;
    }
    if stop.is_set() {
        reason = RampStop::Interrupted;
    }
    Ok(ramp_outcome(w, last, RampReport { best_per_s: good, confirmed, stop: reason, steps }))
}

fn ramp_outcome(w: &Workload, mut o: Outcome, report: RampReport) -> Outcome {
    let stop = serde_json::to_value(report.stop).ok().and_then(|v| v.as_str().map(str::to_owned));
    let stop = stop.unwrap_or_default();
    let rate = |r: f64| format!("{}/s", crate::units::show_count(crate::num::round_u64(r)));
    let level = match (report.best_per_s, report.confirmed) {
        (Some(_), true) => Verdict::Passed,
        (Some(_), false) => Verdict::Warning,
        (None, _)
            if matches!(
                report.stop,
                RampStop::GeneratorCeiling | RampStop::HostNoise | RampStop::Interrupted
            ) =>
        {
            Verdict::Invalid
        }
        (None, _) => Verdict::Failed,
    };
    let tried: Vec<String> = report
        .steps
        .iter()
        .map(|s| format!("{} {}", rate(s.rate), if s.stop.is_none() { "held" } else { "did not" }))
        .collect();
    o.findings.push(Finding {
        check: "ramp",
        level,
        observed: match report.best_per_s {
            Some(best) if report.confirmed => {
                format!("the highest rate that holds is {}; {stop} above", rate(best))
            }
            Some(best) => format!("{} held once and did not when repeated; {stop}", rate(best)),
            None => format!("the first step did not hold: {stop}"),
        },
        means: match report.stop {
            RampStop::GeneratorCeiling => "the ceiling is the generator's, not the system's".into(),
            RampStop::LimiterEngaged => {
                "something on the way passes no more than this: the ceiling is its rate".into()
            }
            RampStop::MaxRate => "no limit was met up to the highest rate asked for".into(),
            _ => "the system's own ceiling, by the objective named".into(),
        },
        detail: tried.join(", "),
    });
    o.findings.sort_by_key(|f| std::cmp::Reverse(f.level));
    o.verdict = verdict::worst(&o.findings);
    o.name.clone_from(&w.name);
    o.ramp = Some(report);
    o
}

/// Between the steps of a ramp.
fn settle(stop: &Stop) {
    let _ = crate::clock::wait_until(
        crate::clock::now_ns() + crate::num::duration_ns(Duration::from_millis(200)),
        0,
        stop,
    );
}

#[cfg(test)]
mod tests {
    use super::super::expect::{Component, Point};
    use super::*;
    use crate::engine::SendReport;
    use crate::hist::LatencyHistogram;
    use crate::recv::RecvReport;
    use crate::watch::Watched;

    fn outcome() -> Outcome {
        let mut send = SendReport::for_test(20_000.0);
        send.achieved_per_s = Some(20_000.0);
        Outcome {
            name: "t".into(),
            verdict: Verdict::Passed,
            offered_per_s: Some(20_000.0),
            sent_per_s: Some(20_000.0),
            delivered_per_s: Some(20_000.0),
            loss: Some(0.0),
            send_lag: LatencyHistogram::new().summary(),
            latency: None,
            total: None,
            findings: Vec::new(),
            ramp: None,
            send,
            recv: Some(RecvReport::for_test(LatencyHistogram::new())),
            missed: Vec::new(),
            watched: None,
        }
    }

    fn finding(check: &'static str) -> Finding {
        let empty = String::new;
        Finding { check, level: Verdict::Invalid, observed: empty(), means: empty(), detail: empty() }
    }

    #[test]
    fn a_step_is_stopped_by_the_cause_and_not_by_its_symptom() {
        let mut o = outcome();
        assert_eq!(why_not(&o), None);
        o.missed.push(Metric::Latency(Component::Total, Point::Quantile(0.99)));
        assert_eq!(why_not(&o), Some(RampStop::LatencyBudget));
        o.missed.push(Metric::Loss);
        assert_eq!(why_not(&o), Some(RampStop::LossBudget));
        o.delivered_per_s = Some(19_000.0);
        assert_eq!(why_not(&o), Some(RampStop::LimiterEngaged));
        o.recv.as_mut().unwrap().socket_drops = Some(1);
        assert_eq!(why_not(&o), Some(RampStop::ReceiverBehind));
        o.findings.push(finding("generator-kept-up"));
        assert_eq!(why_not(&o), Some(RampStop::GeneratorCeiling));
        o.findings.push(finding("host-was-quiet"));
        assert_eq!(why_not(&o), Some(RampStop::HostNoise));
        o.send.interrupted = true;
        assert_eq!(why_not(&o), Some(RampStop::Interrupted));
    }

    #[test]
    fn what_a_watcher_saw_names_the_cause_of_a_step_that_did_not_hold_and_of_no_other() {
        let mut o = outcome();
        o.watched = Some(Watched { stop: Some(RampStop::ReceiverBehind), ..Watched::default() });
        assert_eq!(why_not(&o), None);
        o.missed.push(Metric::Latency(Component::Total, Point::Quantile(0.99)));
        assert_eq!(why_not(&o), Some(RampStop::ReceiverBehind));
        (o.missed, o.delivered_per_s) = (Vec::new(), Some(19_000.0));
        assert_eq!(why_not(&o), Some(RampStop::ReceiverBehind));
        o.findings.push(finding("generator-kept-up"));
        assert_eq!(why_not(&o), Some(RampStop::GeneratorCeiling));
    }
}
