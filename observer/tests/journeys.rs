//! Every journey file is played for real, and the applications' and the
//! kernel's accounts compared with what it expects. What the observer makes
//! of them is tested where it is attached.

use load::{Progress, Stop};
use observer::lab::scenario::{Outcome, Stage};
use observer::pipeline::Pipeline;
use observer::source::{Tables, synthetic};

use support::journey::{self, Journey};

mod support;

#[expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
fn play(journey: &Journey) -> Outcome {
    let stage = Stage::set(&journey.scenario()).unwrap();
    stage.run(&Stop::new(), &Progress::new()).unwrap().0
}

#[test]
fn every_file_is_a_possible_load_and_expects_something() {
    let known = ["none", "host-noise", "sender_queue", "shaper", "wire", "receiver"];
    let all = journey::all();
    assert!(all.len() >= 14, "files are missing: {:?}", all.keys());
    for (name, journey) in all {
        journey.scenario().load.check().unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(!journey.about.is_empty(), "{name}");
        let expect = &journey.expect;
        assert!(!expect.culprit.is_empty(), "{name}");
        assert!(expect.culprit.iter().all(|c| known.contains(&c.as_str())), "{name}: {:?}", expect.culprit);
        assert!(expect.shaper_wait_within.is_none() || journey.lab.shaper.is_some(), "{name}");
        assert!(!expect.exact || expect.drops.is_none(), "{name}: exact, and drops");
    }
}

#[test]
fn applications_and_kernel_agree_on_every_journey() {
    needs_root!();
    let mut wrong = Vec::new();
    for (name, journey) in journey::all() {
        let outcome = play(&journey);
        wrong.extend(journey.accounts(&outcome).into_iter().map(|what| format!("{name}: {what}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// An observer that saw nothing satisfies no journey, and the receiver's own
/// clock agrees with the closed form of the shaper.
#[test]
fn expectations_can_fail_and_closed_forms_hold() {
    needs_root!();
    let journey = &journey::all()["shaper"];
    let outcome = play(journey);
    let blind = Pipeline::new(synthetic::meta()).finish(Tables::empty(synthetic::START_NS));
    let span = outcome.sent.last_send_ns.unwrap() - outcome.sent.first_send_ns.unwrap();
    let span = span.cast_unsigned();
    let wrong = journey.observed(&outcome, &blind, span).join("\n");
    let each = [
        "culprit found is none",
        "offered: 0, not 5000",
        "no journey was kept",
        "longest wait in the shaper",
    ];
    for what in each {
        assert!(wrong.contains(what), "{what:?} is not in:\n{wrong}");
    }

    let waited = outcome.received.from_offer.as_ref().unwrap().max().unwrap() as f64;
    let closed = journey.shaper_wait_ns(&outcome, span);
    assert!((0.9..1.5).contains(&(waited / closed)), "{waited} ns, by the closed form {closed} ns");
}
