//! Traces as DuckDB sees them: the answers to the documented questions are
//! the report's, and a directory of traces is a data set.
//!
//! Needs a Python with the duckdb package: `cargo xtask test` makes one in
//! target/duckdb; OBSERVER_DUCKDB names another.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use observer::{
    report::Report,
    source::synthetic::{Plan, Spread, Synthetic},
    trace::{
        Selection, Trace, answer, drive,
        record::{RecordOptions, Recorder},
    },
};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The Python that has duckdb; `None`, and said, where there is none. CI has
/// one: there it fails.
fn python() -> Option<PathBuf> {
    let given = std::env::var_os("OBSERVER_DUCKDB").map(PathBuf::from);
    let python = given.unwrap_or_else(|| root().join("target/duckdb/bin/python"));
    let works =
        Command::new(&python).args(["-c", "import duckdb"]).output().is_ok_and(|o| o.status.success());
    if works {
        return Some(python);
    }
    if std::env::var("CI").as_deref() == Ok("true") {
        panic!("no Python with duckdb at {}", python.display());
    }
    eprintln!("SKIPPED: needs a Python with duckdb, which `cargo xtask test` sets up");
    None
}

fn ask(python: &Path, args: &[&Path]) -> Value {
    let done =
        Command::new(python).arg(root().join("observer/tests/duckdb/ask.py")).args(args).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

fn record(plan: Plan, dir: &Path) {
    let options = RecordOptions { dir: dir.to_owned(), ..RecordOptions::default() };
    let recorder = Recorder::create(options).unwrap();
    drive::record(&mut Synthetic::new(plan), recorder, 100_000_000).unwrap();
}

fn plan() -> Plan {
    Plan {
        streams: 3,
        datagrams: 120_000,
        gap_ns: 8_000,
        sender_queue: Spread::Exponential(40_000),
        shaper: Spread::Exponential(90_000),
        wire: Spread::Uniform(800, 2_000),
        receiver: Spread::Exponential(60_000),
        blocked_percent: 10,
        run_queue_percent: 5,
        drop_every: 700,
        ..Plan::default()
    }
}

fn distribution(report: &Report, name: &str) -> Value {
    if name == "send_lag" {
        return serde_json::to_value(&report.send_lag).unwrap();
    }
    let json = serde_json::to_value(&report.components).unwrap();
    let component = ["sender_queue", "shaper", "wire", "receiver", "total"]
        .into_iter()
        .find(|c| name.starts_with(c))
        .unwrap_or_else(|| panic!("{name}"));
    match name[component.len()..].strip_prefix('_') {
        Some(part) => json[component]["parts"][part].clone(),
        None => json[component].clone(),
    }
}

#[test]
fn the_ten_answers_are_the_reports() {
    let Some(python) = python() else { return };
    let dir = tempfile::tempdir().unwrap();
    record(plan(), dir.path());
    let trace = Trace::open(dir.path()).unwrap();
    let report =
        answer::report(&trace, &Selection::default(), &mut |_, _| {}).unwrap().snapshot.total.clone();
    let answers = ask(&python, &[&root().join("docs/trace.sql"), dir.path()]);
    let rows = |name: &str| answers[name].as_array().unwrap_or_else(|| panic!("{name}: {answers}")).clone();
    assert_eq!(answers.as_object().unwrap().len(), 10);

    let quantiles = rows("quantiles");
    assert!(quantiles.len() > 30, "{quantiles:?}");
    for row in quantiles.iter().filter(|r| r["metric"] != "complete") {
        let (metric, q) = (row["metric"].as_str().unwrap(), row["q"].as_str().unwrap());
        let expected = &distribution(&report, metric)[format!("{q}_ns")];
        assert_eq!(row["ns"].as_f64(), expected.as_f64(), "{metric} {q}");
    }
    let counts = &report.counts;
    let balance = &rows("balance")[0];
    assert_eq!(balance["sent"], counts.sent.unwrap());
    assert_eq!(balance["delivered"], counts.delivered);
    assert_eq!(balance["dropped"], counts.dropped_total());
    assert_eq!(balance["delivered_bytes"], counts.delivered_bytes);
    let drops = rows("drops")
        .iter()
        .map(|r| (r["reason"].as_str().unwrap().to_owned(), r["datagrams"].as_u64().unwrap()))
        .collect();
    assert_eq!(counts.dropped, drops);
    let tail = report.tail.iter().find(|t| t.quantile < 0.995).unwrap();
    for row in rows("tail") {
        let share =
            serde_json::to_value(tail.share).unwrap()[row["metric"].as_str().unwrap()].as_f64().unwrap();
        let answer = row["share"].as_f64().unwrap();
        assert!((answer - share).abs() <= 1e-6, "{row}: the report rounds {share}");
    }
    for row in rows("flows") {
        let flow =
            report.flows.iter().find(|f| u64::from(f.key.stream) == row["stream"].as_u64().unwrap()).unwrap();
        assert_eq!(row["p99_ns"].as_f64(), flow.components.total.p99_ns.map(|ns| ns as f64), "{row}");
        assert_eq!(row["datagrams"].as_f64(), Some(flow.components.total.count as f64));
    }
    let slowest = &rows("slowest")[0];
    assert_eq!(slowest["total_ns"].as_u64(), report.components.total.distribution.max_ns);
    let parts = ["sender_queue_ns", "shaper_ns", "wire_ns", "receiver_ns"];
    let sum: u64 = parts.iter().map(|p| slowest[p].as_u64().unwrap()).sum();
    assert_eq!(Some(sum), slowest["total_ns"].as_u64());
    let hop = report.components.shaper.slowest_hop.unwrap();
    assert_eq!(rows("hop")[0]["span_ns"], hop.span_ns);
    assert_eq!(rows("hop")[0]["ifindex"], hop.ifindex);
    let waits = rows("waits");
    for (row, expected) in waits.iter().zip([report.waits.run_queue, report.waits.send_buffer]) {
        assert_eq!(row["waits"], expected.count);
        assert_eq!(row["total_ns"], expected.total_ns);
        assert_eq!(row["max_ns"], expected.max_ns);
    }
    let complete = &rows("complete")[0];
    assert_eq!(
        (complete["complete"].as_u64(), complete["partial"].as_u64()),
        (Some(counts.complete), Some(counts.partial))
    );
    let slow = Selection { components: vec!["shaper > 100us".parse().unwrap()], ..Selection::default() };
    let selected = answer::report(&trace, &slow, &mut |_, _| {}).unwrap().snapshot.total.clone();
    let row = &rows("selected")[0];
    assert_eq!(row["datagrams"], selected.components.total.distribution.count);
    assert_eq!(row["p99_ns"].as_u64(), selected.components.total.distribution.p99_ns);
}

#[test]
fn a_directory_of_twenty_traces_is_a_partitioned_data_set() {
    let Some(python) = python() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for host in ["a", "b"] {
        for run in 0..10_u32 {
            let to = dir.path().join(format!("host={host}")).join(format!("run={run}"));
            let datagrams = 1_000 + u64::from(run);
            record(Plan { datagrams, seed: run.into(), drop_every: 0, ..plan() }, &to);
            let report =
                answer::report(&Trace::open(&to).unwrap(), &Selection::default(), &mut |_, _| {}).unwrap();
            let max_ns = report.snapshot.total.components.total.distribution.max_ns;
            expected.push((host.to_owned(), u64::from(run), datagrams, max_ns));
        }
    }
    let found: Vec<_> = ask(&python, &[Path::new("--layout"), dir.path()])
        .as_array()
        .unwrap()
        .iter()
        .map(|r| {
            (
                r["host"].as_str().unwrap().to_owned(),
                r["run"].as_u64().unwrap(),
                r["datagrams"].as_u64().unwrap(),
                r["max_ns"].as_u64(),
            )
        })
        .collect();
    assert_eq!(found, expected);
}
