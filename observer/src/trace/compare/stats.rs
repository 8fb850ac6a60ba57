//! Whether two runs differ by as much as is worth naming.
//!
//! Latencies that follow one another are alike, so a quantile's uncertainty
//! is taken from the spread of the quantiles of batches (segments, or several
//! together), about the quantile of all ("sectioning", S. Asmussen and P. W.
//! Glynn, Stochastic Simulation, 2007, III.5); where neighbouring batches are
//! alike still, their variance is widened by (1 + ρ)/(1 − ρ) with ρ their
//! correlation. Two runs' difference has the sum of both variances, and
//! degrees of freedom after Welch and Satterthwaite (B. L. Welch, Biometrika
//! 34, 1947). What is tested is not whether there is any difference (with
//! enough datagrams there always is) but whether it is larger than the
//! smallest worth naming; over all comparisons made, after S. Holm (Scand. J.
//! Statist. 6, 1979).

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Fewest batches anything is said from.
pub const FEWEST: usize = 8;
/// Most batches kept of a run; more are joined with their neighbours.
pub const MOST: usize = 128;
/// Chance of naming any difference where there is none.
pub const ALPHA: f64 = 0.05;

/// A figure of one run and how well it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Over the whole run.
    pub value: f64,
    /// Variance of it.
    pub variance: f64,
    /// Batches it was taken from.
    pub batches: usize,
}

impl Estimate {
    /// From the whole run's value and those of its batches; `None` from too
    /// few.
    pub fn new(value: f64, batches: &[f64]) -> Option<Self> {
        if batches.len() < FEWEST {
            return None;
        }
        let k = float(batches.len());
        let off: Vec<f64> = batches.iter().map(|b| b - value).collect();
        let squares: f64 = off.iter().map(|d| d * d).sum();
        let together: f64 = off.windows(2).map(|w| w[0] * w[1]).sum();
        // With few batches a correlation is known badly; it never narrows.
        let rho = if squares > 0.0 { (together / squares).clamp(0.0, 0.9) } else { 0.0 };
        let variance = squares / (k - 1.0) / k * (1.0 + rho) / (1.0 - rho);
        Some(Self { value, variance, batches: batches.len() })
    }
}

/// B's figure less A's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The difference.
    pub value: f64,
    /// Lower and upper end of its 95 % confidence interval, of this comparison
    /// by itself.
    pub interval: [f64; 2],
    /// Chance of so large a difference if the true one were no larger than the
    /// smallest worth naming.
    pub p: f64,
}

/// The difference of two estimates, tested against `smallest`.
pub fn difference(a: Estimate, b: Estimate, smallest: f64) -> Difference {
    let value = b.value - a.value;
    let variance = a.variance + b.variance;
    if variance <= 0.0 {
        let p = if value.abs() > smallest { 0.0 } else { 1.0 };
        return Difference { value, interval: [value; 2], p };
    }
    let free = |e: Estimate| e.variance * e.variance / (float(e.batches) - 1.0);
    let freedom = (variance * variance / (free(a) + free(b))).max(1.0);
    let error = variance.sqrt();
    let Ok(t) = StudentsT::new(0.0, 1.0, freedom) else {
        return Difference { value, interval: [f64::NEG_INFINITY, f64::INFINITY], p: 1.0 };
    };
    let half = t.inverse_cdf(1.0 - ALPHA / 2.0) * error;
    // One-sided against the nearer end of what is not worth naming: either
    // direction may be found, so twice that.
    let p = (2.0 * t.sf((value.abs() - smallest) / error)).min(1.0);
    Difference { value, interval: [value - half, value + half], p }
}

/// Which of the chances stay small when all comparisons made are allowed for:
/// the smallest must be below α/m, the next below α/(m − 1), until one is not.
pub fn holm(chances: &[f64]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..chances.len()).collect();
    order.sort_by(|a, b| chances[*a].total_cmp(&chances[*b]));
    let mut shown = vec![false; chances.len()];
    for (i, at) in order.iter().enumerate() {
        if chances[*at] >= ALPHA / float(chances.len() - i) {
            break;
        }
        shown[*at] = true;
    }
    shown
}

#[expect(clippy::cast_precision_loss, reason = "numbers of batches are small")]
fn float(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// About normal: the sum of twelve uniform numbers.
    fn draw(rng: &mut fastrand::Rng) -> f64 {
        (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0
    }

    fn run(rng: &mut fastrand::Rng, mean: f64, rho: f64) -> Estimate {
        let mut last = draw(rng);
        let batches: Vec<f64> = (0..30)
            .map(|_| {
                last = rho * last + (1.0 - rho * rho).sqrt() * draw(rng);
                mean + last
            })
            .collect();
        Estimate::new(batches.iter().sum::<f64>() / 30.0, &batches).unwrap()
    }

    #[test]
    fn equal_runs_are_seldom_told_apart_and_different_ones_are() {
        let mut rng = fastrand::Rng::with_seed(1);
        for rho in [0.0, 0.4] {
            let (mut false_alarms, mut found) = (0, 0);
            for _ in 0..1_000 {
                let (a, b) = (run(&mut rng, 10.0, rho), run(&mut rng, 10.0, rho));
                false_alarms += u32::from(difference(a, b, 0.0).p < ALPHA);
                let c = run(&mut rng, 12.0, rho);
                found += u32::from(difference(a, c, 0.5).p < ALPHA);
            }
            // 5 % is expected of independent batches; three standard errors.
            assert!(false_alarms < 50 + 21 + if rho > 0.0 { 40 } else { 0 }, "{false_alarms} at {rho}");
            assert!(found > 900, "{found} at {rho}");
        }
    }

    #[test]
    fn the_interval_covers_the_true_difference() {
        let mut rng = fastrand::Rng::with_seed(2);
        let covered = (0..1_000)
            .filter(|_| {
                let d = difference(run(&mut rng, 5.0, 0.0), run(&mut rng, 7.0, 0.0), 0.0);
                d.interval[0] <= 2.0 && 2.0 <= d.interval[1]
            })
            .count();
        assert!((929..=971).contains(&covered), "{covered}");
    }

    #[test]
    fn holm_steps_down() {
        assert_eq!(holm(&[0.04, 0.001, 0.02]), [true, true, true]);
        assert_eq!(holm(&[0.04, 0.001, 0.03]), [false, true, false]);
        assert_eq!(holm(&[0.06]), [false]);
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn a_difference_must_exceed_the_smallest_worth_naming() {
        let exact = |value| Estimate { value, variance: 0.0, batches: 10 };
        assert!(difference(exact(1.0), exact(1.04), 0.05).p > 0.9);
        assert!(difference(exact(1.0), exact(1.06), 0.05).p < 0.1);
        assert!(Estimate::new(1.0, &[1.0; FEWEST - 1]).is_none());
    }
}
