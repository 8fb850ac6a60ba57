//! Ten set-ups with a known cause, canned: the top finding names each, a
//! hundred times of a hundred.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;

use observer::diagnose::receiver::ReceiverCause;
use observer::diagnose::sender::SenderCause;
use observer::model::simulate::TokenBucket;
use observer::model::two_sided::Kind;
use observer::report::Report;
use support::canned::Chain;

mod support;

/// `n` times, evenly at `per_s`.
fn even(n: u32, per_s: f64) -> Vec<f64> {
    (0..n).map(|i| f64::from(i) / per_s).collect()
}

/// `bursts` of `size`, `every` seconds, each at once.
fn bursts(bursts: u32, size: u32, every: f64) -> Vec<f64> {
    (0..bursts).flat_map(|b| (0..size).map(move |_| f64::from(b) * every)).collect()
}

/// The set-up of that name, as different by its seed as set-ups are.
fn set_up(name: &str, seed: u64) -> Chain {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut between = |low: f64, high: f64| low + (high - low) * rng.f64();
    let quiet = |intended| Chain::new(intended, seed);
    match name {
        "slow Sender" => {
            let size = 1_000 + 250 * u32::try_from(seed % 8).unwrap();
            Chain { drain_per_s: between(80e3, 250e3), ..quiet(bursts(10, size, 0.2)) }
        }
        "sleeping Sender" => {
            Chain { sleep_s: between(4e-3, 25e-3), ..quiet(even(8_000, between(2e3, 12e3))) }
        }
        "small tbf burst" => {
            let rate_byte_s = between(8e6, 20e6);
            let bucket = TokenBucket { rate_byte_s, burst_bytes: between(8.0, 30.0) * 1_242.0 };
            Chain { bucket: Some((bucket, 80e-6)), l2_bytes: 1_242, ..quiet(bursts(40, 250, 0.1)) }
        }
        "low rate" => {
            let rate_byte_s = between(1e6, 15e6);
            let bucket = TokenBucket { rate_byte_s, burst_bytes: between(20.0, 200.0) * 1_242.0 };
            let offered = between(1.1, 1.8) * rate_byte_s / 1_242.0;
            Chain { bucket: Some((bucket, 80e-6)), l2_bytes: 1_242, ..quiet(even(8_000, offered)) }
        }
        "small receive buffer" => {
            let rcvbuf = 60 + 20 * usize::try_from(seed % 5).unwrap();
            Chain { rcvbuf, reader_per_s: between(200e3, 500e3), ..quiet(bursts(20, 600, 0.05)) }
        }
        "slow reader" => {
            let reader_per_s = between(2e3, 20e3);
            let rcvbuf = if seed.is_multiple_of(2) { 300 } else { usize::MAX };
            Chain { rcvbuf, reader_per_s, ..quiet(even(8_000, between(1.1, 2.0) * reader_per_s)) }
        }
        "sleeping reader" => {
            let rcvbuf = if seed.is_multiple_of(2) { 150 } else { usize::MAX };
            let pauses = Some((between(0.2, 0.5), between(0.02, 0.1)));
            Chain { rcvbuf, pauses, ..quiet(even(8_000, between(2e3, 8e3))) }
        }
        "descheduled sender" => {
            let stalls = Some((between(0.06, 0.2), between(0.012, 0.04)));
            Chain { stalls, ..quiet(even(8_000, between(2e3, 10e3))) }
        }
        "generator overload" => {
            let asked = between(20e3, 100e3);
            Chain { generator_per_s: asked * between(0.4, 0.9), ..quiet(even(25_000, asked)) }
        }
        "clean" => quiet(even(16_000, between(400.0, 520.0))),
        other => panic!("no set-up {other:?}"),
    }
}

/// Each set-up, and the finding that names its cause.
const CAUSES: [(&str, &str); 10] = [
    ("slow Sender", "sender-drain"),
    ("sleeping Sender", "sender-start-latency"),
    ("small tbf burst", "limiter-burst"),
    ("low rate", "limiter-rate"),
    ("small receive buffer", "receive-buffer"),
    ("slow reader", "reader-slow"),
    ("sleeping reader", "reader-late"),
    ("descheduled sender", "sender-stall"),
    ("generator overload", "generator-kept-up"),
    ("clean", "no-tail"),
];

fn top(report: &Report) -> &str {
    report.findings.first().map_or("none", |f| f.check.as_str())
}

#[test]
fn the_top_finding_names_the_cause_a_hundred_times_of_a_hundred() {
    let mut wrong = BTreeMap::new();
    for (name, expected) in CAUSES {
        for seed in 0..10 {
            let snapshot = set_up(name, seed).play();
            let found = top(&snapshot.total);
            if found != expected {
                let all: Vec<_> = snapshot.total.findings.iter().take(4).map(|f| format!("{f:?}")).collect();
                wrong.insert((name, seed), all);
            }
        }
    }
    assert!(wrong.is_empty(), "{} of 100: {wrong:#?}", wrong.len());
}

#[test]
fn every_cause_comes_with_advice_and_its_figures() {
    for (name, expected) in CAUSES.iter().filter(|c| c.0 != "clean") {
        let snapshot = set_up(name, 3).play();
        let finding = snapshot.total.findings.iter().find(|f| f.check == *expected).unwrap();
        assert!(!finding.advice.is_empty(), "{name}: {finding:?}");
        assert!(finding.evidence.len() >= 2, "{name}: {finding:?}");
        assert!(finding.evidence.values().all(|v| v.is_finite()), "{name}: {finding:?}");
    }
}

/// What is known of the set-up comes out of the records again.
#[test]
fn the_figures_are_those_of_the_set_up() {
    let chain = Chain { drain_per_s: 200e3, ..Chain::new(bursts(12, 4_000, 0.2), 1) };
    let q = chain.play().total.sender_queue.clone().unwrap();
    let d = q.drain.unwrap();
    assert!((d.typical_per_s / 200e3 - 1.0).abs() < 0.01, "{d:?}");
    assert!((d.theil_sen_per_s.unwrap() / d.typical_per_s - 1.0).abs() < 0.03, "{d:?}");
    assert!((q.measured_max_wait_s / q.answer.unwrap().max_wait_s - 1.0).abs() < 0.05, "{:?}", q.answer);
    assert_eq!((q.burst, q.bursts, q.cause), (4_000, 12, SenderCause::Drain));
    assert!(q.slowest_bursts.iter().all(|b| (b.max_wait_s / b.model_wait_s - 1.0).abs() < 0.05));
    assert!(q.advice.starts_with("pace bursts of 4,000 to "), "{}", q.advice);

    let chain = Chain { rcvbuf: 100, reader_per_s: 300e3, ..Chain::new(bursts(20, 600, 0.05), 1) };
    let q = chain.play().total.receiver_queue.clone().unwrap();
    assert_eq!(q.cause, ReceiverCause::Buffer);
    // 600 within 300 µs, of which 90 are read meanwhile.
    assert!((480..=600).contains(&q.buffer.needed_datagrams), "{:?}", q.buffer);
    assert!((q.drain_per_s.unwrap() / 300e3 - 1.0).abs() < 0.02, "{q:?}");

    let bucket = TokenBucket { rate_byte_s: 12.5e6, burst_bytes: 32_768.0 };
    let chain =
        Chain { bucket: Some((bucket, 50e-6)), l2_bytes: 1_242, ..Chain::new(bursts(40, 250, 0.1), 1) };
    let l = chain.play().total.limiter.clone().unwrap();
    assert!((l.rate_bit_s.unwrap() / 100e6 - 1.0).abs() < 5e-3, "{l:?}");
    assert!((l.burst_bytes.unwrap() - 32_768.0).abs() <= 1_242.0, "{l:?}");
    // 250 datagrams at once, at the Sender's 2 M/s.
    let needed = 250.0 * 1_242.0 - 12.5e6 * 250.0 / 2e6;
    assert!((l.needed_burst_bytes.unwrap() / needed - 1.0).abs() < 0.02, "{l:?}");
}

/// A sender that a full send buffer blocks drains what the limiter lets
/// through: D̂ ≈ r/L, and the limiter is named.
#[test]
fn a_sender_blocked_behind_a_limiter_is_the_limiters_doing() {
    let bucket = TokenBucket { rate_byte_s: 2.5e6, burst_bytes: 32_768.0 };
    let chain = Chain {
        bucket: Some((bucket, 50e-6)),
        l2_bytes: 1_242,
        sndbuf: 163,
        ..Chain::new(bursts(5, 2_000, 1.2), 1)
    };
    let report = chain.play().total.clone();
    let q = report.sender_queue.as_ref().unwrap();
    assert_eq!(q.cause, SenderCause::Limiter, "{q:?}");
    assert_eq!(report.culprit_name(), "shaper");
    assert!(top(&report).starts_with("limiter-"), "{:#?}", report.findings);
    let l = report.limiter.as_ref().unwrap();
    assert_eq!(l.kind, Kind::Tbf);
    assert!((l.rate_bit_s.unwrap() / 20e6 - 1.0).abs() < 5e-3, "{l:?}");
}

#[test]
fn an_unshaped_path_has_no_limiter() {
    for seed in 0..20 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let per_s = 1e3 + 50e3 * rng.f64();
        let report = Chain::new(even(20_000, per_s), seed).play().total.clone();
        assert_eq!(report.limiter.as_ref().map(|l| l.kind), Some(Kind::None), "{seed}");
    }
}

/// What a diagnosis of full evidence takes. Prints it; the bound is wide.
#[test]
#[ignore = "a measurement: run it in release"]
fn what_a_diagnosis_costs() {
    let chain = Chain { drain_per_s: 200e3, ..Chain::new(bursts(40, 5_000, 0.2), 1) };
    let start = std::time::Instant::now();
    let once = chain.play();
    let all = start.elapsed();
    eprintln!("{} journeys made, recorded and diagnosed in {all:?}", once.total.counts.delivered);
    assert!(all.as_secs() < 60);
}
