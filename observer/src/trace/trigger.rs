//! What makes a flight recorder keep its window: a condition on an interval's
//! report (`total_p99 > 5ms`), or somebody asking for it.
//!
//! Conditions are in the one grammar of metrics and comparisons that
//! expectations use. Asking is a file in the trace's directory, so that it
//! takes no more rights than writing there.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use load::workload::Expectation;
use load::workload::expect::{Component, Metric, Point};
use serde::{Deserialize, Serialize};

use super::{TraceError, files};
use crate::report::{Distribution, Report};

/// A condition on a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Trigger {
    condition: Expectation,
}

impl FromStr for Trigger {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at = text
            .find(['<', '>'])
            .ok_or_else(|| format!("{text:?} compares nothing; write it as in \"total_p99 > 5ms\""))?;
        let (name, rest) = text.split_at(at);
        let name = name.trim();
        let metric = metric(name)?;
        Ok(Self { condition: Expectation::condition(metric, rest)? })
    }
}

/// The metric of that name, if a report has it.
///
/// # Errors
///
/// What the name could have been.
pub fn metric(name: &str) -> Result<Metric, String> {
    const HINT: &str =
        "throughput, loss, or <sender_queue|shaper|wire|receiver|total>_<p50|p90|p99|p99_9|max>";
    match Metric::parse(name) {
        None => Err(format!("there is no metric {name:?}; there are {HINT}")),
        Some(
            Metric::Latency(Component::Intended | Component::SendLag, _)
            | Metric::Latency(_, Point::Quantile(0.9999..)),
        ) => Err(format!("observer does not report {name}; there are {HINT}")),
        Some(metric) => Ok(metric),
    }
}

/// A metric's value in a report: ns, per second, or a share. `None` if it is
/// not known.
pub fn value(report: &Report, metric: Metric) -> Option<f64> {
    let counts = &report.counts;
    #[expect(clippy::cast_precision_loss, reason = "counts and ns are compared, not added up")]
    match metric {
        Metric::Latency(component, point) => {
            let c = &report.components;
            let of = match component {
                Component::SenderQueue => &c.sender_queue,
                Component::Shaper => &c.shaper,
                Component::Wire => &c.wire,
                Component::Receiver => &c.receiver,
                Component::Total => &c.total,
                Component::Intended | Component::SendLag => return None,
            };
            at(&of.distribution, point).map(|ns| ns as f64)
        }
        Metric::Throughput => {
            let seconds = report.seconds();
            (seconds > 0.0).then(|| counts.delivered as f64 / seconds)
        }
        Metric::Loss => {
            let sent = counts.sent.unwrap_or(0).saturating_add(counts.received_only);
            (sent > 0).then(|| counts.dropped_total() as f64 / sent as f64)
        }
    }
}

fn at(distribution: &Distribution, point: Point) -> Option<u64> {
    match point {
        Point::Max => distribution.max_ns,
        Point::Quantile(q) if q <= 0.5 => distribution.p50_ns,
        Point::Quantile(q) if q <= 0.9 => distribution.p90_ns,
        Point::Quantile(q) if q <= 0.99 => distribution.p99_ns,
        Point::Quantile(q) if q <= 0.999 => distribution.p99_9_ns,
        Point::Quantile(_) => None,
    }
}

impl Trigger {
    /// Whether an interval's report is as it says. What is not known does not
    /// fire.
    pub fn fires(&self, interval: &Report) -> bool {
        value(interval, self.condition.metric).is_some_and(|v| self.condition.holds(v))
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.condition.metric, self.condition)
    }
}

/// What is in the file that asks.
#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    why: String,
}

fn asking(dir: &Path) -> PathBuf {
    dir.join("trigger.json")
}

/// Why somebody asked since the last call; `None` if nobody did.
pub fn asked_for(dir: &Path) -> Option<String> {
    let path = asking(dir);
    let text = files::read_bounded(&path, 4_096).ok()?;
    fs::remove_file(&path).ok()?;
    let why = serde_json::from_slice(&text).map_or_else(|_| String::new(), |asked: Asked| asked.why);
    let clean: String = why.chars().filter(|c| !c.is_control()).take(200).collect();
    Some(if clean.is_empty() { "asked for".to_owned() } else { clean })
}

/// Asks the flight recorder of `dir` to keep its window, and waits until it
/// has; where it is kept.
///
/// # Errors
///
/// [`TraceError::Refused`] if nobody records there, or nobody answers.
pub fn ask(dir: &Path, why: &str, patience: Duration) -> Result<PathBuf, TraceError> {
    let meta = super::Meta::read(dir)?;
    if meta.window_ns.is_none() {
        let why = format!("{} is no flight recorder's: everything in it is kept anyway", dir.display());
        return Err(TraceError::Refused(why));
    }
    if meta.end.is_some() {
        let why = format!("nobody records into {} any more", dir.display());
        return Err(TraceError::Refused(why));
    }
    let before = preserved(dir);
    let path = asking(dir);
    files::write_json(&path, &Asked { why: why.to_owned() })?;
    let until = Instant::now() + patience;
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
        if let Some(new) = preserved(dir).into_iter().find(|p| !before.contains(p))
            && files::meta(&new).exists()
        {
            return Ok(new);
        }
    }
    // Nobody is to find it later.
    let _ = fs::remove_file(&path);
    let why = format!("nobody who records into {} answered within {patience:?}", dir.display());
    Err(TraceError::Refused(why))
}

fn preserved(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|e| e.file_name().to_string_lossy().starts_with("preserved-")).map(|e| e.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Pipeline;
    use crate::source::synthetic::{Plan, Synthetic};

    #[test]
    fn conditions_read_as_they_print() {
        for text in ["total_p99 > 5ms", "loss >= 0.1000 %", "receiver_max < 1ms", "throughput < 5,000/s"] {
            let text = text.replace(" %", "%").replace(',', "");
            let trigger: Trigger = text.parse().unwrap();
            assert!(trigger.to_string().starts_with(text.split_whitespace().next().unwrap()), "{trigger}");
        }
        for text in
            ["total_p99", "total_p98 > 1ms", "total_p99 > 5", "send_lag_p99 > 1ms", "total_p99_99 > 1ms"]
        {
            assert!(text.parse::<Trigger>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_trigger_fires_on_what_is_known() {
        let snapshot = Pipeline::run(&mut Synthetic::new(Plan::default())).unwrap();
        let fires = |text: &str| text.parse::<Trigger>().unwrap().fires(&snapshot.total);
        assert!(fires("total_p99 > 1us"));
        assert!(!fires("total_p99 > 1s"));
        assert!(fires("throughput > 1k/s"));
        assert!(fires("loss < 1%"));
    }
}
