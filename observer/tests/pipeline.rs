//! From a source's records to the report, its schema and its text, without a
//! kernel: plans with a known culprit, and tables with known faults.

#![expect(clippy::unwrap_used, reason = "helpers of tests are not seen as tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use observer::pipeline::Pipeline;
use observer::report::{Blame, Kind, Level, Report};
use observer::snapshot::Snapshot;
use observer::source::synthetic::{self, Plan, Spread, Synthetic};
use observer::source::{Batch, Progress, Source, Tables};
use observer::view;
use observer_ebpf::abi::{Counter, FlowSlot, JourneyRecord, flow_id};

fn run(plan: Plan) -> Arc<Snapshot> {
    Pipeline::run(&mut Synthetic::new(plan)).unwrap()
}

/// Runs a plan with the records and tables changed on the way.
fn run_with(
    plan: Plan,
    record: impl Fn(JourneyRecord) -> JourneyRecord,
    tables: impl Fn(&mut Tables),
) -> Arc<Snapshot> {
    let mut source = Synthetic::new(plan);
    let mut pipeline = Pipeline::new(source.meta().clone());
    loop {
        let mut batch = Batch::default();
        let progress = source.poll(&mut batch).unwrap();
        batch.journeys = batch.journeys.into_iter().map(&record).collect();
        pipeline.batch(&batch);
        if progress == Progress::End {
            let mut swept = source.tables(true).unwrap();
            tables(&mut swept);
            return pipeline.finish(swept);
        }
    }
}

fn quiet() -> Plan {
    Plan::default()
}

fn shaper() -> Plan {
    Plan { shaper: Spread::Ramp(40_000_000), ..quiet() }
}

fn sender_queue() -> Plan {
    Plan { sender_queue: Spread::Ramp(50_000_000), ..quiet() }
}

fn receiver() -> Plan {
    Plan { receiver: Spread::Uniform(5_000, 90_000_000), drop_every: 8, ..quiet() }
}

fn empty() -> Arc<Snapshot> {
    Pipeline::new(synthetic::meta()).finish(Tables::empty(synthetic::START_NS + 1))
}

fn partial() -> Arc<Snapshot> {
    let cut = |j: JourneyRecord| match j.stream_seq % 4 {
        0 => JourneyRecord { rx_ns: 0, ..j },
        1 => JourneyRecord { rx_ns: j.xmit_ns - 400, sock_enqueue_ns: 0, ..j },
        2 => JourneyRecord { hops: 0, ..j },
        _ => JourneyRecord { sock_enqueue_ns: j.rx_ns - 5_000, ..j },
    };
    run_with(quiet(), cut, |_| {})
}

fn drop_only() -> Arc<Snapshot> {
    run(Plan { drop_every: 1, drop_reason: synthetic::QDISC_DROP, datagrams: 500, ..quiet() })
}

fn lossy() -> Arc<Snapshot> {
    let lose = |t: &mut Tables| {
        t.flows[0].sent += 100;
        t.flows[0].offered += 100;
        t.counters[Counter::SlotBusy as usize] = 7;
        t.counters[Counter::ShortRead as usize] = 3;
        t.counters[Counter::ForeignReceived as usize] = 11;
        t.missed = 5;
    };
    run_with(Plan { drop_every: 100, ..quiet() }, |j| j, lose)
}

fn reports() -> BTreeMap<&'static str, Arc<Report>> {
    BTreeMap::from([
        ("empty", empty().total.clone()),
        ("quiet", run(quiet()).total.clone()),
        ("interval", run(quiet()).interval.clone()),
        ("shaper", run(shaper()).total.clone()),
        ("receiver", run(receiver()).total.clone()),
        ("lossy", lossy().total.clone()),
        ("partial", partial().total.clone()),
        ("drop-only", drop_only().total.clone()),
        ("many-flows", run(Plan { streams: 200, ..quiet() }).total.clone()),
    ])
}

fn schema() -> serde_json::Value {
    serde_json::from_str(include_str!("../../docs/report.schema.json")).unwrap()
}

#[test]
fn every_report_keeps_to_the_published_schema_and_reads_back() {
    let schema = schema();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for (name, report) in reports() {
        let mut line = Vec::new();
        view::json::line(&report, &mut line).unwrap();
        assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1, "{name}: one line");
        let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
        let errors: Vec<_> =
            validator.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
        let back: Report = serde_json::from_slice(&line).unwrap();
        assert_eq!(back, *report, "{name}");
    }
}

/// Guards the test above: a schema that accepts anything proves nothing.
#[test]
fn the_schema_refuses_what_is_no_report() {
    let schema = schema();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let good = serde_json::to_value(&*run(receiver()).total).unwrap();
    assert!(validator.is_valid(&good));
    for (pointer, bad) in [
        ("/schema", serde_json::json!("observer-report/2")),
        ("/verdict", serde_json::json!("fine")),
        ("/counts/delivered", serde_json::json!(-1)),
        ("/counts/sent", serde_json::json!("many")),
        ("/components/total/p99_ns", serde_json::json!(1.5)),
        ("/culprit/component", serde_json::json!("network")),
        ("/tail/0/share/wire", serde_json::json!(null)),
        ("/hooks/0", serde_json::json!({})),
        ("/flows/0/key/sender", serde_json::json!({"extra": 1})),
    ] {
        let mut value = good.clone();
        *value.pointer_mut(pointer).unwrap() = bad;
        assert!(!validator.is_valid(&value), "{pointer}");
    }
}

#[test]
fn each_scenario_has_its_culprit() {
    let blame = |plan| run(plan).total.culprit.clone().unwrap();
    assert_eq!(blame(quiet()).component, Blame::None);
    assert_eq!(blame(shaper()).component, Blame::Shaper);
    assert_eq!(blame(sender_queue()).component, Blame::SenderQueue);
    let behind = blame(receiver());
    assert_eq!(behind.component, Blame::Receiver);
    assert!(
        behind.cause.ends_with("2,500 datagrams dropped (SOCKET_RCVBUFF 2,500), the receive buffer was full")
    );
    let blocked = blame(Plan { blocked_percent: 90, gap_ns: 60_000_000, ..sender_queue() });
    assert_eq!(blocked.component, Blame::Shaper);
    assert!(blocked.cause.contains("blocked on SO_SNDBUF"), "{}", blocked.cause);
    let starved = Plan {
        receiver: Spread::Spike(8_000, 4_000_000, 50),
        gap_ns: 5_000_000,
        run_queue_percent: 95,
        ..quiet()
    };
    assert_eq!(blame(starved).component, Blame::HostNoise);
}

#[test]
fn a_quiet_run_is_complete_and_balanced() {
    let report = run(Plan { streams: 4, ..quiet() }).total.clone();
    let c = &report.counts;
    assert_eq!(report.kind, Kind::Final);
    assert_eq!((c.offered, c.sent, c.delivered), (20_000, Some(20_000), 20_000));
    assert_eq!((c.complete, c.partial, c.unobserved, c.unaccounted, c.lost_total()), (20_000, 0, 0, 0, 0));
    assert_eq!(report.flows.len(), 4);
    assert_eq!(report.by_run.len(), 1);
    let total = &report.components.total.distribution;
    assert_eq!(total.count, 20_000);
    assert!(total.p50_ns < total.p99_ns && total.p99_9_ns <= total.max_ns);
    // Too short a run is worth a warning, and nothing else is.
    let warned: Vec<_> =
        report.findings.iter().filter(|f| f.level > Level::Passed).map(|f| f.check.as_str()).collect();
    assert_eq!((report.verdict, warned), (Level::Warning, vec!["run-was-long-enough"]));
}

#[test]
fn without_a_single_datagram_nothing_was_measured() {
    let report = &empty().total;
    assert_eq!((report.verdict, report.verdict.exit_code()), (Level::Invalid, 2));
    assert_eq!(report.findings[0].check, "datagrams-seen");
    assert_eq!(report.culprit, None);
    assert_eq!(report.counts.sent, None);
    assert_eq!(report.components.total.distribution.p50_ns, None);
}

#[test]
fn what_is_missing_is_bounded_and_judged() {
    let report = &lossy().total;
    let finding = report.findings.iter().find(|f| f.check == "observer-complete").unwrap();
    assert_eq!(finding.level, Level::Warning);
    assert_eq!(report.counts.unobserved, 100);
    assert!(finding.detail.contains("total_p99 lies between"), "{}", finding.detail);
    assert!(finding.detail.contains("total_p99_9 lies between") && finding.detail.contains("anything above"));
    let worse = run_with(quiet(), |j| j, |t| t.flows[0].sent += 500);
    assert_eq!(worse.total.verdict, Level::Invalid);
    let records_missing =
        run_with(quiet(), |j| j, |t| (t.flows[0].sent, t.flows[0].delivered) = (20_003, 20_003));
    assert_eq!(records_missing.total.counts.lost_events["records_missing"], 3);
}

#[test]
fn contradicting_counts_make_a_run_invalid() {
    let report = run_with(quiet(), |j| j, |t| t.flows[0].sent -= 5).total.clone();
    let finding = report.findings.iter().find(|f| f.check == "counts-reconcile").unwrap();
    assert_eq!((finding.level, report.counts.unaccounted), (Level::Invalid, -5));
    assert!(finding.observed.ends_with("-5 unaccounted"), "{}", finding.observed);
}

#[test]
fn partial_journeys_keep_their_total_and_what_they_know() {
    let report = &partial().total;
    let c = &report.components;
    assert_eq!((report.counts.complete, report.counts.partial), (10_000, 10_000));
    assert_eq!(c.total.distribution.count, 20_000);
    assert_eq!(
        (c.sender_queue.partial, c.shaper.partial, c.wire.partial, c.receiver.partial),
        (0, 5_000, 10_000, 5_000)
    );
    assert_eq!((c.wire.negatives, c.receiver.parts_out_of_order), (5_000, 5_000));
    let level = |check| report.findings.iter().find(|f| f.check == check).unwrap().level;
    assert_eq!((level("observer-complete"), level("points-in-order")), (Level::Warning, Level::Invalid));
}

#[test]
fn intervals_add_up_to_the_whole() {
    let mut source = Synthetic::new(Plan { datagrams: 50_000, drop_every: 10, ..quiet() });
    let mut pipeline = Pipeline::new(source.meta().clone());
    let (mut sent, mut delivered, mut dropped, mut recorded) = (0, 0, 0, 0);
    let mut before = 0;
    for number in 0.. {
        let mut batch = Batch::default();
        let progress = source.poll(&mut batch).unwrap();
        pipeline.batch(&batch);
        let mut tables = source.tables(false).unwrap();
        // Some are always on their way while the run goes on.
        tables.flows[0].sent += 10;
        let at_ns = tables.at_ns;
        let snapshot = if progress == Progress::End {
            pipeline.finish(source.tables(true).unwrap())
        } else {
            pipeline.tables(tables);
            pipeline.interval(at_ns)
        };
        let c = &snapshot.interval.counts;
        assert_eq!(snapshot.number, number);
        assert_eq!((c.in_flight_before, c.unaccounted), (before, 0));
        before = c.in_flight;
        sent += c.sent.unwrap();
        delivered += c.delivered;
        dropped += c.dropped_total();
        recorded += snapshot.interval.components.total.distribution.count;
        assert_eq!(snapshot.total.components.total.distribution.count, recorded);
        if progress == Progress::End {
            assert_eq!(snapshot.total.counts.delivered, delivered);
            break;
        }
    }
    assert_eq!((sent, delivered, dropped, recorded, before), (50_000, 45_000, 5_000, 45_000, 0));
}

#[test]
fn flows_beyond_the_shown_ones_are_summed() {
    let report = run(Plan { streams: 200, ..quiet() }).total.clone();
    let others = report.other_flows.as_ref().unwrap();
    assert_eq!((report.flows.len() as u64, others.flows), (64, 136));
    let shown: u64 = report.flows.iter().map(|f| f.components.total.count).sum();
    assert_eq!(shown + others.components.total.count, 20_000);
    assert_eq!(others.counts.delivered, 13_600);
}

#[test]
fn the_slowest_journeys_are_kept_whole() {
    let snapshot = run(shaper());
    assert_eq!(snapshot.slowest.len(), 16);
    let totals: Vec<_> = snapshot.slowest.iter().map(|j| j.stages.total.unwrap()).collect();
    assert!(totals.is_sorted_by(|a, b| a >= b));
    assert_eq!(Some(totals[0]), snapshot.total.components.total.distribution.max_ns);
    assert!(snapshot.slowest.iter().all(|j| j.record.xmit_ns > 0));
}

/// CPU time of this thread: on a busy machine the wall clock measures others.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap()
}

/// Not a test of correctness: prints how many journeys a second the pipeline
/// takes on one core.
/// `cargo test -p observer --release --test pipeline -- --ignored --nocapture`
#[test]
#[ignore = "a measurement; meaningful in release only"]
fn throughput() {
    const JOURNEYS: usize = 2_000_000;
    let plan = Plan { datagrams: JOURNEYS as u64, streams: 4, run_queue_percent: 5, ..quiet() };
    let mut source = Synthetic::new(plan);
    let mut pipeline = Pipeline::new(source.meta().clone());
    let (mut records, mut spent, mut closing, mut intervals) = (0, Duration::ZERO, Duration::ZERO, 0_u32);
    let mut progress = Progress::More;
    while progress != Progress::End {
        let mut batch = Batch::default();
        progress = source.poll(&mut batch).unwrap();
        records += batch.journeys.len();
        // One in eight of them waited for a CPU.
        batch.waits = batch.waits.into_iter().step_by(8).collect();
        let start = cpu_time();
        pipeline.batch(&batch);
        spent += cpu_time() - start;
        if records / 250_000 > intervals as usize {
            let start = cpu_time();
            pipeline.interval(0);
            closing += cpu_time() - start;
            intervals += 1;
        }
    }
    let rate = records as f64 / spent.as_secs_f64() / 1e6;
    println!("{rate:.2} M journeys/s; closing an interval takes {:?}", closing / intervals);
    assert_eq!(records, JOURNEYS);
}

/// A sender elsewhere: no total, no balance to close, and nothing invented.
#[test]
fn a_stream_from_another_host_has_a_receiver_alone() {
    let away = |j: JourneyRecord| JourneyRecord {
        flags: observer_ebpf::abi::flag::RX_ONLY,
        dev_queue_ns: 0,
        hops: 0,
        offer_ns: 77,
        run: 99,
        ..j
    };
    let remote = |t: &mut Tables| {
        let slot = t.flows[0];
        t.flows = vec![FlowSlot { id: flow_id(99, 0), tx_socket: 0, tx_tgid: 0, sent: 0, ..slot }];
    };
    let report = run_with(quiet(), away, remote).total.clone();
    assert_eq!((report.counts.sent, report.counts.received_only), (None, 20_000));
    assert_eq!(report.components.total.distribution.count, 0);
    assert_eq!(report.components.receiver.distribution.count, 20_000);
    assert_eq!((report.counts.unaccounted, report.culprit.clone()), (0, None));
}

#[test]
fn the_views_are_as_they_were() {
    insta::assert_snapshot!("live", view::text::live(&run(receiver()), false));
    insta::assert_snapshot!("final_shaper", view::text::report(&run(shaper()).total, false));
    insta::assert_snapshot!("final_lossy", view::text::report(&lossy().total, false));
    insta::assert_snapshot!("final_partial", view::text::report(&partial().total, false));
    insta::assert_snapshot!("final_empty", view::text::report(&empty().total, false));
    insta::assert_snapshot!(
        "final_many_flows",
        view::text::report(&run(Plan { streams: 200, ..quiet() }).total, false)
    );
}

#[test]
fn every_view_fits_eighty_columns() {
    for (name, report) in reports() {
        for line in view::text::report(&report, false).lines() {
            assert!(line.chars().count() <= 80, "{name}: {line}");
        }
    }
    for line in view::text::live(&run(receiver()), false).lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn colour_changes_nothing_but_colour() {
    let snapshot = run(receiver());
    let coloured = view::text::report(&snapshot.total, true);
    assert!(coloured.contains('\x1b'));
    let mut plain = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once('\x1b') {
        plain += before;
        rest = after.split_once('m').unwrap().1;
    }
    assert_eq!(plain + rest, view::text::report(&snapshot.total, false));
}
