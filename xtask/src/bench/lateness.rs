//! How late a fixed-rate sender's datagrams were, from nothing but the times
//! it says it sent them.
//!
//! sockperf records no intended times, but keeps an absolute grid (a late
//! message does not move the next one's time). So the grid is put back: of all
//! lines below the send times, with a period within [`TOLERANCE`] of the one
//! asked for (a clock in whole ticks cannot keep every period), the one that
//! makes the sum of the lateness smallest. This is kind to the sender: a delay
//! that all datagrams share is taken for its origin and vanishes.

/// By how much of itself the sender's period may differ from the one asked for.
const TOLERANCE: f64 = 1e-4;

/// Lateness of each send time against the best grid below all of them. `times`
/// are of every `stride`-th datagram, in order, in any unit; `period` is that
/// of one datagram in the same unit.
pub(super) fn against_grid(times: &[f64], period: f64, stride: f64) -> Vec<f64> {
    let Some(first) = times.first().copied() else { return Vec::new() };
    let step = period * stride;
    // Differences from the grid asked for, which are small numbers: exact.
    let drift: Vec<f64> = times.iter().enumerate().map(|(k, t)| (t - first) - k as f64 * step).collect();
    let slope = envelope_slope(&drift).clamp(-step * TOLERANCE, step * TOLERANCE);
    let level: Vec<f64> = drift.iter().enumerate().map(|(k, d)| d - k as f64 * slope).collect();
    let origin = level.iter().copied().fold(f64::INFINITY, f64::min);
    level.into_iter().map(|d| d - origin).collect()
}

/// Slope of the line below all points (k, `values[k]`) that lies closest to
/// them in sum: the edge of the lower convex hull above or below the mean k.
fn envelope_slope(values: &[f64]) -> f64 {
    let mut hull: Vec<(f64, f64)> = Vec::new();
    for (k, value) in values.iter().enumerate() {
        let point = (k as f64, *value);
        while let [.., a, b] = hull[..] {
            // `b` is above or on the line from `a` to the new point.
            if (b.1 - a.1) * (point.0 - a.0) >= (point.1 - a.1) * (b.0 - a.0) {
                hull.pop();
            } else {
                break;
            }
        }
        hull.push(point);
    }
    let middle = (values.len().saturating_sub(1)) as f64 / 2.0;
    hull.windows(2)
        .find(|edge| edge[1].0 >= middle)
        .map_or(0.0, |edge| (edge[1].1 - edge[0].1) / (edge[1].0 - edge[0].0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_punctual_sender_is_never_late_and_one_stall_shows_whole() {
        let on_time: Vec<f64> = (0..2000).map(|k| 7.5 + f64::from(k) * 100.0).collect();
        assert!(against_grid(&on_time, 10.0, 10.0).iter().all(|l| l.abs() < 1e-6));
        let mut stalled = on_time;
        // Silent for 500 from number 1000 on, then caught up at once.
        for (k, t) in stalled.iter_mut().enumerate().skip(1000).take(5) {
            *t = 7.5 + 100_000.0 + 500.0 + (k as f64 - 1000.0);
        }
        let late = against_grid(&stalled, 10.0, 10.0);
        assert!(
            (late[1000] - 500.0).abs() < 1e-6 && (late[1004] - 104.0).abs() < 1e-6,
            "{:?}",
            &late[1000..1005]
        );
        assert!(late[1005].abs() < 1e-6);
        assert_eq!(against_grid(&[], 1.0, 1.0), Vec::<f64>::new());
        assert_eq!(against_grid(&[5.0], 1.0, 1.0), [0.0]);
    }

    #[test]
    fn whole_ticks_are_not_lateness_and_a_missed_rate_is() {
        let ticks: Vec<f64> = (0..2000).map(|k| f64::from(k) * 100.0 * (1.0 + 4e-5)).collect();
        assert!(against_grid(&ticks, 10.0, 10.0).iter().all(|l| l.abs() < 1e-6));
        // Half the rate asked for: the last is half the run behind, but for the tolerance.
        let slow: Vec<f64> = (0..2000).map(|k| f64::from(k) * 200.0).collect();
        let late = against_grid(&slow, 10.0, 10.0);
        let behind = 1999.0 * 100.0;
        assert!((late[1999] / behind - 1.0).abs() < 1e-3, "{}", late[1999]);
    }

    proptest! {
        /// Late by what was added, up to a shared delay and the period's tolerance.
        #[test]
        fn added_lateness_is_found(
            added in proptest::collection::vec(prop_oneof![3 => Just(0.0), 1 => 0.0..1e6f64], 50..400),
        ) {
            let times: Vec<f64> = added.iter().enumerate().map(|(k, d)| k as f64 * 1000.0 + d).collect();
            let late = against_grid(&times, 1000.0, 1.0);
            prop_assert!(late.iter().all(|l| *l >= 0.0));
            // Never more, in sum, than against the true grid, and none lost where two on time pin it.
            let (found, true_sum): (f64, f64) = (late.iter().sum(), added.iter().sum());
            prop_assert!(found <= true_sum + 1e-3, "{} {}", found, true_sum);
            let slack = added.len() as f64 * 1000.0 * TOLERANCE;
            let origin = added.iter().copied().fold(f64::INFINITY, f64::min);
            if let Some((l, a)) = late.iter().zip(&added).find(|(l, a)| **l < **a - origin - slack - 1e-3) {
                prop_assert!(false, "{} {}", l, a);
            }
        }
    }
}
