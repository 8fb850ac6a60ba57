//! Latency distributions: an HdrHistogram that counts what lies outside its
//! range instead of clipping it, and a summary that refuses a quantile from
//! too few samples.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize, Serializer};

use crate::confidence::{Batches, Intervals};
use crate::num::round_u64;

/// Largest latency told apart, ns: ten minutes.
pub const HIGHEST_NS: u64 = 600_000_000_000;
/// Significant decimal digits kept.
const DIGITS: u8 = 3;

/// Samples a quantile needs before it may be quoted: n ≥ 10/(1−q), ten
/// expected beyond it.
pub fn samples_needed(q: f64) -> u64 {
    // Rounded at a millionth, so that 1 − 0.99 is one hundredth.
    round_u64(((10.0 / (1.0 - q)) * 1e6).round() / 1e6)
}

/// A distribution of signed differences, ns.
#[derive(Clone, Debug)]
pub struct LatencyHistogram {
    inside: Histogram<u64>,
    underflow: u64,
    overflow: u64,
    min: i64,
    max: i64,
    spread: Spread,
}

/// What confidence intervals come from.
#[derive(Clone, Debug)]
enum Spread {
    /// Nothing: there are none.
    Unknown,
    /// The samples, in their order.
    Batches(Box<Batches>),
    /// Whoever recorded the samples.
    Told(Intervals),
}

impl LatencyHistogram {
    /// An empty one.
    pub fn new() -> Self {
        #[expect(clippy::expect_used, reason = "constant bounds, exercised by every test here")]
        let inside = Histogram::new_with_bounds(1, HIGHEST_NS, DIGITS).expect("constant bounds are valid");
        Self { inside, underflow: 0, overflow: 0, min: i64::MAX, max: i64::MIN, spread: Spread::Unknown }
    }

    /// An empty one that gives [confidence intervals](crate::confidence), for
    /// samples recorded in the order of time.
    pub fn batched() -> Self {
        Self { spread: Spread::Batches(Box::new(Batches::new())), ..Self::new() }
    }

    /// Adds one sample. Negative ones count as underflow, those above
    /// [`HIGHEST_NS`] as overflow.
    #[inline]
    pub fn record(&mut self, ns: i64) {
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
        if let Spread::Batches(batches) = &mut self.spread {
            batches.record(ns);
        }
        match u64::try_from(ns) {
            Err(_) => self.underflow += 1,
            Ok(v) => {
                if v > HIGHEST_NS || self.inside.record(v).is_err() {
                    self.overflow += 1;
                }
            }
        }
    }

    /// Adds all of another's samples. Their order is lost: there are no
    /// confidence intervals any more.
    pub fn merge(&mut self, other: &Self) {
        // Equal bounds: adding cannot fail.
        let _ = self.inside.add(&other.inside);
        self.underflow += other.underflow;
        self.overflow += other.overflow;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.spread = Spread::Unknown;
    }

    /// Samples recorded, outside ones included.
    pub fn count(&self) -> u64 {
        self.inside.len() + self.underflow + self.overflow
    }

    /// Negative samples.
    pub fn underflow(&self) -> u64 {
        self.underflow
    }

    /// Samples above [`HIGHEST_NS`].
    pub fn overflow(&self) -> u64 {
        self.overflow
    }

    /// The smallest sample, exactly.
    pub fn min(&self) -> Option<i64> {
        (self.count() > 0).then_some(self.min)
    }

    /// The largest sample, exactly.
    pub fn max(&self) -> Option<i64> {
        (self.count() > 0).then_some(self.max)
    }

    /// The value at quantile `q` (0 < q < 1), ns; `None` below
    /// [`samples_needed`] or where that rank lies outside the range.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let n = self.count();
        if n < samples_needed(q) {
            return None;
        }
        let rank = round_u64((q * n as f64).ceil()).max(1);
        let inside_rank = rank.checked_sub(self.underflow).filter(|r| (1..=self.inside.len()).contains(r))?;
        // Half a rank less: it is rounded up again, and must not become the next.
        Some(self.inside.value_at_quantile((inside_rank as f64 - 0.5) / self.inside.len() as f64))
    }

    /// The histogram of the samples inside the range.
    pub fn inside(&self) -> &Histogram<u64> {
        &self.inside
    }

    fn intervals(&self) -> Option<Intervals> {
        match &self.spread {
            Spread::Unknown => None,
            Spread::Batches(b) => b.intervals(|q| self.quantile(q)),
            Spread::Told(i) => Some(*i),
        }
    }

    /// What it is made of, to be told to another process.
    pub fn to_parts(&self) -> Parts {
        let bucket = |v: hdrhistogram::iterators::IterationValue<u64>| {
            (self.inside.lowest_equivalent(v.value_iterated_to()), v.count_at_value())
        };
        Parts {
            buckets: self.inside.iter_recorded().map(bucket).collect(),
            underflow: self.underflow,
            overflow: self.overflow,
            min: self.min,
            max: self.max,
            intervals: self.intervals(),
        }
    }

    /// The histogram of these parts, which may come from anywhere.
    ///
    /// # Errors
    /// What no histogram has.
    pub fn from_parts(parts: Parts) -> Result<Self, String> {
        /// Beyond this many samples sums could overflow.
        const MOST: u64 = 1 << 53;
        let mut h = Self::new();
        let (mut total, mut last) = (0_u64, None);
        for (value, n) in parts.buckets {
            if value > HIGHEST_NS || n == 0 || last.is_some_and(|l| value <= l) {
                return Err(format!("a histogram with {n} samples of {value} ns after {last:?}"));
            }
            last = Some(value);
            total = total.saturating_add(n);
            if total > MOST || h.inside.record_n(value, n).is_err() {
                return Err(format!("a histogram with {total} samples"));
            }
        }
        if parts.underflow.max(parts.overflow) > MOST {
            return Err(format!("a histogram with {} samples outside", parts.underflow.max(parts.overflow)));
        }
        (h.underflow, h.overflow, h.min, h.max) = (parts.underflow, parts.overflow, parts.min, parts.max);
        h.spread = parts.intervals.map_or(Spread::Unknown, Spread::Told);
        if h.count() > 0 && h.min > h.max {
            return Err(format!("a histogram from {} to {}", h.min, h.max));
        }
        Ok(h)
    }

    /// The figures to report.
    pub fn summary(&self) -> Summary {
        let n = self.count();
        Summary {
            count: n,
            underflow: self.underflow,
            overflow: self.overflow,
            min_ns: self.min(),
            mean_ns: (!self.inside.is_empty()).then(|| round_u64(self.inside.mean())),
            p50_ns: self.quantile(0.5),
            p90_ns: self.quantile(0.9),
            p99_ns: self.quantile(0.99),
            p99_9_ns: self.quantile(0.999),
            p99_99_ns: self.quantile(0.9999),
            max_ns: self.max(),
            ci95: self.intervals(),
        }
    }
}

/// What a [`LatencyHistogram`] is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parts {
    /// Buckets that hold something: the smallest value, ns, and the samples; ascending.
    pub buckets: Vec<(u64, u64)>,
    /// Negative samples.
    pub underflow: u64,
    /// Samples above [`HIGHEST_NS`].
    pub overflow: u64,
    /// Smallest sample; without meaning where there are none.
    pub min: i64,
    /// Largest sample; without meaning where there are none.
    pub max: i64,
    /// Confidence intervals, where they are known.
    pub intervals: Option<Intervals>,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Serialize for LatencyHistogram {
    /// As its [`Summary`].
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.summary().serialize(s)
    }
}

/// Quantiles of a distribution, ns; null where there are too few samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Samples, those outside the range included.
    pub count: u64,
    /// Negative samples: a clock stepped, or there are two clocks.
    pub underflow: u64,
    /// Samples above [`HIGHEST_NS`].
    pub overflow: u64,
    /// Smallest sample.
    pub min_ns: Option<i64>,
    /// Mean of the samples inside the range.
    pub mean_ns: Option<u64>,
    /// Median.
    pub p50_ns: Option<u64>,
    /// 0.9 quantile.
    pub p90_ns: Option<u64>,
    /// 0.99 quantile.
    pub p99_ns: Option<u64>,
    /// 0.999 quantile.
    pub p99_9_ns: Option<u64>,
    /// 0.9999 quantile.
    pub p99_99_ns: Option<u64>,
    /// Largest sample, exactly.
    pub max_ns: Option<i64>,
    /// How far the quantiles could be off; null with too few samples, and
    /// where their order is not known.
    pub ci95: Option<Intervals>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_quantile_needs_ten_samples_beyond_it() {
        assert_eq!([0.5, 0.9, 0.99, 0.999, 0.9999].map(samples_needed), [20, 100, 1_000, 10_000, 100_000]);
        let mut h = LatencyHistogram::new();
        for i in 0..999 {
            h.record(i);
        }
        assert_eq!((h.quantile(0.99), h.quantile(0.9).is_some()), (None, true));
        h.record(5);
        assert!(h.quantile(0.99).is_some());
    }

    #[test]
    fn what_lies_outside_is_counted_and_never_quoted() {
        let mut h = LatencyHistogram::new();
        for _ in 0..40 {
            h.record(-5);
        }
        for _ in 0..40 {
            h.record(1000);
        }
        for _ in 0..60 {
            h.record(i64::MAX);
        }
        let s = h.summary();
        assert_eq!((s.count, s.underflow, s.overflow), (140, 40, 60));
        assert_eq!((s.min_ns, s.max_ns), (Some(-5), Some(i64::MAX)));
        // Rank 70 is the thirtieth inside; rank 126 is above the range.
        assert_eq!((s.p50_ns, s.p90_ns), (Some(1000), None));
    }

    proptest! {
        #[test]
        fn quantiles_are_within_a_thousandth_of_the_sorted_samples(
            mut v in proptest::collection::vec(0i64..10_000_000_000, 100..400)
        ) {
            let mut h = LatencyHistogram::new();
            v.iter().for_each(|x| h.record(*x));
            v.sort_unstable();
            for q in [0.5, 0.9] {
                let rank = usize::try_from(round_u64((q * v.len() as f64).ceil())).unwrap();
                let exact = v[rank - 1] as f64;
                let got = h.quantile(q).unwrap() as f64;
                prop_assert!((got - exact).abs() <= exact / 1000.0 + 1.0, "{got} {exact}");
            }
        }

        #[test]
        fn a_histogram_survives_its_parts(v in proptest::collection::vec(prop_oneof![-5..1_000_000_000_000i64, any::<i64>()], 0..300)) {
            let mut h = LatencyHistogram::new();
            v.iter().for_each(|x| h.record(*x));
            let parts: Parts = serde_json::from_str(&serde_json::to_string(&h.to_parts()).unwrap()).unwrap();
            prop_assert_eq!(LatencyHistogram::from_parts(parts).unwrap().summary(), h.summary());
        }

        #[test]
        fn any_parts_are_survived(buckets in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..5),
                                  under in any::<u64>(), min in any::<i64>(), max in any::<i64>()) {
            if let Ok(h) = LatencyHistogram::from_parts(Parts { buckets, underflow: under, overflow: 1, min, max, intervals: None }) {
                let _ = h.summary();
            }
        }

        #[test]
        fn merging_is_recording_both(a in proptest::collection::vec(any::<i64>(), 0..50),
                                     b in proptest::collection::vec(any::<i64>(), 0..50)) {
            let (mut x, mut y, mut both) =
                (LatencyHistogram::new(), LatencyHistogram::new(), LatencyHistogram::new());
            a.iter().for_each(|v| { x.record(*v); both.record(*v) });
            b.iter().for_each(|v| { y.record(*v); both.record(*v) });
            x.merge(&y);
            prop_assert_eq!(x.summary(), both.summary());
        }
    }
}
