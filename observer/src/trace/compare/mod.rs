//! `observer compare`: what is different between runs, and whether that is
//! more than chance.
//!
//! In: two or more traces; the first is what the others are held against. Out:
//! a [`Comparison`] for each other one: per component and quantile the
//! difference with its interval and a plain verdict. Only the recorded
//! distributions are read, never the records.

pub mod fail_if;
mod load;
pub mod page;
pub mod show;
pub mod stats;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use load::{Run, Sample};

use super::{Trace, TraceError};
use crate::component::Component;
use crate::metrics::Quantile;
use stats::{Estimate, difference, holm};

/// Name and version of the JSON.
pub const SCHEMA: &str = "observer-compare/1";

/// The smallest difference that is worth naming: both must be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Smallest {
    /// Of a latency, as a share of the first run's.
    pub ratio: f64,
    /// Of a latency, ns.
    pub ns: f64,
    /// Of the loss, as a share of what was sent.
    pub loss: f64,
}

impl Default for Smallest {
    /// 5 % and 5 µs; a thousandth of the datagrams.
    fn default() -> Self {
        Self { ratio: 0.05, ns: 5_000.0, loss: 0.001 }
    }
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A quantile of a component, or of the total.
    Latency(Option<Component>, Quantile),
    /// Datagrams delivered per second.
    Throughput,
    /// Share of what was sent that was dropped.
    Loss,
}

impl What {
    /// All comparisons that are made, in the order shown.
    pub fn all() -> Vec<Self> {
        let components = Component::ALL.into_iter().map(Some).chain([None]);
        let latencies = components.flat_map(|c| Quantile::ALL.into_iter().map(move |q| Self::Latency(c, q)));
        latencies.chain([Self::Throughput, Self::Loss]).collect()
    }

    /// Its name in the one grammar of metrics.
    pub fn name(self) -> String {
        match self {
            Self::Latency(c, q) => format!("{}_{}", c.map_or("total", Component::name), q.name()),
            Self::Throughput => "throughput".to_owned(),
            Self::Loss => "loss".to_owned(),
        }
    }
}

/// A plain verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Worse than the first run, by more than chance and than the smallest
    /// difference worth naming.
    Worse,
    /// Better, likewise.
    Better,
    /// Neither was shown; it may be there.
    NoDifferenceShown,
    /// Too few datagrams or batches to say.
    NotKnown,
    /// The runs cannot be compared.
    NotComparable,
}

impl Verdict {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Better => "better",
            Self::NoDifferenceShown => "no difference shown",
            Self::NotKnown => "not known",
            Self::NotComparable => "not comparable",
        }
    }
}

/// One figure in two runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `<component>_<quantile>`, `throughput`, `loss`.
    pub metric: String,
    /// `ns`, `per_second`, `ratio`.
    pub unit: String,
    /// In the first run; null if it cannot be quoted.
    pub a: Option<f64>,
    /// In the other.
    pub b: Option<f64>,
    /// b − a.
    pub difference: Option<f64>,
    /// The difference as a share of a.
    pub ratio: Option<f64>,
    /// 95 % confidence interval of the difference.
    pub interval: Option<[f64; 2]>,
    /// The chance of it if there were nothing worth naming, before Holm's
    /// correction.
    pub p: Option<f64>,
    /// Batches of the first and the other run.
    pub batches: [usize; 2],
    /// What comes of it, corrected over all comparisons made.
    pub verdict: Verdict,
}

/// Two runs, compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: String,
    /// The first run's directory.
    pub a: String,
    /// The other's.
    pub b: String,
    /// The worst of what was found, or that they cannot be compared.
    pub verdict: Verdict,
    /// In a sentence.
    pub sentence: String,
    /// Why they cannot be compared; empty if they can.
    pub not_comparable: Vec<String>,
    /// What to know beside it.
    pub notes: Vec<String>,
    /// The component that most of a difference lies in; null without one.
    pub component: Option<String>,
    /// The smallest difference worth naming.
    pub smallest: Smallest,
    /// Comparisons made, which Holm's correction allows for.
    pub comparisons: usize,
    /// Figure by figure.
    pub rows: Vec<Row>,
}

/// Reads a trace for comparing.
///
/// # Errors
///
/// What is wrong with it.
pub fn read(trace: &Trace, progress: &mut dyn FnMut(usize, usize)) -> Result<Run, TraceError> {
    Run::read(trace, progress)
}

/// Holds `b` against `a`.
pub fn compare(a: &Run, b: &Run, smallest: Smallest) -> Comparison {
    let not_comparable = a.not_comparable(b);
    let mut rows: Vec<Row> = What::all().into_iter().map(|what| row(what, a, b, smallest)).collect();
    let tested: Vec<usize> = (0..rows.len()).filter(|i| rows[*i].p.is_some()).collect();
    let shown = holm(&tested.iter().filter_map(|i| rows[*i].p).collect::<Vec<_>>());
    for (at, shown) in tested.iter().zip(shown) {
        let row = &mut rows[*at];
        let up = row.difference.is_some_and(|d| d > 0.0);
        row.verdict = match (shown, up == (row.metric != "throughput")) {
            (false, _) => Verdict::NoDifferenceShown,
            (true, true) => Verdict::Worse,
            (true, false) => Verdict::Better,
        };
    }
    let any = |verdict| rows.iter().any(|r| r.verdict == verdict);
    let verdict = match () {
        () if !not_comparable.is_empty() => Verdict::NotComparable,
        () if any(Verdict::Worse) => Verdict::Worse,
        () if any(Verdict::Better) => Verdict::Better,
        () if tested.is_empty() => Verdict::NotKnown,
        () => Verdict::NoDifferenceShown,
    };
    if verdict == Verdict::NotComparable {
        rows.iter_mut().for_each(|r| r.verdict = Verdict::NotComparable);
    }
    let component =
        matches!(verdict, Verdict::Worse | Verdict::Better).then(|| component(&rows, verdict)).flatten();
    let sentence = sentence(verdict, component.as_deref(), &rows, &not_comparable);
    Comparison {
        schema: SCHEMA.to_owned(),
        a: a.name.clone(),
        b: b.name.clone(),
        verdict,
        sentence,
        not_comparable,
        notes: notes(a, b),
        component,
        smallest,
        comparisons: tested.len(),
        rows,
    }
}

fn row(what: What, a: &Run, b: &Run, smallest: Smallest) -> Row {
    let (of_a, of_b) = (a.sample(what), b.sample(what));
    let (value_a, value_b) = (of_a.value, of_b.value);
    let estimate = |s: &Sample| s.value.and_then(|v| Estimate::new(v, &s.batches));
    let worth = match what {
        What::Latency(..) => (smallest.ratio * value_a.unwrap_or(0.0)).max(smallest.ns),
        What::Throughput => smallest.ratio * value_a.unwrap_or(0.0),
        What::Loss => smallest.loss,
    };
    let found = estimate(&of_a).zip(estimate(&of_b)).map(|(a, b)| difference(a, b, worth));
    let plain = value_a.zip(value_b).map(|(a, b)| b - a);
    Row {
        metric: what.name(),
        unit: match what {
            What::Latency(..) => "ns",
            What::Throughput => "per_second",
            What::Loss => "ratio",
        }
        .to_owned(),
        a: value_a,
        b: value_b,
        difference: plain,
        ratio: plain.zip(value_a).filter(|(_, a)| *a > 0.0).map(|(d, a)| d / a),
        interval: found.map(|f| f.interval),
        p: found.map(|f| f.p),
        batches: [of_a.batches.len(), of_b.batches.len()],
        verdict: Verdict::NotKnown,
    }
}

/// Where most of the difference lies: the component whose quantile moved most
/// among those shown to have moved that way, at the highest quantile of any.
fn component(rows: &[Row], verdict: Verdict) -> Option<String> {
    Quantile::ALL.into_iter().rev().find_map(|q| {
        let moved = Component::ALL.into_iter().filter_map(|c| {
            let name = What::Latency(Some(c), q).name();
            let row = rows.iter().find(|r| r.metric == name && r.verdict == verdict)?;
            Some((row.difference?.abs(), c))
        });
        moved.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, c)| c.name().to_owned())
    })
}

fn sentence(verdict: Verdict, component: Option<&str>, rows: &[Row], reasons: &[String]) -> String {
    let of = |v: Verdict| -> Vec<&Row> { rows.iter().filter(|r| r.verdict == v).collect() };
    match verdict {
        Verdict::NotComparable => format!("not comparable: {}", reasons.join("; ")),
        Verdict::NotKnown => "nothing can be said: too few datagrams or segments".to_owned(),
        Verdict::NoDifferenceShown => {
            let known = rows.iter().filter(|r| r.p.is_some()).count();
            format!("no difference shown in {known} comparisons")
        }
        Verdict::Worse | Verdict::Better => {
            let found = of(verdict);
            let names: Vec<&str> = found.iter().map(|r| r.metric.as_str()).collect();
            let most = component.map_or(String::new(), |c| format!(", most of it in {c}"));
            let also = if verdict == Verdict::Worse && !of(Verdict::Better).is_empty() {
                let better: Vec<&str> = of(Verdict::Better).iter().map(|r| r.metric.as_str()).collect();
                format!("; better: {}", better.join(", "))
            } else {
                String::new()
            };
            format!("{}{most}: {}{also}", verdict.words(), names.join(", "))
        }
    }
}

fn notes(a: &Run, b: &Run) -> Vec<String> {
    let mut notes: Vec<String> = [a, b].into_iter().flat_map(Run::notes).collect();
    if let (Some(of_a), Some(of_b)) = (&a.qdiscs, &b.qdiscs)
        && of_a != of_b
    {
        let alone = |x: &BTreeSet<String>, y: &BTreeSet<String>| {
            let alone: Vec<&str> = x.difference(y).map(String::as_str).collect();
            if alone.is_empty() { "nothing".to_owned() } else { alone.join(", ") }
        };
        notes.push(format!(
            "configured in {}, and not in the other: {}; in {}: {}",
            a.name,
            alone(of_a, of_b),
            b.name,
            alone(of_b, of_a)
        ));
    }
    if a.kernel != b.kernel {
        notes.push(format!("different kernels: {} and {}", a.kernel, b.kernel));
    }
    if a.host != b.host {
        notes.push(format!("different hosts: {} and {}", a.host, b.host));
    }
    notes
}
