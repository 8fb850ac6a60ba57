//! Capacity of a path from the spacing of back-to-back datagrams.
//!
//! Two datagrams sent back to back leave the slowest place of a path L/C
//! apart: the later one's bytes over the gap is the capacity C, unless other
//! traffic came between them (too slow) or they were compressed behind it
//! (too fast). So single pairs scatter, with modes. A long train's rate is
//! steadier but never above C: what came between lowers it. Hence (the idea of
//! Pathrate):
//!
//! 1. the *train rate*: the median over trains of ten or more of the bytes
//!    over the time of their later half (the earlier one may have been let
//!    through by a full token bucket);
//! 2. the modes of the pair rates, on a logarithmic scale;
//! 3. if a fifth of the pairs or more are in a mode that agrees with the train
//!    rate, nothing came between, and the train rate, in which the timers'
//!    jitter averages out, is the better figure of the two (faster modes are
//!    then what a token bucket let through, or compression);
//! 4. otherwise modes below the train rate are other traffic's and are
//!    rejected, and of the others the one with most pairs for its width wins.

use serde::{Deserialize, Serialize};

use super::train::Train;
use crate::model::stats;

/// Pairs needed for a mode to be looked for.
const LEAST_PAIRS: usize = 20;
/// Datagrams that make a train long.
const LONG: usize = 10;
/// Long trains needed for an interval: of six values the smallest and the
/// largest enclose the median with 97 % confidence.
const LEAST_FOR_INTERVAL: usize = 6;
/// Half-width of a mode on the logarithmic scale: 10 %.
const REACH: f64 = 0.095;
/// Modes told.
const MOST_MODES: usize = 5;
/// A mode has at least this share of the pairs.
const LEAST_SHARE: f64 = 0.05;
/// A mode this far below the train rate is still above it: both are measured.
const SLACK: f64 = 0.10;
/// Mode and train rate agree within this, on the logarithmic scale.
const AGREE: f64 = 0.15;
/// Share of the pairs that a mode has if it is to confirm the train rate.
const CONFIRMS: f64 = 0.2;
/// Widths below this are equal: time stamps are not better.
const LEAST_WIDTH: f64 = 0.02;
/// Bins of the histogram per factor of e: 5 % each.
const BINS: f64 = 20.0;

/// Which figure the capacity is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// The rate of long trains, which a mode of the pairs agrees with, or in
    /// want of a mode.
    Train,
    /// A mode of the pairs.
    Mode,
}

/// A rate around which pairs gather.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mode {
    /// Median rate of its pairs, bits per second.
    pub rate_bit_s: f64,
    /// Pairs in it.
    pub pairs: u64,
    /// Distance of their quartiles over the median.
    pub width: f64,
}

/// Pair rates in one bin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// Lower border, bits per second.
    pub from_bit_s: f64,
    /// Upper border.
    pub to_bit_s: f64,
    /// Pairs in it.
    pub pairs: u64,
}

/// The capacity of a path, and what it rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// The capacity, bits per second, Ethernet headers included.
    pub rate_bit_s: f64,
    /// Which figure that is.
    pub method: Method,
    /// Of the train rate: encloses its median with 97 % confidence or better.
    /// Null below six long trains, or where the capacity is a mode.
    pub interval_bit_s: Option<(f64, f64)>,
    /// Median rate of the long trains; null if there are none.
    pub train_bit_s: Option<f64>,
    /// Long trains.
    pub long_trains: u64,
    /// Neighbours whose spacing was used.
    pub pairs: u64,
    /// Where pairs gather, most of them first.
    pub modes: Vec<Mode>,
    /// All pairs, by rate, in bins of 5 %; empty bins are left out.
    pub histogram: Vec<Bin>,
}

/// The capacity that `trains` show; `None` below 20 pairs.
pub fn capacity(trains: &[Train]) -> Option<Capacity> {
    let mut logs: Vec<f64> =
        trains.iter().flat_map(Train::gaps).map(|(bytes, ns)| bit_s(u64::from(bytes), ns).ln()).collect();
    if logs.len() < LEAST_PAIRS {
        return None;
    }
    logs.sort_by(f64::total_cmp);
    let mut rates: Vec<f64> = trains.iter().filter_map(train_rate).collect();
    rates.sort_by(f64::total_cmp);
    let train = median(&rates);
    let modes = modes(&logs);
    let agrees = |m: &Mode, train: f64| {
        (m.rate_bit_s / train).ln().abs() < AGREE && m.pairs as f64 >= CONFIRMS * logs.len() as f64
    };
    let merit = |m: &&Mode| m.pairs as f64 / m.width.max(LEAST_WIDTH);
    let (rate_bit_s, method) = match train {
        Some(train) if modes.iter().any(|m| agrees(m, train)) => (train, Method::Train),
        _ => {
            let above = modes.iter().filter(|m| train.is_none_or(|t| m.rate_bit_s >= t * (1.0 - SLACK)));
            match (above.max_by(|a, b| merit(a).total_cmp(&merit(b))), train) {
                (Some(mode), _) => (mode.rate_bit_s, Method::Mode),
                (None, Some(train)) => (train, Method::Train),
                // Scattered without a mode, and no long train to go by.
                (None, None) => return None,
            }
        }
    };
    Some(Capacity {
        rate_bit_s,
        method,
        interval_bit_s: interval(&rates).filter(|_| method == Method::Train),
        train_bit_s: train,
        long_trains: rates.len() as u64,
        pairs: logs.len() as u64,
        modes,
        histogram: histogram(&logs),
    })
}

fn bit_s(bytes: u64, ns: u64) -> f64 {
    bytes as f64 * 8e9 / ns as f64
}

/// The rate of a long train's later half.
fn train_rate(train: &Train) -> Option<f64> {
    let half = train.arrivals.get(train.arrivals.len() / 2..)?;
    let (first, rest) = half.split_first()?;
    let last = rest.last()?;
    let bytes = rest.iter().map(|a| u64::from(a.l2_bytes)).sum();
    let ns = last.rx_ns.checked_sub(first.rx_ns).filter(|ns| *ns > 0)?;
    (train.arrivals.len() >= LONG).then(|| bit_s(bytes, ns))
}

/// Of ascending values.
fn median(sorted: &[f64]) -> Option<f64> {
    stats::quantile(sorted, 0.5)
}

/// The order statistics that enclose the median of ascending values with at
/// least 95 % confidence (binomial, normal approximation, rounded outwards).
fn interval(sorted: &[f64]) -> Option<(f64, f64)> {
    let n = sorted.len();
    if n < LEAST_FOR_INTERVAL {
        return None;
    }
    let reach = 0.98 * (n as f64).sqrt() + 1.0;
    // How many values to leave out at either end.
    let outside = (n as f64 / 2.0 - reach).max(0.0).floor();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to n / 2")]
    let outside = outside as usize;
    Some((*sorted.get(outside)?, *sorted.get(n - 1 - outside)?))
}

/// The modes of ascending logarithms: the densest window, without it the next
/// one, and so on.
fn modes(logs: &[f64]) -> Vec<Mode> {
    let least = (logs.len() as f64 * LEAST_SHARE).max(3.0);
    let mut left = logs.to_vec();
    let mut found = Vec::new();
    while found.len() < MOST_MODES {
        let Some((from, to)) = densest(&left) else { break };
        let members = &left[from..to];
        if (members.len() as f64) < least {
            break;
        }
        let at = |q: f64| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
            let i = ((members.len() - 1) as f64 * q).round() as usize;
            members[i]
        };
        let (centre, width) = (at(0.5), at(0.75) - at(0.25));
        found.push(Mode { rate_bit_s: centre.exp(), pairs: members.len() as u64, width });
        // The slopes of a mode are no modes of their own.
        left.retain(|v| (v - centre).abs() > 2.0 * REACH);
    }
    found
}

/// The window of width 2·[`REACH`] with most of the ascending values.
fn densest(sorted: &[f64]) -> Option<(usize, usize)> {
    let (mut best, mut to) = (None::<(usize, usize)>, 0);
    for from in 0..sorted.len() {
        while to < sorted.len() && sorted[to] - sorted[from] <= 2.0 * REACH {
            to += 1;
        }
        if best.is_none_or(|(f, t)| to - from > t - f) {
            best = Some((from, to));
        }
    }
    best
}

fn histogram(logs: &[f64]) -> Vec<Bin> {
    logs.chunk_by(|a, b| (a * BINS).floor() == (b * BINS).floor())
        .filter_map(|chunk| {
            let bin = (chunk.first()? * BINS).floor();
            Some(Bin {
                from_bit_s: (bin / BINS).exp(),
                to_bit_s: ((bin + 1.0) / BINS).exp(),
                pairs: chunk.len() as u64,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn logs(groups: &[(f64, f64, usize)]) -> Vec<f64> {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut all: Vec<f64> = groups
            .iter()
            .flat_map(|&(rate, spread, n)| std::iter::repeat_n((rate, spread), n))
            .map(|(rate, spread)| (rate * (1.0 + spread * (rng.f64() - 0.5))).ln())
            .collect();
        all.sort_by(f64::total_cmp);
        all
    }

    #[test]
    fn modes_are_found_densest_first() {
        let found = modes(&logs(&[(1e7, 0.02, 60), (4e7, 0.02, 30), (1e9, 1.5, 15)]));
        assert!((found[0].rate_bit_s / 1e7 - 1.0).abs() < 0.01, "{found:?}");
        assert!((found[1].rate_bit_s / 4e7 - 1.0).abs() < 0.01, "{found:?}");
        assert_eq!((found[0].pairs, found[1].pairs), (60, 30));
        assert!(found[0].width < 0.02);
    }

    #[test]
    fn intervals_widen_with_fewer_values() {
        let values = |n: u32| (0..n).map(f64::from).collect::<Vec<_>>();
        assert_eq!(interval(&values(5)), None);
        assert_eq!(interval(&values(6)), Some((0.0, 5.0)));
        // Exact for n = 100: the 40th and the 61st; a rank wider here.
        assert_eq!(interval(&values(100)), Some((39.0, 60.0)));
        assert_eq!((median(&values(5)), median(&values(6)), median(&[])), (Some(2.0), Some(2.5), None));
    }

    proptest! {
        #[test]
        fn the_interval_encloses_the_median_and_the_histogram_is_complete(
            raw in proptest::collection::vec(1e3..1e11_f64, 1..200),
        ) {
            let mut values = raw;
            values.sort_by(f64::total_cmp);
            if let Some((low, high)) = interval(&values) {
                let m = median(&values).unwrap();
                prop_assert!(low <= m && m <= high);
            }
            let logs: Vec<f64> = values.iter().map(|v| v.ln()).collect();
            let bins = histogram(&logs);
            prop_assert_eq!(bins.iter().map(|b| b.pairs).sum::<u64>(), values.len() as u64);
            prop_assert!(bins.windows(2).all(|w| w[0].to_bit_s <= w[1].from_bit_s * 1.000_001));
            let modes = modes(&logs);
            prop_assert!(modes.iter().map(|m| m.pairs).sum::<u64>() <= values.len() as u64);
        }
    }
}
