//! The slope of a cloud of points as the median of the slopes of its pairs
//! (Theil 1950, Sen 1968): up to 29 % of the points may be anywhere.

use super::stats::median;

/// Points looked at: 200 make 19,900 pairs.
const POINTS: usize = 200;

/// The slope of `y` on `x`, from at most 200 points evenly thinned out;
/// `None` where no two points differ in `x`.
pub fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let step = points.len().div_ceil(POINTS).max(1);
    let thinned: Vec<(f64, f64)> = points.iter().step_by(step).copied().collect();
    let slopes = thinned.iter().enumerate().flat_map(|(i, a)| {
        thinned.iter().skip(i + 1).filter(|b| b.0 != a.0).map(|b| (b.1 - a.1) / (b.0 - a.0))
    });
    median(slopes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn without_two_places_there_is_no_slope() {
        assert_eq!(slope(&[]), None);
        assert_eq!(slope(&[(1.0, 2.0)]), None);
        assert_eq!(slope(&[(1.0, 2.0), (1.0, 3.0)]), None);
    }

    proptest! {
        #[test]
        fn scatter_and_one_point_in_eight_anywhere_leave_the_slope(a in -5.0_f64..5.0, seed: u64) {
            let mut rng = fastrand::Rng::with_seed(seed);
            let points: Vec<_> = (0..1_000)
                .map(|i| {
                    let x = f64::from(i);
                    let wild = if rng.u8(..8) == 0 { (rng.f64() - 0.5) * 1e6 } else { 0.0 };
                    (x, a * x + (rng.f64() - 0.5) * 10.0 + wild)
                })
                .collect();
            prop_assert!((slope(&points).unwrap() - a).abs() < 0.05);
        }
    }
}
