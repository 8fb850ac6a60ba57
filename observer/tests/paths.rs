//! Two senders behind token buckets of known rate, probed with less than a
//! megabyte under the real observer.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    net::UdpSocket,
    sync::{Arc, Mutex},
    time::Duration,
};

use load::{SendConfig, pattern::Pattern};
use observer::{
    kernel::attach::{AttachOptions, NamedRun},
    lab::{
        Tbf,
        fan_in::FanIn,
        priority::{Role, raise},
    },
    paths::{Gatherer, Report},
    session::Session,
};
use support::observed::as_observer;

mod support;

const PORT: u16 = 9077;
/// 342 bytes on the wire.
const PAYLOAD: usize = 300;
const ROUNDS: u64 = 4;
const TRAIN: u64 = 300;

/// A bucket of so many bytes that timers a few milliseconds late lose no
/// tokens, and a queue that holds a train.
fn tbf(bit_per_s: u64) -> Tbf {
    Tbf { rate_bit_per_s: bit_per_s, burst_bytes: 6_000.max(bit_per_s / 8 / 250), limit_bytes: 1_000_000 }
}

fn probe(fast: u64, slow: u64) -> Report {
    let lab = FanIn::build(&[Some(tbf(fast)), Some(tbf(slow))]).unwrap();
    let socket = lab.receiver().enter(|| UdpSocket::bind(("0.0.0.0", PORT)).unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let reader = std::thread::spawn(move || {
        raise(Role::Reader);
        let mut buffer = [0; 2048];
        for _ in 0..2 * ROUNDS * TRAIN {
            if socket.recv(&mut buffer).is_err() {
                break;
            }
        }
    });
    let start = load::clock::now_ns() + 1_500_000_000;
    let loads: Vec<SendConfig> = (0..2)
        .map(|i| SendConfig {
            size: PAYLOAD,
            schedule: Pattern::Trains.schedule(Some(TRAIN), Some(Duration::from_millis(900)), Some(ROUNDS)),
            start_at_ns: Some(start),
            ..SendConfig::new(lab.target(i, PORT))
        })
        .collect();
    let runs = loads.iter().map(|l| NamedRun::ours(l.run)).collect();
    let options = AttachOptions { runs, ..AttachOptions::default() };
    let gatherer = Arc::new(Mutex::new(Gatherer::default()));
    let tapped = Arc::clone(&gatherer);
    let session = as_observer(|| {
        let tap = move |batch: &_| tapped.lock().unwrap().batch(batch);
        Session::start_tapped(&options, Duration::from_millis(500), Box::new(tap)).unwrap()
    });
    std::thread::scope(|scope| {
        for (i, load) in loads.iter().enumerate() {
            let host = lab.sender(i).unwrap();
            scope.spawn(move || {
                let sent = host.enter(|| {
                    raise(Role::Sender);
                    load::send(load, &load::Stop::new()).unwrap()
                });
                assert_eq!(sent.unwrap().sent, ROUNDS * TRAIN);
            });
        }
    });
    reader.join().unwrap();
    session.finish().unwrap();
    let gathered = std::mem::take(&mut *gatherer.lock().unwrap());
    gathered.finish()
}

fn off(value: f64, truth: f64) -> f64 {
    (value / truth - 1.0).abs()
}

/// Judged by the median of three: a machine that stands still during a train
/// spoils that train.
fn known(fast: u64, slow: u64) {
    let truth = fast as f64 / slow as f64;
    let (mut ratios, mut reports) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let report = probe(fast, slow);
        assert!(report.cost.bytes < 1_000_000, "{:?}", report.cost);
        let ratio = report.ratios.first().map(|r| r.capacity_ratio);
        ratios.extend(ratio);
        let found = report.paths.iter().filter_map(|p| p.capacity.as_ref()).map(|c| c.rate_bit_s);
        let mut found: Vec<f64> = found.collect();
        found.sort_by(f64::total_cmp);
        eprintln!(
            "{truth:.2} : 1 came out as {ratio:?}, capacities {found:.0?}, with {} bytes",
            report.cost.bytes
        );
        reports.push((report, found));
        // Good at once is good.
        if ratio.is_some_and(|r| off(r, truth) < 0.05) {
            break;
        }
    }
    let good = reports.iter().find(|(report, found)| {
        let ratio = report.ratios.first().map_or(f64::NAN, |r| r.capacity_ratio);
        matches!(found[..], [low, high] if off(low, slow as f64) < 0.05 && off(high, fast as f64) < 0.05)
            && off(ratio, truth) < 0.05
    });
    assert!(good.is_some(), "{ratios:?}: {reports:#?}");
}

#[test]
fn ten_to_one() {
    needs_root!();
    known(20_000_000, 2_000_000);
}

#[test]
fn two_point_four_to_one() {
    needs_root!();
    known(12_000_000, 5_000_000);
}
