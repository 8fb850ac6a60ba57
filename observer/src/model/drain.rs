//! How fast a Sender drains: D from the times at which a burst was offered
//! and sent, and from many bursts.
//!
//! The usual estimate, N/max, divides the burst by its longest wait. It is
//! biased by 1/(1 − D/P) (+46 % to +208 % at P = 1.5 to 3.2 D) and set by a
//! single outlier; it is computed only to be shown beside the others:
//!
//! - **span**: D̂ = (N − 1 − k)/(s_N − s_{k+1}) over the send times s, the first
//!   k = 10 % left out. Independent of the dispatch rate.
//! - **Theil–Sen**: the slope m of the wait on the position in the burst,
//!   D̂ = 1/(m + 1/P̂). Independent of single late datagrams.
//! - **conservative**: N/(s_N − a_1), from the first offer to the last send,
//!   the smallest over the bursts.

use serde::{Deserialize, Serialize};

use super::stats::{self, Interval, median, median_interval};
use super::theil_sen;

/// Bursts from which a typical rate is quoted with an interval.
pub const BURSTS: usize = 10;

/// Datagrams below which a burst says nothing about a rate.
pub const SMALLEST: usize = 100;

/// One burst's figures; rates in datagrams per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BurstDrain {
    /// N.
    pub size: usize,
    /// P̂ = (N − 1)/(a_N − a_1); null where all were offered at one time.
    pub dispatch_per_s: Option<f64>,
    /// D̂ by span.
    pub span_per_s: f64,
    /// D̂ by Theil–Sen; null where the waits do not grow.
    pub theil_sen_per_s: Option<f64>,
    /// N/(s_N − a_1).
    pub conservative_per_s: f64,
    /// N/max, the biased one.
    pub n_over_max_per_s: Option<f64>,
    /// The longest wait, s.
    pub max_wait_s: f64,
}

/// The figures of a burst of `(offered, sent)`, in ns and in order of sending;
/// `None` below [`SMALLEST`] datagrams, or where the times have no extent.
pub fn of_burst(burst: &[(u64, u64)]) -> Option<BurstDrain> {
    let n = burst.len();
    if n < SMALLEST {
        return None;
    }
    let skip = n / 10;
    let (first, from, last) = (burst.first()?, burst.get(skip)?, burst.last()?);
    let last_sent = last.1;
    let per_s = |count: usize, from: u64, to: u64| {
        let ns = to.checked_sub(from).filter(|ns| *ns > 0)?;
        Some(count as f64 * 1e9 / ns as f64)
    };
    let offered = burst.iter().map(|x| x.0);
    let first_offer = offered.clone().min()?;
    let dispatch_per_s = per_s(n - 1, first_offer, offered.max()?);
    let interval_ns = dispatch_per_s.map_or(0.0, |p| 1e9 / p);
    let waits: Vec<(f64, f64)> =
        burst.iter().enumerate().map(|(i, x)| (i as f64, x.1.saturating_sub(x.0) as f64)).collect();
    let max_wait = waits.iter().map(|w| w.1).fold(0.0, f64::max);
    let each_ns = theil_sen::slope(&waits).map(|m| m + interval_ns);
    Some(BurstDrain {
        size: n,
        dispatch_per_s,
        span_per_s: per_s(n - 1 - skip, from.1, last_sent)?,
        theil_sen_per_s: each_ns.filter(|ns| *ns > 0.0).map(|ns| 1e9 / ns),
        conservative_per_s: per_s(n, first.0.min(first_offer), last_sent)?,
        n_over_max_per_s: (max_wait > 0.0).then(|| n as f64 * 1e9 / max_wait),
        max_wait_s: max_wait / 1e9,
    })
}

/// D over many bursts; rates in datagrams per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drain {
    /// Bursts it stands on.
    pub bursts: usize,
    /// The median by span.
    pub typical_per_s: f64,
    /// Its 95 % interval; null below six bursts.
    pub typical_interval: Option<Interval>,
    /// The median by Theil–Sen, the cross-check.
    pub theil_sen_per_s: Option<f64>,
    /// What holds in nearly every moment: the smallest N/(s_N − a_1), or the
    /// 5 % quantile of the rates in windows of the target's length where that
    /// is less.
    pub conservative_per_s: f64,
    /// The 95 % interval of that quantile; null below some 80 windows.
    pub conservative_interval: Option<Interval>,
    /// The median of N/max: biased high, shown for comparison.
    pub n_over_max_per_s: Option<f64>,
    /// The median dispatch rate.
    pub dispatch_per_s: Option<f64>,
}

/// Puts bursts together; `windows_per_s` are drain rates over windows of about
/// the target's length inside of them ([`windows`]). `None` without a burst.
pub fn of_bursts(bursts: &[BurstDrain], windows_per_s: &[f64]) -> Option<Drain> {
    let typical: Vec<f64> = bursts.iter().map(|b| b.span_per_s).collect();
    let slowest = stats::sorted(bursts.iter().map(|b| b.conservative_per_s)).first().copied()?;
    let windows = stats::sorted(windows_per_s.iter().copied());
    let quotable = windows.len() >= 20;
    let low = stats::quantile(&windows, 0.05).filter(|_| quotable);
    Some(Drain {
        bursts: bursts.len(),
        typical_per_s: median(typical.iter().copied())?,
        typical_interval: median_interval(&typical),
        theil_sen_per_s: median(bursts.iter().filter_map(|b| b.theil_sen_per_s)),
        conservative_per_s: low.map_or(slowest, |low| low.min(slowest)),
        conservative_interval: stats::quantile_interval(&windows, 0.05),
        n_over_max_per_s: median(bursts.iter().filter_map(|b| b.n_over_max_per_s)),
        dispatch_per_s: median(bursts.iter().filter_map(|b| b.dispatch_per_s)),
    })
}

/// Drain rates over windows of about `window_ns` inside a burst, per second:
/// what the Sender did moment by moment. A window holds ten datagrams at least.
pub fn windows(burst: &[(u64, u64)], window_ns: u64) -> Vec<f64> {
    let mut rates = Vec::new();
    let mut from = 0;
    for (i, x) in burst.iter().enumerate() {
        let Some(start) = burst.get(from) else { break };
        let length = x.1.saturating_sub(start.1);
        if length >= window_ns && length > 0 && i - from >= 10 {
            rates.push((i - from) as f64 * 1e9 / length as f64);
            from = i;
        }
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::nanoseconds;
    use crate::model::simulate::{burst, fifo};
    use proptest::prelude::*;

    fn times(n: usize, dispatch: f64, drain: f64) -> Vec<(u64, u64)> {
        let offers = burst(n, 1.0 / dispatch);
        let sent = fifo(&offers, 1.0 / drain);
        offers.iter().zip(&sent).map(|(a, s)| (nanoseconds(*a), nanoseconds(*s))).collect()
    }

    /// The bias of N/max is 1/(1 − D/P), and the other two have none.
    #[test]
    fn n_over_max_is_biased_and_the_others_are_not() {
        for (ratio, bias) in [(3.2, 1.4545), (2.0, 2.0), (1.48, 3.083)] {
            let found = of_burst(&times(90_000, ratio * 1.6e6, 1.6e6)).unwrap();
            assert!((found.span_per_s / 1.6e6 - 1.0).abs() < 1e-4, "{found:?}");
            assert!((found.theil_sen_per_s.unwrap() / 1.6e6 - 1.0).abs() < 1e-3, "{found:?}");
            assert!((found.n_over_max_per_s.unwrap() / 1.6e6 / bias - 1.0).abs() < 0.01, "{found:?}");
            assert!((found.dispatch_per_s.unwrap() / (ratio * 1.6e6) - 1.0).abs() < 1e-3);
            assert!(found.conservative_per_s <= found.span_per_s * 1.0001);
        }
    }

    #[test]
    fn a_late_datagram_does_not_set_theil_sen_and_a_late_start_not_the_span() {
        let mut late = times(10_000, 50e6, 1e6);
        let honest = of_burst(&late).unwrap();
        for x in &mut late {
            x.1 += 5_000_000;
        }
        late.last_mut().unwrap().1 += 20_000_000;
        let found = of_burst(&late).unwrap();
        assert!((found.theil_sen_per_s.unwrap() / honest.theil_sen_per_s.unwrap() - 1.0).abs() < 1e-3);
        assert!(found.span_per_s < 0.5 * honest.span_per_s);
        late.pop();
        let found = of_burst(&late).unwrap();
        assert!((found.span_per_s / honest.span_per_s - 1.0).abs() < 1e-3);
        assert!(found.conservative_per_s < 0.7 * honest.conservative_per_s);
    }

    #[test]
    fn many_bursts_have_a_typical_and_a_conservative_rate() {
        let bursts: Vec<_> = (0..12)
            .map(|i| {
                of_burst(&times(5_000, 20e6, if i == 3 { 1.3e6 } else { 1.6e6 + f64::from(i) })).unwrap()
            })
            .collect();
        let rates = windows(&times(50_000, 20e6, 1.6e6), 500_000);
        let drain = of_bursts(&bursts, &rates).unwrap();
        assert!((drain.typical_per_s / 1.6e6 - 1.0).abs() < 1e-3, "{drain:?}");
        assert!((drain.conservative_per_s / 1.3e6 - 1.0).abs() < 1e-3, "{drain:?}");
        assert!(drain.typical_interval.unwrap().contains(1.6e6 + 5.0));
        assert_eq!(of_bursts(&[], &[]), None);
        assert!(of_burst(&times(99, 1e7, 1e6)).is_none());
    }

    #[test]
    fn windows_hold_the_rate_of_their_moment() {
        let rates = windows(&times(20_000, 20e6, 1e6), 1_000_000);
        assert!((15..=20).contains(&rates.len()), "{}", rates.len());
        assert!(rates.iter().all(|r| (r / 1e6 - 1.0).abs() < 0.01), "{rates:?}");
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(times in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..300), w: u64) {
            let _ = of_burst(&times);
            let _ = windows(&times, w);
        }
    }
}
