//! How long anything was under way at all, by how slow it was.
//!
//! A stolen CPU shows in no queue of its own: the datagrams simply wait where
//! they are. The kernel tells how much time the hypervisor took, not when, and
//! in steps of 10 ms. So the two are compared: the wall time in which any
//! datagram at least as slow as T was under way (the union of its journeys'
//! intervals), and the time stolen in the same interval. Where no more was
//! spent in slow journeys than was stolen, the thief may be the whole reason;
//! where much more was, he is not.

/// Levels of T, one to the octave: T = 2^k ns, up to 18 minutes.
const LEVELS: usize = 41;

/// Times in which datagrams were under way, by how slow they were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stalls {
    /// ns in which a datagram with a total of at least 2^k was under way.
    waited_ns: [u64; LEVELS],
    /// Of those, as many as were stolen in the same interval.
    stolen_ns: [u64; LEVELS],
    /// End of the latest interval laid down, CLOCK_MONOTONIC ns.
    until_ns: [u64; LEVELS],
}

/// The stall behind a tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalled {
    /// Wall time in which a datagram about as slow as the tail was under way.
    pub waited_ns: u64,
    /// Most of it that stolen CPU time may explain.
    pub stolen_ns: u64,
}

impl Default for Stalls {
    fn default() -> Self {
        Self { waited_ns: [0; LEVELS], stolen_ns: [0; LEVELS], until_ns: [0; LEVELS] }
    }
}

impl Stalls {
    /// Lays down a journey, `end_ns − total_ns` to `end_ns`. Journeys come
    /// about in the order of their ends; what an earlier one covers already is
    /// not counted again.
    pub fn record(&mut self, end_ns: u64, total_ns: u64) {
        let start_ns = end_ns.saturating_sub(total_ns);
        let levels = level(total_ns).map_or(0, |k| k + 1).min(LEVELS);
        let each = self.waited_ns.iter_mut().zip(&mut self.until_ns).take(levels);
        for (waited, until) in each.filter(|(_, until)| end_ns > **until) {
            *waited = waited.saturating_add(end_ns - start_ns.max(*until));
            *until = end_ns;
        }
    }

    /// Closes an interval in which `stolen_ns` were taken from the CPUs.
    pub fn close(&mut self, stolen_ns: u64) {
        for (stolen, waited) in self.stolen_ns.iter_mut().zip(self.waited_ns) {
            *stolen = waited.min(stolen_ns);
        }
    }

    /// What lies behind a tail above `threshold_ns`; between octaves the lower,
    /// so that rather too much is counted as waited than too little.
    pub fn above(&self, threshold_ns: u64) -> Stalled {
        let k = level(threshold_ns).unwrap_or(0).min(LEVELS - 1);
        Stalled { waited_ns: self.waited_ns[k], stolen_ns: self.stolen_ns[k] }
    }

    /// What was laid down, for a trace: ns by level.
    pub fn waited_ns(&self) -> &[u64] {
        &self.waited_ns
    }

    /// How far it has come, for a trace: ns by level.
    pub fn until_ns(&self) -> &[u64] {
        &self.until_ns
    }

    /// Goes on where an earlier one had come to, as a trace has it.
    pub fn resume(&mut self, until_ns: &[u64]) {
        for (mine, theirs) in self.until_ns.iter_mut().zip(until_ns) {
            *mine = *theirs;
        }
    }

    /// Puts back what a trace has.
    pub fn put_back(&mut self, waited_ns: &[u64]) {
        for (mine, theirs) in self.waited_ns.iter_mut().zip(waited_ns) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    /// Adds a later interval.
    pub fn merge(&mut self, other: &Self) {
        let mine = self.waited_ns.iter_mut().chain(&mut self.stolen_ns);
        for (mine, theirs) in mine.zip(other.waited_ns.iter().chain(&other.stolen_ns)) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    /// Forgets the times; where the last one ended is kept, so that no time is
    /// counted in two intervals.
    pub fn clear(&mut self) {
        (self.waited_ns, self.stolen_ns) = ([0; LEVELS], [0; LEVELS]);
    }
}

/// ⌊log2⌋; `None` for 0.
fn level(ns: u64) -> Option<usize> {
    ns.checked_ilog2().and_then(|k| usize::try_from(k).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_stolen_explains_no_more_than_was_waited_interval_by_interval() {
        let (mut whole, mut s) = (Stalls::default(), Stalls::default());
        // Two datagrams in one stall of 4 ms, none beside it.
        s.record(10_000_000, 4_000_000);
        s.record(10_000_100, 3_000_000);
        s.close(50_000_000);
        assert_eq!(s.above(3_000_000), Stalled { waited_ns: 4_000_100, stolen_ns: 4_000_100 });
        assert_eq!(s.above(4_200_000), Stalled { waited_ns: 0, stolen_ns: 0 });
        whole.merge(&s);
        // A second later one of 100 ms, and nothing stolen.
        s.clear();
        s.record(1_200_000_000, 100_000_000);
        s.close(0);
        whole.merge(&s);
        assert_eq!(whole.above(3_000_000), Stalled { waited_ns: 104_000_100, stolen_ns: 4_000_100 });
    }

    #[test]
    fn extremes_are_counted() {
        let mut s = Stalls::default();
        s.record(5, 0);
        s.record(u64::MAX, u64::MAX);
        assert_eq!(s.above(u64::MAX).waited_ns, u64::MAX);
        assert_eq!(s.above(0).waited_ns, u64::MAX);
    }

    proptest! {
        #[test]
        fn in_order_of_their_ends_the_union_is_exact_when_starts_are_in_order_too(
            steps in proptest::collection::vec((1_u64..1_000, 1_u64..1_000), 1..60),
        ) {
            let mut s = Stalls::default();
            let (mut start, mut end, mut covered) = (10_000_u64, 10_000_u64, 0);
            for (ahead, length) in steps {
                start += ahead;
                let last = end;
                end = end.max(start) + length;
                covered += end - start.max(last);
                s.record(end, end - start);
            }
            prop_assert_eq!(s.above(1).waited_ns, covered);
        }
    }
}
