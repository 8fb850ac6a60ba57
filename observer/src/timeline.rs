//! The last minutes, one [`Moment`] per interval: what a time line needs and
//! no more.
//!
//! In: each interval's report and the histogram of its totals. Out: a bounded
//! list of moments, shared with every snapshot. Nothing here grows with the
//! length of a run: after [`KEPT`] intervals the oldest moment makes room.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::component::Component;
use crate::metrics::Latency;
use crate::report::{Culprit, Report};

/// Moments kept: a quarter of an hour at one interval a second.
pub const KEPT: usize = 900;

/// Rows of the heat map: a decade has [`ROWS_PER_DECADE`], from 1 µs up.
pub const HEAT_ROWS: usize = 28;
/// Rows to a decade of the heat map: each is 1.78 times the one below.
pub const ROWS_PER_DECADE: usize = 4;
/// Lower border of the heat map's second row, ns; the first has all below.
const HEAT_FROM_NS: f64 = 1_000.0;

/// Index of the total behind the four components.
pub const TOTAL: usize = Component::COUNT;

/// A distribution's landmarks over one interval, ns; one for which there were
/// too few datagrams is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// Median.
    pub p50: Option<u64>,
    /// 0.99 quantile.
    pub p99: Option<u64>,
    /// 0.999 quantile.
    pub p99_9: Option<u64>,
    /// Largest.
    pub max: Option<u64>,
}

/// One interval, reduced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Number of the snapshot it came with.
    pub number: u64,
    /// Start, CLOCK_MONOTONIC ns.
    pub from_ns: u64,
    /// End, CLOCK_MONOTONIC ns.
    pub to_ns: u64,
    /// Datagrams sent; `None` if no sender is on the host.
    pub sent: Option<u64>,
    /// Datagrams delivered.
    pub delivered: u64,
    /// Datagrams dropped, by the kernel's name of the reason; one that did not
    /// occur is absent.
    pub dropped: BTreeMap<String, u64>,
    /// Events the observer lost.
    pub lost: u64,
    /// By component, the total last.
    pub marks: [Marks; Component::COUNT + 1],
    /// Totals by size, log-spaced: see [`heat_row_from_ns`].
    pub heat: Vec<u32>,
    /// Who the interval's tail is made of.
    pub culprit: Option<Culprit>,
    /// Time its tail lost against the median: datagrams × mean excess, ns. The
    /// weight of `culprit`.
    pub excess_ns: u64,
}

impl Moment {
    /// The moment that `interval` describes.
    pub fn of(number: u64, interval: &Report, totals: &Latency) -> Self {
        let c = &interval.components;
        let of = |d: &crate::report::Distribution| Marks {
            p50: d.p50_ns,
            p99: d.p99_ns,
            p99_9: d.p99_9_ns,
            max: d.max_ns,
        };
        let all = [&c.sender_queue, &c.shaper, &c.wire, &c.receiver, &c.total];
        Self {
            number,
            from_ns: interval.from_ns,
            to_ns: interval.to_ns,
            sent: interval.counts.sent,
            delivered: interval.counts.delivered,
            dropped: interval.counts.dropped.clone(),
            lost: interval.counts.lost_total(),
            marks: all.map(|c| of(&c.distribution)),
            heat: heat(totals),
            culprit: interval.culprit.clone(),
            excess_ns: interval
                .tail
                .last()
                .map_or(0, |t| u64::try_from(t.excess_ns).unwrap_or(0).saturating_mul(t.count)),
        }
    }
}

/// Lower border of a row of the heat map, ns; 0 for the first.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rows are few, and a border is a positive number of ns below 2^53"
)]
pub fn heat_row_from_ns(row: usize) -> u64 {
    if row == 0 {
        return 0;
    }
    (HEAT_FROM_NS * 10_f64.powf((row - 1) as f64 / ROWS_PER_DECADE as f64)).round() as u64
}

/// Row of the heat map that holds `ns`.
pub fn heat_row(ns: u64) -> usize {
    (1..HEAT_ROWS).rev().find(|row| ns >= heat_row_from_ns(*row)).unwrap_or(0)
}

fn heat(totals: &Latency) -> Vec<u32> {
    if totals.count() == 0 {
        return Vec::new();
    }
    let borders: Vec<u64> = (1..HEAT_ROWS).map(heat_row_from_ns).collect();
    let mut rows = vec![0_u32; HEAT_ROWS];
    totals.for_each(|ns, count| {
        let row = borders.partition_point(|border| *border <= ns);
        if let Some(cell) = rows.get_mut(row) {
            *cell = cell.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        }
    });
    rows
}

/// A bounded list of moments, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    moments: VecDeque<Arc<Moment>>,
}

impl Timeline {
    /// Adds a moment; one that is not newer than the last is left out.
    pub fn push(&mut self, moment: Arc<Moment>) {
        if self.moments.back().is_some_and(|last| last.number >= moment.number) {
            return;
        }
        if self.moments.len() >= KEPT {
            self.moments.pop_front();
        }
        self.moments.push_back(moment);
    }

    /// All of them, to be shared: costs a pointer each.
    pub fn list(&self) -> Arc<[Arc<Moment>]> {
        self.moments.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_are_a_quarter_of_a_decade_and_cover_everything() {
        assert_eq!([0, 999, 1_000, 1_777, 1_778].map(heat_row), [0, 0, 1, 1, 2]);
        assert_eq!(heat_row(1_000_000), 1 + 3 * ROWS_PER_DECADE);
        assert_eq!(heat_row(u64::MAX), HEAT_ROWS - 1);
        assert_eq!(heat_row_from_ns(5), 10_000);
    }

    #[test]
    fn every_value_is_in_one_cell() {
        let mut totals = Latency::fine();
        (0..5_000_u64).for_each(|n| totals.record(n * n));
        let rows = heat(&totals);
        assert_eq!(rows.iter().sum::<u32>(), 5_000);
        assert_eq!(rows[0], 32, "squares below 1 µs");
        assert!(heat(&Latency::fine()).is_empty());
    }

    fn moment(number: u64) -> Arc<Moment> {
        Arc::new(Moment {
            number,
            from_ns: number,
            to_ns: number + 1,
            sent: None,
            delivered: 0,
            dropped: BTreeMap::new(),
            lost: 0,
            marks: [Marks::default(); 5],
            heat: Vec::new(),
            culprit: None,
            excess_ns: 0,
        })
    }

    proptest! {
        #[test]
        fn it_is_bounded_and_in_order_whatever_comes(numbers in proptest::collection::vec(0_u64..3_000, 0..2_500)) {
            let mut timeline = Timeline::default();
            numbers.iter().for_each(|n| timeline.push(moment(*n)));
            let list = timeline.list();
            prop_assert!(list.len() <= KEPT);
            prop_assert!(list.windows(2).all(|w| w[0].number < w[1].number));
        }
    }
}
