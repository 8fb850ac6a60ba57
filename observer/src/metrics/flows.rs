//! Distributions of single flows, for a bounded number of them.
//!
//! A flow's five histograms take some 180 KB, so only [`SHOWN`] flows have
//! their own; all others share one set. Flows are taken in as they appear. At
//! each interval a busier one takes the place of the least busy: from then on
//! it has its own distributions, and what came before stays with the others.

use foldhash::HashMap;

use super::latency::Latency;
use crate::component::Component;
use crate::correlate::Stages;
use crate::report::FlowComponents;

/// Flows with distributions of their own.
pub const SHOWN: usize = 64;

/// A newcomer must be so many times as busy, so that two equals do not take
/// turns.
const BUSIER: u64 = 2;

/// Flows outside the shown ones whose datagrams are counted between two
/// intervals: as many as the kernel side follows.
const WATCHED: usize = 4_096;

/// Distributions by flow.
#[derive(Debug, Default)]
pub struct FlowMetrics {
    shown: HashMap<u64, FlowLatency>,
    others: Option<Box<FlowLatency>>,
    watched: HashMap<u64, u64>,
}

/// The distributions of one flow, or of several together.
#[derive(Clone, Debug)]
pub struct FlowLatency {
    components: [Latency; Component::COUNT],
    total: Latency,
    /// Datagrams since the last interval.
    recent: u64,
    /// The largest value of each since it was last taken, the total last.
    largest: [u64; Component::COUNT + 1],
}

impl FlowLatency {
    fn new() -> Self {
        Self {
            components: [(); Component::COUNT].map(|()| Latency::coarse()),
            total: Latency::coarse(),
            recent: 0,
            largest: [0; Component::COUNT + 1],
        }
    }

    fn record(&mut self, stages: &Stages) {
        self.recent += 1;
        for (latency, ns) in self.components.iter_mut().zip(stages.components) {
            if let Some(ns) = ns {
                latency.record(ns);
            }
        }
        if let Some(ns) = stages.total {
            self.total.record(ns);
        }
        let all = stages.components.into_iter().chain([stages.total]);
        for (largest, ns) in self.largest.iter_mut().zip(all) {
            *largest = (*largest).max(ns.unwrap_or(0));
        }
    }

    fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.components.iter_mut().zip(&other.components) {
            mine.merge(theirs);
        }
        self.total.merge(&other.total);
        for (largest, theirs) in self.largest.iter_mut().zip(other.largest) {
            *largest = (*largest).max(theirs);
        }
    }

    /// The largest values since the last call, the total's last.
    fn take_largest(&mut self) -> [u64; Component::COUNT + 1] {
        std::mem::take(&mut self.largest)
    }

    /// By [`Component`], the total last.
    pub fn distributions(&self) -> impl Iterator<Item = &Latency> {
        self.components.iter().chain([&self.total])
    }

    /// The same, to put back what a trace has.
    pub fn distributions_mut(&mut self) -> impl Iterator<Item = &mut Latency> {
        self.components.iter_mut().chain([&mut self.total])
    }

    /// As the report shows them.
    pub fn report(&self) -> FlowComponents {
        let of = |c: Component| self.components[c as usize].report();
        FlowComponents {
            sender_queue: of(Component::SenderQueue),
            shaper: of(Component::Shaper),
            wire: of(Component::Wire),
            receiver: of(Component::Receiver),
            total: self.total.report(),
        }
    }
}

impl FlowMetrics {
    /// Adds a delivered datagram of flow `id`.
    pub fn record(&mut self, id: u64, stages: &Stages) {
        if self.shown.len() < SHOWN {
            self.shown.entry(id).or_insert_with(FlowLatency::new).record(stages);
            return;
        }
        match self.shown.get_mut(&id) {
            Some(flow) => flow.record(stages),
            None => {
                self.others.get_or_insert_with(|| Box::new(FlowLatency::new())).record(stages);
                if self.watched.len() < WATCHED || self.watched.contains_key(&id) {
                    *self.watched.entry(id).or_default() += 1;
                }
            }
        }
    }

    /// At the end of an interval: lets busier flows take the place of less busy
    /// ones.
    pub fn rebalance(&mut self) {
        let mut busy: Vec<(u64, u64)> = self.watched.drain().map(|(id, n)| (n, id)).collect();
        busy.sort_unstable_by(|a, b| b.cmp(a));
        for (count, id) in busy.into_iter().take(SHOWN) {
            let Some((&idle, least)) = self.shown.iter().min_by_key(|(id, f)| (f.recent, **id)) else {
                break;
            };
            if count <= least.recent.saturating_mul(BUSIER) {
                break;
            }
            if let Some(gone) = self.shown.remove(&idle) {
                self.others.get_or_insert_with(|| Box::new(FlowLatency::new())).merge(&gone);
            }
            let newcomer = FlowLatency { recent: count, ..FlowLatency::new() };
            self.shown.insert(id, newcomer);
        }
        for flow in self.shown.values_mut() {
            flow.recent = 0;
        }
    }

    /// The flows that have their own, with them and the largest values since
    /// the last call. The others come last, without a flow.
    pub fn each(&mut self) -> impl Iterator<Item = (Option<u64>, &FlowLatency, [u64; Component::COUNT + 1])> {
        let shown = self.shown.iter_mut().map(|(id, flow)| (Some(*id), flow));
        let others = self.others.iter_mut().map(|flow| (None, flow.as_mut()));
        shown.chain(others).map(|(id, flow)| {
            let largest = flow.take_largest();
            (id, &*flow, largest)
        })
    }

    /// A flow's own distributions, made if it has none: to put back what a
    /// trace has.
    pub fn put_back(&mut self, id: u64) -> &mut FlowLatency {
        self.shown.entry(id).or_insert_with(FlowLatency::new)
    }

    /// The others' distributions, to put back what a trace has.
    pub fn put_back_others(&mut self) -> &mut FlowLatency {
        self.others.get_or_insert_with(|| Box::new(FlowLatency::new()))
    }

    /// Leaves exactly the flows `ids` with distributions of their own, as a
    /// trace says it was: those that are not among them go to the others.
    pub fn keep(&mut self, ids: &[u64]) {
        let gone: Vec<u64> = self.shown.keys().filter(|id| !ids.contains(id)).copied().collect();
        for id in gone {
            if let Some(flow) = self.shown.remove(&id) {
                self.put_back_others().merge(&flow);
            }
        }
        for id in ids {
            self.put_back(*id);
        }
    }

    /// The distributions of one flow, if it has its own.
    pub fn get(&self, id: u64) -> Option<&FlowLatency> {
        self.shown.get(&id)
    }

    /// The flows that have their own.
    pub fn shown(&self) -> impl Iterator<Item = u64> {
        self.shown.keys().copied()
    }

    /// The distributions of all others.
    pub fn others(&self) -> Option<&FlowLatency> {
        self.others.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::WaitBook;
    use crate::correlate::stages::stages;
    use crate::source::synthetic;

    #[test]
    fn a_busy_latecomer_replaces_the_least_busy_and_nothing_is_lost() {
        let s = stages(&synthetic::journey(1, 0, 0), &WaitBook::default(), false);
        let mut flows = FlowMetrics::default();
        for id in 0..SHOWN as u64 {
            for _ in 0..=id {
                flows.record(id, &s);
            }
        }
        for _ in 0..50 {
            flows.record(1_000, &s);
        }
        flows.record(2_000, &s);
        assert!(flows.get(1_000).is_none());
        flows.rebalance();
        assert!(flows.get(1_000).is_some() && flows.get(0).is_none() && flows.get(2_000).is_none());
        flows.record(1_000, &s);
        assert_eq!(flows.get(1_000).unwrap().report().total.count, 1);
        let sum: u64 = flows.shown().map(|id| flows.get(id).unwrap().total.count()).sum();
        let recorded = (1..=SHOWN as u64).sum::<u64>() + 52;
        assert_eq!(sum + flows.others().unwrap().total.count(), recorded);
        assert_eq!(flows.shown().count(), SHOWN);
    }
}
