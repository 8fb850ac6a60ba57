//! The slowest journeys of a run, whole, to be looked at one by one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::correlate::Journey;

/// How many are kept.
pub const SLOWEST: usize = 16;

/// A bounded set of the journeys with the largest totals.
#[derive(Debug, Default)]
pub struct Slowest {
    heap: BinaryHeap<Reverse<Entry>>,
}

#[derive(Debug)]
struct Entry {
    total_ns: u64,
    journey: Journey,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.total_ns == other.total_ns
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.total_ns.cmp(&other.total_ns)
    }
}

impl Slowest {
    /// Keeps the journey if it is among the slowest. Of equals the first stay.
    pub fn offer(&mut self, journey: &Journey) {
        let Some(total_ns) = journey.stages.total else { return };
        if self.heap.len() >= SLOWEST {
            match self.heap.peek() {
                Some(Reverse(least)) if least.total_ns < total_ns => self.heap.pop(),
                _ => return,
            };
        }
        self.heap.push(Reverse(Entry { total_ns, journey: *journey }));
    }

    /// The kept journeys, slowest first.
    pub fn list(&self) -> Arc<[Journey]> {
        let mut kept: Vec<&Entry> = self.heap.iter().map(|Reverse(entry)| entry).collect();
        kept.sort_by_key(|entry| Reverse((entry.total_ns, entry.journey.record.stream_seq)));
        kept.into_iter().map(|entry| entry.journey).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::Correlator;
    use crate::source::synthetic;
    use observer_ebpf::abi::JourneyRecord;

    #[test]
    fn the_sixteen_slowest_stay_in_order() {
        let mut slowest = Slowest::default();
        let mut correlator = Correlator::default();
        for n in 0..1_000_u64 {
            let base = synthetic::journey(1, 0, n);
            let app_dequeue_ns = base.app_dequeue_ns + n * 7 % 1_000;
            slowest.offer(&correlator.journey(&JourneyRecord { app_dequeue_ns, ..base }));
        }
        let totals: Vec<_> = slowest.list().iter().map(|j| j.stages.total.unwrap()).collect();
        assert_eq!(totals, (10_984..11_000).rev().collect::<Vec<_>>());
    }
}
