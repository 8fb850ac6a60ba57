//! Traces: what was recorded is what was observed, to the last digit; and
//! what is damaged says so.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use observer::{
    diagnose::evidence::{FIRST, LATEST},
    report::{Level, Report},
    snapshot::Snapshot,
    source::synthetic::{Plan, Spread, Synthetic},
    trace::{
        Selection, Trace, TraceError,
        answer::{self, From},
        drive,
        record::{RecordOptions, Recorder},
    },
};

const INTERVAL_NS: u64 = 50_000_000;

/// Records a plan in intervals of its own time.
fn record_with(plan: Plan, dir: &Path, options: RecordOptions) -> Arc<Snapshot> {
    let recorder = Recorder::create(RecordOptions { dir: dir.to_owned(), ..options }).unwrap();
    let status = recorder.status();
    let snapshot = drive::record(&mut Synthetic::new(plan), recorder, INTERVAL_NS).unwrap();
    assert_eq!(status.failed(), None);
    snapshot
}

fn record(plan: Plan, dir: &Path) -> Arc<Snapshot> {
    record_with(plan, dir, RecordOptions::default())
}

fn plan() -> Plan {
    Plan {
        streams: 3,
        datagrams: 60_000,
        gap_ns: 5_000,
        sender_queue: Spread::Uniform(1_500, 400_000),
        shaper: Spread::Exponential(90_000),
        receiver: Spread::Exponential(300_000),
        blocked_percent: 10,
        run_queue_percent: 5,
        drop_every: 500,
        ..Plan::default()
    }
}

fn all(trace: &Trace) -> answer::Answer {
    answer::report(trace, &Selection::default(), &mut |_, _| {}).unwrap()
}

fn from_records(trace: &Trace, selection: &Selection) -> Result<answer::Answer, TraceError> {
    answer::from_records(trace, selection, &mut |_, _| {})
}

fn same(live: &Report, replayed: &Report) {
    assert_eq!(serde_json::to_value(live).unwrap(), serde_json::to_value(replayed).unwrap());
}

#[test]
fn the_report_of_a_trace_is_the_live_report_to_the_last_digit() {
    let dir = tempfile::tempdir().unwrap();
    // More flows than have distributions of their own, of changing busyness.
    for plan in [plan(), Plan { streams: 300, ..plan() }, Plan { datagrams: 7, ..plan() }] {
        let to = dir.path().join(plan.streams.to_string()).join(plan.datagrams.to_string());
        let live = record(plan, &to);
        let trace = Trace::open(&to).unwrap();
        let fast = all(&trace);
        assert_eq!(fast.from, From::Histograms);
        same(&live.total, &fast.snapshot.total);
        let slow = from_records(&trace, &Selection::default()).unwrap();
        assert_eq!(slow.datagrams, live.total.counts.delivered + live.total.counts.dropped_total());
        same(&live.total, &slow.snapshot.total);
        assert_eq!(live.slowest, slow.snapshot.slowest);
        assert_eq!(trace.missing().unwrap().sentence(), None);
    }
}

#[test]
fn the_diagnosis_is_that_of_the_first_and_the_latest_records() {
    let dir = tempfile::tempdir().unwrap();
    // More than is kept for a diagnosis, so that segments in the middle are
    // passed over, and waits that reach over their ends.
    let plan = Plan { datagrams: 260_000, receiver: Spread::Uniform(20_000, 60_000_000), ..plan() };
    let live = record(plan, dir.path()).total.clone();
    assert!(live.sender_queue.is_some() && live.limiter.is_some() && live.receiver_queue.is_some());
    assert!(live.receiver_queue.as_ref().unwrap().run_queue_share > 0.0);
    let trace = Trace::open(dir.path()).unwrap();
    // Those in the middle are not read.
    let journeys = |n: &u64| trace.segment(*n).unwrap().measured.journeys();
    let (mut before, mut after) = (0, trace.numbers().iter().map(journeys).sum::<u64>());
    let middle = trace.numbers().iter().filter(|n| {
        let passed = before >= FIRST as u64;
        before += journeys(n);
        after -= journeys(n);
        passed && after >= LATEST as u64
    });
    let middle: Vec<PathBuf> = middle.map(|n| dir.path().join(format!("packets-{n:06}.parquet"))).collect();
    assert!((2..6).contains(&middle.len()), "{middle:?} of {:?}", trace.numbers());
    let whole: Vec<Vec<u8>> = middle.iter().map(|path| fs::read(path).unwrap()).collect();
    middle.iter().for_each(|path| fs::write(path, b"nonsense").unwrap());
    same(&live, &all(&trace).snapshot.total);
    middle.iter().zip(whole).for_each(|(path, whole)| fs::write(path, whole).unwrap());
    same(&live, &from_records(&trace, &Selection::default()).unwrap().snapshot.total);
}

#[test]
fn a_queue_is_diagnosed_by_all_it_serves() {
    let dir = tempfile::tempdir().unwrap();
    let live = record(plan(), dir.path()).total.clone();
    let trace = Trace::open(dir.path()).unwrap();
    let one = format!("{}:0", live.by_run[0].run).parse().unwrap();
    let part = from_records(&trace, &Selection { flows: vec![one], ..Selection::default() }).unwrap();
    let part = &part.snapshot.total;
    assert_eq!(
        (&part.sender_queue, &part.limiter, &part.receiver_queue),
        (&live.sender_queue, &live.limiter, &live.receiver_queue)
    );
    let said = part.findings.iter().find(|f| f.check == "selection").unwrap();
    assert!(said.detail.contains("all datagrams of that time"), "{}", said.detail);
}

#[test]
fn a_selection_counts_what_it_selects() {
    let dir = tempfile::tempdir().unwrap();
    let live = record(plan(), dir.path());
    let trace = Trace::open(dir.path()).unwrap();
    let report = |selection: &Selection| from_records(&trace, selection).unwrap().snapshot.total.clone();

    // Everything by way of a selection that leaves nothing out.
    let everything = report(&Selection { size: Some("0..65535".parse().unwrap()), ..Selection::default() });
    assert_eq!(everything.components, live.total.components);
    assert_eq!(everything.counts.sent, live.total.counts.sent);
    assert_eq!(everything.counts.dropped, live.total.counts.dropped);

    let run = live.total.by_run[0].run;
    let mut sent = 0;
    for stream in 0..3 {
        let flow = format!("{run}:{stream}").parse().unwrap();
        let part = report(&Selection { flows: vec![flow], ..Selection::default() });
        assert_eq!(part.flows.len(), 1);
        let whole = live.total.flows.iter().find(|f| f.key.stream == stream).unwrap();
        assert_eq!(part.counts.delivered, whole.counts.delivered);
        assert_eq!(part.flows[0].components, whole.components);
        assert_eq!(part.verdict, live.total.verdict, "{:?}", part.findings);
        sent += part.counts.sent.unwrap();
    }
    assert_eq!(sent, 60_000);

    // 60,000 datagrams at 5 µs: 0.3 s.
    let third = Duration::from_millis(100);
    let first = report(&Selection { to: Some(third), ..Selection::default() });
    let rest = report(&Selection { from: Some(third), ..Selection::default() });
    assert_eq!((first.counts.sent, rest.counts.sent), (Some(20_000), Some(40_000)));

    // Of a time, the other segments' records are not read.
    let outside = |n: &&u64| {
        let (first, _) = trace.segment(**n).unwrap().offer_ns.unwrap();
        first.cast_unsigned() >= trace.meta.start_ns + 100_000_000
    };
    let number = *trace.numbers().iter().find(outside).unwrap();
    let path = dir.path().join(format!("packets-{number:06}.parquet"));
    let whole = fs::read(&path).unwrap();
    fs::write(&path, b"nonsense").unwrap();
    let again = report(&Selection { to: Some(third), ..Selection::default() });
    same(&first, &again);
    fs::write(&path, whole).unwrap();

    let slow =
        report(&Selection { components: vec!["total > 1ms".parse().unwrap()], ..Selection::default() });
    let quick =
        report(&Selection { components: vec!["total <= 1ms".parse().unwrap()], ..Selection::default() });
    assert!(slow.counts.delivered > 100 && quick.counts.delivered > 100);
    assert_eq!(slow.counts.delivered + quick.counts.delivered, live.total.counts.delivered);
    assert!(quick.components.total.distribution.max_ns.unwrap() <= 1_000_000);
}

#[test]
fn nothing_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    record(Plan { datagrams: 10, ..plan() }, dir.path());
    let options = || RecordOptions { dir: dir.path().to_owned(), ..RecordOptions::default() };
    assert!(matches!(Recorder::create(options()), Err(TraceError::Exists { .. })));
    let file = dir.path().join("meta.json");
    let options = RecordOptions { dir: file.join("t"), ..RecordOptions::default() };
    let said = Recorder::create(options).err().unwrap().to_string();
    assert!(said.contains("meta.json"), "{said}");
}

/// Leaves of a trace what a kill would: no end in meta.json, and a part of the
/// next segment.
fn cut_short(dir: &Path, segments: u64) {
    let mut meta: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.join("meta.json")).unwrap()).unwrap();
    meta["end"] = serde_json::Value::Null;
    fs::write(dir.join("meta.json"), meta.to_string()).unwrap();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let number = path.file_stem().unwrap().to_str().unwrap().rsplit_once('-').map(|n| n.1.to_owned());
        if number.and_then(|n| n.parse::<u64>().ok()).is_some_and(|n| n >= segments) {
            fs::remove_file(path).unwrap();
        }
    }
    fs::write(dir.join(format!("packets-{segments:06}.parquet.part")), b"PAR1half").unwrap();
    fs::write(dir.join("open.json"), format!("{{\"segment\":{segments},\"records\":4321,\"at_ns\":5}}   \n"))
        .unwrap();
}

#[test]
fn a_recording_cut_short_opens_and_says_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    record(plan(), dir.path());
    cut_short(dir.path(), 3);
    let trace = Trace::open(dir.path()).unwrap();
    let report = all(&trace).snapshot.total.clone();
    let finding = report.findings.iter().find(|f| f.check == "trace-complete").unwrap();
    assert_eq!(finding.level, Level::Warning);
    assert!(finding.observed.contains("4,321 datagrams"), "{}", finding.observed);
    let slow = from_records(&trace, &Selection::default()).unwrap();
    same(&report, &slow.snapshot.total);
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files
}

/// Reads everything there is to read.
fn read_all(dir: &Path) -> Result<(), TraceError> {
    let trace = Trace::open(dir)?;
    let fast = answer::report(&trace, &Selection::default(), &mut |_, _| {});
    let slow = from_records(&trace, &Selection::default());
    let journeys = trace.journeys().try_for_each(|j| j.map(drop));
    fast.map(drop).and(slow.map(drop)).and(journeys)
}

#[test]
fn damage_is_an_error_that_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    // Two segments: a poll of the plan is 123 ms.
    record(Plan { datagrams: 8_500, gap_ns: 15_000, ..plan() }, dir.path());
    read_all(dir.path()).unwrap();
    let mut rng = fastrand::Rng::with_seed(5);
    for path in files(dir.path()) {
        let whole = fs::read(&path).unwrap();
        let mut damages: Vec<Vec<u8>> = vec![Vec::new(), whole[..whole.len() / 2].to_vec()];
        for _ in 0..1 {
            let mut flipped = whole.clone();
            let at = rng.usize(..flipped.len());
            flipped[at] ^= 1 << rng.u8(..8);
            damages.push(flipped);
        }
        for damage in damages {
            fs::write(&path, &damage).unwrap();
            let json = path.extension().unwrap() == "json";
            match read_all(dir.path()) {
                // A bit may flip in a figure or a name; Parquet has a checksum.
                Ok(()) => assert!(json && !damage.is_empty(), "{}", path.display()),
                Err(e) => {
                    let name = path.file_name().unwrap().to_str().unwrap();
                    let number = name.rsplit_once('-').map_or(name, |n| n.1);
                    let said = e.to_string();
                    assert!(json || said.contains(name), "{said} for {name}");
                    assert!(json || number.starts_with("0000"), "{number}");
                }
            }
        }
        fs::write(&path, &whole).unwrap();
    }
    read_all(dir.path()).unwrap();

    let middle = files(dir.path()).into_iter().find(|p| p.ends_with("packets-000001.parquet")).unwrap();
    fs::write(&middle, b"nonsense").unwrap();
    let mut trace = Trace::open(dir.path()).unwrap();
    assert!(from_records(&trace, &Selection::default()).is_err());
    trace.skip_damaged().unwrap();
    let report = from_records(&trace, &Selection::default()).unwrap().snapshot.total.clone();
    let said = &report.findings.iter().find(|f| f.check == "trace-complete").unwrap().observed;
    assert!(said.contains("segments 1 are not there"), "{said}");
}

#[test]
fn other_versions_and_other_things_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    assert!(matches!(Trace::open(&at("absent")), Err(TraceError::NoTrace { .. })));
    fs::create_dir(at("empty")).unwrap();
    assert!(matches!(Trace::open(&at("empty")), Err(TraceError::NoTrace { .. })));

    record(Plan { datagrams: 10, ..plan() }, &at("newer"));
    let meta = at("newer").join("meta.json");
    let text = fs::read_to_string(&meta).unwrap();
    fs::write(&meta, text.replace("observer-trace/1", "observer-trace/2")).unwrap();
    let said = Trace::open(&at("newer")).unwrap_err();
    assert!(matches!(said, TraceError::Version { .. }));
    assert!(said.to_string().contains("observer-trace/2"), "{said}");

    // Another table under the right name, with a right checksum.
    fs::write(&meta, text).unwrap();
    let segment = at("newer").join("segment-000000.json");
    let mut json: serde_json::Value = serde_json::from_slice(&fs::read(&segment).unwrap()).unwrap();
    json["files"]["packets"] = json["files"]["histograms"].clone();
    json["files"]["packets"]["rows"] = 10.into();
    fs::write(&segment, json.to_string()).unwrap();
    fs::copy(at("newer").join("histograms-000000.parquet"), at("newer").join("packets-000000.parquet"))
        .unwrap();
    let said = read_all(&at("newer"))
        .and(from_records(&Trace::open(&at("newer")).unwrap(), &Selection::default()).map(drop));
    let said = said.unwrap_err().to_string();
    assert!(said.contains("columns are not this version's"), "{said}");
}

#[test]
fn a_flight_recorder_keeps_its_window_and_preserves_it() {
    let dir = tempfile::tempdir().unwrap();
    // Ten seconds of its own time, an interval each quarter of one.
    let plan = Plan { gap_ns: 30_000, datagrams: 333_000, drop_every: 100, ..plan() };
    let options = RecordOptions {
        window: Some(Duration::from_secs(2)),
        triggers: vec!["total_p99 > 1us".parse().unwrap()],
        interval: Duration::from_nanos(INTERVAL_NS),
        ..RecordOptions::default()
    };
    let live = record_with(plan, dir.path(), options);
    let trace = Trace::open(dir.path()).unwrap();
    assert!(trace.numbers()[0] > 0);
    let report = all(&trace).snapshot.total.clone();
    // At least the window, at most a segment more.
    let kept = 2.0..3.0;
    let seconds = report.seconds();
    assert!(kept.contains(&seconds), "{seconds}");
    let sent = report.counts.sent.unwrap();
    assert!((66_000..100_000).contains(&sent), "{sent}");
    assert_eq!(report.counts.unaccounted, 0);
    assert_eq!(report.counts.delivered, report.components.total.distribution.count);
    assert_eq!(report.verdict, live.total.verdict, "{:?}", report.findings);
    assert_eq!(report.flows[0].key, live.total.flows[0].key, "who the flows are is not forgotten");
    let slow = from_records(&trace, &Selection::default()).unwrap();
    same(&report, &slow.snapshot.total);

    let preserved: Vec<_> = files(dir.path()).into_iter().filter(|p| p.is_dir()).collect();
    assert!((3..=6).contains(&preserved.len()), "quiet for a window after each: {preserved:?}");
    for dir in &preserved[1..] {
        let trace = Trace::open(dir).unwrap();
        assert!(trace.meta.preserved.as_deref().unwrap().starts_with("total_p99 >"));
        let seconds = all(&trace).snapshot.total.seconds();
        assert!(kept.contains(&seconds), "{seconds}");
    }
}
