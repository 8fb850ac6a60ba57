//! Running workloads: one load, or a walk upwards in rate, each judged.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use serde::Serialize;

use super::expect::{Component, Measured, Metric, Point};
use super::{Ramp, Target, Workload};
use crate::engine::{SendConfig, SendError, SendReport};
use crate::hist::Summary;
use crate::host::{CpuTime, HostReport};
use crate::pair::{self, PairError};
use crate::progress::Progress;
use crate::recv::{RecvConfig, RecvError, RecvReport};
use crate::stop::Stop;
use crate::verdict::{self, Finding, Verdict};
use crate::watch::{self, Delivered, Watch, WatchError, Watched};

/// A workload that could not be run at all.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The sending end cannot work.
    #[error("workload {name:?}: {source}")]
    Send {
        /// Its name.
        name: String,
        /// Why.
        source: SendError,
    },
    /// One of the two ends cannot work.
    #[error("workload {name:?}: {source}")]
    Pair {
        /// Its name.
        name: String,
        /// Why.
        source: PairError,
    },
    /// Whoever was to watch cannot.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The target has no address.
    #[error("workload {name:?}: cannot find the address of {target}; check the name, or give the address")]
    Resolve {
        /// Its name.
        name: String,
        /// The target.
        target: String,
    },
}

impl RunError {
    /// True if the request itself is wrong, false if the system refused it.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Send { source, .. } | Self::Pair { source: PairError::Send(source), .. } => {
                source.is_usage()
            }
            Self::Pair { source: PairError::Recv(e), .. } => RecvError::is_usage(e),
            Self::Pair { source: PairError::Thread(_), .. } | Self::Resolve { .. } | Self::Watch(_) => false,
        }
    }
}

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

/// What became of one workload. For a ramp, the figures are those of the
/// repeated last good step.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The workload's name.
    pub name: String,
    /// The worst finding's level.
    pub verdict: Verdict,
    /// What the schedule asked for, per second; null without one.
    pub offered_per_s: Option<f64>,
    /// What was handed over, per second.
    pub sent_per_s: Option<f64>,
    /// What arrived of that, per second; null where the receiver is not known.
    pub delivered_per_s: Option<f64>,
    /// Share of the datagrams sent that did not arrive.
    pub loss: Option<f64>,
    /// Offer − intended.
    pub send_lag: Summary,
    /// Receive − intended; null where the receiver is not known.
    pub latency: Option<Summary>,
    /// Receive − offer; null where the receiver is not known.
    pub total: Option<Summary>,
    /// What there is to say, worst first.
    pub findings: Vec<Finding>,
    /// What a ramp found.
    pub ramp: Option<RampReport>,
    /// The sending end.
    pub send: SendReport,
    /// The receiving end.
    pub recv: Option<RecvReport>,
    /// The metrics whose objectives were missed.
    #[serde(skip)]
    pub missed: Vec<Metric>,
    /// What a watcher saw; its own report in the JSON document.
    #[serde(rename = "observer", serialize_with = "own_report", skip_serializing_if = "Option::is_none")]
    pub watched: Option<Watched>,
}

fn own_report<S: serde::Serializer>(watched: &Option<Watched>, s: S) -> Result<S::Ok, S::Error> {
    watched.as_ref().map(|w| &w.report).serialize(s)
}

/// Runs one workload.
///
/// # Errors
/// [`RunError`] if it could not be run; how it went is in the outcome.
pub fn run(w: &Workload, stop: &Stop, progress: &Progress) -> Result<Outcome, RunError> {
    Runner { watch: None, stop, progress }.run(w)
}

/// As [`run`], with every run of it (a ramp has many) watched by `watch`.
///
/// # Errors
/// As [`run`], and [`RunError::Watch`] if the watcher cannot watch.
pub fn run_watched(
    w: &Workload,
    watch: &mut dyn Watch,
    stop: &Stop,
    progress: &Progress,
) -> Result<Outcome, RunError> {
    Runner { watch: Some(watch), stop, progress }.run(w)
}

/// The steal and the counts of one run.
struct Ends {
    sent: SendReport,
    received: Option<RecvReport>,
    host: Option<HostReport>,
}

/// What all runs of a workload share.
struct Runner<'a> {
    watch: Option<&'a mut dyn Watch>,
    stop: &'a Stop,
    progress: &'a Progress,
}

impl Runner<'_> {
    fn run(&mut self, w: &Workload) -> Result<Outcome, RunError> {
        match w.ramp {
            Some(ramp) => climb(w, ramp, self),
            None => self.once(w),
        }
    }

    fn once(&mut self, w: &Workload) -> Result<Outcome, RunError> {
        let run = crate::new_run();
        if let Some(watch) = &mut self.watch {
            watch.begin(w, run)?;
        }
        let config = |to: SocketAddr, watch: Option<&mut (dyn Watch + '_)>| {
            let mut config = w.config(to);
            config.run = run;
            if let Some(watch) = watch {
                let start = crate::clock::now_ns() + pair::LEAD_NS;
                config.start_at_ns = Some(start);
                watch.measure_from(start.saturating_add(crate::num::duration_ns(w.warmup)));
            }
            config
        };
        let watch = self.watch.as_deref_mut();
        let ends = ends(w, |to| config(to, watch), self.stop, self.progress)?;
        let findings = verdict::judge(&ends.sent, ends.received.as_ref(), ends.host.as_ref());
        let watched = match &mut self.watch {
            None => None,
            Some(watcher) => {
                let (sent, received) = (&ends.sent, ends.received.as_ref());
                Some(watcher.end(w, watch::Ends { sent, received, findings: &findings })?)
            }
        };
        Ok(outcome(w, ends, findings, watched))
    }
}

fn ends(
    w: &Workload,
    config: impl FnOnce(SocketAddr) -> SendConfig,
    stop: &Stop,
    progress: &Progress,
) -> Result<Ends, RunError> {
    let name = || w.name.clone();
    match &w.target {
        Target::Local(bind) => {
            let mut recv = RecvConfig::new(*bind);
            recv.rcvbuf = w.rcvbuf;
            recv.keep = w.size;
            recv.poll = w.poll;
            recv.gro = w.segments > 1;
            let report = pair::run(&recv, config, stop, progress, |_| {})
                .map_err(|source| RunError::Pair { name: name(), source })?;
            Ok(Ends { sent: report.sent, received: Some(report.received), host: report.host })
        }
        Target::Remote(target) => {
            let to = target
                .to_socket_addrs()
                .ok()
                .and_then(|mut a| a.next())
                .ok_or_else(|| RunError::Resolve { name: name(), target: target.clone() })?;
            let before = CpuTime::now();
            let sent = crate::send_with(&config(to), stop, progress)
                .map_err(|source| RunError::Send { name: name(), source })?;
            let host = before.zip(CpuTime::now()).map(|(a, b)| a.until(b));
            Ok(Ends { sent, received: None, host })
        }
    }
}

/// `own` are the findings without the watcher, whose replace them.
fn outcome(w: &Workload, ends: Ends, own: Vec<Finding>, watched: Option<Watched>) -> Outcome {
    let Ends { sent, received, .. } = ends;
    let mut findings = watched.as_ref().map_or(own, |w| w.findings.clone());
    // What a queue passes on only after the end was not delivered at the
    // offered rate: the longer of the two times counts.
    let span = received.as_ref().map_or(0, |r| r.measured_span_ns);
    let seconds = sent.measured_ns.max(span) as f64 / 1e9;
    let arrived = match &received {
        Some(r) => Some(Delivered { measured: r.measured, all: r.total.unique }),
        None => watched.as_ref().and_then(|w| w.delivered),
    };
    let delivered = arrived.filter(|_| seconds > 0.0).map(|d| d.measured as f64 / seconds);
    let loss =
        arrived.filter(|_| sent.sent > 0).map(|d| sent.sent.saturating_sub(d.all) as f64 / sent.sent as f64);
    let mut missed = Vec::new();
    for e in &w.expect {
        let measured = match e.metric {
            Metric::Throughput => value(delivered),
            Metric::Loss => value(loss),
            Metric::Latency(component, point) => {
                latency(component, point, &sent, received.as_ref(), watched.as_ref())
            }
        };
        let mut finding = e.judge(measured);
        if let Some((f, why)) = finding.as_mut().zip(watched.as_ref().and_then(|w| w.cause(e.metric))) {
            f.detail = format!("{}; {why}", f.detail);
        }
        if finding.as_ref().is_some_and(|f| f.level == Verdict::Failed) {
            missed.push(e.metric);
        }
        findings.extend(finding);
    }
    findings.sort_by_key(|f| std::cmp::Reverse(f.level));
    Outcome {
        name: w.name.clone(),
        verdict: verdict::worst(&findings),
        offered_per_s: sent.offered_per_s,
        sent_per_s: sent.achieved_per_s,
        delivered_per_s: delivered,
        loss,
        send_lag: sent.send_lag.summary(),
        latency: received.as_ref().and_then(|r| r.from_intended.as_ref()).map(|h| h.summary()),
        total: received.as_ref().and_then(|r| r.from_offer.as_ref()).map(|h| h.summary()),
        findings,
        ramp: None,
        send: sent,
        recv: received,
        missed,
        watched,
    }
}

/// A point of a component's distribution: as the watcher saw it, else as the
/// two ends did.
fn latency(
    component: Component,
    point: Point,
    sent: &SendReport,
    received: Option<&RecvReport>,
    watched: Option<&Watched>,
) -> Measured {
    // What is beyond the quantiles a watcher quotes may not be beyond the receiver.
    let own = component == Component::Total && point == Point::Quantile(0.9999);
    if let Some(seen) = watched.and_then(|w| w.measured(component, point)).filter(|_| !own) {
        return seen;
    }
    match component {
        Component::SendLag => Measured::of(Some(&sent.send_lag), point),
        Component::Total => Measured::of(received.and_then(|r| r.from_offer.as_ref()), point),
        Component::Intended => Measured::of(received.and_then(|r| r.from_intended.as_ref()), point),
        _ => Measured::Unmeasured("it needs the observer: use `observer run`"),
    }
}

fn value(v: Option<f64>) -> Measured {
    v.map_or(Measured::Unmeasured("the receiver is not known"), Measured::Value)
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

fn climb(w: &Workload, ramp: Ramp, runner: &mut Runner<'_>) -> Result<Outcome, RunError> {
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
    use super::*;
    use crate::hist::LatencyHistogram;

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
