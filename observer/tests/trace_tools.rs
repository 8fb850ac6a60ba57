//! Comparing, merging and exporting traces.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{collections::BTreeMap, fs, path::Path};

use observer::{
    correlate::stream,
    report::Level,
    source::{
        Batch, Progress, Source, SourceError, SourceMeta, Tables,
        synthetic::{Plan, Spread, Synthetic},
    },
    trace::{
        Selection, Trace, TraceError, answer,
        compare::{self, Comparison, Smallest, Verdict, fail_if::Gate},
        drive, export, merge,
        record::{RecordOptions, Recorder},
    },
};
use observer_ebpf::abi::{FlowSlot, JourneyRecord, RecordKind, flag, flow_id};

const INTERVAL_NS: u64 = 100_000_000;

fn record(source: &mut impl Source, dir: &Path) {
    let options = RecordOptions { dir: dir.to_owned(), ..RecordOptions::default() };
    let recorder = Recorder::create(options).unwrap();
    let status = recorder.status();
    drive::record(source, recorder, INTERVAL_NS).unwrap();
    assert_eq!(status.failed(), None);
}

/// A second and a half at 100,000/s, in segments of 160 ms.
fn plan(seed: u64) -> Plan {
    Plan {
        seed,
        streams: 2,
        datagrams: 150_000,
        gap_ns: 10_000,
        sender_queue: Spread::Uniform(1_500, 40_000),
        shaper: Spread::Exponential(90_000),
        receiver: Spread::Exponential(60_000),
        drop_every: 1_000,
        ..Plan::default()
    }
}

fn compared(a: Plan, b: Plan) -> Comparison {
    let dir = tempfile::tempdir().unwrap();
    let run = |plan, name: &str| {
        record(&mut Synthetic::new(plan), &dir.path().join(name));
        compare::read(&Trace::open(&dir.path().join(name)).unwrap(), &mut |_, _| {}).unwrap()
    };
    let (a, b) = (run(a, "a"), run(b, "b"));
    compare::compare(&a, &b, Smallest::default())
}

#[test]
fn equal_set_ups_show_no_difference_and_a_slower_shaper_is_named() {
    // `TRACE_PAIRS` makes it more.
    let pairs = std::env::var("TRACE_PAIRS").ok().and_then(|n| n.parse().ok()).unwrap_or(1_u64);
    for seed in 0..pairs {
        let same = compared(plan(seed), plan(100 + seed));
        assert_eq!(same.verdict, Verdict::NoDifferenceShown, "{}", same.sentence);
        assert!(same.comparisons > 15 && same.component.is_none(), "{same:?}");

        let slower = Plan { shaper: Spread::Exponential(180_000), ..plan(200 + seed) };
        let worse = compared(plan(seed), slower.clone());
        assert_eq!(worse.verdict, Verdict::Worse, "{}", worse.sentence);
        assert_eq!(worse.component.as_deref(), Some("shaper"), "{}", worse.sentence);
        let better = compared(slower, plan(seed));
        assert_eq!((better.verdict, better.component.as_deref()), (Verdict::Better, Some("shaper")));

        let gate = |expr: &str| expr.parse::<compare::fail_if::FailIf>().unwrap().judge(&worse);
        assert!(matches!(gate("total_p99 > +10%"), Gate::Failed(_)));
        assert!(matches!(gate("shaper_p50 > +20us"), Gate::Failed(_)));
        assert_eq!(gate("total_p99 > +900%"), Gate::Passed);
        assert_eq!(gate("receiver_p50 > +1%"), Gate::Passed);
        assert_eq!(gate("throughput < -1%"), Gate::Passed);
    }
}

#[test]
fn losses_are_compared_and_other_loads_are_not() {
    let lossy = compared(plan(1), Plan { drop_every: 20, ..plan(2) });
    let loss = lossy.rows.iter().find(|r| r.metric == "loss").unwrap();
    assert_eq!(loss.verdict, Verdict::Worse, "{loss:?}");
    assert!((loss.difference.unwrap() - 0.049).abs() < 0.001, "{loss:?}");

    let other = compared(plan(1), Plan { gap_ns: 5_000, ..plan(2) });
    assert_eq!(other.verdict, Verdict::NotComparable);
    assert!(other.sentence.contains("offered"), "{}", other.sentence);
    let gate = "total_p99 > +10%".parse::<compare::fail_if::FailIf>().unwrap().judge(&other);
    assert!(matches!(gate, Gate::Unknown(_)));

    let short = compared(Plan { datagrams: 9_000, ..plan(1) }, Plan { datagrams: 9_000, ..plan(2) });
    assert_eq!(short.verdict, Verdict::NotKnown, "{}", short.sentence);
    let text = compare::show::text(&short);
    assert!(text.contains("not known"), "{text}");
}

/// One host's half of a plan: what its kernel would have recorded. Streams
/// with even numbers go from the first host to the other, odd ones back.
struct Half {
    plan: Synthetic,
    /// Whether it is the other host's.
    other: bool,
    /// The other host's clock less the first one's, ns, and how fast it grows.
    skew: (i64, f64),
    flows: BTreeMap<u64, FlowSlot>,
    start_ns: u64,
    /// One in so many is lost on the way between the hosts.
    lost: u64,
}

/// What the other host's clock shows.
#[expect(clippy::cast_possible_truncation, reason = "a test's times")]
fn on_other(ns: u64, start_ns: u64, (offset, drift): (i64, f64)) -> u64 {
    if ns == 0 {
        return 0;
    }
    let grown = ((ns as f64 - start_ns as f64) * drift).round() as i64;
    (ns.cast_signed() + offset + grown).cast_unsigned()
}

impl Half {
    fn new(plan: Plan, other: bool, skew: (i64, f64), lost: u64) -> Self {
        let plan = Synthetic::new(plan);
        let start_ns = plan.meta().start_ns;
        Self { plan, other, skew, flows: BTreeMap::new(), start_ns, lost }
    }

    fn half(&mut self, r: &JourneyRecord) -> Option<JourneyRecord> {
        let (start_ns, skew, other) = (self.start_ns, self.skew, self.other);
        let at = |ns| if other { on_other(ns, start_ns, skew) } else { ns };
        let odd = stream(r) % 2 == 1;
        // An offer is on its sender's clock, whoever sees it.
        let stamp = |ns: i64| {
            if odd { on_other(ns.cast_unsigned(), start_ns, skew).cast_signed() } else { ns }
        };
        let base = JourneyRecord { offer_ns: stamp(r.offer_ns), intended_ns: stamp(r.intended_ns), ..*r };
        let id = flow_id(r.run, stream(r));
        let slot = self.flows.entry(id).or_insert(FlowSlot { id, admitted: 1, ..FlowSlot::default() });
        if odd == other {
            slot.offered += 1;
            slot.tx_socket = 1;
            slot.sent += 1;
            slot.evicted += 1;
            return Some(JourneyRecord {
                kind: RecordKind::Unresolved as u8,
                syscall_ns: at(r.syscall_ns),
                dev_queue_ns: at(r.dev_queue_ns),
                dequeue_ns: at(r.dequeue_ns),
                xmit_ns: at(r.xmit_ns),
                rx_ns: 0,
                sock_enqueue_ns: 0,
                app_dequeue_ns: 0,
                rx_tid: 0,
                ..base
            });
        }
        if self.lost > 0 && r.stream_seq.is_multiple_of(self.lost) {
            return None;
        }
        slot.offered += 1;
        slot.delivered += 1;
        slot.delivered_bytes += 160;
        Some(JourneyRecord {
            flags: r.flags | flag::RX_ONLY,
            syscall_ns: 0,
            dev_queue_ns: 0,
            dequeue_ns: 0,
            xmit_ns: 0,
            hops: 0,
            shaper_ns: 0,
            slowest_hop_ns: 0,
            slowest_qdisc_ns: 0,
            tx_tid: 0,
            rx_ns: at(r.rx_ns),
            sock_enqueue_ns: at(r.sock_enqueue_ns),
            app_dequeue_ns: at(r.app_dequeue_ns),
            ..base
        })
    }
}

impl Source for Half {
    fn poll(&mut self, batch: &mut Batch) -> Result<Progress, SourceError> {
        let progress = self.plan.poll(batch)?;
        let records = std::mem::take(&mut batch.journeys);
        batch.waits.clear();
        batch.flows.retain(|f| (f.side == 1) == ((f.stream % 2 == 1) == self.other));
        batch.journeys = records.iter().filter_map(|r| self.half(r)).collect();
        Ok(progress)
    }

    fn tables(&mut self, last: bool) -> Result<Tables, SourceError> {
        let mut tables = self.plan.tables(last)?;
        if self.other {
            tables.at_ns = on_other(tables.at_ns, self.start_ns, self.skew);
        }
        tables.flows = self.flows.values().copied().collect();
        Ok(tables)
    }

    fn meta(&self) -> &SourceMeta {
        self.plan.meta()
    }
}

#[test]
fn two_hosts_halves_join_on_one_clock() {
    let dir = tempfile::tempdir().unwrap();
    let plan =
        Plan { streams: 1, datagrams: 60_000, wire: Spread::Exponential(40_000), drop_every: 0, ..plan(3) };
    let whole = dir.path().join("whole");
    record(&mut Synthetic::new(plan.clone()), &whole);
    let skew = (123_456_789_012_345, 5e-5);
    let at = |name: &str| dir.path().join(name);
    record(&mut Half::new(plan.clone(), false, skew, 500), &at("tx"));
    record(&mut Half::new(plan, true, skew, 500), &at("rx"));
    let (tx, rx) = (Trace::open(&at("tx")).unwrap(), Trace::open(&at("rx")).unwrap());
    let (merged, snapshot) = merge::merge(&tx, &rx, &at("merged"), &mut |_, _| {}).unwrap();

    assert_eq!((merged.forth, merged.back, merged.local), (60_000 - 120, 0, 0), "{merged:?}");
    assert_eq!((merged.unmatched_sent, merged.unmatched_received), (120, 0));
    assert!(merged.wire_is_relative && merged.within_ns.is_none());
    assert!((merged.drift_ppm - 50.0).abs() < 2.0, "{merged:?}");
    // The earliest arrival of each 10 ms bounds the clocks; others within it
    // may be earlier by as much as the clocks drift in that time.
    assert!(merged.negative_wire < 60, "{merged:?}");

    let report = &snapshot.total;
    let single =
        answer::report(&Trace::open(&whole).unwrap(), &Selection::default(), &mut |_, _| {}).unwrap();
    let truth = &single.snapshot.total.components;
    assert_eq!(report.counts.delivered, 60_000 - 120);
    assert_eq!(report.counts.unobserved, 120);
    assert_eq!(report.counts.unaccounted, 0);
    assert_eq!(report.counts.partial, 0);
    // All but the wire and the total need no clock but their own.
    let p99 = |c: &observer::report::Components| {
        [&c.sender_queue, &c.shaper, &c.receiver].map(|c| c.distribution.p99_ns.unwrap())
    };
    for (merged, truth) in p99(&report.components).into_iter().zip(p99(truth)) {
        let ratio = merged as f64 / truth as f64;
        assert!((0.99..1.01).contains(&ratio), "{merged} {truth}");
    }
    // The wire is relative to its shortest, which is next to nothing here.
    let (m, t) =
        (report.components.wire.distribution.p99_ns.unwrap(), truth.wire.distribution.p99_ns.unwrap());
    assert!(m.abs_diff(t) < 3_000, "{m} {t}");
    // And the merged trace is a trace.
    let trace = Trace::open(&at("merged")).unwrap();
    let again = answer::report(&trace, &Selection::default(), &mut |_, _| {}).unwrap();
    assert_eq!(again.snapshot.total, *report);
    assert_eq!(trace.meta.merged.unwrap()["forth"], 60_000 - 120);
}

#[test]
fn with_traffic_both_ways_every_wire_time_is_within_the_bound() {
    let dir = tempfile::tempdir().unwrap();
    let wire = Spread::Uniform(20_000, 120_000);
    let plan = Plan { streams: 2, datagrams: 40_000, wire, drop_every: 0, ..plan(4) };
    let at = |name: &str| dir.path().join(name);
    record(&mut Synthetic::new(plan.clone()), &at("whole"));
    let skew = (5_000_000_000_000, -8e-5);
    record(&mut Half::new(plan.clone(), false, skew, 0), &at("tx"));
    record(&mut Half::new(plan, true, skew, 0), &at("rx"));
    let (tx, rx) = (Trace::open(&at("tx")).unwrap(), Trace::open(&at("rx")).unwrap());
    let (merged, snapshot) = merge::merge(&tx, &rx, &at("merged"), &mut |_, _| {}).unwrap();
    assert_eq!((merged.forth, merged.back), (20_000, 20_000), "{merged:?}");
    let within = merged.within_ns.unwrap();
    assert!((15_000..60_000).contains(&within), "{merged:?}");
    assert_eq!(merged.negative_wire, 0);
    assert_eq!(snapshot.total.counts.unaccounted, 0);

    let (merged, whole) = (Trace::open(&at("merged")).unwrap(), Trace::open(&at("whole")).unwrap());
    let wires = |trace: &Trace| -> BTreeMap<(u16, u64), u64> {
        let wire = |j: observer::correlate::Journey| {
            let r = &j.record;
            ((stream(r), r.stream_seq), r.rx_ns - r.xmit_ns)
        };
        trace.journeys().map(|j| wire(j.unwrap())).collect()
    };
    let truth = wires(&whole);
    for (key, wire) in wires(&merged) {
        let off = wire.abs_diff(truth[&key]);
        assert!(off <= within, "{key:?}: off by {off} of {within}");
    }
}

#[test]
fn traces_that_have_nothing_in_common_are_not_merged() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let small = Plan { datagrams: 1_000, streams: 1, ..plan(1) };
    record(&mut Half::new(small.clone(), false, (0, 0.0), 0), &at("tx"));
    record(&mut Half::new(Plan { run: 77, ..small }, true, (0, 0.0), 0), &at("rx"));
    let (tx, rx) = (Trace::open(&at("tx")).unwrap(), Trace::open(&at("rx")).unwrap());
    let said = merge::merge(&tx, &rx, &at("merged"), &mut |_, _| {}).unwrap_err();
    assert!(matches!(said, TraceError::Refused(_)), "{said}");
    assert!(!at("merged").exists());
}

#[test]
fn exports_hold_what_was_recorded() {
    let dir = tempfile::tempdir().unwrap();
    record(&mut Synthetic::new(Plan { datagrams: 20_000, ..plan(1) }), &dir.path().join("t"));
    let trace = Trace::open(&dir.path().join("t")).unwrap();
    let report =
        answer::report(&trace, &Selection::default(), &mut |_, _| {}).unwrap().snapshot.total.clone();
    let everything = Selection::default();
    let quiet = &mut |_| {};

    let mut csv = Vec::new();
    let done = export::csv::export(&trace, &everything, u64::MAX, &mut csv, quiet).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    assert_eq!((csv.lines().count(), done.written), (20_001, 20_000));
    let total = csv.lines().skip(1).filter_map(|l| l.rsplit(',').next()?.parse::<u64>().ok()).max();
    assert_eq!(total, report.components.total.distribution.max_ns);
    assert_eq!(csv.lines().filter(|l| l.contains("SOCKET_RCVBUFF")).count(), 20);

    let mut hlog = Vec::new();
    export::hlog::export(&trace, &mut hlog, quiet).unwrap();
    let hlog = String::from_utf8(hlog).unwrap();
    let tags = hlog.lines().filter(|l| l.starts_with("Tag=total,")).count();
    assert_eq!(tags, trace.numbers().len(), "{hlog}");

    let mut json = Vec::new();
    let done = export::perfetto::export(&trace, &everything, 100, &mut json, quiet).unwrap();
    assert!(done.more && done.written == 100);
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let phase = |p: &str| events.iter().filter(|e| e["ph"] == p).count();
    assert_eq!(phase("b"), phase("e"));
    assert!(phase("b") >= 400, "a datagram and its components: {}", phase("b"));
    let balanced = events.iter().filter(|e| e["ph"] == "b").all(|e| e["ts"].as_f64().unwrap() >= 0.0);
    assert!(balanced);

    let mut pcap = Vec::new();
    export::pcapng::export(&trace, &everything, u64::MAX, &mut pcap, quiet).unwrap();
    assert_eq!(blocks(&pcap)[..2], [0x0a0d_0d0a, 1]);
    assert_eq!(blocks(&pcap).iter().filter(|kind| **kind == 6).count(), 20_000);
    fs::write(dir.path().join("t.pcapng"), &pcap).unwrap();
}

/// The types of a pcapng's blocks; their lengths must agree.
fn blocks(mut bytes: &[u8]) -> Vec<u32> {
    let word = |b: &[u8], at: usize| u32::from_le_bytes(b[at..at + 4].try_into().unwrap());
    let mut kinds = Vec::new();
    while !bytes.is_empty() {
        let length = word(bytes, 4) as usize;
        assert!(length.is_multiple_of(4) && word(bytes, length - 4) as usize == length);
        kinds.push(word(bytes, 0));
        bytes = &bytes[length..];
    }
    kinds
}

#[test]
fn selections_of_a_trace_without_records_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    record(&mut Synthetic::new(Plan { datagrams: 5_000, ..plan(1) }), &dir.path().join("t"));
    let file = dir.path().join("t/meta.json");
    let mut meta: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    meta["detail"] = "summary".into();
    fs::write(&file, meta.to_string()).unwrap();
    let trace = Trace::open(&dir.path().join("t")).unwrap();
    let some = Selection { size: Some("100..200".parse().unwrap()), ..Selection::default() };
    let said = answer::report(&trace, &some, &mut |_, _| {}).unwrap_err().to_string();
    assert!(said.contains("summary") && said.contains("full detail"), "{said}");
    let whole = answer::report(&trace, &Selection::default(), &mut |_, _| {}).unwrap();
    assert_eq!(whole.snapshot.total.components.total.distribution.count, 5_000 - 5);
    assert!(whole.snapshot.total.verdict < Level::Invalid);
}
