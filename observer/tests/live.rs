//! The real programs on real packets: every journey file is played under the
//! observer, and what it says compared with what must come of it.

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
