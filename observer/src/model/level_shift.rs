//! When a rate fell for good: the level shift of ShaperProbe (Kanuparthy and
//! Dovrolis, 2011), for buckets so large that they last seconds or minutes.
//!
//! In: rates over bins of equal length. A shift is at bin i if, the rates
//! smoothed by a running median, all behind it are below the lowest up to it,
//! with at least [`BEFORE`] bins before and [`AFTER`] behind, and the median
//! before is more than [`RATIO`] times that behind.

use super::stats::{Interval, median};

/// Bins needed up to the shift.
pub const BEFORE: usize = 3;
/// Bins needed behind it.
pub const AFTER: usize = 8;
/// Least fall.
pub const RATIO: f64 = 1.10;
/// Bins of the running median.
const SMOOTHED: usize = 11;

/// A fall from one level to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    /// Bins before it.
    pub at: usize,
    /// The level before, in the units of the input.
    pub before: f64,
    /// ρ, the level behind.
    pub after: f64,
    /// σ, what went beyond ρ before the shift: the bucket. Units of the input
    /// times seconds.
    pub burst: f64,
    /// Where σ lies: the shift may be anywhere in its bin.
    pub burst_interval: Interval,
}

/// The shift in `rates`, each over `bin_s` seconds; `None` where there is none.
/// Of several places that fit, the one that splits the rates best (the largest
/// variance between both sides).
pub fn find(rates: &[f64], bin_s: f64) -> Option<Shift> {
    let smooth = smoothed(rates);
    let n = smooth.len();
    // The highest from each place on.
    let mut highest = vec![f64::NEG_INFINITY; n + 1];
    for (i, rate) in smooth.iter().enumerate().rev() {
        let next = highest.get(i + 1).copied().unwrap_or(f64::NEG_INFINITY);
        if let Some(slot) = highest.get_mut(i) {
            *slot = rate.max(next);
        }
    }
    let mut lowest = f64::INFINITY;
    let mut best: Option<(f64, usize, f64, f64)> = None;
    for at in 1..=n.saturating_sub(AFTER) {
        lowest = lowest.min(*smooth.get(at - 1)?);
        if at < BEFORE || *highest.get(at)? >= lowest {
            continue;
        }
        let before = median(rates.get(..at)?.iter().copied())?;
        let after = median(rates.get(at..)?.iter().copied())?;
        let split = at as f64 * (n - at) as f64 * (before - after).powi(2);
        if before > RATIO * after && best.is_none_or(|(most, ..)| split > most) {
            best = Some((split, at, before, after));
        }
    }
    let (_, at, before, after) = best?;
    let through: f64 = rates.get(..at)?.iter().map(|r| r * bin_s).sum();
    let burst = (through - at as f64 * after * bin_s).max(0.0);
    let half = (before - after) * bin_s / 2.0;
    Some(Shift { at, before, after, burst, burst_interval: Interval::around(burst, half) })
}

/// The running median of up to [`SMOOTHED`] bins. Towards both ends it takes
/// as many as there are on the shorter side, so that an end is not smeared.
fn smoothed(rates: &[f64]) -> Vec<f64> {
    (0..rates.len())
        .map(|i| {
            let half = (SMOOTHED / 2).min(i).min(rates.len() - 1 - i);
            median(rates.get(i - half..=i + half).unwrap_or_default().iter().copied()).unwrap_or(0.0)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn step(before: usize, after: usize, high: f64, low: f64, noise: f64) -> Vec<f64> {
        let mut rng = fastrand::Rng::with_seed(9);
        (0..before + after)
            .map(|i| (if i < before { high } else { low }) * (1.0 + noise * (rng.f64() - 0.5)))
            .collect()
    }

    #[test]
    fn a_step_is_found_with_the_credit_it_used() {
        let found = find(&step(120, 300, 500e6, 100e6, 0.02), 1.0).unwrap();
        assert!((119..=121).contains(&found.at), "{found:?}");
        assert!((found.after / 100e6 - 1.0).abs() < 0.01 && (found.before / 500e6 - 1.0).abs() < 0.01);
        assert!((found.burst / (120.0 * 400e6) - 1.0).abs() < 0.02, "{found:?}");
        assert!(found.burst_interval.contains(120.0 * 400e6), "{found:?}");
    }

    #[test]
    fn three_bins_are_enough_before_and_two_are_not() {
        assert!(find(&step(3, 20, 2.0, 1.0, 0.0), 0.1).is_some());
        assert!(find(&step(2, 20, 2.0, 1.0, 0.0), 0.1).is_none());
        assert!(find(&step(20, 7, 2.0, 1.0, 0.0), 0.1).is_none());
    }

    #[test]
    fn noise_a_small_fall_and_a_recovery_are_no_shift() {
        assert!(find(&step(0, 200, 2.0, 1.0, 0.3), 1.0).is_none());
        assert!(find(&step(100, 100, 1.08, 1.0, 0.0), 1.0).is_none());
        let mut back = step(50, 50, 2.0, 1.0, 0.0);
        back.extend(step(50, 0, 2.0, 1.0, 0.0));
        assert!(find(&back, 1.0).is_none());
        assert!(find(&[], 1.0).is_none());
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(rates in proptest::collection::vec(any::<f64>(), 0..60)) {
            let _ = find(&rates, 1.0);
        }
    }
}
