//! Recording what a real kernel does: the trace's report is the live one, at
//! no more bytes than promised, and a kill loses no more than the open
//! segment.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use load::{Buffer, Progress, Schedule, SendConfig, Stop};
use observer::{
    diagnose::limiter::Limiter,
    kernel::attach::{AttachOptions, NamedRun},
    lab::scenario::{Scenario, Stage, target},
    lab::{LabConfig, Tbf},
    model::two_sided::Kind,
    session::Session,
    snapshot::Snapshot,
    trace::{
        Selection, Trace, answer,
        record::{RecordOptions, Recorder, Status},
    },
};
use support::observed::as_observer;

mod support;

/// Most bytes on disk for a datagram.
const MOST_BYTES: f64 = 16.0;

fn load_of(count: u64, rate: f64) -> SendConfig {
    SendConfig { schedule: Schedule::Constant { rate }, count: Some(count), ..SendConfig::new(target()) }
}

/// Plays a scenario, recorded into `dir`.
fn play(scenario: &Scenario, dir: &Path) -> (Arc<Snapshot>, Arc<Status>) {
    let stage = Stage::set(scenario).unwrap();
    let options = AttachOptions { runs: vec![NamedRun::ours(scenario.load.run)], ..AttachOptions::default() };
    let interval = Duration::from_secs(1);
    let recorder =
        Recorder::create(RecordOptions { dir: dir.to_owned(), interval, ..RecordOptions::default() })
            .unwrap();
    let status = recorder.status();
    let session = as_observer(|| {
        Session::start_recorded(&options, interval, Box::new(|_| {}), Some(recorder)).unwrap()
    });
    let (_, _lab) = stage.run(&Stop::new(), &Progress::new()).unwrap();
    (session.finish().unwrap(), status)
}

#[test]
fn a_live_runs_trace_has_its_report_to_the_last_digit() {
    needs_root!();
    let dir = tempfile::tempdir().unwrap();
    let scenario = Scenario::new(load_of(100_000, 50_000.0));
    let (live, status) = play(&scenario, &dir.path().join("t"));
    assert_eq!(status.failed(), None);
    let trace = Trace::open(&dir.path().join("t")).unwrap();
    let live = serde_json::to_value(&*live.total).unwrap();
    let fast = answer::report(&trace, &Selection::default(), &mut |_, _| {}).unwrap();
    assert_eq!(serde_json::to_value(&*fast.snapshot.total).unwrap(), live);
    let slow = answer::from_records(&trace, &Selection::default(), &mut |_, _| {}).unwrap();
    assert_eq!(serde_json::to_value(&*slow.snapshot.total).unwrap(), live);
    assert!(slow.datagrams > 99_000, "{}", slow.datagrams);

    let end = trace.meta.end.unwrap();
    assert_eq!(end.unrecorded, 0);
    let each = end.bytes as f64 / end.packets as f64;
    eprintln!("{each:.1} bytes and {} ns of CPU per datagram", end.cpu_ns / end.packets);
    assert!(each <= MOST_BYTES, "{each}");
}

#[test]
fn a_limiter_and_what_it_is_configured_to_are_in_the_trace() {
    needs_root!();
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("t");
    // 1.3 times what passes, for two seconds.
    let load = SendConfig { size: 1_200, sndbuf: Buffer::Bytes(64 << 20), ..load_of(5_200, 2_600.0) };
    let shaper = Tbf { rate_bit_per_s: 20_000_000, burst_bytes: 64 << 10, limit_bytes: 64_000_000 };
    let lab = LabConfig { shaper: Some(shaper), ..LabConfig::default() };
    let (live, status) = play(&Scenario { lab, ..Scenario::new(load) }, &to);
    assert_eq!(status.failed(), None);
    let limiter = live.total.limiter.clone().unwrap();
    assert_eq!(limiter.kind, Kind::Tbf, "{limiter:?}");
    let trace = Trace::open(&to).unwrap();
    let of = |answer: answer::Answer| answer.snapshot.total.clone();
    let fast = of(answer::report(&trace, &Selection::default(), &mut |_, _| {}).unwrap());
    let slow = of(answer::from_records(&trace, &Selection::default(), &mut |_, _| {}).unwrap());
    assert_eq!((&*fast, &*slow), (&*live.total, &*live.total));
    let configured = fast.limiter.as_ref().unwrap().configured.clone().unwrap();
    assert_eq!((configured.kind.as_str(), configured.rate_bit_s), ("tbf", Some(20_000_000)));

    let done = Command::new(env!("CARGO_BIN_EXE_observer")).args(["limiter", "--json"]).arg(&to).output();
    let printed: Limiter = serde_json::from_slice(&done.unwrap().stdout).unwrap();
    assert_eq!(printed, limiter);
}

/// Kills made; `TRACE_KILLS` makes it more.
const KILLS: u32 = 4;

#[test]
fn a_kill_loses_at_most_the_open_segment() {
    needs_root!();
    let kills = std::env::var("TRACE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(KILLS);
    let dir = tempfile::tempdir().unwrap();
    let mut rng = fastrand::Rng::new();
    let mut opened = 0;
    for kill in 0..kills {
        let load = SendConfig {
            // Little, so that a debug build keeps up on a busy machine.
            schedule: Schedule::Constant { rate: 4_000.0 },
            duration: Some(Duration::from_secs(120)),
            ..SendConfig::new(target())
        };
        let scenario = Scenario::new(load);
        let stage = Stage::set(&scenario).unwrap();
        let to = dir.path().join(kill.to_string());
        let mut observer = Command::new(env!("CARGO_BIN_EXE_observer"))
            .arg("--record")
            .arg(&to)
            .args(["--interval", "500ms"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stop = Stop::new();
        let stopped = stop.clone();
        let playing = std::thread::spawn(move || stage.run(&stopped, &Progress::new()).map(drop));
        // From the first segment on, whenever that is.
        let first = to.join("segment-000000.json");
        // A debug build takes seconds to attach on a busy machine.
        for _ in 0..1_600 {
            if first.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        std::thread::sleep(Duration::from_millis(rng.u64(0..1_500)));
        observer.kill().unwrap();
        observer.wait().unwrap();
        stop.set();
        // A run that was stopped has done its part.
        let _ = playing.join().unwrap();

        let trace = Trace::open(&to).unwrap();
        let missing = trace.missing().unwrap();
        assert!(missing.cut_short && missing.gaps.is_empty(), "{missing:?}");
        let sentence = missing.sentence().unwrap();
        let report = answer::from_records(&trace, &Selection::default(), &mut |_, _| {}).unwrap();
        let fast = answer::report(&trace, &Selection::default(), &mut |_, _| {}).unwrap();
        assert_eq!(report.snapshot.total, fast.snapshot.total);
        eprintln!(
            "killed after {} datagrams in {} segments: {sentence}",
            report.datagrams,
            trace.numbers().len()
        );
        if let Some(open) = missing.open {
            // Half a second of it, and what a busy machine adds.
            assert!(open.records < 20_000, "{open:?}");
            assert!(sentence.contains("datagrams"), "{sentence}");
        }
        opened += 1;
    }
    assert_eq!(opened, kills);
}

/// A file system of a few pages, mounted for one test.
struct Small(std::path::PathBuf);

impl Small {
    fn mount(at: &Path) -> Self {
        std::fs::create_dir_all(at).unwrap();
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(at).status();
        assert!(done.unwrap().success());
        Self(at.to_owned())
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_observation() {
    needs_root!();
    let dir = tempfile::tempdir().unwrap();
    let small = Small::mount(&dir.path().join("small"));
    let scenario = Scenario::new(load_of(60_000, 40_000.0));
    let (live, status) = play(&scenario, &small.0.join("t"));
    let why = status.failed().unwrap();
    assert!(why.contains("No space left") || why.contains("os error 28"), "{why}");
    assert!(live.total.counts.delivered > 59_000, "the observation went on");
    let news = status.news();
    assert!(news.iter().any(|n| n.contains("the observation goes on")), "{news:?}");
    // What was closed before is a trace, and says that it is not all.
    if let Ok(trace) = Trace::open(&small.0.join("t")) {
        assert!(trace.missing().unwrap().sentence().is_some());
    }
}
