//! Medians of rounds and quantiles of samples, neither without samples; and
//! numbers as people read them.

/// Samples a quantile needs: ten beyond it, n ≥ 10/(1 − q).
fn samples_needed(q: f64) -> f64 {
    // Rounded at a millionth, so that 1 − 0.99 is one hundredth.
    (10.0 / (1.0 - q) * 1e6).round() / 1e6
}

/// The median; of an even number of values, the mean of the middle two.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let sorted = sorted(values);
    let n = sorted.len();
    if n == 0 { None } else { Some((sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0) }
}

/// The smallest and the largest.
pub(super) fn range(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let sorted = sorted(values);
    sorted.first().copied().zip(sorted.last().copied())
}

/// The value at rank ⌈q·n⌉; none below n = 10/(1 − q).
pub(super) fn quantile(values: &[f64], q: f64) -> Option<f64> {
    if (values.len() as f64) < samples_needed(q) {
        return None;
    }
    let sorted = sorted(values.iter().copied());
    // The rank is computed exactly for all lengths a run can have.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the length: q is between 0 and 1"
    )]
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// Nanoseconds as microseconds.
pub(super) fn micros(ns: f64) -> String {
    if ns < 10_000.0 { format!("{:.1} µs", ns / 1e3) } else { format!("{} µs", grouped(ns / 1e3)) }
}

/// A whole number with commas between its thousands.
pub(super) fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value <= -0.5 { format!("-{out}") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_has_no_median() {
        assert_eq!(median([]), None);
        assert_eq!(range([]), None);
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(range([3.0, 1.0, 2.0]), Some((1.0, 3.0)));
    }

    #[test]
    fn a_quantile_needs_ten_samples_beyond_it() {
        let values: Vec<f64> = (1..=1000).map(f64::from).collect();
        assert_eq!(quantile(&values[..999], 0.99), None);
        assert_eq!(quantile(&values, 0.99), Some(990.0));
        assert_eq!(quantile(&values[..20], 0.5), Some(10.0));
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(
            [0.0, 999.0, 1000.0, 1234567.4, -1000.0, -0.2].map(grouped),
            ["0", "999", "1,000", "1,234,567", "-1,000", "0"]
        );
    }

    proptest! {
        #[test]
        fn half_lies_on_either_side_of_the_median(values in proptest::collection::vec(-1e9..1e9f64, 1..60)) {
            let m = median(values.iter().copied()).unwrap();
            prop_assert!(values.iter().filter(|v| **v < m).count() * 2 <= values.len());
            prop_assert!(values.iter().filter(|v| **v > m).count() * 2 <= values.len());
        }
    }
}
