//! The real programs on real packets: every journey file is played under the
//! observer, and what it says compared with what must come of it.

use std::time::Duration;

use load::{Progress, Schedule, SendConfig, Stop};
use observer::kernel::attach::AttachOptions;
use observer::lab::scenario::{self, Scenario, Stage};
use support::{journey, observed};

mod support;

#[test]
fn the_observer_sees_what_happened_on_every_journey() {
    needs_root!();
    let only = std::env::var("JOURNEY").ok();
    let mut wrong = Vec::new();
    for (name, journey) in journey::all() {
        if only.as_ref().is_some_and(|o| *o != name) {
            continue;
        }
        let played = observed::play(&journey.scenario());
        let found = journey.observed(&played.outcome, &played.snapshot, played.dev_queue_span_ns());
        wrong.extend(found.into_iter().chain(played.malformed()).map(|what| format!("{name}: {what}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The receiving hooks are attached first, and see the run before its sender
/// is seen; at the end the load goes on while the counts are read.
#[test]
fn a_run_that_is_going_on_has_its_sender_and_its_counts_agree() {
    needs_root!();
    let schedule = Schedule::Constant { rate: 5_000.0 };
    let load = SendConfig { schedule, count: Some(60_000), ..SendConfig::new(scenario::target()) };
    let options = AttachOptions::default();
    let run = load.run;
    let stage = Stage::set(&Scenario::new(load)).unwrap();
    let stop = Stop::new();
    let snapshot = std::thread::scope(|scope| {
        let playing = scope.spawn(|| stage.run(&stop, &Progress::new()).unwrap());
        std::thread::sleep(Duration::from_secs(1));
        let (session, _records) = observed::recorded(&options);
        std::thread::sleep(Duration::from_millis(1_200));
        let snapshot = session.finish().unwrap();
        assert!(!playing.is_finished(), "it was to be observed while it goes on");
        stop.set();
        playing.join().unwrap();
        snapshot
    });
    let (counts, ours) = (&snapshot.total.counts, snapshot.total.run(run).unwrap());
    assert_eq!((ours.origin.as_str(), ours.balance.received_only), ("sent", 0), "{ours:?}");
    assert!(ours.balance.sent.unwrap() > 1_000, "{ours:?}");
    assert_eq!(ours.balance.unaccounted, 0, "{ours:?}");
    // What is sent at the end is not followed any more, and what was comes to its end.
    assert_eq!((ours.balance.in_flight, ours.balance.unobserved), (0, 0), "{ours:?}");
    assert_eq!(counts.complete + counts.partial, counts.delivered, "{counts:?}");
    // Some softirqs of hardened kernels run no program: those lack a point.
    assert!(counts.complete * 2 > counts.delivered, "{counts:?}");
}
