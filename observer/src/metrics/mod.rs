//! Journeys → distributions, tail sums and counts of what was odd.
//!
//! An interval is recorded once; at its end it is merged into the whole. All
//! of it is bounded, whatever the length of a run.

pub mod counts;
pub mod flows;
pub mod latency;
pub mod slowest;
pub mod stalls;
pub mod tail;

pub use flows::FlowMetrics;
pub use latency::{Latency, Quantile};
pub use slowest::{SLOWEST, Slowest};
pub use stalls::{Stalled, Stalls};
pub use tail::TailSums;

use crate::component::{Component, Part};
use crate::correlate::{Journey, Outcome, Stages};
use crate::report::SlowestHop;

/// Components and, last, the total.
const WITH_TOTAL: usize = Component::COUNT + 1;

/// Everything measured over a span of time.
#[derive(Clone, Debug)]
pub struct Window {
    /// By [`Component`].
    pub components: [Latency; Component::COUNT],
    /// By [`Part`].
    pub parts: [Latency; Part::COUNT],
    /// app_dequeue − offer.
    pub total: Latency,
    /// The total of the complete journeys alone.
    pub complete: Latency,
    /// What their tail is made of.
    pub tail: TailSums,
    /// When any of them was under way.
    pub stalls: Stalls,
    /// Delivered journeys for which a component is not known; the total last.
    pub partial: [u64; WITH_TOTAL],
    /// Delivered journeys for which any of these is not known.
    pub partial_journeys: u64,
    /// Differences taken as 0; the total last.
    pub negatives: [u64; WITH_TOTAL],
    /// Differences that are errors; the total last.
    pub out_of_order: [u64; WITH_TOTAL],
    /// Errors inside a component, between its parts.
    pub parts_out_of_order: [u64; Component::COUNT],
    /// Records of delivered datagrams.
    pub delivered: u64,
    /// Records of dropped datagrams.
    pub dropped: u64,
    /// Records of datagrams the observer gave up on.
    pub unresolved: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            components: [(); Component::COUNT].map(|()| Latency::fine()),
            parts: [(); Part::COUNT].map(|()| Latency::fine()),
            total: Latency::fine(),
            complete: Latency::fine(),
            tail: TailSums::default(),
            stalls: Stalls::default(),
            partial: [0; WITH_TOTAL],
            partial_journeys: 0,
            negatives: [0; WITH_TOTAL],
            out_of_order: [0; WITH_TOTAL],
            parts_out_of_order: [0; Component::COUNT],
            delivered: 0,
            dropped: 0,
            unresolved: 0,
        }
    }
}

impl Window {
    /// Adds a journey. Distributions are of delivered datagrams: one that was
    /// dropped has no total, and its stages belong to another population.
    pub fn record(&mut self, journey: &Journey) {
        match journey.outcome {
            Outcome::Delivered => self.record_delivered(journey),
            Outcome::Dropped => self.dropped += 1,
            Outcome::Unresolved => self.unresolved += 1,
        }
    }

    fn record_delivered(&mut self, journey: &Journey) {
        let s = &journey.stages;
        self.delivered += 1;
        for (latency, ns) in self.components.iter_mut().zip(s.components) {
            if let Some(ns) = ns {
                latency.record(ns);
            }
        }
        for (latency, ns) in self.parts.iter_mut().zip(s.parts) {
            if let Some(ns) = ns {
                latency.record(ns);
            }
        }
        if let Some(ns) = s.total {
            self.total.record(ns);
            if s.is_complete() {
                self.complete.record(ns);
                self.tail.record(s, hop(journey));
                self.stalls.record(journey.record.app_dequeue_ns, ns);
            }
        }
        self.count_odd(s);
    }

    fn count_odd(&mut self, s: &Stages) {
        if !s.is_complete() {
            self.partial_journeys += 1;
            let known = s.components.iter().chain([&s.total]);
            for (partial, ns) in self.partial.iter_mut().zip(known) {
                *partial += u64::from(ns.is_none());
            }
        }
        for (negatives, negative) in self.negatives.iter_mut().zip(s.negative) {
            *negatives += u64::from(negative);
        }
        for (errors, error) in self.out_of_order.iter_mut().zip(s.out_of_order) {
            *errors += u64::from(error);
        }
        for (errors, error) in self.parts_out_of_order.iter_mut().zip(s.parts_out_of_order) {
            *errors += u64::from(error);
        }
    }

    /// Adds everything in `other`.
    pub fn merge(&mut self, other: &Self) {
        let mine = self.components.iter_mut().chain(&mut self.parts);
        for (mine, theirs) in mine.zip(other.components.iter().chain(&other.parts)) {
            mine.merge(theirs);
        }
        self.total.merge(&other.total);
        self.complete.merge(&other.complete);
        self.tail.merge(&other.tail);
        self.stalls.merge(&other.stalls);
        add(&mut self.partial, &other.partial);
        add(&mut self.negatives, &other.negatives);
        add(&mut self.out_of_order, &other.out_of_order);
        add(&mut self.parts_out_of_order, &other.parts_out_of_order);
        self.partial_journeys += other.partial_journeys;
        self.delivered += other.delivered;
        self.dropped += other.dropped;
        self.unresolved += other.unresolved;
    }

    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        for latency in self.components.iter_mut().chain(&mut self.parts) {
            latency.clear();
        }
        self.total.clear();
        self.complete.clear();
        self.tail.clear();
        self.stalls.clear();
        (self.partial, self.negatives, self.out_of_order) = Default::default();
        self.parts_out_of_order = Default::default();
        (self.partial_journeys, self.delivered, self.dropped, self.unresolved) = Default::default();
    }
}

fn add(to: &mut [u64], from: &[u64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += from;
    }
}

/// The slowest hop of a journey.
fn hop(journey: &Journey) -> Option<SlowestHop> {
    let span_ns = journey.stages.part(Part::SlowestHop)?;
    let qdisc_ns = journey.stages.part(Part::SlowestQdisc);
    Some(SlowestHop { ifindex: journey.record.slowest_ifindex, span_ns, qdisc_ns })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::Correlator;
    use crate::source::synthetic;
    use observer_ebpf::abi::JourneyRecord;

    #[test]
    fn each_journey_counts_where_it_is_known() {
        let mut window = Window::default();
        let mut correlator = Correlator::default();
        let r = synthetic::journey(1, 0, 0);
        let records = [
            r,
            JourneyRecord { rx_ns: 0, ..r },
            JourneyRecord { rx_ns: r.xmit_ns - 500, ..r },
            JourneyRecord { rx_ns: r.xmit_ns - 5_000, sock_enqueue_ns: 0, ..r },
            JourneyRecord { kind: 2, ..r },
            JourneyRecord { kind: 3, ..r },
        ];
        for record in &records {
            window.record(&correlator.journey(record));
        }
        let counts = window.components.each_ref().map(Latency::count);
        assert_eq!(counts, [4, 4, 2, 3]);
        assert_eq!(window.partial, [0, 0, 2, 1, 0]);
        assert_eq!(window.partial_journeys, 2);
        assert_eq!((window.negatives[2], window.out_of_order[2]), (1, 1));
        assert_eq!((window.total.count(), window.complete.count(), window.tail.count()), (4, 2, 2));
        assert_eq!((window.delivered, window.dropped, window.unresolved), (4, 1, 1));

        let mut twice = window.clone();
        twice.merge(&window);
        assert_eq!(twice.partial, [0, 0, 4, 2, 0]);
        assert_eq!(twice.total.count(), 8);
        twice.clear();
        assert_eq!(
            (twice.total.count(), twice.tail.count(), twice.delivered, twice.partial[2]),
            (0, 0, 0, 0)
        );
    }
}
