//! Two hosts' traces as one source, on the first host's clock.

use std::collections::{BTreeMap, HashMap};

use observer_ebpf::abi::{
    FlowRecord, FlowSlot, JourneyRecord, MAX_RUNS, RecordKind, RunSlot, WaitRecord, flag,
};

use super::clock::Clock;
use super::pairs::{Found, Pairs};
use crate::component::Component;
use crate::correlate::stages::stages;
use crate::correlate::{WaitBook, stream};
use crate::source::{Batch, Progress, Source, SourceError, SourceMeta, Tables};
use crate::trace::reader::Event;
use crate::trace::{Trace, TraceError, answer};
use observer_ebpf::abi::flow_id;

/// Journeys to a batch.
const PER_POLL: usize = 1 << 13;
/// Threads of the other host get this bit, which no Linux thread id has.
const OTHERS_THREAD: u32 = 1 << 31;

/// The joined journeys.
pub(super) struct Joined<'a> {
    traces: [&'a Trace; 2],
    clock: Clock,
    pairs: Pairs<'a>,
    meta: SourceMeta,
    last: [Tables; 2],
    /// The other host's run-table places in the first one's.
    run_index: HashMap<u16, u16>,
    runs: [RunSlot; MAX_RUNS],
    /// The other kernel's numbers of drop reasons in the first one's.
    reasons: BTreeMap<u32, u32>,
    counted: HashMap<u64, FlowSlot>,
    drops: BTreeMap<(u16, u32), u64>,
    waits: Vec<WaitRecord>,
    next_wait: usize,
    begun: bool,
    at_ns: u64,
}

impl<'a> Joined<'a> {
    pub(super) fn new(first: &'a Trace, other: &'a Trace, clock: Clock) -> Result<Self, TraceError> {
        let mut meta = first.meta.source();
        meta.origin = "merge".to_owned();
        if other.meta.host != meta.host {
            meta.host = format!("{} + {}", meta.host, other.meta.host);
        }
        let mut reasons = BTreeMap::new();
        for (number, name) in &other.meta.reasons {
            let same = meta.reasons.iter().find(|(_, n)| *n == name).map(|(number, _)| *number);
            // A reason only the other kernel has keeps its number if it is free.
            let to = same.unwrap_or(*number);
            meta.reasons.entry(to).or_insert_with(|| name.clone());
            reasons.insert(*number, to);
        }
        let last = [first, other].map(|trace| {
            let number = trace.numbers().last().copied().unwrap_or(0);
            trace.tables(&trace.segment(number)?)
        });
        let [a, b] = last;
        let (a, b) = (a?, b?);
        let (runs, run_index) = runs(&a, &b);
        let mut joined = Self {
            traces: [first, other],
            clock,
            pairs: Pairs::new(first, other),
            meta,
            last: [a, b],
            run_index,
            runs,
            reasons,
            counted: HashMap::new(),
            drops: BTreeMap::new(),
            waits: Vec::new(),
            next_wait: 0,
            begun: false,
            at_ns: first.meta.start_ns,
        };
        joined.waits = joined.all_waits()?;
        Ok(joined)
    }

    /// A pass over the pairs: how many have a wire time below 0.
    pub(super) fn negative_wire(&self) -> Result<u64, TraceError> {
        let mut pairs = Pairs::new(self.traces[0], self.traces[1]);
        let (mut negative, nobody) = (0, WaitBook::default());
        while let Some(found) = pairs.next()? {
            if let Found::Pair { .. } = found {
                let record = self.journey(found);
                let s = stages(&record, &nobody, true);
                let wire = Component::Wire as usize;
                negative += u64::from(s.negative[wire] || s.out_of_order[wire]);
            }
        }
        Ok(negative)
    }

    /// The waits of both hosts' threads, in order of their ends.
    fn all_waits(&self) -> Result<Vec<WaitRecord>, TraceError> {
        let mut waits = Vec::new();
        for (trace, first) in self.traces.into_iter().zip([true, false]) {
            let mut replay = trace.replay();
            let mut batch = Batch::default();
            while let Some(event) = replay.next(&mut batch)? {
                if let Event::Before | Event::Batch = event {
                    waits.extend(batch.waits.iter().map(|w| if first { *w } else { self.wait(w) }));
                }
            }
        }
        waits.sort_by_key(|w| w.to_ns);
        Ok(waits)
    }

    fn wait(&self, w: &WaitRecord) -> WaitRecord {
        let (from_ns, to_ns) = (self.clock.to_a(w.from_ns), self.clock.to_a(w.to_ns));
        WaitRecord { tid: w.tid | OTHERS_THREAD, from_ns, to_ns: to_ns.max(from_ns), ..*w }
    }

    /// The journey in what was found, on the first host's clock.
    fn journey(&self, found: Found) -> JourneyRecord {
        match found {
            Found::Pair { sent, received, forth } => {
                let sent = if forth { sent } else { self.on_other(&sent, true) };
                let received = if forth { self.on_other(&received, false) } else { received };
                JourneyRecord {
                    kind: received.kind,
                    flags: (sent.flags | received.flags) & !flag::RX_ONLY,
                    rx_ns: received.rx_ns,
                    sock_enqueue_ns: received.sock_enqueue_ns,
                    app_dequeue_ns: received.app_dequeue_ns,
                    drop_ns: received.drop_ns,
                    drop_reason: received.drop_reason,
                    rx_tid: received.rx_tid,
                    ..sent
                }
            }
            Found::Sent { sent, forth: true } => sent,
            Found::Sent { sent, .. } => self.on_other(&sent, true),
            Found::Received { received, forth: true } => self.on_other(&received, false),
            Found::Received { received, .. } => received,
            Found::Local { record, first: true } => record,
            Found::Local { record, .. } => self.on_other(&record, true),
        }
    }

    /// A record of the other host. With `offer`, its sender is there too, and
    /// offer and intended time are on that clock.
    fn on_other(&self, r: &JourneyRecord, offer: bool) -> JourneyRecord {
        let to_a = |ns| self.clock.to_a(ns);
        let stamp = |ns: i64| match u64::try_from(ns) {
            Ok(ns) if offer => to_a(ns).cast_signed(),
            _ => ns,
        };
        let thread = |tid: u32| if tid == 0 { 0 } else { tid | OTHERS_THREAD };
        JourneyRecord {
            intended_ns: stamp(r.intended_ns),
            offer_ns: stamp(r.offer_ns),
            syscall_ns: to_a(r.syscall_ns),
            dev_queue_ns: to_a(r.dev_queue_ns),
            dequeue_ns: to_a(r.dequeue_ns),
            xmit_ns: to_a(r.xmit_ns),
            rx_ns: to_a(r.rx_ns),
            sock_enqueue_ns: to_a(r.sock_enqueue_ns),
            app_dequeue_ns: to_a(r.app_dequeue_ns),
            drop_ns: to_a(r.drop_ns),
            hop_start_ns: to_a(r.hop_start_ns),
            tx_tid: thread(r.tx_tid),
            rx_tid: thread(r.rx_tid),
            run_index: self.run_index.get(&r.run_index).copied().unwrap_or(r.run_index),
            drop_reason: self.reasons.get(&r.drop_reason).copied().unwrap_or(r.drop_reason),
            ..*r
        }
    }

    fn count(&mut self, r: &JourneyRecord) {
        let id = flow_id(r.run, stream(r));
        let slot = self.counted.entry(id).or_insert(FlowSlot { id, admitted: 1, ..FlowSlot::default() });
        if r.dev_queue_ns != 0 {
            slot.tx_socket = 1;
            slot.sent += 1;
            slot.offered += 1;
        }
        match RecordKind::from_u8(r.kind) {
            Some(RecordKind::Delivered) => slot.delivered += 1,
            Some(RecordKind::Dropped) => {
                slot.dropped += 1;
                *self.drops.entry((r.run_index, r.drop_reason)).or_default() += 1;
            }
            _ => slot.evicted += 1,
        }
    }

    /// The last tables of both hosts together.
    fn both(&self) -> Tables {
        let [a, b] = &self.last;
        let mut tables = Tables::empty(a.at_ns.max(self.clock.to_a(b.at_ns)));
        let mut flows: BTreeMap<u64, FlowSlot> = BTreeMap::new();
        for slot in a.flows.iter().chain(&b.flows).filter(|s| s.admitted != 0) {
            let sum =
                flows.entry(slot.id).or_insert(FlowSlot { id: slot.id, admitted: 1, ..FlowSlot::default() });
            sum.tx_socket |= slot.tx_socket;
            sum.rx_socket |= slot.rx_socket;
            sum.tx_tgid = sum.tx_tgid.max(slot.tx_tgid);
            // Both ends number the same datagrams.
            sum.offered = sum.offered.max(slot.offered);
            sum.sent += slot.sent;
            sum.dev_queued += slot.dev_queued;
            sum.delivered += slot.delivered;
            sum.duplicated += slot.duplicated;
            sum.dropped += slot.dropped;
            sum.unclaimed += slot.unclaimed;
            sum.ring_lost += slot.ring_lost;
            sum.send_errors += slot.send_errors;
            sum.delivered_bytes += slot.delivered_bytes;
        }
        tables.flows = flows.into_values().collect();
        tables.runs = self.runs;
        for ((to, x), y) in tables.counters.iter_mut().zip(a.counters).zip(b.counters) {
            *to = x.saturating_add(y);
        }
        let mut drops: BTreeMap<(u16, u32), u64> = BTreeMap::new();
        for (run, reason, n) in &a.drops {
            *drops.entry((*run, *reason)).or_default() += n;
        }
        for (run, reason, n) in &b.drops {
            let run = self.run_index.get(run).copied().unwrap_or(*run);
            let reason = self.reasons.get(reason).copied().unwrap_or(*reason);
            *drops.entry((run, reason)).or_default() += n;
        }
        tables.drops = drops.into_iter().map(|((run, reason), n)| (run, reason, n)).collect();
        tables.missed = a.missed.saturating_add(b.missed);
        tables.programs.clone_from(&a.programs);
        // The busier and the more often interrupted of the two.
        tables.host = a.host;
        let more = |x: Option<f64>, y: Option<f64>| x.into_iter().chain(y).reduce(f64::max);
        tables.host.steal_ratio = more(a.host.steal_ratio, b.host.steal_ratio);
        tables.host.busy_ratio = more(a.host.busy_ratio, b.host.busy_ratio);
        tables.host.stolen_ns = a.host.stolen_ns.max(b.host.stolen_ns);
        tables
    }

    fn flows(&self) -> Result<Vec<FlowRecord>, TraceError> {
        let mut flows = Vec::new();
        for trace in self.traces {
            for number in trace.numbers() {
                let segment = trace.segment(*number)?;
                flows.extend(answer::flows_of(&segment, flows.is_empty()).flows);
            }
        }
        Ok(flows)
    }
}

/// The runs of both hosts in one table, and where the other's are in it.
fn runs(a: &Tables, b: &Tables) -> ([RunSlot; MAX_RUNS], HashMap<u16, u16>) {
    let mut runs = a.runs;
    let mut index = HashMap::new();
    for (i, run) in b.runs.iter().enumerate().filter(|(_, run)| run.id != 0) {
        let at = runs.iter().position(|r| r.id == run.id).or_else(|| runs.iter().position(|r| r.id == 0));
        let Some(at) = at else { continue };
        if let Some(slot) = runs.get_mut(at).filter(|slot| slot.id == 0) {
            *slot = *run;
        }
        if let (Ok(from), Ok(to)) = (u16::try_from(i), u16::try_from(at)) {
            index.insert(from, to);
        }
    }
    (runs, index)
}

fn broken(e: TraceError) -> SourceError {
    match e {
        TraceError::Damaged { path, why } => SourceError::Trace { path: path.display().to_string(), why },
        other => SourceError::Trace { path: "to be merged".to_owned(), why: other.to_string() },
    }
}

impl Source for Joined<'_> {
    fn poll(&mut self, batch: &mut Batch) -> Result<Progress, SourceError> {
        if !self.begun {
            self.begun = true;
            batch.flows = self.flows().map_err(broken)?;
        }
        let mut progress = Progress::End;
        while let Some(found) = self.pairs.next().map_err(broken)? {
            let record = self.journey(found);
            self.count(&record);
            self.at_ns = self.at_ns.max(record.app_dequeue_ns).max(record.drop_ns).max(record.xmit_ns);
            batch.journeys.push(record);
            if batch.journeys.len() >= PER_POLL {
                progress = Progress::More;
                break;
            }
        }
        let to = match progress {
            Progress::End => self.waits.len(),
            // A wait that bears on a journey ended before it did.
            _ => self.waits.partition_point(|w| w.to_ns <= self.at_ns),
        };
        if let Some(waits) = self.waits.get(self.next_wait..to) {
            batch.waits.extend_from_slice(waits);
            self.next_wait = to;
        }
        Ok(progress)
    }

    fn tables(&mut self, last: bool) -> Result<Tables, SourceError> {
        if last {
            return Ok(self.both());
        }
        let mut tables = Tables::empty(self.at_ns);
        tables.flows = self.counted.values().copied().collect();
        tables.runs = self.runs;
        tables.drops = self.drops.iter().map(|((run, reason), n)| (*run, *reason, *n)).collect();
        Ok(tables)
    }

    fn meta(&self) -> &SourceMeta {
        &self.meta
    }
}
