//! `--fail-if 'total_p99 > +10%'`: a comparison as a gate.

use std::fmt;
use std::str::FromStr;

use super::{Comparison, What};

/// A bound on how much a metric may grow or shrink.
#[derive(Clone, Debug, PartialEq)]
pub struct FailIf {
    metric: String,
    above: bool,
    bound: Bound,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// Of the first run's value.
    Ratio(f64),
    /// In the metric's own unit.
    Absolute(f64),
}

/// What a gate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It is not so, or not shown to be.
    Passed,
    /// It is so, and that is more than chance.
    Failed(String),
    /// It cannot be said.
    Unknown(String),
}

impl FromStr for FailIf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| {
            format!(
                "{what} in {text:?}; write it as in 'total_p99 > +10%', 'shaper_p50 > +1ms' or 'throughput < -5%'"
            )
        };
        let at = text.find(['<', '>']).ok_or_else(|| wrong("no < or >"))?;
        let (metric, rest) = text.split_at(at);
        let (metric, above) = (metric.trim(), rest.starts_with('>'));
        if !What::all().iter().any(|w| w.name() == metric) {
            return Err(wrong("no metric that is compared"));
        }
        let bound = rest[1..].trim();
        let (sign, number) = match (bound.strip_prefix('+'), bound.strip_prefix('-')) {
            (Some(n), _) => (1.0, n),
            (_, Some(n)) => (-1.0, n),
            _ => return Err(wrong("a bound on a difference has a sign, + or -, which is not")),
        };
        let bound = if let Some(percent) = number.strip_suffix('%') {
            let percent: f64 = percent.trim().parse().map_err(|_| wrong("no percentage"))?;
            if !percent.is_finite() || percent < 0.0 {
                return Err(wrong("no percentage"));
            }
            match metric {
                // A share of a share is seldom meant.
                "loss" => Bound::Absolute(sign * percent / 100.0),
                _ => Bound::Ratio(sign * percent / 100.0),
            }
        } else if metric == "throughput" || metric == "loss" {
            return Err(wrong("no percentage"));
        } else {
            let time = load::units::duration(number).map_err(|e| e.to_string())?;
            Bound::Absolute(sign * time.as_secs_f64() * 1e9)
        };
        Ok(Self { metric: metric.to_owned(), above, bound })
    }
}

impl fmt::Display for FailIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.above { '>' } else { '<' };
        match self.bound {
            Bound::Ratio(r) => write!(f, "{} {sign} {:+} %", self.metric, r * 100.0),
            Bound::Absolute(v) if self.metric == "loss" => write!(f, "loss {sign} {:+} %", v * 100.0),
            Bound::Absolute(ns) => write!(f, "{} {sign} {:+} ms", self.metric, ns / 1e6),
        }
    }
}

impl FailIf {
    /// Whether the comparison fails. A difference that lies beyond the bound
    /// must also be more than chance: its interval must not contain 0.
    pub fn judge(&self, comparison: &Comparison) -> Gate {
        if let Some(why) = comparison.not_comparable.first() {
            return Gate::Unknown(format!("{self}: the runs cannot be compared: {why}"));
        }
        let Some(row) = comparison.rows.iter().find(|r| r.metric == self.metric) else {
            return Gate::Unknown(format!("{self}: there is no such figure"));
        };
        let (Some(difference), Some([low, high])) = (row.difference, row.interval) else {
            return Gate::Unknown(format!("{self}: too few datagrams or segments to say"));
        };
        let bound = match self.bound {
            Bound::Absolute(bound) => bound,
            Bound::Ratio(ratio) => ratio * row.a.unwrap_or(0.0),
        };
        let beyond = if self.above { difference > bound } else { difference < bound };
        let shown = low > 0.0 || high < 0.0;
        if beyond && shown {
            let ratio = row.ratio.map_or(String::new(), |r| format!(" ({:+.1} %)", r * 100.0));
            return Gate::Failed(format!("{self}: {}{ratio}", super::show::signed(difference, &row.unit)));
        }
        Gate::Passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_read_as_they_print() {
        for (text, shown) in [
            ("total_p99 > +10%", "total_p99 > +10 %"),
            ("shaper_p50>+1ms", "shaper_p50 > +1 ms"),
            ("throughput < -5%", "throughput < -5 %"),
            ("loss > +0.1%", "loss > +0.1 %"),
        ] {
            assert_eq!(text.parse::<FailIf>().unwrap().to_string(), shown);
        }
        for text in [
            "total_p99 > 10%",
            "total > +10%",
            "total_p99 +10%",
            "loss > +1ms",
            "total_p99 > +x%",
            "total_p99 > +NaN%",
        ] {
            assert!(text.parse::<FailIf>().is_err(), "{text}");
        }
    }
}
