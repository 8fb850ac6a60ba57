//! How far a quantile could be off: a 95 % confidence interval from batches
//! in time order.
//!
//! Latencies that follow one another are alike (a queue that is long stays
//! long for a while), so that the textbook interval from order statistics,
//! made for independent samples, is far too narrow. Batches longer than that
//! memory are nearly independent of one another, and the spread of their
//! quantiles tells how well the quantile is known.
//!
//! The batches are [`FEWEST`] to twice as many and equally long; when there
//! are too many, neighbours are joined, so that memory is constant however
//! long the run. The interval is centred at the quantile of all samples,
//! with the batches' spread taken about it ("sectioning", S. Asmussen and
//! P. W. Glynn, Stochastic Simulation, 2007, III.5): what it covers is the
//! number that is printed, and the bias of short batches widens it.

use std::borrow::Cow;
use std::collections::VecDeque;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::hist::{HIGHEST_NS, samples_needed};
use crate::num::{count, round_u64};

/// Fewest batches an interval is made from.
pub const FEWEST: usize = 20;
/// Samples of a batch at first.
const FIRST: u64 = 100;
/// Significant digits in a batch. Quantiles are interpolated in their bucket.
const DIGITS: u8 = 2;

/// 95 % confidence intervals, ns: lower and upper end; null where batches
/// have too few samples for that quantile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intervals {
    /// Batches they are made from.
    pub batches: u64,
    /// Samples in each.
    pub batch_samples: u64,
    /// Of the median.
    pub p50_ns: Option<[u64; 2]>,
    /// Of the 0.9 quantile.
    pub p90_ns: Option<[u64; 2]>,
    /// Of the 0.99 quantile.
    pub p99_ns: Option<[u64; 2]>,
    /// Of the 0.999 quantile.
    pub p99_9_ns: Option<[u64; 2]>,
    /// Of the 0.9999 quantile.
    pub p99_99_ns: Option<[u64; 2]>,
}

/// Samples in batches of equal length, in the order they came.
///
/// Recording happens in the thread that reads or sends, whose every pause
/// would be measured as latency. So nothing is allocated there, and neighbours
/// are joined one pair to each batch that is closed (a few µs) instead of all
/// twenty at once.
#[derive(Clone, Debug)]
pub(crate) struct Batches {
    /// Batches of `size`.
    full: Vec<Histogram<u64>>,
    /// Batches of half that, an even number, which wait to be joined.
    halves: VecDeque<Histogram<u64>>,
    /// Empty ones.
    spare: Vec<Histogram<u64>>,
    current: Histogram<u64>,
    size: u64,
    /// A sample lay outside the range: no interval would be right.
    spoilt: bool,
}

impl Batches {
    pub(crate) fn new() -> Self {
        Self {
            full: Vec::with_capacity(2 * FEWEST),
            halves: VecDeque::with_capacity(2 * FEWEST),
            spare: (0..=2 * FEWEST).map(|_| empty()).collect(),
            current: empty(),
            size: FIRST,
            spoilt: false,
        }
    }

    /// Adds one sample, ns.
    #[inline]
    pub(crate) fn record(&mut self, ns: i64) {
        let inside = u64::try_from(ns).is_ok_and(|v| v <= HIGHEST_NS && self.current.record(v).is_ok());
        if !inside {
            self.spoilt = true;
        } else if self.current.len() >= self.size {
            self.close();
        }
    }

    #[cold]
    fn close(&mut self) {
        let next = self.spare.pop().unwrap_or_else(empty);
        self.full.push(std::mem::replace(&mut self.current, next));
        if let (Some(mut batch), Some(mut neighbour)) = (self.halves.pop_front(), self.halves.pop_front()) {
            // Equal bounds: adding cannot fail.
            let _ = batch.add(&neighbour);
            neighbour.reset();
            self.spare.push(neighbour);
            self.full.push(batch);
        }
        // One pair was joined to each that was closed: none are left by now.
        if self.full.len() >= 2 * FEWEST {
            self.halves.extend(self.full.drain(..));
            self.size *= 2;
        }
    }

    /// The batches, all of one length.
    fn batches(&self) -> Vec<Cow<'_, Histogram<u64>>> {
        let mut all: Vec<_> = self.full.iter().map(Cow::Borrowed).collect();
        let mut halves = self.halves.iter();
        while let (Some(first), Some(second)) = (halves.next(), halves.next()) {
            let mut batch = first.clone();
            let _ = batch.add(second);
            all.push(Cow::Owned(batch));
        }
        all
    }

    /// The intervals about the quantiles of all samples, as `quantile` gives
    /// them; `None` with too few batches, or samples outside the range.
    pub(crate) fn intervals(&self, quantile: impl Fn(f64) -> Option<u64>) -> Option<Intervals> {
        let batches = self.batches();
        if self.spoilt || batches.len() < FEWEST {
            return None;
        }
        let freedom = batches.len() as f64 - 1.0;
        let t = StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(0.975);
        let interval = |q: f64| {
            let centre = quantile(q).filter(|_| self.size >= samples_needed(q))?;
            let squares: f64 = batches.iter().map(|b| (interpolated(b, q) - centre as f64).powi(2)).sum();
            let half = round_u64(t * (squares / (freedom * (freedom + 1.0))).sqrt());
            Some([centre.saturating_sub(half), centre.saturating_add(half)])
        };
        Some(Intervals {
            batches: count(batches.len()),
            batch_samples: self.size,
            p50_ns: interval(0.5),
            p90_ns: interval(0.9),
            p99_ns: interval(0.99),
            p99_9_ns: interval(0.999),
            p99_99_ns: interval(0.9999),
        })
    }
}

fn empty() -> Histogram<u64> {
    #[expect(clippy::expect_used, reason = "constant bounds, exercised by every test here")]
    Histogram::new_with_bounds(1, HIGHEST_NS, DIGITS).expect("constant bounds are valid")
}

/// The quantile, as if the samples of a bucket were spread evenly over it.
fn interpolated(h: &Histogram<u64>, q: f64) -> f64 {
    let rank = q * h.len() as f64;
    let mut before = 0.0;
    for v in h.iter_recorded() {
        let n = v.count_at_value() as f64;
        if before + n >= rank {
            let low = h.lowest_equivalent(v.value_iterated_to());
            let width = h.next_non_equivalent(low) - low;
            return low as f64 + width as f64 * (rank - before) / n;
        }
        before += n;
    }
    h.max() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hist::LatencyHistogram;

    /// A standard normal sample (Box and Muller).
    fn normal(rng: &mut fastrand::Rng) -> f64 {
        (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
    }

    /// Latencies that remember: x' = 0.9 x + e, about 10 ms, a millisecond of
    /// standard deviation over all.
    fn remembering(n: usize, rng: &mut fastrand::Rng) -> Vec<i64> {
        const PHI: f64 = 0.9;
        let scale = (1.0 - PHI * PHI).sqrt();
        let mut x = normal(rng);
        (0..n)
            .map(|_| {
                x = PHI * x + scale * normal(rng);
                #[expect(clippy::cast_possible_truncation, reason = "about 10 ms in ns")]
                let ns = (10e6 + 1e6 * x) as i64;
                ns
            })
            .collect()
    }

    /// Quantiles of the normal distribution.
    const Z: [(f64, f64); 3] = [(0.5, 0.0), (0.9, 1.281_551_566), (0.99, 2.326_347_874)];

    #[test]
    fn ninety_five_of_a_hundred_intervals_hold_the_true_quantile() {
        const RUNS: usize = 200;
        const SAMPLES: usize = 33_000;
        let mut rng = fastrand::Rng::with_seed(7);
        let (mut held, mut naive) = ([0_usize; 3], 0_usize);
        for _ in 0..RUNS {
            let mut samples = remembering(SAMPLES, &mut rng);
            let mut h = LatencyHistogram::batched();
            samples.iter().for_each(|v| h.record(*v));
            let i = h.summary().ci95.unwrap();
            assert_eq!((i.batches, i.batch_samples), (20, 1_600));
            assert_eq!(i.p99_9_ns, None, "1,600 are too few for it");
            for (k, (interval, (_, z))) in [i.p50_ns, i.p90_ns, i.p99_ns].into_iter().zip(Z).enumerate() {
                let [low, high] = interval.unwrap();
                held[k] += usize::from((low..=high).contains(&round_u64(10e6 + 1e6 * z)));
                // And it is no interval that holds everything.
                assert!(high - low < 400_000, "{low} {high}");
            }
            // What ranks of independent samples would give for the median.
            samples.sort_unstable();
            let off = 1.96 * (SAMPLES as f64 * 0.25).sqrt();
            let middle = SAMPLES as f64 / 2.0;
            let rank = |r: f64| samples[usize::try_from(round_u64(r)).unwrap()];
            naive += usize::from((rank(middle - off)..=rank(middle + off)).contains(&10_000_000));
        }
        let share = |n: usize| n as f64 / RUNS as f64;
        println!("coverage at p50, p90, p99: {:?}; by ranks at p50: {:.3}", held.map(share), share(naive));
        // Three standard errors of 200 draws, and what batches still remember.
        assert!(held.iter().all(|n| (0.90..=0.99).contains(&share(*n))), "{:?}", held.map(share));
        assert!(share(naive) < 0.7, "the textbook's interval would not need replacing: {}", share(naive));
    }

    #[test]
    fn batches_stay_few_equal_and_complete() {
        let mut b = Batches::new();
        for n in 1..=100_000_u64 {
            b.record(1_000);
            let whole: u64 = b.full.iter().chain(&b.halves).map(Histogram::len).sum();
            assert_eq!(whole + b.current.len(), n);
            assert_eq!(b.full.len() + b.halves.len() + b.spare.len(), 2 * FEWEST + 1, "nothing is allocated");
        }
        let batches = b.batches();
        assert!((FEWEST..2 * FEWEST).contains(&batches.len()), "{}", batches.len());
        assert!(batches.iter().all(|f| f.len() == b.size));
    }

    #[test]
    fn too_few_samples_or_one_outside_have_no_interval() {
        let mut h = LatencyHistogram::batched();
        (0..1_999).for_each(|i| h.record(1_000 + i));
        assert_eq!(h.summary().ci95, None);
        h.record(5);
        let i = h.summary().ci95.unwrap();
        assert_eq!((i.batches, i.batch_samples), (20, 100));
        assert!(i.p50_ns.is_some() && i.p90_ns.is_some() && i.p99_ns.is_none());
        h.record(-5);
        assert_eq!(h.summary().ci95, None);
        let mut other = LatencyHistogram::new();
        (0..5_000).for_each(|i| other.record(i));
        assert_eq!(other.summary().ci95, None, "without batches");
    }

    #[test]
    fn equal_samples_have_a_narrow_interval() {
        let mut h = LatencyHistogram::batched();
        (0..4_000).for_each(|_| h.record(50_000));
        let [low, high] = h.summary().ci95.unwrap().p50_ns.unwrap();
        assert!(low <= 50_000 && 50_000 <= high && high - low < 1_000, "{low} {high}");
    }
}
