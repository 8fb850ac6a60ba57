//! Arrivals of one stream → trains: what was offered all at once.

use super::Arrival;

/// Datagrams of one stream with the same intended time, in the order of their
/// sequences. At least two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Train {
    /// Those that arrived, ascending by sequence.
    pub arrivals: Vec<Arrival>,
}

impl Train {
    /// Bytes that arrived, Ethernet headers included.
    pub fn bytes(&self) -> u64 {
        self.arrivals.iter().map(|a| u64::from(a.l2_bytes)).sum()
    }

    /// The gaps between neighbours, as (bytes of the later one, ns): what the
    /// path took to let the later one through. A neighbour that was lost, or
    /// that did not arrive in order, gives none.
    pub fn gaps(&self) -> impl Iterator<Item = (u32, u64)> {
        self.arrivals.windows(2).filter_map(|two| {
            let [a, b] = two else { return None };
            let gap = b.rx_ns.checked_sub(a.rx_ns)?;
            (b.seq == a.seq + 1 && gap > 0).then_some((b.l2_bytes, gap))
        })
    }

    /// When the first and the last of them arrived.
    pub fn span(&self) -> (u64, u64) {
        let times = || self.arrivals.iter().map(|a| a.rx_ns);
        (times().min().unwrap_or(0), times().max().unwrap_or(0))
    }
}

/// Splits a stream's arrivals, in any order, into its trains. A datagram that
/// arrived twice counts once, at its first arrival.
pub fn split(arrivals: &[Arrival]) -> Vec<Train> {
    let mut sorted = arrivals.to_vec();
    sorted.sort_unstable_by_key(|a| (a.seq, a.rx_ns));
    sorted.dedup_by_key(|a| a.seq);
    sorted
        .chunk_by(|a, b| a.intended_ns == b.intended_ns)
        .filter(|chunk| chunk.len() > 1)
        .map(|chunk| Train { arrivals: chunk.to_vec() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arrival(seq: u64, intended_ns: i64, rx_ns: u64) -> Arrival {
        Arrival { seq, intended_ns, rx_ns, l2_bytes: 202, payload_bytes: 160 }
    }

    #[test]
    fn equal_intended_times_are_a_train() {
        let all = [
            arrival(4, 20, 210),
            arrival(0, 10, 100),
            arrival(1, 10, 110),
            arrival(1, 10, 115),
            arrival(3, 20, 200),
            arrival(2, 15, 150),
            arrival(6, 20, 230),
        ];
        let trains = split(&all);
        let seqs: Vec<Vec<u64>> = trains.iter().map(|t| t.arrivals.iter().map(|a| a.seq).collect()).collect();
        assert_eq!(seqs, [vec![0, 1], vec![3, 4, 6]]);
        assert_eq!(trains[0].gaps().collect::<Vec<_>>(), [(202, 10)], "the first of two copies");
        assert_eq!(trains[1].gaps().collect::<Vec<_>>(), [(202, 10)], "no gap over a lost one");
        assert_eq!((trains[1].bytes(), trains[1].span()), (606, (200, 230)));
    }

    #[test]
    fn what_overtook_gives_no_gap() {
        let trains = split(&[arrival(0, 1, 100), arrival(1, 1, 90), arrival(2, 1, 130)]);
        assert_eq!(trains[0].gaps().collect::<Vec<_>>(), [(202, 40)]);
    }

    proptest! {
        #[test]
        fn any_arrivals_split_without_loss(raw in proptest::collection::vec((any::<u64>(), 0_i64..5, any::<u64>()), 0..60)) {
            let all: Vec<Arrival> = raw.iter().map(|(s, i, r)| arrival(s % 40, *i, *r)).collect();
            for train in split(&all) {
                prop_assert!(train.arrivals.len() > 1);
                prop_assert!(train.arrivals.windows(2).all(|w| w[0].seq < w[1].seq));
                prop_assert!(train.arrivals.iter().all(|a| a.intended_ns == train.arrivals[0].intended_ns));
                let (first, last) = train.span();
                prop_assert!(train.gaps().all(|(_, ns)| ns <= last - first));
            }
        }
    }
}
