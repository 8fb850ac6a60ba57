//! Limiters of the lab, seen by the real observer. A forwarder: unnamed its
//! time is wire, named as a pair it is the shaper's, and the points at its two
//! ends show its rule. A descheduled sender: the same gap at entry and exit.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    env,
    net::UdpSocket,
    process::{Command, Stdio},
    time::Duration,
};

use load::{Progress, Schedule, SendConfig, Stop};
use observer::{
    component::Component,
    correlate::pair::Pairs,
    kernel::attach::{AttachOptions, NamedRun},
    lab::{
        Lab, LabConfig,
        deschedule::Deschedule,
        forward::{ForwardConfig, Rule, credit::CreditConfig, stall::StallConfig},
        scenario::{Scenario, Stage, target},
    },
    report::Report,
};
use observer_ebpf::abi::JourneyRecord;
use support::observed::recorded;

mod support;

fn play(bit_per_s: u64, count: u64, named: bool) -> (Report, Vec<JourneyRecord>, u64) {
    let load = SendConfig {
        size: 1_200,
        schedule: Schedule::Bursts { size: count, dispatch: None, every: None, repeat: None },
        ..SendConfig::new(target())
    };
    let mut scenario = Scenario::new(load);
    let credit = CreditConfig::of_rate(bit_per_s);
    scenario.lab.forward = Some(ForwardConfig::new(Rule::Credit(credit)));
    let stage = Stage::set(&scenario).unwrap();
    let pairs = Pairs::new(stage.lab().pair().unwrap().into_iter().filter(|_| named).collect());
    let runs = vec![NamedRun::ours(scenario.load.run)];
    let options = AttachOptions { runs, pairs, ..AttachOptions::default() };
    let (session, records) = recorded(&options);
    let (outcome, lab) = stage.run(&Stop::new(), &Progress::new()).unwrap();
    let snapshot = session.finish().unwrap();
    assert_eq!(outcome.received.total.unique, count, "{:?}", lab.forwarder().unwrap().account());
    let records = records.take();
    ((*snapshot.total).clone(), records, credit.quantum_bytes)
}

fn longest(report: &Report, component: Component) -> u64 {
    report.components.get(component).distribution.max_ns.unwrap()
}

/// Six and a half quanta, or five, of which one or two leave at once.
#[test]
fn a_pair_is_the_shaper_and_shows_its_rule() {
    needs_root!();
    for (bit_per_s, count) in [(10_000_000, 330), (100_000_000, 2_600)] {
        let (report, records, quantum) = play(bit_per_s, count, true);
        assert!(longest(&report, Component::Shaper) > 120_000_000, "{:?}", report.components);
        assert_eq!(longest(&report, Component::Wire), 0, "{:?}", report.components);
        // As the hooks saw it: one hop, and the exit is where it is received.
        assert!(records.iter().all(|r| r.hops == 1 && r.rx_ns >= r.xmit_ns));
        let mut exits: Vec<u64> = records.iter().map(|r| r.rx_ns).collect();
        exits.sort_unstable();
        let groups: Vec<&[u64]> = exits.chunk_by(|a, b| b - a < 10_000_000).collect();
        let whole = &groups[1..groups.len() - 1];
        assert!(whole.len() >= 2, "{:?}", groups.iter().map(|g| g.len()).collect::<Vec<_>>());
        let median = |mut of: Vec<u64>| {
            of.sort_unstable();
            of[of.len() / 2]
        };
        let starts: Vec<u64> = groups[1..].iter().map(|g| g[0]).collect();
        let period = median(starts.windows(2).map(|w| w[1] - w[0]).collect());
        let bytes = median(whole.iter().map(|g| g.len() as u64 * 1_242).collect());
        eprintln!("{bit_per_s} bit/s: period {period} ns, {bytes} bytes at a time");
        assert!(period.abs_diff(50_000_000) < 4_000_000, "{period}");
        assert!(bytes.abs_diff(quantum) <= 1_242, "{bytes}");
    }
}

#[test]
fn unnamed_it_is_wire() {
    needs_root!();
    let (report, ..) = play(10_000_000, 200, false);
    assert!(longest(&report, Component::Wire) > 50_000_000, "{:?}", report.components);
    assert!(longest(&report, Component::Shaper) < 50_000_000, "{:?}", report.components);
}

/// The run that the sender in a process of its own is to send.
const SENDER: &str = "OBSERVER_TEST_SENDER_RUN";
const EVERY_NS: u64 = 500_000;
const COUNT: u64 = 3_000;

#[test]
fn a_descheduled_sender_leaves_the_same_gaps_at_entry_and_exit() {
    if let Ok(run) = env::var(SENDER) {
        let load = SendConfig {
            run: run.parse().unwrap(),
            schedule: Schedule::Constant { rate: 1e9 / EVERY_NS as f64 },
            count: Some(COUNT),
            ..SendConfig::new(target())
        };
        load::send(&load, &Stop::new()).unwrap();
        return;
    }
    needs_root!();
    let lab = Lab::build(&LabConfig::default()).unwrap();
    let socket = lab.receiver().namespace.enter(|| UdpSocket::bind(target()).unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        (0..COUNT).take_while(|_| socket.recv(&mut buffer).is_ok()).count()
    });
    let run = load::new_run();
    let options = AttachOptions { runs: vec![NamedRun { id: run, owner: None }], ..AttachOptions::default() };
    let (session, records) = recorded(&options);
    // A process started by a thread inside is inside as well.
    let start = || {
        Command::new(env::current_exe().unwrap())
            .args(["--exact", "a_descheduled_sender_leaves_the_same_gaps_at_entry_and_exit"])
            .env(SENDER, run.to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut sender = lab.sender().namespace.enter(start).unwrap();
    let config = StallConfig { every: Duration::from_millis(250), lasts: Duration::from_millis(60) };
    let stalls = Deschedule::start(sender.id(), config).unwrap();
    assert_eq!(reader.join().unwrap() as u64, COUNT);
    let stopped = stalls.finish().unwrap_or(0);
    assert!(sender.wait().unwrap().success());
    session.finish().unwrap();

    let mut records = records.take();
    records.sort_by_key(|r| r.stream_seq);
    // Gaps of 40 ms and more between neighbours, at the way out and at the way in.
    let gaps: Vec<(u64, u64)> = records
        .windows(2)
        .map(|w| (w[1].dev_queue_ns - w[0].dev_queue_ns, w[1].rx_ns - w[0].rx_ns))
        .filter(|(out, into)| *out > 40_000_000 || *into > 40_000_000)
        .collect();
    let alike = gaps.iter().filter(|(out, into)| out.abs_diff(*into) < out / 5).count();
    eprintln!("stopped {stopped} times, {} gaps, {alike} of them alike", gaps.len());
    assert!(gaps.len() >= 3, "{gaps:?}");
    assert!(alike * 10 >= gaps.len() * 9, "{gaps:?}");
    // The delay between the two stays what it is without: no queue fills.
    let mut delays: Vec<u64> = records.iter().map(|r| r.rx_ns - r.dev_queue_ns).collect();
    delays.sort_unstable();
    assert!(delays[delays.len() * 9 / 10] < 5_000_000, "{:?}", delays.last());
}
