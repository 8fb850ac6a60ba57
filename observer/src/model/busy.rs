//! Busy periods of a FIFO: from an arrival that finds it empty to the
//! departure that leaves it empty. A burst is one, whatever made it.
//!
//! In: arrivals and departures of the same items, in order of departure. Out:
//! a [`Busy`] per period, with how it began, how it grew and how it drained.

/// One busy period. Times in ns, indices into the slices given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// Its first item.
    pub first: usize,
    /// Items in it.
    pub len: usize,
    /// The first arrival.
    pub start_ns: u64,
    /// The last departure.
    pub end_ns: u64,
    /// How long the first item waited: the server's start.
    pub first_wait_ns: u64,
    /// The longest wait.
    pub max_wait_ns: u64,
    /// The most items that were inside at once.
    pub peak: usize,
}

impl Busy {
    /// Its items.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.len
    }

    /// Whether most of the longest wait was there from the start: the server
    /// came late, and was not too slow.
    pub fn is_late_start(&self) -> bool {
        self.first_wait_ns.saturating_mul(2) > self.max_wait_ns
    }
}

/// The busy periods of items `(arrival, departure)`, sorted by departure. A
/// departure before its arrival counts as one at its arrival.
pub fn periods(items: &[(u64, u64)]) -> Vec<Busy> {
    let mut found: Vec<Busy> = Vec::new();
    let mut gone = 0;
    for (i, &(arrival, departure)) in items.iter().enumerate() {
        let wait = departure.saturating_sub(arrival);
        match found.last_mut().filter(|b| arrival < b.end_ns) {
            Some(busy) => {
                // Departures are in order: those before this arrival are gone.
                while items.get(gone).is_some_and(|x| x.1 <= arrival) {
                    gone += 1;
                }
                busy.len += 1;
                busy.start_ns = busy.start_ns.min(arrival);
                busy.end_ns = busy.end_ns.max(departure);
                busy.max_wait_ns = busy.max_wait_ns.max(wait);
                busy.peak = busy.peak.max((i + 1).saturating_sub(gone.max(busy.first)));
            }
            None => {
                gone = i;
                found.push(Busy {
                    first: i,
                    len: 1,
                    start_ns: arrival,
                    end_ns: departure.max(arrival),
                    first_wait_ns: wait,
                    max_wait_ns: wait,
                    peak: 1,
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::simulate;
    use proptest::prelude::*;

    #[test]
    fn a_gap_ends_a_period() {
        let found = periods(&[(0, 10), (2, 20), (20, 30), (25, 40)]);
        assert_eq!(found.len(), 2);
        assert_eq!(
            found[0],
            Busy { first: 0, len: 2, start_ns: 0, end_ns: 20, first_wait_ns: 10, max_wait_ns: 18, peak: 2 }
        );
        assert_eq!((found[1].range(), found[1].peak, found[1].max_wait_ns), (2..4, 2, 15));
        assert!(found[0].is_late_start() && found[1].is_late_start());
        assert!(!periods(&[(0, 10), (1, 20), (2, 30)])[0].is_late_start());
        assert!(periods(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn every_item_is_in_one_period_and_peaks_are_the_simulations(
            gaps in proptest::collection::vec(0_u64..3_000, 1..300), service in 1_u64..3_000,
        ) {
            let mut at = 0;
            let arrivals: Vec<u64> = gaps.iter().map(|g| { at += g; at }).collect();
            let mut free = 0;
            let items: Vec<_> = arrivals.iter().map(|a| { free = free.max(*a) + service; (*a, free) }).collect();
            let found = periods(&items);
            prop_assert_eq!(found.iter().map(|b| b.len).sum::<usize>(), items.len());
            for pair in found.windows(2) {
                prop_assert_eq!(pair[0].first + pair[0].len, pair[1].first);
                prop_assert!(pair[0].end_ns <= pair[1].start_ns);
            }
            for busy in &found {
                let inside: Vec<_> = items[busy.range()].to_vec();
                let seconds = |f: fn(&(u64, u64)) -> u64| inside.iter().map(|x| f(x) as f64).collect::<Vec<_>>();
                prop_assert_eq!(busy.peak, simulate::peak_backlog(&seconds(|x| x.0), &seconds(|x| x.1)));
                prop_assert_eq!(busy.first_wait_ns, service);
            }
        }

        #[test]
        fn nothing_makes_it_panic(items in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..50)) {
            let mut items = items;
            items.sort_by_key(|x| x.1);
            prop_assert_eq!(periods(&items).iter().map(|b| b.len).sum::<usize>(), items.len());
        }
    }
}
