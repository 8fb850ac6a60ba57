//! Ten set-ups with a known cause, live: the top finding names it.

use std::sync::Arc;
use std::time::Duration;

use load::{Buffer, Engine, Idle, SendConfig};
use observer::lab::scenario::{Pauses, Scenario};
use observer::report::{Level, Report};
use observer::snapshot::Snapshot;

use super::support::observed::play;
use super::support::sheet::Sheet;
use super::{constant, descheduled, in_bursts, shaped};
use crate::needs_root;

/// The one that needs a second process.
const DESCHEDULED: &str = "descheduled sender";
/// The check of a generator that fell behind.
const BEHIND: &str = "generator-kept-up";
/// Times a set-up is played to be established.
const TRIES: usize = 10;

/// The nine others. Names as in the canned ones.
fn set_up(name: &str) -> Scenario {
    let driver = |scenario: Scenario, batch, idle| {
        let load = SendConfig { engine: Engine::Driver { ring: 1 << 17, batch, idle }, ..scenario.load };
        Scenario { load, ..scenario }
    };
    let pausing = |scenario: Scenario, every_us, lasts_us| {
        let pauses =
            Pauses { every: Duration::from_micros(every_us), lasts: Duration::from_micros(lasts_us) };
        Scenario { pauses: Some(pauses), ..scenario }
    };
    match name {
        "slow Sender" => driver(in_bursts(10_000, 400, 50_000, 160), 1, Idle::Yield),
        "sleeping Sender" => {
            driver(constant(4_000.0, 10_000, 160), 64, Idle::Sleep(Duration::from_millis(20)))
        }
        "small tbf burst" => shaped(50, 16, in_bursts(200, 150, 4_000, 1_200)),
        "low rate" => shaped(20, 32, constant(3_000.0, 6_000, 1_200)),
        "small receive buffer" => {
            // Some 20 datagrams of room, and a reader that takes several times
            // as long for one as they are apart within a burst, and on average
            // is idle: otherwise a burst fits, and what is lost is lost in the
            // moments in which the reader was kept from its CPU.
            let mut small = pausing(in_bursts(400, 80, 8_000, 160), 1, 30);
            small.reader.rcvbuf = Buffer::Bytes(8 << 10);
            small
        }
        "slow reader" => pausing(constant(5_000.0, 10_000, 160), 1, 300),
        "sleeping reader" => pausing(constant(4_000.0, 10_000, 160), 500_000, 120_000),
        "generator overload" => constant(3_000_000.0, 600_000, 160),
        "clean" => constant(1_000.0, 3_000, 160),
        other => panic!("no set-up {other:?}"),
    }
}

/// Each set-up, and the findings that name its cause.
const CAUSES: [(&str, &[&str]); 10] = [
    ("slow Sender", &["sender-drain"]),
    ("sleeping Sender", &["sender-start-latency"]),
    ("small tbf burst", &["limiter-burst", "tokens-lost"]),
    ("low rate", &["limiter-rate"]),
    ("small receive buffer", &["receive-buffer"]),
    ("slow reader", &["reader-slow"]),
    ("sleeping reader", &["reader-late"]),
    (DESCHEDULED, &["sender-stall"]),
    ("generator overload", &[BEHIND]),
    ("clean", &["no-tail"]),
];

/// The first finding that is about the run and not about its length.
fn top(report: &Report) -> &str {
    let about_length = ["run-was-long-enough", "quantile-quotable"];
    let first = report.findings.iter().find(|f| !about_length.contains(&f.check.as_str()));
    first.map_or("none", |f| f.check.as_str())
}

/// Whether the host itself spoiled the run: then nothing can be asked of it.
fn spoiled(report: &Report) -> bool {
    report.culprit_name() == "host-noise"
        || report.findings.iter().any(|f| f.check == "host-was-quiet" && f.level > Level::Passed)
}

fn once(name: &str) -> Arc<Snapshot> {
    if name == DESCHEDULED { descheduled() } else { play(&set_up(name)).snapshot }
}

/// Whether the machine made another set-up of it: its generator fell behind by
/// itself, or the hypervisor took more than 5 % of the CPU time. On a host that
/// is not quiet, or lets offers be late, nothing is clean.
fn is_another(name: &str, report: &Report, causes: &[&str]) -> bool {
    let late = report.findings.iter().any(|f| f.check == "offered-on-time" && f.level > Level::Passed);
    if name == "clean" && (late || spoiled(report)) {
        return true;
    }
    let stolen = report.findings.iter().any(|f| f.check == "host-was-quiet" && f.level == Level::Invalid);
    stolen || top(report) == BEHIND && !causes.contains(&BEHIND)
}

/// Plays a set-up until it is what it should be, [`TRIES`] times at most. With
/// it, how often it was played.
fn established(name: &str, causes: &[&str]) -> (Arc<Snapshot>, usize) {
    let mut tries = 1;
    let mut snapshot = once(name);
    while tries < TRIES && is_another(name, &snapshot.total, causes) {
        tries += 1;
        snapshot = once(name);
    }
    (snapshot, tries)
}

/// What was found instead, with the figures behind it.
fn told(name: &str, report: &Report) -> String {
    let findings = report.findings.iter().filter(|f| f.level > Level::Passed).take(4);
    let all: Vec<_> = findings.map(|f| format!("{}: {}", f.check, f.observed)).collect();
    let q = report.sender_queue.as_ref();
    format!(
        "{name}: {all:#?}\nculprit {:?}\nsender {:?}\nlimiter {:?}\nreceiver {:?}",
        report.culprit,
        q.map(|q| (q.cause, q.start_share, q.bursts, q.measured_max_wait_s, &q.drain)),
        report.limiter,
        report.receiver_queue
    )
}

#[test]
fn each_cause_is_named_on_real_packets() {
    needs_root!();
    let only = std::env::var("SETUP").ok();
    let mut wrong = Vec::new();
    for (name, causes) in CAUSES {
        if only.as_ref().is_some_and(|o| o != name) {
            continue;
        }
        let (snapshot, _) = established(name, causes);
        let report = &snapshot.total;
        // On a machine whose CPUs are taken away the cause must still be told,
        // though something else may come first.
        let named = causes.contains(&top(report))
            || spoiled(report)
                && (name == "clean" || report.findings.iter().any(|f| causes.contains(&f.check.as_str())));
        eprintln!("{name}: {}", top(report));
        if !named {
            wrong.push(told(name, report));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
#[ignore = "minutes: cargo xtask bench diagnosis"]
fn series_of_set_ups() {
    needs_root!();
    let rounds: usize = std::env::var("SERIES_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let mut sheet = Sheet::new("Ten set-ups with a known cause, live");
    sheet.table(
        &format!(
            "`cargo xtask bench diagnosis`: how often the top finding named the cause; 19 of 20 at least. Where the\n\
             generator fell behind by itself, or the hypervisor took more than 5 % of the CPU time, it was another\n\
             set-up and was played again, {TRIES} times at most; `clean` also where the host was not (steal above 1 %,\n\
             threads that waited 1 ms for a CPU, offers late by 1 ms).\n\n\
             | set-up | finding | named | otherwise | played again | holds |\n|---|---|---:|---|---:|---|\n"
        ),
        CAUSES.iter().map(|c| c.0.to_owned()),
    );
    for (name, causes) in CAUSES.iter().filter(|c| sheet.wants(c.0)).collect::<Vec<_>>() {
        let (mut named, mut otherwise, mut again) = (0, Vec::new(), 0);
        for round in 1..=rounds {
            let (snapshot, tries) = established(name, causes);
            let found = top(&snapshot.total).to_owned();
            again += tries - 1;
            eprintln!("{name}, {round} of {rounds}: {found}");
            if causes.contains(&found.as_str()) {
                named += 1;
            } else {
                eprintln!("{}", told(name, &snapshot.total));
                otherwise.push(found);
            }
        }
        let cells =
            [causes.join(", "), format!("{named} of {rounds}"), otherwise.join(", "), again.to_string()];
        sheet.put(name, &cells, named * 20 >= rounds * 19);
    }
    println!("{}", sheet.text());
}
