//! Who makes up the tail: sums of every component and part by the size of the
//! total, so that any quantile's tail can be taken apart afterwards.
//!
//! A log-linear table over the total, 64 buckets to the octave (1.6 %): per
//! bucket how many complete journeys, and the exact sum of each component and
//! part over them. Its size is fixed, it can be merged, and it has the form in
//! which the kernel side can keep it without a record per journey.
//!
//! The tail above a quantile is the ⌊n·(1 − q)⌋ slowest journeys: all buckets
//! above, and of the bucket in which the border falls as many as are missing,
//! each with that bucket's mean. Journeys of one bucket differ by at most
//! 1.6 % in the total.

use super::latency::{HIGHEST_NS, Quantile};
use crate::component::{Component, Part};
use crate::correlate::Stages;
use crate::report::SlowestHop;

/// Buckets to the octave, as a power of two.
const SUB_BITS: u32 = 6;
const SUB: u64 = 1 << SUB_BITS;

/// What is summed for each bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Complete journeys.
    pub count: u64,
    /// Sum of their totals, ns.
    pub total_ns: u128,
    /// Sums of their components, ns.
    pub components_ns: [u128; Component::COUNT],
    /// Sums of their parts, ns.
    pub parts_ns: [u128; Part::COUNT],
    /// The largest single hop in it.
    pub hop: Option<SlowestHop>,
}

impl Bucket {
    fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        for (sum, ns) in self.components_ns.iter_mut().zip(other.components_ns) {
            *sum = sum.saturating_add(ns);
        }
        for (sum, ns) in self.parts_ns.iter_mut().zip(other.parts_ns) {
            *sum = sum.saturating_add(ns);
        }
        self.hop = slower(self.hop, other.hop);
    }
}

/// Sums over the complete journeys, by their total.
#[derive(Clone, Debug)]
pub struct TailSums {
    buckets: Box<[Bucket]>,
    count: u64,
    beyond: u64,
}

/// What the tail above one quantile is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TailMakeup {
    /// The quantile.
    pub quantile: Quantile,
    /// Journeys in it, at least 10.
    pub count: u64,
    /// Sum of their totals, ns.
    pub total_ns: f64,
    /// Sums of their components, ns.
    pub components_ns: [f64; Component::COUNT],
    /// Sums of their parts, ns; a part that is not known adds nothing.
    pub parts_ns: [f64; Part::COUNT],
    /// The largest single hop in it.
    pub hop: Option<SlowestHop>,
}

impl Default for TailSums {
    fn default() -> Self {
        Self { buckets: vec![Bucket::default(); index(HIGHEST_NS) + 1].into(), count: 0, beyond: 0 }
    }
}

/// The bucket of a value: exact below 64, then 64 to the octave.
fn index(ns: u64) -> usize {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(SUB_BITS + 1);
    let index = u64::from(shift) * SUB + (ns >> shift);
    usize::try_from(index).unwrap_or(usize::MAX)
}

/// The largest value of a bucket.
fn largest(number: usize) -> u64 {
    let number = number as u64;
    let Some(shift) = (number / SUB).checked_sub(1) else { return number };
    let first = number - shift * SUB;
    u32::try_from(shift).ok().and_then(|s| (first + 1).checked_shl(s)).map_or(u64::MAX, |next| next - 1)
}

impl TailSums {
    /// Adds a journey, if it is complete. Totals above an hour take no part;
    /// they are counted, and no tail is taken apart while there are any.
    pub fn record(&mut self, stages: &Stages, hop: Option<SlowestHop>) {
        let Some(total) = stages.total.filter(|_| stages.is_complete()) else { return };
        let Some(bucket) = self.buckets.get_mut(index(total)) else {
            self.beyond = self.beyond.saturating_add(1);
            return;
        };
        self.count += 1;
        bucket.count += 1;
        bucket.total_ns += u128::from(total);
        for (sum, ns) in bucket.components_ns.iter_mut().zip(stages.components) {
            *sum += u128::from(ns.unwrap_or(0));
        }
        for (sum, ns) in bucket.parts_ns.iter_mut().zip(stages.parts) {
            *sum += u128::from(ns.unwrap_or(0));
        }
        bucket.hop = slower(bucket.hop, hop);
    }

    /// Complete journeys in it.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The largest single hop of all.
    pub fn slowest_hop(&self) -> Option<SlowestHop> {
        self.buckets.iter().fold(None, |hop, b| slower(hop, b.hop))
    }

    /// What the tail above `q` is made of; `None` if `q` cannot be quoted.
    pub fn above(&self, q: Quantile) -> Option<TailMakeup> {
        if !q.quotable(self.count) || self.beyond > 0 {
            return None;
        }
        let count = self.count - q.rank(self.count);
        let mut tail = TailMakeup {
            quantile: q,
            count,
            total_ns: 0.0,
            components_ns: [0.0; Component::COUNT],
            parts_ns: [0.0; Part::COUNT],
            hop: None,
        };
        let mut missing = count;
        for bucket in self.buckets.iter().rev().filter(|b| b.count > 0) {
            if missing == 0 {
                break;
            }
            let taken = missing.min(bucket.count);
            tail.take(bucket, ratio(taken, bucket.count));
            missing -= taken;
        }
        Some(tail)
    }

    /// Adds everything in `other`.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.beyond = self.beyond.saturating_add(other.beyond);
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets).filter(|(_, t)| t.count > 0) {
            mine.add(theirs);
        }
    }

    /// What is in it, for a trace: the buckets in use, by the largest total
    /// that falls into each.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, &Bucket)> {
        let in_use = self.buckets.iter().enumerate().filter(|(_, b)| b.count > 0);
        in_use.map(|(number, b)| (largest(number), b))
    }

    /// Journeys above the range: counted, in no bucket.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    /// Puts back what [`TailSums::buckets`] gave, or a part of it, for a total
    /// of `ns`; false if there is no such bucket.
    pub fn put_back(&mut self, ns: u64, bucket: &Bucket) -> bool {
        let Some(mine) = self.buckets.get_mut(index(ns)) else { return false };
        mine.add(bucket);
        self.count = self.count.saturating_add(bucket.count);
        true
    }

    /// Puts back journeys above the range.
    pub fn put_back_beyond(&mut self, count: u64) {
        self.beyond = self.beyond.saturating_add(count);
    }

    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        if self.count > 0 || self.beyond > 0 {
            self.buckets.fill(Bucket::default());
            self.count = 0;
            self.beyond = 0;
        }
    }
}

impl TailMakeup {
    fn take(&mut self, bucket: &Bucket, fraction: f64) {
        self.total_ns += fraction * float(bucket.total_ns);
        for (sum, ns) in self.components_ns.iter_mut().zip(bucket.components_ns) {
            *sum += fraction * float(ns);
        }
        for (sum, ns) in self.parts_ns.iter_mut().zip(bucket.parts_ns) {
            *sum += fraction * float(ns);
        }
        self.hop = slower(self.hop, bucket.hop);
    }
}

/// The slower of two hops.
pub fn slower(a: Option<SlowestHop>, b: Option<SlowestHop>) -> Option<SlowestHop> {
    match (a, b) {
        (Some(a), Some(b)) if a.span_ns >= b.span_ns => Some(a),
        (a, b) => b.or(a),
    }
}

#[expect(clippy::cast_precision_loss, reason = "shares need a few digits of a sum, not all of them")]
fn float(ns: u128) -> f64 {
    ns as f64
}

#[expect(clippy::cast_precision_loss, reason = "a share needs a few digits")]
fn ratio(part: u64, of: u64) -> f64 {
    part as f64 / of as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_largest_value_of_a_bucket_is_its_last() {
        for number in 0..=index(HIGHEST_NS) {
            assert_eq!((index(largest(number)), index(largest(number) + 1)), (number, number + 1));
        }
    }

    fn stages(components: [u64; 4]) -> Stages {
        Stages { components: components.map(Some), total: Some(components.iter().sum()), ..Stages::default() }
    }

    #[test]
    fn buckets_are_contiguous_and_narrow() {
        let mut last = index(0);
        for ns in (0..4_096).chain((12..41).flat_map(|e| [(1 << e) - 1, 1 << e, (1 << e) + (1 << (e - 6))])) {
            let at = index(ns);
            assert!(at == last || at == last + 1 || ns >= 4_096, "gap at {ns}");
            assert!(at >= last, "order at {ns}");
            last = at;
        }
        assert_eq!(index((1 << 30) - 1) + 1, index(1 << 30));
        assert!(index(HIGHEST_NS) < 3_000);
    }

    #[test]
    fn the_tail_is_the_slowest_in_exact_number() {
        let mut sums = TailSums::default();
        for n in 0..9_990 {
            sums.record(&stages([1_000 + n % 7, 0, 500, 2_000]), None);
        }
        let hop = |span_ns| Some(SlowestHop { ifindex: 9, span_ns, qdisc_ns: None });
        for n in 0..10 {
            sums.record(&stages([1_000, 5_000_000 + n, 500, 2_000]), hop(5_000_000 + n));
        }
        let tail = sums.above(Quantile::P999).unwrap();
        assert_eq!(tail.count, 10);
        assert_eq!(tail.components_ns, [10_000.0, 50_000_045.0, 5_000.0, 20_000.0]);
        assert_eq!(tail.hop, hop(5_000_009));
        let tail = sums.above(Quantile::P99).unwrap();
        assert_eq!(tail.count, 100);
        assert!((tail.components_ns[2] - 50_000.0).abs() < 1e-3);
    }

    #[test]
    fn too_few_or_partial_journeys_make_no_tail() {
        let mut sums = TailSums::default();
        for _ in 0..999 {
            sums.record(&stages([1, 2, 3, 4]), None);
        }
        for _ in 0..10_000 {
            sums.record(&Stages { components: [None; 4], ..stages([1, 2, 3, 4]) }, None);
        }
        assert_eq!((sums.count(), sums.above(Quantile::P99)), (999, None));
        sums.record(&stages([1, 2, 3, 4]), None);
        assert!(sums.above(Quantile::P99).is_some());
        sums.record(&stages([u64::MAX / 2, 2, 3, 4]), None);
        assert_eq!(sums.above(Quantile::P99), None);
    }

    proptest! {
        #[test]
        fn merged_sums_equal_sums_of_all_and_shares_add_up(
            journeys in proptest::collection::vec([0_u64..1 << 38, 0..1 << 20, 0..1 << 30, 0..100], 1_000..1_200),
            split in 0_usize..1_000,
        ) {
            let (mut a, mut b, mut all) = (TailSums::default(), TailSums::default(), TailSums::default());
            for (n, j) in journeys.iter().enumerate() {
                if n < split { a.record(&stages(*j), None) } else { b.record(&stages(*j), None) }
                all.record(&stages(*j), None);
            }
            a.merge(&b);
            prop_assert_eq!(&a.buckets, &all.buckets);
            let tail = all.above(Quantile::P99).unwrap();
            let sum: f64 = tail.components_ns.iter().sum();
            prop_assert!((sum / tail.total_ns - 1.0).abs() < 1e-9);

            let mut totals: Vec<u64> = journeys.iter().map(|j| j.iter().sum()).collect();
            totals.sort_unstable();
            let tail_count = usize::try_from(tail.count).unwrap();
            let exact: u64 = totals[totals.len() - tail_count..].iter().sum();
            prop_assert!((tail.total_ns / exact as f64 - 1.0).abs() < 0.017);
        }
    }
}
