//! Objectives: `total_p99 = "< 5ms"` and their like, in the one grammar of
//! metrics (`<component>_<quantile>`), judged on what was measured.

use std::fmt;

use serde::Serialize;

use crate::hist::{LatencyHistogram, samples_needed};
use crate::num::{round_u64, signed};
use crate::units::{self, show_count, show_ns};
use crate::verdict::{Finding, Verdict};

/// A part of a datagram's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// From the offer to the departure from the protocol stack; needs the observer.
    SenderQueue,
    /// In qdiscs; needs the observer.
    Shaper,
    /// Between the hosts; needs the observer.
    Wire,
    /// From the receiving stack to the application; needs the observer.
    Receiver,
    /// From the offer to the application.
    Total,
    /// From the intended time to the application: what a user of the schedule sees.
    Intended,
    /// From the intended time to the offer: the generator's own lateness.
    SendLag,
}

const COMPONENTS: [(&str, Component); 7] = [
    ("sender_queue", Component::SenderQueue),
    ("shaper", Component::Shaper),
    ("wire", Component::Wire),
    ("receiver", Component::Receiver),
    ("total", Component::Total),
    ("intended", Component::Intended),
    ("send_lag", Component::SendLag),
];

/// A point of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Point {
    /// A quantile, 0 to 1.
    Quantile(f64),
    /// The largest value.
    Max,
}

const POINTS: [(&str, Point); 6] = [
    ("p50", Point::Quantile(0.5)),
    ("p90", Point::Quantile(0.9)),
    ("p99", Point::Quantile(0.99)),
    ("p99_9", Point::Quantile(0.999)),
    ("p99_99", Point::Quantile(0.9999)),
    ("max", Point::Max),
];

/// Something that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Metric {
    /// A point of a component's distribution, ns.
    Latency(Component, Point),
    /// Datagrams delivered per second.
    Throughput,
    /// Share of the datagrams sent that were not delivered, 0 to 1.
    Loss,
}

impl Metric {
    /// The metric of that name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "throughput" => return Some(Self::Throughput),
            "loss" => return Some(Self::Loss),
            _ => {}
        }
        COMPONENTS.iter().find_map(|(c, component)| {
            let point = name.strip_prefix(c)?.strip_prefix('_')?;
            let (_, point) = POINTS.iter().find(|(p, _)| *p == point)?;
            Some(Self::Latency(*component, *point))
        })
    }

    /// What a misspelt name could have meant.
    pub fn hint() -> String {
        let components: Vec<_> = COMPONENTS.iter().map(|(n, _)| *n).collect();
        let points: Vec<_> = POINTS.iter().map(|(n, _)| *n).collect();
        format!("throughput, loss, or <{}>_<{}>", components.join("|"), points.join("|"))
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::Latency(..) => show_ns(signed(round_u64(value))),
            Self::Throughput => format!("{}/s", show_count(round_u64(value))),
            Self::Loss => format!("{:.4} %", value * 100.0),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Throughput => f.write_str("throughput"),
            Self::Loss => f.write_str("loss"),
            Self::Latency(component, point) => {
                let c = COMPONENTS.iter().find(|(_, c)| c == component).map_or("", |(n, _)| n);
                let p = POINTS.iter().find(|(_, p)| p == point).map_or("", |(n, _)| n);
                write!(f, "{c}_{p}")
            }
        }
    }
}

/// How a value compares with its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Comparison {
    /// `<`
    Below,
    /// `<=`
    AtMost,
    /// `>`
    Above,
    /// `>=`
    AtLeast,
}

/// An objective.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Expectation {
    /// Of what.
    pub metric: Metric,
    /// Compared how.
    pub comparison: Comparison,
    /// With what: ns, per second, or a share.
    pub bound: f64,
}

/// What was measured of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measured {
    /// This value.
    Value(f64),
    /// Too few samples: this many of those needed.
    TooFew(u64, u64),
    /// Nothing; this run cannot measure it.
    Unmeasured(&'static str),
}

impl Measured {
    /// A point of a distribution.
    pub fn of(h: Option<&LatencyHistogram>, point: Point) -> Self {
        let Some(h) = h else { return Self::Unmeasured("the receiver's latencies are not known") };
        match point {
            Point::Max => h.max().map_or(Self::TooFew(0, 1), |m| Self::Value(m as f64)),
            Point::Quantile(q) => match h.quantile(q) {
                Some(v) => Self::Value(v as f64),
                None if h.count() < samples_needed(q) => Self::TooFew(h.count(), samples_needed(q)),
                None => Self::Unmeasured("the quantile lies outside the range told apart"),
            },
        }
    }
}

impl Expectation {
    /// Reads the right-hand side of an objective, as in `< 5ms`, `>= 19k/s`, `< 0.1%`.
    ///
    /// # Errors
    /// What is wrong and what would be right.
    pub fn parse(metric: Metric, text: &str) -> Result<Self, String> {
        let objective = Self::condition(metric, text)?;
        let lower_is_better = metric != Metric::Throughput;
        let upper_bound = matches!(objective.comparison, Comparison::Below | Comparison::AtMost);
        if lower_is_better != upper_bound {
            return Err(format!(
                "{metric} is better when {}, so the objective must be {}",
                if lower_is_better { "lower" } else { "higher" },
                if lower_is_better { "an upper bound (<)" } else { "a lower bound (>)" }
            ));
        }
        Ok(objective)
    }

    /// Reads the right-hand side of a condition, which may point either way: as
    /// an objective, or as what is to be noticed (`> 5ms`).
    ///
    /// # Errors
    /// What is wrong and what would be right.
    pub fn condition(metric: Metric, text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (comparison, bound) = [
            ("<=", Comparison::AtMost),
            (">=", Comparison::AtLeast),
            ("<", Comparison::Below),
            (">", Comparison::Above),
        ]
        .into_iter()
        .find_map(|(sign, c)| Some((c, text.strip_prefix(sign)?.trim())))
        .ok_or_else(|| format!("{text:?} does not begin with <, <=, > or >=, as in \"< 5ms\""))?;
        let bound = match metric {
            Metric::Latency(..) => {
                let d = units::duration(bound).map_err(|e| e.to_string())?;
                if d.is_zero() {
                    return Err("a latency of 0 is no objective; give one above 0".into());
                }
                d.as_secs_f64() * 1e9
            }
            Metric::Throughput => {
                if !bound.ends_with("/s") {
                    return Err(format!(
                        "{bound:?} is not a rate: its unit is missing; write it as in \"> 19k/s\""
                    ));
                }
                units::rate(bound).map_err(|e| e.to_string())?
            }
            Metric::Loss => percent(bound)?,
        };
        Ok(Self { metric, comparison, bound })
    }

    /// The finding, where the objective is missed or cannot be judged.
    pub fn judge(&self, measured: Measured) -> Option<Finding> {
        let objective = self.to_string();
        match measured {
            Measured::Value(v) if self.holds(v) => None,
            Measured::Value(v) => Some(Finding {
                check: "objective",
                level: Verdict::Failed,
                observed: format!("{} was {}, expected {objective}", self.metric, self.metric.show(v)),
                means: "the run is sound and the objective was missed".into(),
                detail: format!("{:.2} times the bound", v / self.bound),
            }),
            Measured::TooFew(n, needed) => Some(Finding {
                check: "quantile-quotable",
                level: Verdict::Invalid,
                observed: format!(
                    "{} samples for {}, which needs {}",
                    show_count(n),
                    self.metric,
                    show_count(needed)
                ),
                means: "the objective cannot be judged from so few: run longer or at a higher rate".into(),
                detail: format!("expected {objective}"),
            }),
            Measured::Unmeasured(why) => Some(Finding {
                check: "objective",
                level: Verdict::Invalid,
                observed: format!("{} was not measured: {why}", self.metric),
                means: "an objective nobody looked at is not met; measure it or leave it out".into(),
                detail: format!("expected {objective}"),
            }),
        }
    }

    /// Whether `v` is as it says.
    pub fn holds(&self, v: f64) -> bool {
        match self.comparison {
            Comparison::Below => v < self.bound,
            Comparison::AtMost => v <= self.bound,
            Comparison::Above => v > self.bound,
            Comparison::AtLeast => v >= self.bound,
        }
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.comparison {
            Comparison::Below => "<",
            Comparison::AtMost => "<=",
            Comparison::Above => ">",
            Comparison::AtLeast => ">=",
        };
        write!(f, "{sign} {}", self.metric.show(self.bound))
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text
        .strip_suffix('%')
        .ok_or_else(|| format!("{text:?} is not a share: its unit is missing; write it as in \"< 0.1%\""))?;
    match number.trim().parse::<f64>() {
        Ok(p) if (0.0..=100.0).contains(&p) => Ok(p / 100.0),
        _ => Err(format!("{text:?} is not a share; write a percentage between 0% and 100%")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_one_grammar_and_print_as_they_read() {
        for name in ["total_p99", "shaper_p99_9", "receiver_max", "sender_queue_p50", "throughput", "loss"] {
            assert_eq!(Metric::parse(name).unwrap().to_string(), name);
        }
        for name in ["", "total", "total_p98", "p99", "total_p99_ns", "total__p99", "latency_p99"] {
            assert_eq!(Metric::parse(name), None, "{name}");
        }
    }

    #[test]
    fn objectives_are_judged() {
        let at = |name, text| Expectation::parse(Metric::parse(name).unwrap(), text);
        let p99 = at("total_p99", "< 5ms").unwrap();
        assert_eq!(p99.judge(Measured::Value(4_999_999.0)), None);
        assert_eq!(p99.judge(Measured::Value(5e6)).unwrap().level, Verdict::Failed);
        assert_eq!(p99.judge(Measured::TooFew(3, 1000)).unwrap().level, Verdict::Invalid);
        assert_eq!(p99.judge(Measured::Unmeasured("x")).unwrap().level, Verdict::Invalid);
        assert_eq!(at("loss", "<= 0.1%").unwrap().judge(Measured::Value(0.001)), None);
        assert!(at("throughput", ">= 19k/s").unwrap().judge(Measured::Value(18_999.0)).is_some());
    }

    #[test]
    fn objectives_without_sign_unit_or_sense_are_refused() {
        let at = |name, text| Expectation::parse(Metric::parse(name).unwrap(), text).unwrap_err();
        assert!(at("total_p99", "5ms").contains('<'));
        assert!(at("total_p99", "< 5").contains("unit"));
        assert!(at("total_p99", "> 5ms").contains("upper bound"));
        assert!(at("throughput", "< 5k/s").contains("lower bound"));
        assert!(at("throughput", "> 5k").contains("unit"));
        assert!(at("loss", "< 0.1").contains("unit"));
        assert!(at("loss", "< 101%").contains("between"));
        assert!(at("loss", "< NaN%").contains("between"));
    }
}
