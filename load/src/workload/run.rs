//! Running a workload: both ends of one load, judged. What a ramp makes of many
//! such runs is [`super::ramp`].

use std::net::{SocketAddr, ToSocketAddrs};

use serde::Serialize;

use super::expect::{Component, Measured, Metric, Point};
use super::ramp::{RampReport, climb};
use super::{Target, Workload};
use crate::control::{ControlError, RemoteError, Token};
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
    /// The run with the receiver of another host cannot begin.
    #[error("workload {name:?}: {source}")]
    Remote {
        /// Its name.
        name: String,
        /// Why.
        source: RemoteError,
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
            Self::Remote { source, .. } => source.is_usage(),
            Self::Pair { source: PairError::Recv(e), .. } => RecvError::is_usage(e),
            Self::Pair { source: PairError::Thread(_), .. } | Self::Resolve { .. } | Self::Watch(_) => false,
        }
    }
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

/// Runs one workload, every run of it (a ramp has many) watched by `watch`.
///
/// # Errors
/// [`RunError`] if it could not be run, or the watcher cannot watch; how it
/// went is in the outcome.
pub fn run<'a>(
    w: &Workload,
    watch: Option<&'a mut (dyn Watch + 'a)>,
    stop: &'a Stop,
    progress: &'a Progress,
) -> Result<Outcome, RunError> {
    Runner { watch, stop, progress }.run(w)
}

/// The steal and the counts of one run.
struct Ends {
    sent: SendReport,
    received: Option<RecvReport>,
    host: Option<HostReport>,
    /// The receiver did not tell what it received.
    trouble: Option<ControlError>,
}

/// What all runs of a workload share.
pub(super) struct Runner<'a> {
    watch: Option<&'a mut dyn Watch>,
    pub(super) stop: &'a Stop,
    progress: &'a Progress,
}

impl Runner<'_> {
    fn run(&mut self, w: &Workload) -> Result<Outcome, RunError> {
        match w.ramp {
            Some(ramp) => climb(w, ramp, self),
            None => self.once(w),
        }
    }

    /// One run, judged.
    ///
    /// # Errors
    /// [`RunError`] if it could not be run.
    pub(super) fn once(&mut self, w: &Workload) -> Result<Outcome, RunError> {
        let run = crate::new_run();
        if let Some(watch) = &mut self.watch {
            watch.begin(w, run)?;
        }
        let plan = Plan { workload: w, run, watch: self.watch.as_deref_mut() };
        let ends = ends(w, plan, self.stop, self.progress)?;
        let mut findings = verdict::judge(&ends.sent, ends.received.as_ref(), ends.host.as_ref());
        findings.extend(ends.trouble.as_ref().map(verdict::receiver_unknown));
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

/// A run about to begin: its id is drawn, its start is not known yet.
struct Plan<'a, 'w> {
    workload: &'a Workload,
    run: u32,
    watch: Option<&'a mut (dyn Watch + 'w)>,
}

impl Plan<'_, '_> {
    /// The load, whenever it starts.
    fn config(&self, to: SocketAddr) -> SendConfig {
        let mut config = self.workload.config(to);
        config.run = self.run;
        config
    }

    /// The load with its start laid down, so that whoever watches knows what
    /// is warm-up before the first datagram.
    fn started(mut self, to: SocketAddr) -> SendConfig {
        let mut config = self.config(to);
        if self.watch.is_some() {
            let start = crate::clock::now_ns() + pair::LEAD_NS;
            config.start_at_ns = Some(start);
            self.starts(start);
        }
        config
    }

    /// The first slot is at `start_ns`.
    fn starts(&mut self, start_ns: i64) {
        if let Some(watch) = &mut self.watch {
            watch.measure_from(start_ns.saturating_add(crate::num::duration_ns(self.workload.warmup)));
        }
    }
}

fn ends(w: &Workload, mut plan: Plan<'_, '_>, stop: &Stop, progress: &Progress) -> Result<Ends, RunError> {
    let name = || w.name.clone();
    match &w.target {
        Target::Local(bind) => {
            let mut recv = RecvConfig::new(*bind);
            recv.rcvbuf = w.rcvbuf;
            recv.keep = w.size;
            recv.poll = w.poll;
            recv.gro = w.segments > 1;
            let report = pair::run(&recv, |to| plan.started(to), stop, progress, |_| {})
                .map_err(|source| RunError::Pair { name: name(), source })?;
            Ok(Ends { sent: report.sent, received: Some(report.received), host: report.host, trouble: None })
        }
        Target::Remote(target) => {
            let to = target
                .to_socket_addrs()
                .ok()
                .and_then(|mut a| a.next())
                .ok_or_else(|| RunError::Resolve { name: name(), target: target.clone() })?;
            if let Some((control, file)) = &w.control {
                let failed = |source| RunError::Remote { name: name(), source };
                let token = Token::read(file).map_err(|e| failed(e.into()))?;
                let config = plan.config(to);
                let starts = |start_ns| plan.starts(start_ns);
                let report =
                    crate::control::run(control, &token, &config, stop, progress, starts).map_err(failed)?;
                let (received, trouble) = match report.received {
                    Ok(received) => (Some(received), None),
                    Err(trouble) => (None, Some(trouble)),
                };
                return Ok(Ends { sent: report.sent, received, host: report.host, trouble });
            }
            let before = CpuTime::now();
            let sent = crate::send_with(&plan.started(to), stop, progress)
                .map_err(|source| RunError::Send { name: name(), source })?;
            let host = before.zip(CpuTime::now()).map(|(a, b)| a.until(b));
            Ok(Ends { sent, received: None, host, trouble: None })
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
