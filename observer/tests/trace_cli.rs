//! The commands that take a trace, from outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use observer::{
    paths::Gatherer,
    report::Report,
    source::{
        Batch, Progress, Source, SourceError, SourceMeta, Tables,
        synthetic::{self, Plan, Spread, Synthetic},
    },
    trace::{
        Trace, drive,
        record::{RecordOptions, Recorder},
    },
};
use observer_ebpf::abi::JourneyRecord;
use observer_ebpf::stamp::Stamp;
use serde_json::Value;

const OBSERVER: &str = env!("CARGO_BIN_EXE_observer");

fn observer(args: &[&str]) -> Output {
    Command::new(OBSERVER).args(args).stdin(Stdio::null()).output().unwrap()
}

/// What is printed as JSON, and the exit code.
fn json(args: &[&str]) -> (Value, Option<i32>) {
    let output = observer(args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.is_empty(), "{said}");
    (serde_json::from_slice(&output.stdout).unwrap(), output.status.code())
}

fn record(source: &mut impl Source, dir: &Path) -> Report {
    let options = RecordOptions { dir: dir.to_owned(), ..RecordOptions::default() };
    let snapshot = drive::record(source, Recorder::create(options).unwrap(), 100_000_000).unwrap();
    (*snapshot.total).clone()
}

fn plan() -> Plan {
    Plan { datagrams: 60_000, shaper: Spread::Exponential(400_000), ..Plan::default() }
}

#[test]
fn report_and_limiter_print_what_the_observation_had() {
    let dir = tempfile::tempdir().unwrap();
    let live = record(&mut Synthetic::new(plan()), dir.path());
    let at = dir.path().to_str().unwrap();
    let (report, code) = json(&["report", at, "--json"]);
    assert_eq!(report, serde_json::to_value(&live).unwrap());
    assert_eq!(code, Some(live.verdict.exit_code().into()));
    assert_eq!(json(&["report", at, "--json", "--from-records"]).0, report);

    let (limiter, _) = json(&["limiter", at, "--json"]);
    assert_eq!(limiter, report["limiter"]);
    let (part, _) = json(&["limiter", at, "--json", "--to", "500ms"]);
    let passages = |l: &Value| l["passages"].as_u64().unwrap();
    assert!(passages(&part) > 20_000 && passages(&part) < passages(&limiter), "{part}");
    let (nothing, code) = json(&["limiter", at, "--json", "--from", "1h"]);
    assert_eq!((nothing["kind"].as_str(), code), (Some("not-enough-evidence"), Some(2)), "{nothing}");
    let text = String::from_utf8(observer(&["limiter", at]).stdout).unwrap();
    assert!(text.starts_with("limiter") && text.contains("\nbecause"), "{text}");
}

/// Trains of 300 through a link of 10 Mbit/s, one every second.
struct Trains(u64, SourceMeta);

impl Source for Trains {
    fn poll(&mut self, batch: &mut Batch) -> Result<Progress, SourceError> {
        let round = self.0;
        self.0 += 1;
        for i in 0..300 {
            let seq = round * 300 + i;
            batch.journeys.push(JourneyRecord {
                stream_seq: Stamp::new(9, 3, seq, 0, 0).stream_seq,
                intended_ns: (round * 1_000_000_000).cast_signed(),
                rx_ns: 10_000_000_000 + round * 1_000_000_000 + (i + 1) * 273_600,
                l2_bytes: 342,
                ..synthetic::journey(9, 3, seq)
            });
        }
        if round == 0 {
            batch.flows = vec![synthetic::flow(9, 3, 1), synthetic::flow(9, 3, 2)];
        }
        Ok(if round == 7 { Progress::End } else { Progress::More })
    }

    fn tables(&mut self, _: bool) -> Result<Tables, SourceError> {
        Ok(Tables::empty(10_000_000_000 + self.0 * 1_000_000_000))
    }

    fn meta(&self) -> &SourceMeta {
        &self.1
    }
}

#[test]
fn paths_of_a_trace_are_those_that_were_watched() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("trains");
    record(&mut Trains(0, synthetic::meta()), &at);
    let watched = Gatherer::run(&mut Trains(0, synthetic::meta())).unwrap();
    let capacity = watched.paths[0].capacity.as_ref().unwrap().rate_bit_s;
    assert!((capacity / 10e6 - 1.0).abs() < 0.02, "{capacity}");
    let (found, code) = json(&["paths", at.to_str().unwrap(), "--json"]);
    assert_eq!(found, serde_json::to_value(&watched).unwrap());
    assert_eq!(code, Some(0));
    // Watching and reading do not go together.
    assert_eq!(observer(&["paths", at.to_str().unwrap(), "--port", "9"]).status.code(), Some(3));
}

#[test]
fn what_is_no_trace_is_exit_3_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_str().unwrap();
    for args in [
        &["report", at][..],
        &["limiter", at],
        &["paths", at],
        &["compare", at, at],
        &["export", at, "--format", "csv", "--out", "x"],
        &["trigger", at],
        &["report", at, "--tui"],
    ] {
        let output = observer(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{args:?}: {said}");
        assert!(said.lines().count() == 1 && said.contains("is no trace"), "{args:?}: {said}");
    }
    record(&mut Synthetic::new(Plan { datagrams: 100, ..plan() }), &dir.path().join("t"));
    let trace = dir.path().join("t");
    assert_eq!(Trace::open(&trace).unwrap().numbers(), [0]);
    for bad in [["--speed", "0"], ["--speed", "x"], ["--component", "cable > 1ms"], ["--size", "3..2"]] {
        let output = observer(&["report", trace.to_str().unwrap(), bad[0], bad[1]]);
        assert_eq!(output.status.code(), Some(3), "{bad:?}");
    }
}
