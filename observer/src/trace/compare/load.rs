//! A trace as something to compare: figures of the whole run, and of batches
//! of it.

use std::collections::BTreeSet;

use super::super::answer;
use super::super::histograms;
use super::super::segment::Segment;
use super::super::{Trace, TraceError, files};
use super::What;
use super::stats::MOST;
use crate::component::Component;
use crate::diagnose::configured::Recorded;
use crate::metrics::{Latency, Quantile, Window};
use crate::report::{Detail, Report};
use crate::view::units::{bit_rate, bytes};

/// Offered loads that differ by more than this are not the same load.
const SAME_LOAD: f64 = 0.05;
/// Fewer batches than this make intervals wide.
const GOOD: usize = 20;

/// A run that was recorded.
#[derive(Debug)]
pub struct Run {
    /// The trace's directory.
    pub name: String,
    /// Its kernel.
    pub kernel: String,
    /// Its host.
    pub host: String,
    /// What its qdiscs were configured to; `None` if nobody read it.
    pub qdiscs: Option<BTreeSet<String>>,
    /// Its report, without a diagnosis.
    pub report: Report,
    detail: Detail,
    hooks: BTreeSet<(String, String)>,
    batches: Vec<Batch>,
    missing: Option<String>,
    rate: f64,
    size: f64,
    flows: usize,
}

/// What is configured, wherever: namespaces and devices are named anew with
/// every set-up.
fn configured(recorded: &Recorded) -> BTreeSet<String> {
    let all = recorded.namespaces.iter().flat_map(|n| &n.qdiscs);
    all.map(|q| {
        let c = &q.config;
        let figures = [
            c.rate_bit_s.map(|r| bit_rate(float(r))),
            c.burst_bytes.map(|b| format!("burst {}", bytes(float(b)))),
            c.limit_bytes.map(|b| format!("limit {}", bytes(float(b)))),
            c.limit_packets.map(|n| format!("limit {n} packets")),
        ];
        let figures: Vec<String> = figures.into_iter().flatten().collect();
        format!("{} {}", q.kind, figures.join(" ")).trim_end().to_owned()
    })
    .collect()
}

/// Some neighbouring segments together. Their distributions are kept as the
/// buckets in use alone.
#[derive(Clone, Debug, Default)]
struct Batch {
    components: [Buckets; Component::COUNT + 1],
    seconds: f64,
    sent: u64,
    delivered: u64,
    dropped: u64,
}

/// Buckets in use, in order, and how many are in each.
type Buckets = Vec<(u64, u64)>;

/// A figure of the whole run and of its batches.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Of the whole run; `None` if it cannot be quoted.
    pub value: Option<f64>,
    /// Of each batch that has enough datagrams.
    pub batches: Vec<f64>,
}

impl Run {
    pub(super) fn read(trace: &Trace, progress: &mut dyn FnMut(usize, usize)) -> Result<Self, TraceError> {
        let report = (*answer::undiagnosed(trace, &mut |_, _| {})?.snapshot.total).clone();
        let mut batches: Vec<Batch> = Vec::new();
        let mut before: Option<Segment> = None;
        let mut together = 1;
        let mut open = (Batch::default(), 0);
        let numbers = trace.numbers();
        for (done, number) in numbers.iter().enumerate() {
            let segment = trace.segment(*number)?;
            open.0.add(&Batch::of(trace, &segment, before.as_ref())?);
            open.1 += 1;
            if open.1 == together {
                batches.push(std::mem::take(&mut open.0));
                open.1 = 0;
                if batches.len() >= MOST {
                    batches = halve(batches);
                    together *= 2;
                }
            }
            before = Some(segment);
            progress(done + 1, numbers.len());
        }
        // The last ones, and the first and last second, need not be full.
        if open.1 > 0 && open.1 * 2 >= together {
            batches.push(open.0);
        }
        // Where the load began and ended within a segment, its rate is not the
        // load's.
        let mut throughout = steady(&batches);
        if throughout.is_empty() {
            throughout = &batches;
        }
        let active = throughout.iter().filter(|b| b.is_active());
        let seconds: f64 = active.clone().map(|b| b.seconds).sum();
        let sent = active.map(|b| b.sent).fold(0, u64::saturating_add);
        let hooks = trace.meta.hooks.iter().map(|h| (h.point.clone(), h.kind.clone())).collect();
        Ok(Self {
            name: trace.dir().display().to_string(),
            kernel: trace.meta.kernel.clone(),
            host: trace.meta.host.clone(),
            qdiscs: trace.meta.qdiscs.as_ref().map(configured),
            detail: trace.meta.detail,
            hooks,
            missing: trace.missing()?.sentence(),
            rate: ratio(sent, seconds),
            size: ratio(report.counts.delivered_bytes, float(report.counts.delivered)),
            flows: report.flows.len(),
            report,
            batches,
        })
    }

    /// A figure. Batches are joined with their neighbours until each has
    /// datagrams enough for the quantile.
    pub fn sample(&self, what: What) -> Sample {
        match what {
            What::Latency(component, q) => self.latency(component, q),
            What::Throughput => self.rates(|b| Some(ratio(b.delivered, b.seconds))),
            What::Loss => {
                self.rates(|b| (b.sent > 0).then(|| float(b.dropped) / float(b.sent).max(float(b.dropped))))
            }
        }
    }

    fn latency(&self, component: Option<Component>, q: Quantile) -> Sample {
        let c = &self.report.components;
        let whole = &component.map_or(&c.total, |component| c.get(component)).distribution;
        let value = match q {
            Quantile::P50 => whole.p50_ns,
            Quantile::P90 => whole.p90_ns,
            Quantile::P99 => whole.p99_ns,
            Quantile::P999 => whole.p99_9_ns,
        };
        let at = component.map_or(Component::COUNT, |c| c as usize);
        let mut batches = Vec::new();
        let mut open: Buckets = Vec::new();
        for batch in &self.batches {
            merge(&mut open, &batch.components[at]);
            let n: u64 = open.iter().map(|b| b.1).sum();
            if q.quotable(n) {
                batches.extend(at_rank(&open, q.rank(n)));
                open.clear();
            }
        }
        Sample { value: value.map(float), batches }
    }

    fn rates(&self, of: impl Fn(&Batch) -> Option<f64>) -> Sample {
        let steady = steady(&self.batches);
        let mut whole = Batch::default();
        for batch in steady {
            whole.add_counts(batch);
        }
        let value = (!steady.is_empty()).then(|| of(&whole)).flatten();
        Sample { value, batches: steady.iter().filter_map(of).collect() }
    }

    /// Why `other` cannot be held against this.
    pub(super) fn not_comparable(&self, other: &Self) -> Vec<String> {
        let mut why = Vec::new();
        if self.detail != other.detail {
            why.push(
                format!("one has detail {:?} and the other {:?}", self.detail, other.detail).to_lowercase(),
            );
        }
        let differ: Vec<&str> =
            self.hooks.symmetric_difference(&other.hooks).map(|(point, _)| point.as_str()).collect();
        if let Some(point) = differ.first() {
            why.push(format!("{point} was seen at another hook, so that it is another point in time"));
        }
        if far(self.rate, other.rate) {
            why.push(format!(
                "{:.0} datagrams per second were offered to one and {:.0} to the other",
                self.rate, other.rate
            ));
        }
        if far(self.size, other.size) {
            why.push(format!(
                "datagrams of {:.0} bytes in one and {:.0} in the other",
                self.size, other.size
            ));
        }
        if self.flows != other.flows {
            why.push(format!("{} flows in one and {} in the other", self.flows, other.flows));
        }
        why
    }

    /// What to know about it.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        notes.extend(self.missing.as_ref().map(|m| format!("{}: {m}", self.name)));
        let steady = steady(&self.batches).len();
        if steady < GOOD {
            notes.push(format!(
                "{}: {steady} full segments; {GOOD} or more make narrower intervals",
                self.name
            ));
        }
        for finding in self.report.findings.iter().filter(|f| f.check == "host-was-quiet") {
            if finding.level > crate::report::Level::Passed {
                notes.push(format!("{}: the host was not quiet: {}", self.name, finding.observed));
            }
        }
        notes
    }
}

/// Segments in which the load ran throughout: not those in which it began or
/// ended.
fn steady(batches: &[Batch]) -> &[Batch] {
    let first = batches.iter().position(Batch::is_active).map_or(0, |i| i + 1);
    let last = batches.iter().rposition(Batch::is_active).unwrap_or(0);
    batches.get(first..last).unwrap_or_default()
}

impl Batch {
    fn is_active(&self) -> bool {
        self.sent > 0 || self.delivered > 0
    }

    fn of(trace: &Trace, segment: &Segment, before: Option<&Segment>) -> Result<Self, TraceError> {
        let mut window = Window::default();
        let mut table = trace.table(segment, "histograms", |_| true)?;
        let path = files::of_segment(trace.dir(), "histograms", segment.number);
        histograms::put_back(table.as_mut(), &segment.measured, &path, &mut window, None)?;
        let buckets = |l: &Latency| l.buckets().collect::<Buckets>();
        let [a, b, c, d] = &window.components;
        let count = |of: fn(&super::super::state::FlowState) -> u64| {
            let sum = |s: &Segment| {
                s.tables.flows.iter().filter(|f| f.admitted).map(of).fold(0, u64::saturating_add)
            };
            let earlier = match before {
                Some(before) => sum(before),
                None => {
                    let flows = segment.before.iter().flat_map(|b| &b.tables.flows);
                    flows.filter(|f| f.admitted).map(of).fold(0, u64::saturating_add)
                }
            };
            sum(segment).saturating_sub(earlier)
        };
        Ok(Self {
            components: [buckets(a), buckets(b), buckets(c), buckets(d), buckets(&window.total)],
            seconds: float(segment.to_ns - segment.from_ns) / 1e9,
            sent: count(|f| if f.sent > 0 { f.sent } else { f.delivered.saturating_add(f.dropped) }),
            delivered: count(|f| f.delivered),
            dropped: count(|f| f.dropped),
        })
    }

    fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.components.iter_mut().zip(&other.components) {
            merge(mine, theirs);
        }
        self.add_counts(other);
    }

    fn add_counts(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.sent += other.sent;
        self.delivered += other.delivered;
        self.dropped += other.dropped;
    }
}

fn halve(batches: Vec<Batch>) -> Vec<Batch> {
    let mut joined = Vec::with_capacity(MOST);
    let mut all = batches.into_iter();
    while let Some(mut batch) = all.next() {
        if let Some(next) = all.next() {
            batch.add(&next);
        }
        joined.push(batch);
    }
    joined
}

/// Adds the buckets of `theirs`; both are in order.
fn merge(mine: &mut Buckets, theirs: &Buckets) {
    if mine.is_empty() {
        mine.clone_from(theirs);
        return;
    }
    let mut sum = Vec::with_capacity(mine.len().max(theirs.len()));
    let (mut a, mut b) = (mine.iter().copied().peekable(), theirs.iter().copied().peekable());
    loop {
        let next = match (a.peek().copied(), b.peek().copied()) {
            (Some(x), Some(y)) if x.0 == y.0 => {
                b.next();
                a.next().map(|x| (x.0, x.1 + y.1))
            }
            (Some(x), Some(y)) if x.0 > y.0 => b.next(),
            (Some(_), _) => a.next(),
            (None, _) => b.next(),
        };
        match next {
            Some(bucket) => sum.push(bucket),
            None => break,
        }
    }
    *mine = sum;
}

fn at_rank(buckets: &Buckets, rank: u64) -> Option<f64> {
    let mut below = 0;
    buckets
        .iter()
        .find(|(_, n)| {
            below += n;
            below >= rank
        })
        .map(|(to_ns, _)| float(*to_ns))
}

fn far(a: f64, b: f64) -> bool {
    (a - b).abs() > SAME_LOAD * a.max(b)
}

fn ratio(n: u64, of: f64) -> f64 {
    if of > 0.0 { float(n) / of } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "figures to compare, of a few digits")]
fn float(n: u64) -> f64 {
    n as f64
}
