//! The capacity ratio of two paths to one receiver, by the order of arrivals
//! alone (ASND, arrival sequence number difference).
//!
//! Two senders send trains at the same time. All arrivals are numbered 1, 2,
//! 3, …; the ASND of a datagram is its number less that of its sender's
//! previous one. While both paths are busy, k = C_fast/C_slow datagrams of the
//! fast one arrive between two of the slow one, so the slow one's ASND is
//! about **1 + k**, and k = mean ASND − 1. That is the convention here. The
//! rate-limiting reference reads the histogram's peak δ itself as the ratio
//! (a peak at 10 as 10 : 1, which by arithmetic is 9 : 1); its reading is
//! reported beside ours as `peak_asnd`. The peak is also a whole number, so
//! that 2.4 : 1 cannot be read off it: its ASNDs are 3 and 4, with a mean
//! of 3.4.
//!
//! Only the time in which both are busy counts, and of that the later half:
//! before, a full token bucket lets datagrams through at the speed of the
//! link. Between the first and the last of the slow path's datagrams there,
//! the fast path's are counted; that is exact to one datagram per train.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Arrival;
use super::train::Train;
use crate::report::FlowKey;

/// Gaps between the slow path's datagrams that are needed.
const LEAST_GAPS: u64 = 10;

/// Pairs of trains looked at: a trace of ordinary bursts may have millions.
const MOST_ROUNDS: usize = 10_000;

/// How often an ASND was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The ASND.
    pub asnd: u64,
    /// How often.
    pub count: u64,
}

/// Two paths compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The faster one.
    pub fast: FlowKey,
    /// The slower one.
    pub slow: FlowKey,
    /// C_fast/C_slow, by bytes: (mean ASND of the slow one − 1) · L_fast/L_slow.
    pub capacity_ratio: f64,
    /// One datagram of the fast path per pair of trains, either way.
    pub interval: (f64, f64),
    /// Pairs of trains that met.
    pub rounds: u64,
    /// Mean ASND of the slow path.
    pub mean_asnd: f64,
    /// Its most frequent ASND: what the reference reads as the ratio.
    pub peak_asnd: u64,
    /// The slow path's ASNDs, ascending.
    pub histogram: Vec<Seen>,
}

/// Two paths compared, not yet named.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// The first one given is the faster one.
    first_is_fast: bool,
    ratio: Ratio,
}

impl Compared {
    /// With the names of the two, in the order in which they were given.
    pub fn named(self, first: FlowKey, second: FlowKey) -> Ratio {
        let (fast, slow) = if self.first_is_fast { (first, second) } else { (second, first) };
        Ratio { fast, slow, ..self.ratio }
    }
}

/// Compares two paths by their trains; `None` if too few of them met.
pub fn compare(a: &[Train], b: &[Train]) -> Option<Compared> {
    let rounds: Vec<Vec<(bool, Arrival)>> = met(a, b);
    let of = |first: bool| rounds.iter().flatten().filter(|(f, _)| *f == first).count();
    let first_is_fast = of(true) >= of(false);
    let (mut between, mut gaps) = (Sum::default(), Sum::default());
    let (mut asnds, mut counted) = (BTreeMap::<u64, u64>::new(), 0_u64);
    for round in &rounds {
        let slow: Vec<usize> = (0..round.len()).filter(|i| round[*i].0 != first_is_fast).collect();
        let (Some(first), Some(last)) = (slow.first(), slow.last()) else { continue };
        if first == last {
            continue;
        }
        counted += 1;
        for two in slow.windows(2) {
            *asnds.entry((two[1] - two[0]) as u64).or_default() += 1;
        }
        for (is_first, arrival) in &round[first + 1..=*last] {
            if *is_first == first_is_fast { &mut between } else { &mut gaps }.add(arrival);
        }
    }
    if gaps.count < LEAST_GAPS || between.count == 0 {
        return None;
    }
    let ratio = |fast_count: f64| {
        let per_datagram = between.bytes as f64 / between.count as f64;
        fast_count * per_datagram / gaps.bytes as f64
    };
    let fast = between.count as f64;
    let peak = asnds.iter().max_by_key(|(asnd, n)| (**n, std::cmp::Reverse(**asnd)));
    Some(Compared {
        first_is_fast,
        ratio: Ratio {
            fast: FlowKey::default(),
            slow: FlowKey::default(),
            capacity_ratio: ratio(fast),
            interval: (ratio((fast - counted as f64).max(0.0)), ratio(fast + counted as f64)),
            rounds: counted,
            mean_asnd: 1.0 + fast / gaps.count as f64,
            peak_asnd: peak.map_or(0, |(asnd, _)| *asnd),
            histogram: asnds.into_iter().map(|(asnd, count)| Seen { asnd, count }).collect(),
        },
    })
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, arrival: &Arrival) {
        self.count += 1;
        self.bytes += u64::from(arrival.l2_bytes);
    }
}

/// For every two trains that were under way at the same time: the arrivals of
/// both, in order, in the later half of that time. True: of `a`. No more than
/// [`MOST_ROUNDS`], the earliest.
fn met(a: &[Train], b: &[Train]) -> Vec<Vec<(bool, Arrival)>> {
    let (a, b) = (by_start(a), by_start(b));
    // The latest end so far: where to begin looking.
    let ends: Vec<u64> = b
        .iter()
        .scan(0, |latest: &mut u64, (_, end, _)| {
            *latest = (*latest).max(*end);
            Some(*latest)
        })
        .collect();
    let pairs = a.iter().flat_map(|(start, end, train)| {
        let first = ends.partition_point(|latest| latest < start);
        let during = b.iter().skip(first).take_while(move |(other, ..)| other <= end);
        during.filter_map(move |(other_start, other_end, other)| {
            let (from, to) = (*start.max(other_start), *end.min(other_end));
            (from < to).then(|| later_half(train, other, from, to))
        })
    });
    pairs.take(MOST_ROUNDS).collect()
}

/// Trains with their first and last arrival, by the first.
fn by_start(trains: &[Train]) -> Vec<(u64, u64, &Train)> {
    let mut spans: Vec<(u64, u64, &Train)> = trains
        .iter()
        .map(|train| {
            let (first, last) = train.span();
            (first, last, train)
        })
        .collect();
    spans.sort_by_key(|(first, ..)| *first);
    spans
}

fn later_half(a: &Train, b: &Train, from: u64, to: u64) -> Vec<(bool, Arrival)> {
    let from = from + (to - from) / 2;
    let mut both: Vec<(bool, Arrival)> = [(true, a), (false, b)]
        .into_iter()
        .flat_map(|(first, train)| train.arrivals.iter().map(move |arrival| (first, *arrival)))
        .filter(|(_, arrival)| (from..=to).contains(&arrival.rx_ns))
        .collect();
    both.sort_by_key(|(_, arrival)| arrival.rx_ns);
    both
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn train(first: u64, last: u64) -> Train {
        let arrival = |seq, rx_ns| Arrival { seq, intended_ns: 0, rx_ns, l2_bytes: 100, payload_bytes: 58 };
        Train { arrivals: vec![arrival(0, first), arrival(1, last)] }
    }

    proptest! {
        /// The quick way finds what trying all finds.
        #[test]
        fn every_meeting_is_found(
            a in proptest::collection::vec((0_u64..200, 0_u64..60), 0..20),
            b in proptest::collection::vec((0_u64..200, 0_u64..60), 0..20),
        ) {
            let trains = |of: &[(u64, u64)]| of.iter().map(|(at, length)| train(*at, at + length)).collect::<Vec<_>>();
            let (a, b) = (trains(&a), trains(&b));
            let all = a.iter().flat_map(|x| b.iter().map(move |y| (x.span(), y.span())));
            let meet = all.filter(|(x, y)| x.0.max(y.0) < x.1.min(y.1)).count();
            prop_assert_eq!(met(&a, &b).len(), meet);
        }
    }
}
