//! The kernel side's tables → counts and their balance.
//!
//! The flow table is the authority: it is counted without loss, whatever the
//! rings lost. Every datagram sent is delivered, dropped, in flight or
//! unobserved; should the counts contradict each other, the rest is shown as
//! `unaccounted` and never made to fit.

use std::collections::{BTreeMap, HashMap};

use observer_ebpf::abi::{Counter, Detail, FlowSlot, JourneyRecord, flow_id, run_origin};

use crate::correlate::flows::run_and_stream;
use crate::correlate::stream;
use crate::report::{Balance, Counts, RunCounts};
use crate::source::{SourceMeta, Tables};

/// An unfinished journey that is in no queue is given up after this: longer
/// than any softirq, short against a human's patience.
pub const GIVEN_UP_NS: u64 = 1_000_000_000;

/// Records seen so far, to be held against the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordsSeen {
    /// Of delivered datagrams.
    pub delivered: u64,
    /// Of dropped datagrams.
    pub dropped: u64,
    /// That could not be understood.
    pub malformed: u64,
}

/// All counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Over all runs.
    pub counts: Counts,
    /// By run.
    pub by_run: Vec<RunCounts>,
    /// By flow, busiest first.
    pub flows: Vec<(u64, Balance)>,
    /// Drops counted by reason less drops counted by flow; 0 in a sound run.
    pub reasons_surplus: i64,
    /// Records beyond what the flow table counted; 0 in a sound run.
    pub records_surplus: u64,
}

impl Totals {
    /// Counts everything in `tables`. With `last`, the tables have been swept
    /// and everything in them is at rest.
    pub fn of(tables: &Tables, meta: &SourceMeta, seen: RecordsSeen, last: bool) -> Self {
        let on_the_way = last.then(|| in_flight(&tables.unfinished, tables.at_ns));
        let mut totals = Self::default();
        let mut runs: BTreeMap<u32, Balance> = BTreeMap::new();
        let mut unclaimed = 0_u64;
        for slot in tables.flows.iter().filter(|slot| slot.id != 0 && slot.admitted != 0) {
            let balance = balance(slot, on_the_way.as_ref());
            runs.entry(run_and_stream(slot.id).0).or_default().add(&balance);
            totals.counts.send_errors = totals.counts.send_errors.saturating_add(slot.send_errors);
            totals.counts.delivered_bytes =
                totals.counts.delivered_bytes.saturating_add(slot.delivered_bytes);
            unclaimed = unclaimed.saturating_add(slot.unclaimed);
            totals.flows.push((slot.id, balance));
        }
        totals.flows.sort_by_key(|(id, b)| (std::cmp::Reverse(b.sent.unwrap_or(b.delivered)), *id));

        let mut all = Balance::default();
        runs.values().for_each(|run| all.add(run));
        totals.take_balance(&all);
        totals.take_drops(tables, meta, &all);
        totals.take_runs(tables, meta, runs);
        totals.take_events(tables, unclaimed, seen);
        if last && meta.detail == Detail::Full {
            totals.hold_records_against(&all, seen);
        }
        totals
    }

    fn take_balance(&mut self, all: &Balance) {
        let c = &mut self.counts;
        (c.offered, c.sent, c.received_only) = (all.offered, all.sent, all.received_only);
        (c.delivered, c.in_flight, c.unobserved) = (all.delivered, all.in_flight, all.unobserved);
        (c.unaccounted, c.duplicated) = (all.unaccounted, all.duplicated);
    }

    fn take_drops(&mut self, tables: &Tables, meta: &SourceMeta, all: &Balance) {
        let mut by_reason = 0_u64;
        for &(_, reason, n) in tables.drops.iter().filter(|(_, _, n)| *n > 0) {
            add(&mut self.counts.dropped, meta.reason(reason), n);
            by_reason = by_reason.saturating_add(n);
        }
        // The balance stands on the flow table. A drop without a reason is
        // still a drop; a reason too many is reported, not believed.
        if let Some(without @ 1..) = all.dropped.checked_sub(by_reason) {
            add(&mut self.counts.dropped, UNATTRIBUTED.to_owned(), without);
        }
        self.reasons_surplus = clamp(i128::from(by_reason) - i128::from(all.dropped));
        if self.reasons_surplus > 0 {
            self.counts.unaccounted = self.counts.unaccounted.saturating_sub(self.reasons_surplus);
        }
    }

    fn take_runs(&mut self, tables: &Tables, meta: &SourceMeta, runs: BTreeMap<u32, Balance>) {
        for (run, balance) in runs {
            let slot = tables.runs.iter().enumerate().find(|(_, slot)| slot.id == u64::from(run));
            let mut drop_reasons = BTreeMap::new();
            for &(index, reason, n) in tables.drops.iter().filter(|(_, _, n)| *n > 0) {
                if slot.is_some_and(|(i, _)| i == usize::from(index)) {
                    add(&mut drop_reasons, meta.reason(reason), n);
                }
            }
            self.by_run.push(RunCounts {
                run,
                origin: origin(slot.map_or(run_origin::FREE, |(_, slot)| slot.origin)).to_owned(),
                pid: slot.map(|(_, slot)| slot.tgid).filter(|pid| *pid != 0),
                balance,
                drop_reasons,
            });
        }
    }

    fn take_events(&mut self, tables: &Tables, unclaimed: u64, seen: RecordsSeen) {
        let c = &mut self.counts;
        c.foreign_sent = tables.counter(Counter::ForeignSent);
        c.foreign_received = tables.counter(Counter::ForeignReceived);
        c.foreign = c.foreign_sent.saturating_add(c.foreign_received);
        c.unstamped_sent = tables.counter(Counter::UnstampedSent);
        c.unstamped_received = tables.counter(Counter::UnstampedReceived);
        for counter in Counter::ALL {
            let n = tables.counter(counter);
            match kind(counter) {
                Event::Lost(name) if n > 0 => add(&mut c.lost_events, name.to_owned(), n),
                Event::Other(name) if n > 0 => add(&mut c.other_events, name.to_owned(), n),
                _ => {}
            }
        }
        // A busy slot is one of the reasons why a datagram got none.
        let unclaimed = unclaimed.saturating_sub(tables.counter(Counter::SlotBusy));
        for (name, n) in
            [("unclaimed", unclaimed), ("recursion_missed", tables.missed), ("malformed", seen.malformed)]
        {
            if n > 0 {
                add(&mut c.lost_events, name.to_owned(), n);
            }
        }
    }

    /// Each datagram with an outcome has a record, unless the ring was full.
    fn hold_records_against(&mut self, all: &Balance, seen: RecordsSeen) {
        let counted = all.delivered.saturating_add(all.dropped);
        let records = seen.delivered.saturating_add(seen.dropped);
        self.records_surplus = records.saturating_sub(counted);
        let full = self.counts.lost_events.get("ring_full").copied().unwrap_or(0);
        let missing = counted.saturating_sub(records).saturating_sub(full);
        if missing > 0 {
            add(&mut self.counts.lost_events, RECORDS_MISSING.to_owned(), missing);
        }
    }
}

/// Name of the drops that no reason was counted for.
pub const UNATTRIBUTED: &str = "UNATTRIBUTED";

/// Cause of the records that should be there and are not.
pub const RECORDS_MISSING: &str = "records_missing";

/// What a counter of the kernel side stands for.
enum Event {
    /// An event the observer should have followed.
    Lost(&'static str),
    /// An event rightly set aside.
    Other(&'static str),
    /// Shown under a name of its own.
    Own,
}

fn kind(counter: Counter) -> Event {
    match counter {
        Counter::RunTableFull => Event::Lost("run_table_full"),
        Counter::FlowTableFull => Event::Lost("flow_table_full"),
        Counter::SlotBusy => Event::Lost("slot_busy"),
        Counter::RingFull => Event::Lost("ring_full"),
        Counter::ControlRingFull => Event::Lost("control_ring_full"),
        Counter::Paged => Event::Lost("paged"),
        Counter::KernelReadFailed => Event::Lost("kernel_read_failed"),
        Counter::UserReadFailed => Event::Lost("user_read_failed"),
        Counter::NoUserBuffer => Event::Lost("no_user_buffer"),
        Counter::ShortRead => Event::Lost("short_read"),
        Counter::ThreadConflict => Event::Lost("thread_conflict"),
        Counter::Implausible => Event::Other("implausible"),
        Counter::CloneDropped => Event::Other("clone_dropped"),
        Counter::LatePoint => Event::Other("late_point"),
        Counter::UnmatchedReceive => Event::Other("unmatched_receive"),
        Counter::UnstampedSent
        | Counter::UnstampedReceived
        | Counter::ForeignSent
        | Counter::ForeignReceived => Event::Own,
    }
}

fn origin(number: u32) -> &'static str {
    match number {
        run_origin::NAMED => "named",
        run_origin::SENT => "sent",
        run_origin::RECEIVED => "received",
        _ => "unknown",
    }
}

/// The balance of one flow. `on_the_way` is known once everything is swept.
fn balance(slot: &FlowSlot, on_the_way: Option<&HashMap<u64, u64>>) -> Balance {
    let mut b = Balance {
        offered: slot.offered,
        delivered: slot.delivered,
        dropped: slot.dropped,
        duplicated: slot.duplicated,
        ..Balance::default()
    };
    let ended = i128::from(slot.delivered) + i128::from(slot.dropped);
    if slot.tx_socket == 0 && slot.tx_tgid == 0 && slot.sent == 0 {
        b.received_only = slot.delivered.saturating_add(slot.dropped);
        return b;
    }
    b.sent = Some(slot.sent);
    let open = i128::from(slot.sent) - ended;
    let open_here = u64::try_from(open).unwrap_or(0);
    match on_the_way {
        Some(on_the_way) => {
            b.in_flight = on_the_way.get(&slot.id).copied().unwrap_or(0);
            b.unobserved = open_here.saturating_sub(b.in_flight);
        }
        None => {
            b.unobserved = slot.evicted.min(open_here);
            b.in_flight = open_here - b.unobserved;
        }
    }
    b.unaccounted = clamp(open - i128::from(b.in_flight) - i128::from(b.unobserved));
    b
}

/// Unfinished journeys that are still on their way, by flow.
fn in_flight(unfinished: &[JourneyRecord], now_ns: u64) -> HashMap<u64, u64> {
    let mut by_flow = HashMap::new();
    for journey in unfinished.iter().filter(|j| is_in_flight(j, now_ns)) {
        *by_flow.entry(flow_id(journey.run, stream(journey))).or_default() += 1;
    }
    by_flow
}

/// Whether a journey without an outcome may still get one: it is in a qdisc
/// (a hop is open and nothing was seen after it), in a socket queue, or its
/// last point is recent.
fn is_in_flight(j: &JourneyRecord, now_ns: u64) -> bool {
    let last = j.dev_queue_ns.max(j.dequeue_ns).max(j.xmit_ns).max(j.rx_ns).max(j.sock_enqueue_ns);
    let in_qdisc = j.hop_start_ns != 0 && j.rx_ns <= j.hop_start_ns && j.sock_enqueue_ns == 0;
    let in_socket = j.sock_enqueue_ns != 0;
    in_qdisc || in_socket || last.max(j.hop_start_ns).saturating_add(GIVEN_UP_NS) > now_ns
}

impl Balance {
    /// Adds another run's or flow's balance.
    pub fn add(&mut self, other: &Self) {
        self.offered = self.offered.saturating_add(other.offered);
        self.sent = match (self.sent, other.sent) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        self.received_only = self.received_only.saturating_add(other.received_only);
        self.delivered = self.delivered.saturating_add(other.delivered);
        self.dropped = self.dropped.saturating_add(other.dropped);
        self.in_flight = self.in_flight.saturating_add(other.in_flight);
        self.unobserved = self.unobserved.saturating_add(other.unobserved);
        self.unaccounted = self.unaccounted.saturating_add(other.unaccounted);
        self.duplicated = self.duplicated.saturating_add(other.duplicated);
    }
}

/// What happened between two readings of the tables. `complete` and `partial`
/// are left to the caller, who has the interval's own.
pub fn since(now: &Counts, before: &Counts) -> Counts {
    let mut c = now.clone();
    c.offered = now.offered.saturating_sub(before.offered);
    c.sent = now.sent.map(|sent| sent.saturating_sub(before.sent.unwrap_or(0)));
    c.received_only = now.received_only.saturating_sub(before.received_only);
    c.delivered = now.delivered.saturating_sub(before.delivered);
    c.dropped = less(&now.dropped, &before.dropped);
    c.in_flight_before = before.in_flight;
    c.unobserved = now.unobserved.saturating_sub(before.unobserved);
    c.duplicated = now.duplicated.saturating_sub(before.duplicated);
    c.foreign = now.foreign.saturating_sub(before.foreign);
    c.foreign_sent = now.foreign_sent.saturating_sub(before.foreign_sent);
    c.foreign_received = now.foreign_received.saturating_sub(before.foreign_received);
    c.unstamped_sent = now.unstamped_sent.saturating_sub(before.unstamped_sent);
    c.unstamped_received = now.unstamped_received.saturating_sub(before.unstamped_received);
    c.send_errors = now.send_errors.saturating_sub(before.send_errors);
    c.delivered_bytes = now.delivered_bytes.saturating_sub(before.delivered_bytes);
    c.lost_events = less(&now.lost_events, &before.lost_events);
    c.other_events = less(&now.other_events, &before.other_events);
    // What was unaccounted may have been found since, and the other way round:
    // the interval's own is what closes its balance.
    let came = sum(&[c.in_flight_before, c.sent.unwrap_or(0), c.received_only]);
    let went = sum(&[c.delivered, c.dropped_total(), c.in_flight, c.unobserved]);
    c.unaccounted = clamp(came - went);
    c
}

fn sum(counts: &[u64]) -> i128 {
    counts.iter().map(|n| i128::from(*n)).sum()
}

fn less(now: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    now.iter()
        .map(|(name, n)| (name.clone(), n.saturating_sub(before.get(name).copied().unwrap_or(0))))
        .filter(|(_, n)| *n > 0)
        .collect()
}

fn add(to: &mut BTreeMap<String, u64>, name: String, n: u64) {
    let sum = to.entry(name).or_default();
    *sum = sum.saturating_add(n);
}

fn clamp(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::synthetic::{self, START_NS, journey};
    use proptest::prelude::*;

    const LATER: u64 = START_NS + 10 * GIVEN_UP_NS;

    fn slot(stream: u16, sent: u64, delivered: u64, dropped: u64) -> FlowSlot {
        let id = flow_id(7, stream);
        FlowSlot {
            id,
            tx_socket: 1,
            admitted: 1,
            offered: sent,
            sent,
            delivered,
            dropped,
            ..Default::default()
        }
    }

    fn tables(flows: Vec<FlowSlot>) -> Tables {
        let mut tables = Tables { flows, ..Tables::empty(LATER) };
        tables.runs[2].id = 7;
        tables.runs[2].origin = run_origin::SENT;
        tables
    }

    fn totals(tables: &Tables, last: bool) -> Totals {
        Totals::of(tables, &synthetic::meta(), RecordsSeen::default(), last)
    }

    fn balanced(c: &Counts) -> bool {
        let came = sum(&[c.in_flight_before, c.sent.unwrap_or(0), c.received_only]);
        let went = sum(&[c.delivered, c.dropped_total(), c.in_flight, c.unobserved]);
        came == went + i128::from(c.unaccounted)
    }

    #[test]
    fn unfinished_journeys_are_in_flight_in_a_queue_and_unobserved_elsewhere() {
        let base = JourneyRecord { run: 7, app_dequeue_ns: 0, ..journey(7, 0, 0) };
        let in_qdisc =
            JourneyRecord { hop_start_ns: base.dev_queue_ns, rx_ns: 0, sock_enqueue_ns: 0, ..base };
        let in_socket = base;
        let lost_on_the_wire = JourneyRecord { rx_ns: 0, sock_enqueue_ns: 0, ..base };
        let xmit_missed = JourneyRecord { hop_start_ns: base.dev_queue_ns, sock_enqueue_ns: 0, ..base };
        let mut t = tables(vec![slot(0, 10, 4, 1)]);
        t.unfinished = vec![in_qdisc, in_socket, lost_on_the_wire, xmit_missed];
        t.drops = vec![(2, synthetic::RCVBUFF, 1)];
        let c = totals(&t, true).counts;
        assert_eq!((c.in_flight, c.unobserved, c.unaccounted), (2, 3, 0));
        t.at_ns = START_NS + GIVEN_UP_NS / 2;
        assert_eq!(totals(&t, true).counts.in_flight, 4, "recent ones may still arrive");
        let c = totals(&t, false).counts;
        assert_eq!((c.in_flight, c.unobserved), (5, 0), "nothing was swept");
    }

    #[test]
    fn counts_that_contradict_each_other_show_it() {
        let mut t = tables(vec![slot(0, 10, 14, 0), slot(1, 10, 3, 0)]);
        let found = totals(&t, true);
        let c = &found.counts;
        assert_eq!((c.unobserved, c.unaccounted), (7, -4), "one flow's loss does not hide another's surplus");
        t.drops = vec![(2, synthetic::RCVBUFF, 5)];
        let found = totals(&t, true);
        assert_eq!(found.reasons_surplus, 5);
        assert!(balanced(&found.counts));
    }

    #[test]
    fn a_drop_without_a_reason_is_still_a_drop() {
        let mut t = tables(vec![slot(0, 10, 4, 6)]);
        t.drops = vec![(2, 77, 1), (2, synthetic::RCVBUFF, 2)];
        let found = totals(&t, true);
        let names: Vec<_> = found.counts.dropped.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        assert_eq!(names, [("REASON_77", 1), ("SOCKET_RCVBUFF", 2), (UNATTRIBUTED, 3)]);
        assert_eq!(found.by_run[0].drop_reasons.len(), 2);
        assert_eq!((found.by_run[0].run, found.by_run[0].origin.as_str()), (7, "sent"));
    }

    #[test]
    fn flows_that_are_not_admitted_or_not_ours_do_not_mix_in() {
        let refused = FlowSlot { admitted: 0, ..slot(1, 100, 50, 0) };
        let remote = FlowSlot { tx_socket: 0, ..slot(2, 0, 30, 1) };
        let c = totals(&tables(vec![slot(0, 10, 10, 0), refused, remote]), true).counts;
        assert_eq!((c.sent, c.received_only, c.delivered, c.unaccounted), (Some(10), 31, 40, 0));
        let c = totals(&tables(vec![remote]), true).counts;
        assert_eq!((c.sent, c.delivered), (None, 30));
    }

    #[test]
    fn records_are_held_against_the_counts_once_all_is_at_rest() {
        let mut t = tables(vec![slot(0, 100, 90, 10)]);
        t.counters[Counter::RingFull as usize] = 5;
        t.counters[Counter::LatePoint as usize] = 3;
        let seen = RecordsSeen { delivered: 83, dropped: 10, malformed: 1 };
        let found = Totals::of(&t, &synthetic::meta(), seen, true);
        let lost: Vec<_> = found.counts.lost_events.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        assert_eq!(lost, [("malformed", 1), (RECORDS_MISSING, 2), ("ring_full", 5)]);
        assert_eq!(found.counts.other_events["late_point"], 3);
        let live = Totals::of(&t, &synthetic::meta(), seen, false);
        assert!(!live.counts.lost_events.contains_key(RECORDS_MISSING));
        let seen = RecordsSeen { delivered: 93, ..seen };
        assert_eq!(Totals::of(&t, &synthetic::meta(), seen, true).records_surplus, 3);
    }

    fn any_slot() -> impl Strategy<Value = FlowSlot> {
        let n = || prop_oneof![0_u64..20, 0_u64..1 << 40];
        (0_u16..3, n(), n(), n(), n(), any::<bool>(), any::<bool>()).prop_map(
            |(stream, sent, delivered, dropped, evicted, local, admitted)| FlowSlot {
                tx_socket: u64::from(local),
                admitted: u32::from(admitted),
                evicted,
                ..slot(stream, sent, delivered, dropped)
            },
        )
    }

    proptest! {
        #[test]
        fn the_balance_closes_for_any_tables(
            flows in proptest::collection::vec(any_slot(), 0..5),
            drops in proptest::collection::vec((0_u16..8, 0_u32..300, 0_u64..1 << 40), 0..5),
            unfinished in 0_usize..20, before in proptest::collection::vec(any_slot(), 0..5), last: bool,
        ) {
            let mut t = tables(flows);
            t.drops = drops;
            t.unfinished = vec![JourneyRecord { app_dequeue_ns: 0, ..journey(7, 0, 0) }; unfinished];
            let now = totals(&t, last);
            prop_assert!(balanced(&now.counts), "{:?}", now.counts);
            for run in &now.by_run {
                let b = &run.balance;
                let came = sum(&[b.sent.unwrap_or(0), b.received_only]);
                let went = sum(&[b.delivered, b.dropped, b.in_flight, b.unobserved]);
                prop_assert_eq!(came, went + i128::from(b.unaccounted));
            }
            let earlier = totals(&tables(before), false);
            prop_assert!(balanced(&since(&now.counts, &earlier.counts)));
        }

        #[test]
        fn a_sound_run_has_nothing_unaccounted(
            flows in proptest::collection::vec((0_u64..1000, 0_u64..1000, 0_u64..1000), 1..5),
        ) {
            let slots = flows.iter().zip(0..).map(|((d, x, lost), s)| slot(s, d + x + lost, *d, *x)).collect();
            let found = totals(&tables(slots), true);
            prop_assert_eq!(found.counts.unaccounted, 0);
            prop_assert_eq!(found.counts.unobserved, flows.iter().map(|f| f.2).sum::<u64>());
        }
    }
}
