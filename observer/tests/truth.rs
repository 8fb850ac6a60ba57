//! The observer against witnesses of its own kind: the receiver's clock, and
//! a process that does all it can to spoil a run.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::HashMap,
    fs::File,
    io::Read,
    net::UdpSocket,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use load::{Delivery, Progress, Receiver, RecvConfig, Schedule, SendConfig, Stop};
use observer::{
    kernel::attach::{AttachOptions, NamedRun},
    lab::{
        Lab, LabConfig,
        scenario::{self, Scenario, Stage},
    },
    session::Session,
};
use observer_ebpf::stamp::Stamp;
use support::observed::{as_observer, recorded};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

mod support;

fn load_of(count: u64, rate: f64) -> SendConfig {
    SendConfig {
        schedule: Schedule::Constant { rate },
        count: Some(count),
        ..SendConfig::new(scenario::target())
    }
}

/// The application reads its clock right after recvfrom returns; the observer
/// noted the time inside that call.
#[test]
fn the_read_is_seen_when_the_receivers_own_clock_says() {
    needs_root!();
    let load = load_of(40_000, 20_000.0);
    let lab = Lab::build(&LabConfig::default()).unwrap();
    let reads = Arc::new(Mutex::new(HashMap::new()));
    let noted = Arc::clone(&reads);
    let options = AttachOptions { runs: vec![NamedRun::ours(load.run)], ..AttachOptions::default() };
    let (session, records) = recorded(&options);
    let finished = Stop::new();
    let stop_reading = finished.clone();
    let config = RecvConfig { call: load::ReadCall::Recvfrom, ..RecvConfig::new(scenario::target()) };
    let reading = lab
        .receiver()
        .namespace
        .spawn(move || {
            let receiver = Receiver::bind(&config).unwrap();
            let mut own = HashMap::with_capacity(50_000);
            receiver
                .run_with(&stop_reading, &Progress::new(), |d: &Delivery| {
                    own.insert(d.stamp.stream_seq, d.received_ns);
                })
                .unwrap();
            *noted.lock().unwrap() = own;
        })
        .unwrap();
    std::thread::sleep(Duration::from_millis(200));
    lab.sender().namespace.enter(|| load::send(&load, &Stop::new()).unwrap()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    finished.set();
    reading.join().unwrap().unwrap();
    session.finish().unwrap();

    let reads = reads.lock().unwrap();
    let mut late: Vec<i64> = records
        .take()
        .iter()
        .filter_map(|r| Some(reads.get(&r.stream_seq)? - r.app_dequeue_ns.cast_signed()))
        .collect();
    late.sort_unstable();
    assert_eq!(late.len(), 40_000, "datagrams known to both");
    assert!(late[0] > -1_000, "read {} ns before it was seen", -late[0]);
    let median = late[late.len() / 2];
    println!("own clock − observed: p50 {median} ns, p99 {} ns", late[late.len() * 99 / 100]);
    assert!(median < 50_000, "p50 of the difference is {median} ns");
}

/// Forged and foreign stamps from another process, datagrams too short for a
/// stamp, and unstamped ones, all to the same port while a run is on.
#[test]
fn nobody_else_changes_the_counts_of_a_run() {
    needs_root!();
    for named in [true, false] {
        let scenario = Scenario::new(load_of(30_000, 10_000.0));
        let run = scenario.load.run;
        let stage = Stage::set(&scenario).unwrap();
        let options = AttachOptions {
            runs: if named { vec![NamedRun::ours(run)] } else { vec![] },
            ..AttachOptions::default()
        };
        let session = as_observer(|| Session::start(&options, Duration::from_millis(500)).unwrap());
        let netns = stage.lab().sender().namespace.path();
        let forger = Forger::start(&netns.to_string_lossy(), run);
        // Long enough for more made-up runs than there is room for.
        std::thread::sleep(Duration::from_millis(300));
        let (outcome, _lab) = stage.run(&Stop::new(), &Progress::new()).unwrap();
        drop(forger);
        let report = session.finish().unwrap().total.as_ref().clone();

        let of_run = report.by_run.iter().find(|r| r.run == run).unwrap();
        let counts = &report.counts;
        assert_eq!(of_run.balance.sent, Some(outcome.sent.sent), "named {named}: {counts:?}");
        assert_eq!(of_run.balance.offered, outcome.sent.offered, "named {named}: {counts:?}");
        assert_eq!(outcome.sent.sent, 30_000);
        assert_eq!(of_run.balance.delivered + of_run.balance.dropped, 30_000, "named {named}: {of_run:?}");
        assert_eq!(of_run.balance.dropped, outcome.receiver_udp.rcvbuf_errors.min(of_run.balance.dropped));
        assert_eq!(of_run.balance.unaccounted, 0, "{of_run:?}");
        assert!(counts.foreign > 100, "foreign stamps are counted apart: {counts:?}");
        assert!(counts.unstamped_sent > 100, "unstamped datagrams are counted apart: {counts:?}");
    }
}

/// A copy of this test program that sends rubbish until it is dropped.
struct Forger(Child);

impl Forger {
    fn start(netns: &str, run: u32) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "forge_until_killed", "--ignored", "--nocapture"])
            .env("FORGE_IN", netns)
            .env("FORGE_RUN", run.to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test: the other process of [`nobody_else_changes_the_counts_of_a_run`].
#[test]
#[ignore = "started by another test"]
fn forge_until_killed() {
    let (Ok(netns), Ok(run)) = (std::env::var("FORGE_IN"), std::env::var("FORGE_RUN")) else { return };
    let run: u32 = run.parse().unwrap();
    move_into_link_name_space(
        std::os::fd::AsFd::as_fd(&File::open(netns).unwrap()),
        Some(LinkNameSpaceType::Network),
    )
    .unwrap();
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let mut random = File::open("/dev/urandom").unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    // A run belongs to whom sends it first: this one has seen a stamp of it.
    let heard = Instant::now() + Duration::from_secs(1);
    let mut n = 0_u64;
    while Instant::now() < end {
        n += 1;
        let mut b = [0; 64];
        random.read_exact(&mut b).unwrap();
        let word = |at: usize| u64::from_le_bytes(b[at..at + 8].try_into().unwrap());
        let now = observer::host::monotonic_ns().cast_signed();
        let stamped = |s: Stamp| {
            let mut payload = vec![0; 160];
            assert!(s.write(&mut payload));
            payload
        };
        let payload = match n % 8 {
            0..=2 if Instant::now() < heard => b.to_vec(),
            // This run's id, everything else random.
            0 => {
                stamped(Stamp { run, stream_seq: word(0), intended_ns: now, offer_ns: word(8).cast_signed() })
            }
            // The nastiest: a live stream of this run, plausible in every field.
            1 => stamped(Stamp::new(run, 0, word(0) % 30_000, now, now)),
            // Another stream of this run, plausible.
            2 => stamped(Stamp::new(run, 77, n, now, now)),
            // Another run.
            3 => stamped(Stamp {
                run: u32::MAX,
                stream_seq: word(0),
                intended_ns: 0,
                offer_ns: word(8).cast_signed(),
            }),
            // Any number of other runs, plausible.
            5 => stamped(Stamp::new(u32::from_le_bytes([b[0], b[1], b[2], 1]), 0, n, now, now)),
            // Cut off within the stamp, or empty.
            4 => stamped(Stamp::new(run, 0, n % 30_000, now, now))[..usize::from(b[0] % 32)].to_vec(),
            _ => b.to_vec(),
        };
        // A full queue is as good.
        let _ = socket.send_to(&payload, scenario::target());
        std::thread::sleep(Duration::from_micros(200));
    }
}
