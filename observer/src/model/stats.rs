//! Medians, spreads and intervals: statistics that a few outliers do not set.

use serde::{Deserialize, Serialize};

/// A 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Interval {
    /// `value` ± `half`.
    pub fn around(value: f64, half: f64) -> Self {
        Self { low: value - half, high: value + half }
    }

    /// Whether `value` lies in it.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Both ends changed by `f`, and put in order again.
    #[must_use]
    pub fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        let (a, b) = (f(self.low), f(self.high));
        Self { low: a.min(b), high: a.max(b) }
    }
}

/// The values that are numbers, sorted.
pub fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// The quantile `q` of sorted values, between neighbours by straight line;
/// `None` of nothing.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank in a slice: not negative, and below its length"
)]
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let rank = q.clamp(0.0, 1.0) * last as f64;
    let below = rank.floor() as usize;
    let (a, b) = (sorted.get(below)?, sorted.get(below + 1).or(sorted.last())?);
    Some(a + (b - a) * (rank - below as f64))
}

/// The median; `None` of nothing.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    quantile(&sorted(values), 0.5)
}

/// Spread about the median, in the units of a standard deviation: 1.4826
/// times the median absolute deviation, which for a normal distribution is
/// that. `None` of nothing.
pub fn spread(values: &[f64]) -> Option<f64> {
    let center = median(values.iter().copied())?;
    Some(1.4826 * median(values.iter().map(|v| (v - center).abs()))?)
}

/// Spread relative to the median, from the quartiles (their distance is 1.349
/// standard deviations of a normal distribution): a coefficient of variation
/// that a late timer now and then does not set. `None` of fewer than four
/// values or where the median is 0.
pub fn variation(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values.iter().copied());
    if sorted.len() < 4 {
        return None;
    }
    let center = quantile(&sorted, 0.5).filter(|m| *m != 0.0)?;
    let quartiles = quantile(&sorted, 0.75)? - quantile(&sorted, 0.25)?;
    Some(quartiles / 1.349 / center.abs())
}

/// The 95 % interval of a quantile of independent values, from order
/// statistics: ranks n·q ± 1.96·√(n·q·(1 − q)). `None` where a rank would lie
/// outside of the sample.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "ranks in a slice, checked to lie in it"
)]
pub fn quantile_interval(sorted: &[f64], q: f64) -> Option<Interval> {
    let n = sorted.len() as f64;
    let half = 1.96 * (n * q * (1.0 - q)).sqrt();
    let (low, high) = ((n * q - half).floor(), (n * q + half).ceil());
    if low < 0.0 || high >= n {
        return None;
    }
    Some(Interval { low: *sorted.get(low as usize)?, high: *sorted.get(high as usize)? })
}

/// The 95 % interval of the median of independent values. Of six to ten values
/// it is their range (which covers it with 96.9 % and more).
pub fn median_interval(values: &[f64]) -> Option<Interval> {
    let sorted = sorted(values.iter().copied());
    match sorted.len() {
        0..6 => None,
        6..10 => Some(Interval { low: *sorted.first()?, high: *sorted.last()? }),
        _ => quantile_interval(&sorted, 0.5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn medians_quantiles_and_spreads() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, f64::NAN, 1.0, 2.0]), Some(2.0));
        assert_eq!(quantile(&[0.0, 10.0], 0.25), Some(2.5));
        assert_eq!(quantile(&[7.0], 1.0), Some(7.0));
        assert_eq!(spread(&[1.0, 1.0, 1.0, 99.0]), Some(0.0));
        assert_eq!(variation(&[1.0, 2.0, 3.0]), None);
        assert!(variation(&[10.0, 10.1, 9.9, 10.0, 900.0]).unwrap() < 0.02);
    }

    #[test]
    fn an_interval_needs_enough_values() {
        assert_eq!(median_interval(&[1.0; 5]), None);
        assert_eq!(median_interval(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), Some(Interval { low: 1.0, high: 6.0 }));
        let many: Vec<f64> = (0..100).map(f64::from).collect();
        assert_eq!(median_interval(&many), Some(Interval { low: 40.0, high: 60.0 }));
        assert_eq!(quantile_interval(&many, 0.01), None);
    }

    /// Of 400 samples of 31 values each, nearly all intervals hold the true
    /// median, and they are not so wide that they hold anything.
    #[test]
    fn the_interval_of_a_median_covers_it_as_often_as_it_says() {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut covered = 0;
        for _ in 0..400 {
            let values: Vec<f64> = (0..31).map(|_| rng.f64()).collect();
            let interval = median_interval(&values).unwrap();
            covered += u32::from(interval.contains(0.5));
            assert!(interval.high - interval.low < 0.7);
        }
        assert!((365..=400).contains(&covered), "{covered} of 400");
    }

    proptest! {
        #[test]
        fn a_quantile_lies_among_the_values(values in proptest::collection::vec(-1e9_f64..1e9, 1..50), q in 0.0..1.0) {
            let sorted = sorted(values);
            let found = quantile(&sorted, q).unwrap();
            prop_assert!(found >= sorted[0] && found <= sorted[sorted.len() - 1]);
        }
    }
}
