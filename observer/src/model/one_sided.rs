//! The limiter somewhere on the way, from send and receive times alone.
//!
//! The clocks of both ends may differ by any constant, since only the change
//! of the delay counts: what was sent and received is a passage through one
//! device as large as the way, with the way's jitter on top. So the two-sided
//! estimator is asked, with a threshold above the jitter, and its bucket gets
//! an interval as wide as the jitter makes it.
//!
//! Two figures that stand on other legs go beside it: in a backlog the
//! one-way delay grows with slope λ/r − 1 over the send time, so r follows
//! from the sending rate and the slope; and the receive rate falls from λ to
//! r once the bucket is empty, a level shift.

use super::level_shift::{self, Shift};
use super::seconds;
use super::stats::{Interval, median, quantile, sorted};
use super::theil_sen;
use super::two_sided::{self, Estimate, Kind, Passage};

/// Delay above which a datagram counts as held back, ns: networks of hosts
/// jitter by hundreds of microseconds without a limiter.
pub const HELD_NS: u64 = 500_000;

/// Bins of the level shift at most.
const BINS: f64 = 2_000.0;

/// A one-sided estimate and what stands beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct OneSided {
    /// The estimate.
    pub estimate: Estimate,
    /// r from the slope of the delay in the longest backlog, bits per second.
    pub slope_rate_bit_s: Option<f64>,
    /// The fall of the receive rate, bits per second and bits.
    pub shift: Option<Shift>,
}

/// Identifies the limiter between sending and receiving. `passages` carry the
/// send time as entry and the receive time as exit, sorted by exit; only
/// differences of delays are looked at, so a clock far ahead or behind does no
/// harm. `fresh` as in [`two_sided::estimate`].
pub fn estimate(passages: &[Passage], fresh: bool) -> OneSided {
    let aligned = align(passages);
    let mut found = two_sided::estimate(&aligned, fresh, HELD_NS);
    let jitter_s = seconds(jitter(&aligned));
    if let (Some(rate), Some(interval)) = (found.rate_bit_s, &mut found.burst_interval) {
        let half = rate / 8.0 * jitter_s;
        *interval = Interval { low: (interval.low - half).max(0.0), high: interval.high + half };
    }
    let slope_rate_bit_s =
        matches!(found.kind, Kind::Tbf | Kind::Unknown).then(|| slope_rate(&aligned)).flatten();
    let shift = found.rate_bit_s.and_then(|rate| shift(&aligned, rate));
    OneSided { estimate: found, slope_rate_bit_s, shift }
}

/// The same with both clocks put together so that the shortest delay is 0.
fn align(passages: &[Passage]) -> Vec<Passage> {
    let delay = |p: &Passage| i128::from(p.exit_ns) - i128::from(p.entry_ns);
    let Some(base) = passages.iter().map(delay).min() else { return Vec::new() };
    // Send times are moved, since order and gaps of exits are looked at most.
    let moved = |ns: u64| u64::try_from(i128::from(ns) + base).unwrap_or(0);
    let mut aligned: Vec<Passage> = passages
        .iter()
        .map(|p| Passage {
            entry_ns: moved(p.entry_ns),
            wanted_ns: if p.wanted_ns == 0 { 0 } else { moved(p.wanted_ns) },
            offered_ns: if p.offered_ns == 0 { 0 } else { moved(p.offered_ns) },
            ..*p
        })
        .collect();
    aligned.sort_by_key(|p| p.exit_ns);
    aligned
}

/// How far delays spread where nothing is held back, ns: their 0.9 quantile.
fn jitter(aligned: &[Passage]) -> u64 {
    let free = aligned.iter().map(|p| p.exit_ns - p.entry_ns).filter(|ns| *ns <= HELD_NS);
    let free = sorted(free.map(|ns| ns as f64));
    if free.len() < 20 {
        return HELD_NS;
    }
    quantile(&free, 0.9).map_or(HELD_NS, |ns| super::nanoseconds(ns / 1e9))
}

/// λ/(1 + slope) over the longest run of held-back datagrams.
fn slope_rate(aligned: &[Passage]) -> Option<f64> {
    let runs = aligned.split(|p| p.exit_ns - p.entry_ns <= HELD_NS);
    let run = runs.max_by_key(|run| run.len())?;
    let (first, last) = (run.first()?, run.last()?);
    if run.len() < two_sided::NEEDED || last.entry_ns <= first.entry_ns {
        return None;
    }
    let sent = |p: &Passage| seconds(p.entry_ns - first.entry_ns.min(p.entry_ns));
    let points: Vec<(f64, f64)> = run.iter().map(|p| (sent(p), seconds(p.exit_ns - p.entry_ns))).collect();
    let slope = theil_sen::slope(&points)?;
    let bits: f64 = run.iter().skip(1).map(|p| 8.0 * f64::from(p.bytes)).sum();
    Some(bits / sent(last) / (1.0 + slope)).filter(|r| r.is_finite() && *r > 0.0)
}

/// The level shift of the receive rate in bins of 50 datagrams at r, or longer.
fn shift(aligned: &[Passage], rate_bit_s: f64) -> Option<Shift> {
    let mean = median(aligned.iter().map(|p| f64::from(p.bytes)))?;
    let first = aligned.first()?.exit_ns;
    let last = aligned.last()?.exit_ns;
    let bin_s = (50.0 * 8.0 * mean / rate_bit_s).max(seconds(last - first) / BINS);
    let bin_ns = super::nanoseconds(bin_s).max(1);
    let bins = usize::try_from((last - first) / bin_ns).ok()?;
    let mut rates = vec![0.0; bins];
    for p in aligned {
        let bin = usize::try_from((p.exit_ns - first) / bin_ns).ok()?;
        if let Some(rate) = rates.get_mut(bin) {
            *rate += 8.0 * f64::from(p.bytes) / bin_s;
        }
    }
    level_shift::find(&rates, bin_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::nanoseconds;
    use crate::model::simulate::TokenBucket;
    use proptest::prelude::*;

    const L: u32 = 1_242;

    /// `seconds_` of a stream at `over`·r over a way of 5 ms with jitter; the
    /// sender's clock is an hour ahead.
    fn far(mbit: f64, kib: f64, over: f64, seconds_: f64) -> Vec<Passage> {
        let mut rng = fastrand::Rng::with_seed(11);
        let rate = mbit * 125e3;
        let n = crate::model::whole(seconds_ * over * rate / f64::from(L));
        let entries: Vec<_> =
            (0..n).map(|i| (10.0 + i as f64 * f64::from(L) / (rate * over), f64::from(L))).collect();
        let bucket = TokenBucket { rate_byte_s: rate, burst_bytes: kib * 1024.0 };
        let late = || 50e-6;
        let exits = bucket.exits(&entries, late);
        entries
            .iter()
            .zip(exits)
            .map(|((sent, _), left)| {
                let received = left + 5e-3 + rng.f64() * 100e-6;
                Passage::new(nanoseconds(sent + 3_600.0), nanoseconds(received), L)
            })
            .collect()
    }

    #[test]
    fn rate_within_two_percent_and_the_bucket_in_its_interval() {
        for mbit in [10.0, 50.0, 200.0] {
            for kib in [16.0, 64.0, 256.0] {
                let found = estimate(&far(mbit, kib, 1.3, 3.0), true);
                let e = &found.estimate;
                assert_eq!(e.kind, Kind::Tbf, "{mbit} {kib}: {found:?}");
                assert!((e.rate_bit_s.unwrap() / (mbit * 1e6) - 1.0).abs() < 0.02, "{mbit} {kib}: {found:?}");
                assert!(e.burst_interval.unwrap().contains(kib * 1024.0), "{mbit} {kib}: {found:?}");
                let slope = found.slope_rate_bit_s.unwrap();
                assert!((slope / (mbit * 1e6) - 1.0).abs() < 0.02, "{mbit} {kib}: {slope}");
            }
        }
    }

    #[test]
    fn a_bucket_that_lasts_seconds_is_a_level_shift() {
        // 2 MiB at 10 Mbit/s and 20 Mbit/s offered: 1.7 s.
        let found = estimate(&far(10.0, 2048.0, 2.0, 8.0), true);
        let shift = found.shift.unwrap();
        assert!((shift.after / 10e6 - 1.0).abs() < 0.02, "{shift:?}");
        assert!((shift.burst / 8.0 / (2048.0 * 1024.0) - 1.0).abs() < 0.05, "{shift:?}");
    }

    #[test]
    fn a_way_with_jitter_alone_has_no_limiter() {
        let mut rng = fastrand::Rng::with_seed(12);
        let p: Vec<_> = (0..20_000_u64)
            .map(|i| {
                Passage::new(1_000_000_000_000 + i * 50_000, 5_000_000 + i * 50_000 + rng.u64(..300_000), L)
            })
            .collect();
        assert_eq!(estimate(&p, true).estimate.kind, Kind::None);
        assert_eq!(estimate(&[], true).estimate.kind, Kind::NotEnoughEvidence);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(raw in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u32>()), 0..400)) {
            let mut p: Vec<_> = raw.into_iter().map(|(a, d, b)| Passage::new(a, d, b)).collect();
            p.sort_by_key(|x| x.exit_ns);
            let _ = estimate(&p, false);
        }
    }
}
