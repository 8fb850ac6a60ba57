//! The diagnosis on real packets: limiters of known rate and bucket, and ten
//! set-ups with a known cause, each played once here.
//!
//! `cargo xtask bench limiter` and `cargo xtask bench diagnosis` play the long
//! series (the ignored tests below) and write down how they went.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use load::{Buffer, Engine, Idle, Schedule, SendConfig};
use observer::diagnose::limiter::Limiter;
use observer::diagnose::sender::SenderCause;
use observer::lab::scenario::{self, Pauses, Scenario};
use observer::lab::{LabConfig, Tbf};
use observer::model::one_sided;
use observer::model::two_sided::{Kind, Passage};
use observer::report::Report;
use support::observed::{Observed, play};

mod support;

/// Payload and headers: 1,200 + 8 + 20 + 14.
const L2: f64 = 1_242.0;

fn load_of(schedule: Schedule, count: u64, size: usize) -> SendConfig {
    SendConfig {
        schedule,
        count: Some(count),
        size,
        sndbuf: Buffer::Bytes(256 << 20),
        ..SendConfig::new(scenario::target())
    }
}

fn constant(rate: f64, count: u64, size: usize) -> Scenario {
    Scenario::new(load_of(Schedule::Constant { rate }, count, size))
}

fn in_bursts(size: u64, every_ms: u64, count: u64, bytes: usize) -> Scenario {
    let every = Some(Duration::from_millis(every_ms));
    Scenario::new(load_of(Schedule::Bursts { size, dispatch: None, every, repeat: None }, count, bytes))
}

fn shaped(mbit: u64, kib: u64, scenario: Scenario) -> Scenario {
    let shaper = Tbf { rate_bit_per_s: mbit * 1_000_000, burst_bytes: kib << 10, limit_bytes: 256_000_000 };
    Scenario { lab: LabConfig { shaper: Some(shaper), ..LabConfig::default() }, ..scenario }
}

/// A tbf under 1.3 times its rate, for as long as it takes to empty its
/// bucket and a second more.
fn overloaded(mbit: u64, kib: u64) -> Scenario {
    let r = mbit as f64 * 125e3;
    let seconds = (kib << 10) as f64 / (0.3 * r) + 1.0;
    let rate = 1.3 * r / L2;
    shaped(mbit, kib, constant(rate, observer_whole(rate * seconds), 1_200))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of datagrams")]
fn observer_whole(x: f64) -> u64 {
    x as u64
}

/// How far a limiter is from what the kernel has: rate as a share, bucket in
/// bytes.
fn off(l: &Limiter, played: &Observed) -> (Option<f64>, Option<f64>) {
    let has = played.outcome.way_out.options;
    let rate = l.rate_bit_s.map(|r| r / (8.0 * has.rate_byte_per_s as f64) - 1.0);
    (rate, l.burst_bytes.map(|b| b - has.burst_bytes as f64))
}

/// The same from send and receive times alone.
fn from_afar(played: &Observed) -> one_sided::OneSided {
    let mut p: Vec<Passage> = played
        .records
        .iter()
        .filter(|r| r.dev_queue_ns != 0 && r.rx_ns != 0)
        .map(|r| Passage::new(r.dev_queue_ns, r.rx_ns, r.l2_bytes))
        .collect();
    p.sort_by_key(|x| x.exit_ns);
    one_sided::estimate(&p, true)
}

#[test]
fn token_buckets_are_what_the_kernel_has() {
    needs_root!();
    for (mbit, kib) in [(10, 64), (50, 256)] {
        let played = play(&overloaded(mbit, kib));
        let report = &played.snapshot.total;
        let l = report.limiter.as_ref().unwrap();
        assert_eq!(l.kind, Kind::Tbf, "{l:?}");
        let configured = l.configured.as_ref().unwrap();
        assert_eq!((configured.kind.as_str(), configured.rate_bit_s), ("tbf", Some(mbit * 1_000_000)));
        let (rate, burst) = off(l, &played);
        let (rate, burst) = (rate.unwrap(), burst.unwrap());
        // Twice the bounds that the series holds on a quiet machine.
        assert!(rate.abs() < 0.01 || l.tokens_lost.is_some(), "{mbit} {kib}: {rate} {l:?}");
        let within = (0.04 * (kib << 10) as f64).max(2.0 * L2);
        assert!(burst.abs() <= within || l.tokens_lost.is_some(), "{mbit} {kib}: {burst} {l:?}");
        let afar = from_afar(&played).estimate;
        assert_eq!(afar.kind, Kind::Tbf, "{afar:?}");
        let apart = afar.rate_bit_s.unwrap() / l.rate_bit_s.unwrap() - 1.0;
        assert!(apart.abs() < 0.04, "{mbit} {kib}, from afar: {apart}");
    }
}

#[test]
fn an_unshaped_path_has_no_limiter() {
    needs_root!();
    let played = play(&constant(5_000.0, 10_000, 160));
    let l = played.snapshot.total.limiter.as_ref().unwrap();
    assert!(matches!(l.kind, Kind::None | Kind::SenderStall), "{l:?}");
}

/// D̂ ≈ r/L, and the limiter is named.
#[test]
fn a_sender_blocked_behind_a_limiter_is_the_limiters_doing() {
    needs_root!();
    let scenario = shaped(20, 32, in_bursts(2_000, 1_500, 2_000, 1_200));
    let load = SendConfig { engine: Engine::DRIVER, sndbuf: Buffer::Kernel, ..scenario.load };
    let played = play(&Scenario { load, ..scenario });
    let report = &played.snapshot.total;
    let q = report.sender_queue.as_ref().unwrap();
    assert_eq!(q.cause, SenderCause::Limiter, "{q:?}");
    assert_eq!(report.culprit_name(), "shaper", "{:?}", report.culprit);
    let named = report.findings.iter().any(|f| f.check.starts_with("limiter-"));
    assert!(named, "{:#?}", report.findings);
}

/// The nine set-ups that need no second process. Names as in the canned ones.
fn set_up(name: &str) -> Scenario {
    let driver = |scenario: Scenario, batch, idle| {
        let load = SendConfig { engine: Engine::Driver { ring: 1 << 17, batch, idle }, ..scenario.load };
        Scenario { load, ..scenario }
    };
    let mut small_buffer = in_bursts(3_000, 100, 30_000, 160);
    small_buffer.reader.rcvbuf = Buffer::Bytes(8 << 10);
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
        "small receive buffer" => small_buffer,
        "slow reader" => pausing(constant(5_000.0, 10_000, 160), 1, 300),
        "sleeping reader" => pausing(constant(4_000.0, 10_000, 160), 500_000, 120_000),
        "generator overload" => constant(3_000_000.0, 600_000, 160),
        "clean" => constant(1_000.0, 3_000, 160),
        other => panic!("no set-up {other:?}"),
    }
}

/// Each set-up, and the findings that name its cause.
const CAUSES: [(&str, &[&str]); 9] = [
    ("slow Sender", &["sender-drain"]),
    ("sleeping Sender", &["sender-start-latency"]),
    ("small tbf burst", &["limiter-burst", "tokens-lost"]),
    ("low rate", &["limiter-rate"]),
    ("small receive buffer", &["receive-buffer"]),
    ("slow reader", &["reader-slow"]),
    ("sleeping reader", &["reader-late"]),
    ("generator overload", &["generator-kept-up"]),
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
        || report
            .findings
            .iter()
            .any(|f| f.check == "host-was-quiet" && f.level > observer::report::Level::Passed)
}

/// Plays a set-up until its load was offered, three times at most: one whose
/// generator fell behind by itself (a pause of the machine) is another set-up.
fn established(name: &str, causes: &[&str]) -> Observed {
    const BEHIND: &str = "generator-kept-up";
    let mut played = play(&set_up(name));
    for _ in 1..3 {
        if top(&played.snapshot.total) != BEHIND || causes.contains(&BEHIND) {
            break;
        }
        played = play(&set_up(name));
    }
    played
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
        let played = established(name, causes);
        let report = &played.snapshot.total;
        // On a machine whose CPUs are taken away the cause must still be told,
        // though something else may come first.
        let told = causes.contains(&top(report))
            || spoiled(report)
                && (name == "clean" || report.findings.iter().any(|f| causes.contains(&f.check.as_str())));
        eprintln!("{name}: {}", top(report));
        if !told {
            let all: Vec<_> =
                report.findings.iter().take(4).map(|f| format!("{}: {}", f.check, f.observed)).collect();
            wrong.push(format!(
                "{name}: {all:#?}\n{:?}\n{:?}\n{:?}",
                report.sender_queue.as_ref().map(|q| (
                    q.cause,
                    q.start_share,
                    q.bursts,
                    q.measured_max_wait_s
                )),
                report.limiter,
                report.receiver_queue
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Two threads that burn the CPUs until they are dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..2 {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(stop)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Prints a table and writes it to `SERIES_OUT`, if that is set.
fn written(text: &str) {
    println!("{text}");
    if let Ok(path) = std::env::var("SERIES_OUT") {
        std::fs::write(path, text).unwrap();
    }
}

#[test]
#[ignore = "minutes: cargo xtask bench limiter"]
fn series_of_limiters() {
    needs_root!();
    let mut text = String::from(
        "# Limiters, measured\n\n`cargo xtask bench limiter`: tbf over veth, payload 1,200 B, offered at 1.3 times the rate; three runs each,\nthe third with two threads that burn the CPUs. Two-sided at the qdisc, and one-sided from send and receive times.\n\n| Mbit/s | KiB | run | kind | rate off | bucket off, B | tokens lost | one-sided rate off | b in its interval | holds |\n|---:|---:|---|---|---:|---:|---|---:|---|---|\n",
    );
    let (mut held, mut all) = (0, 0);
    for mbit in [10, 50, 200] {
        for kib in [16, 64, 256] {
            for run in ["quiet", "quiet", "busy"] {
                let busy = (run == "busy").then(Busy::start);
                let played = play(&overloaded(mbit, kib));
                drop(busy);
                let l = played.snapshot.total.limiter.clone().unwrap();
                let (rate, burst) = off(&l, &played);
                let afar = from_afar(&played).estimate;
                let has = played.outcome.way_out.options;
                let far = afar.rate_bit_s.map(|r| r / (8.0 * has.rate_byte_per_s as f64) - 1.0);
                let inside = afar.burst_interval.map(|i| i.contains(has.burst_bytes as f64));
                let within = (0.02 * has.burst_bytes as f64).max(L2);
                let holds = l.kind == Kind::Tbf
                    && (l.tokens_lost.is_some()
                        || rate.is_some_and(|r| r.abs() <= 0.005)
                            && burst.is_some_and(|b| b.abs() <= within));
                (held, all) = (held + u32::from(holds), all + 1);
                let percent =
                    |x: Option<f64>| x.map_or_else(|| "—".to_owned(), |x| format!("{:+.3} %", x * 100.0));
                let _ = writeln!(
                    text,
                    "| {mbit} | {kib} | {run} | {} | {} | {} | {} | {} | {} | {} |",
                    l.kind.name(),
                    percent(rate),
                    burst.map_or_else(|| "—".to_owned(), |b| format!("{b:+.0}")),
                    l.tokens_lost
                        .map_or_else(|| "no".to_owned(), |t| format!("{:.1} %", t.lost_share * 100.0)),
                    percent(far),
                    inside.map_or("—", |i| if i { "yes" } else { "no" }),
                    if holds { "yes" } else { "no" }
                );
            }
        }
    }
    let mut none = 0;
    for _ in 0..20 {
        let played = play(&constant(5_000.0, 5_000, 160));
        let kind = played.snapshot.total.limiter.as_ref().map(|l| l.kind);
        none += u32::from(!matches!(kind, Some(Kind::Tbf | Kind::Credit)));
    }
    let _ = write!(text, "\nHolds in {held} of {all}. Unshaped: no limiter in {none} of 20.\n");
    written(&text);
}

#[test]
#[ignore = "minutes: cargo xtask bench diagnosis"]
fn series_of_set_ups() {
    needs_root!();
    let rounds = std::env::var("SERIES_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let mut text = format!(
        "# Ten set-ups with a known cause, live\n\n`cargo xtask bench diagnosis`: each set-up {rounds} times; how often the top finding named its cause.\n\n| set-up | finding | named | otherwise |\n|---|---|---:|---|\n"
    );
    for (name, causes) in CAUSES {
        let (mut named, mut otherwise) = (0, Vec::new());
        for _ in 0..rounds {
            let played = play(&set_up(name));
            let found = top(&played.snapshot.total).to_owned();
            if causes.contains(&found.as_str()) {
                named += 1;
            } else {
                otherwise.push(found);
            }
        }
        let _ = writeln!(
            text,
            "| {name} | {} | {named} of {rounds} | {} |",
            causes.join(", "),
            otherwise.join(", ")
        );
    }
    written(&text);
}
