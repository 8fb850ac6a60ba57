//! A forwarder that limits, seen by the real observer: unnamed its time is
//! wire, named as a pair it is the shaper's; and the points at its two ends
//! show the rule.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use load::{Progress, Schedule, SendConfig, Stop};
use observer::{
    component::Component,
    correlate::pair::Pairs,
    kernel::attach::{AttachOptions, NamedRun},
    lab::{
        forward::{ForwardConfig, Rule, credit::CreditConfig},
        scenario::{Scenario, Stage, target},
    },
    report::Report,
    session::Session,
};
use observer_ebpf::abi::JourneyRecord;
use support::observed::as_observer;

mod support;

fn play(count: u64, named: bool) -> (Report, Vec<JourneyRecord>, u64) {
    let load = SendConfig {
        size: 1_200,
        schedule: Schedule::Bursts { size: count, dispatch: None, every: None, repeat: None },
        ..SendConfig::new(target())
    };
    let mut scenario = Scenario::new(load);
    let credit = CreditConfig::of_rate(10_000_000);
    scenario.lab.forward = Some(ForwardConfig::new(Rule::Credit(credit)));
    let stage = Stage::set(&scenario).unwrap();
    let pairs = Pairs::new(stage.lab().pair().unwrap().into_iter().filter(|_| named).collect());
    let runs = vec![NamedRun::ours(scenario.load.run)];
    let options = AttachOptions { runs, pairs, ..AttachOptions::default() };
    let records = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&records);
    let session = as_observer(|| {
        let tap =
            move |batch: &observer::source::Batch| kept.lock().unwrap().extend_from_slice(&batch.journeys);
        Session::start_tapped(&options, Duration::from_millis(500), Box::new(tap)).unwrap()
    });
    let (outcome, lab) = stage.run(&Stop::new(), &Progress::new()).unwrap();
    let snapshot = session.finish().unwrap();
    assert_eq!(outcome.received.total.unique, count, "{:?}", lab.forwarder().unwrap().account());
    let records = std::mem::take(&mut *records.lock().unwrap());
    ((*snapshot.total).clone(), records, credit.quantum_bytes)
}

fn longest(report: &Report, component: Component) -> u64 {
    report.components.get(component).distribution.max_ns.unwrap()
}

#[test]
fn a_pair_is_the_shaper_and_shows_its_rule() {
    needs_root!();
    let (report, records, quantum) = play(330, true);
    // Six and a half quanta, of which one or two leave at once.
    assert!(longest(&report, Component::Shaper) > 150_000_000, "{:?}", report.components);
    assert_eq!(longest(&report, Component::Wire), 0, "{:?}", report.components);
    // As the hooks saw it: one hop, and the exit is where it is received.
    assert!(records.iter().all(|r| r.hops == 1 && r.rx_ns >= r.xmit_ns));
    let mut exits: Vec<u64> = records.iter().map(|r| r.rx_ns).collect();
    exits.sort_unstable();
    let groups: Vec<&[u64]> = exits.chunk_by(|a, b| b - a < 10_000_000).collect();
    let whole = &groups[1..groups.len() - 1];
    assert!(whole.len() >= 3, "{:?}", groups.iter().map(|g| g.len()).collect::<Vec<_>>());
    let median = |mut of: Vec<u64>| {
        of.sort_unstable();
        of[of.len() / 2]
    };
    let period = median(whole.windows(2).map(|w| w[1][0] - w[0][0]).collect());
    let bytes = median(whole.iter().map(|g| g.len() as u64 * 1_242).collect());
    eprintln!("period {period} ns, {bytes} bytes at a time");
    assert!(period.abs_diff(50_000_000) < 4_000_000, "{period}");
    assert!(bytes.abs_diff(quantum) <= 1_242, "{bytes}");
}

#[test]
fn unnamed_it_is_wire() {
    needs_root!();
    let (report, ..) = play(200, false);
    assert!(longest(&report, Component::Wire) > 50_000_000, "{:?}", report.components);
    assert!(longest(&report, Component::Shaper) < 50_000_000, "{:?}", report.components);
}
