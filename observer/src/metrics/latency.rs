//! A distribution of durations: an HdrHistogram that never clips.
//!
//! Values above [`HIGHEST_NS`] are counted apart and lie above every quantile
//! quoted; a quantile for which there are too few values is not quoted at all.

use hdrhistogram::Histogram;

use crate::report::Distribution;

/// Largest value kept in a bucket: an hour. (The histogram's own range ends
/// somewhat above.)
pub const HIGHEST_NS: u64 = 3_600_000_000_000;

/// A quantile that reports carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantile {
    /// The median.
    P50,
    /// 0.9.
    P90,
    /// 0.99.
    P99,
    /// 0.999.
    P999,
}

impl Quantile {
    /// All of them, lowest first.
    pub const ALL: [Self; 4] = [Self::P50, Self::P90, Self::P99, Self::P999];

    /// One value in so many lies above it.
    pub const fn one_in(self) -> u64 {
        match self {
            Self::P50 => 2,
            Self::P90 => 10,
            Self::P99 => 100,
            Self::P999 => 1_000,
        }
    }

    /// As a number between 0 and 1.
    pub const fn as_f64(self) -> f64 {
        match self {
            Self::P50 => 0.5,
            Self::P90 => 0.9,
            Self::P99 => 0.99,
            Self::P999 => 0.999,
        }
    }

    /// Its name in the report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P99 => "p99",
            Self::P999 => "p99_9",
        }
    }

    /// Values needed to quote it: 10/(1 − q), so that ten lie above it and
    /// one more or less moves it little.
    pub const fn needs(self) -> u64 {
        10 * self.one_in()
    }

    /// Whether `n` values are enough to quote it.
    pub const fn quotable(self, n: u64) -> bool {
        n >= self.needs()
    }

    /// Rank of the quantile among `n` values, from 1: ⌈n·q⌉.
    pub const fn rank(self, n: u64) -> u64 {
        let rank = n - n / self.one_in();
        if rank == 0 { 1 } else { rank }
    }
}

/// Durations, counted.
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u64>,
    overflow: u64,
    max_ns: u64,
}

impl Latency {
    /// For the components: three significant digits, 0.1 % (270 KB).
    pub fn fine() -> Self {
        Self::with_digits(3)
    }

    /// For single flows: two significant digits, 1 % (37 KB).
    pub fn coarse() -> Self {
        Self::with_digits(2)
    }

    #[expect(clippy::expect_used, reason = "fixed bounds the constructor accepts, as the tests show")]
    fn with_digits(digits: u8) -> Self {
        let histogram = Histogram::new_with_bounds(1, HIGHEST_NS, digits).expect("valid bounds");
        Self { histogram, overflow: 0, max_ns: 0 }
    }

    /// Counts one value.
    pub fn record(&mut self, ns: u64) {
        if self.histogram.record(ns).is_err() {
            self.overflow = self.overflow.saturating_add(1);
        }
        self.max_ns = self.max_ns.max(ns);
    }

    /// Values counted, overflow included.
    pub fn count(&self) -> u64 {
        self.histogram.len().saturating_add(self.overflow)
    }

    /// The largest value, exactly; `None` if there is none.
    pub fn max(&self) -> Option<u64> {
        (self.count() > 0).then_some(self.max_ns)
    }

    /// The value at a quantile; `None` if there are too few values or it lies
    /// in the overflow.
    pub fn quantile(&self, q: Quantile) -> Option<u64> {
        let n = self.count();
        q.quotable(n).then(|| self.at_rank(q.rank(n))).flatten()
    }

    /// The median whatever the number of values; `None` if there is none.
    pub fn median(&self) -> Option<u64> {
        let n = self.count();
        (n > 0).then(|| self.at_rank(Quantile::P50.rank(n))).flatten()
    }

    /// The value of the given rank, from 1; `None` if there is none or it lies
    /// in the overflow.
    pub fn at_rank(&self, rank: u64) -> Option<u64> {
        let recorded = self.histogram.len();
        if rank == 0 || rank > recorded {
            return None;
        }
        let mut below = 0_u64;
        self.histogram
            .iter_recorded()
            .find(|bucket| {
                below = below.saturating_add(bucket.count_since_last_iteration());
                below >= rank
            })
            .map(|bucket| self.histogram.highest_equivalent(bucket.value_iterated_to()).min(self.max_ns))
    }

    /// Calls `each` with every recorded value and how often it was counted,
    /// lowest first; what overflowed is left out.
    pub fn for_each(&self, mut each: impl FnMut(u64, u64)) {
        for bucket in self.histogram.iter_recorded() {
            each(bucket.value_iterated_to(), bucket.count_since_last_iteration());
        }
    }

    /// Mean of the values above a quantile, as the report rounds them; `None`
    /// if the quantile cannot be quoted or some of them lie in the overflow.
    pub fn mean_above(&self, q: Quantile) -> Option<u64> {
        let n = self.count();
        if !q.quotable(n) || self.overflow > 0 {
            return None;
        }
        let skipped = q.rank(n);
        let (mut below, mut sum) = (0_u64, 0_u128);
        for bucket in self.histogram.iter_recorded() {
            let before = below;
            below = below.saturating_add(bucket.count_since_last_iteration());
            let taken = below.saturating_sub(before.max(skipped));
            let value = self.histogram.highest_equivalent(bucket.value_iterated_to()).min(self.max_ns);
            sum += u128::from(taken) * u128::from(value);
        }
        u64::try_from(sum / u128::from((n - skipped).max(1))).ok()
    }

    /// Adds the values of `other`, which must have as many digits.
    pub fn merge(&mut self, other: &Self) {
        if self.histogram.add(&other.histogram).is_err() {
            // Only a coarser histogram could fail; its values are not lost.
            self.overflow = self.overflow.saturating_add(other.histogram.len());
        }
        self.overflow = self.overflow.saturating_add(other.overflow);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Forgets all values and keeps the memory.
    pub fn clear(&mut self) {
        if self.count() > 0 {
            self.histogram.reset();
            self.overflow = 0;
            self.max_ns = 0;
        }
    }

    /// What is in it, for a trace: the largest value of each bucket in use, and
    /// how many are in it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.histogram.iter_recorded().map(|b| {
            (self.histogram.highest_equivalent(b.value_iterated_to()), b.count_since_last_iteration())
        })
    }

    /// Values above the range: counted, in no bucket.
    pub fn overflow(&self) -> u64 {
        self.overflow
    }

    /// Puts back what [`Latency::buckets`] gave: `count` values of the bucket
    /// of `ns`, or above the range. The largest value is put back by [`Latency::raise_max`].
    pub fn put_back(&mut self, ns: u64, count: u64) {
        if self.histogram.record_n(ns, count).is_err() {
            self.overflow = self.overflow.saturating_add(count);
        }
    }

    /// Puts back the largest value.
    pub fn raise_max(&mut self, max_ns: u64) {
        self.max_ns = self.max_ns.max(max_ns);
    }

    /// As the report shows it.
    pub fn report(&self) -> Distribution {
        Distribution {
            count: self.count(),
            p50_ns: self.quantile(Quantile::P50),
            p90_ns: self.quantile(Quantile::P90),
            p99_ns: self.quantile(Quantile::P99),
            p99_9_ns: self.quantile(Quantile::P999),
            max_ns: self.max(),
            overflow: self.overflow,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_quantile_is_quoted_from_the_first_sufficient_count_on() {
        for q in Quantile::ALL {
            let mut latency = Latency::fine();
            for n in 1..q.needs() {
                latency.record(n);
            }
            assert_eq!(latency.quantile(q), None, "{}", q.name());
            latency.record(q.needs());
            assert!(latency.quantile(q).is_some(), "{}", q.name());
        }
        assert_eq!(Quantile::ALL.map(Quantile::needs), [20, 100, 1_000, 10_000]);
    }

    #[test]
    fn an_hour_fits_and_more_is_overflow_above_every_quantile() {
        for mut latency in [Latency::fine(), Latency::coarse()] {
            latency.record(0);
            latency.record(HIGHEST_NS);
            assert_eq!(latency.report().overflow, 0);
            for _ in 0..98 {
                latency.record(u64::MAX);
            }
            let report = latency.report();
            assert_eq!((report.count, report.overflow), (100, 98));
            assert_eq!(report.max_ns, Some(u64::MAX));
            assert_eq!((report.p50_ns, report.p90_ns), (None, None));
        }
    }

    #[test]
    fn the_mean_above_a_quantile_is_that_of_the_slowest() {
        let mut latency = Latency::fine();
        (1..=1_000).for_each(|n| latency.record(n));
        assert_eq!(latency.mean_above(Quantile::P99), Some((991..=1_000).sum::<u64>() / 10));
        assert_eq!(latency.mean_above(Quantile::P90), Some((901..=1_000).sum::<u64>() / 100));
        assert_eq!(latency.mean_above(Quantile::P999), None);
        latency.record(u64::MAX);
        assert_eq!(latency.mean_above(Quantile::P99), None);
    }

    #[test]
    fn merging_is_recording_together() {
        let (mut a, mut b, mut both) = (Latency::fine(), Latency::fine(), Latency::fine());
        for n in 0..30_000_u64 {
            let value = n * n % 1_000_003;
            if n % 3 == 0 {
                a.record(value)
            } else {
                b.record(value)
            }
            both.record(value);
        }
        a.record(u64::MAX);
        both.record(u64::MAX);
        a.merge(&b);
        assert_eq!(a.report(), both.report());
        a.clear();
        assert_eq!(a.report(), Distribution::default());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn quantiles_are_within_a_thousandth_of_the_sorted_values(
            values in proptest::collection::vec(0..=HIGHEST_NS, 20..300),
        ) {
            let mut latency = Latency::fine();
            values.iter().for_each(|v| latency.record(*v));
            let mut sorted = values;
            sorted.sort_unstable();
            for rank in [1, 2, sorted.len() / 2, sorted.len() - 1, sorted.len()] {
                let exact = sorted[rank - 1];
                let found = latency.at_rank(rank as u64).unwrap();
                prop_assert!(found >= exact && found - exact <= exact / 1_000, "{found} for {exact}");
            }
            prop_assert_eq!(latency.max(), sorted.last().copied());
        }
    }
}
