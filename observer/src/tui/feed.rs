//! Where pictures come from: a live session, a daemon's socket, the demo's
//! scenarios, a replayed trace. The event loop asks a [`Feed`] for the newest
//! one and never waits for it.

use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::session::Marker;
use crate::surroundings::Update;

/// What a feed has to say.
#[derive(Debug)]
pub enum Fed {
    /// Nothing new.
    Nothing,
    /// A new picture; those in between were skipped.
    Update(Update),
    /// Something else is watched from now on.
    Scene(String),
    /// No more will come, and why; what is shown stays.
    Ended(String),
}

/// A stream of pictures.
pub trait Feed {
    /// The newest since the last call, at once. After [`Fed::Ended`] it is
    /// not asked again.
    fn next(&mut self) -> Fed;

    /// Starts figures over; false if this is not for the viewer to do.
    fn mark(&mut self) -> bool {
        false
    }
}

/// A live session on this host.
pub struct Live {
    updates: watch::Receiver<Option<Update>>,
    marker: Marker,
}

impl Live {
    /// From the sampler's updates; `marker` starts the session over.
    pub fn new(updates: watch::Receiver<Option<Update>>, marker: Marker) -> Self {
        Self { updates, marker }
    }
}

/// The newest of a watch channel.
pub fn newest(updates: &mut watch::Receiver<Option<Update>>, over: &str) -> Fed {
    // A channel that is closed says so before the last picture was looked at.
    let closed = updates.has_changed().is_err();
    let picture = updates.borrow_and_update();
    if picture.has_changed() {
        return picture.clone().map_or(Fed::Nothing, Fed::Update);
    }
    if closed { Fed::Ended(over.to_owned()) } else { Fed::Nothing }
}

impl Feed for Live {
    fn next(&mut self) -> Fed {
        newest(&mut self.updates, "the observation ended by itself")
    }

    fn mark(&mut self) -> bool {
        self.marker.mark();
        true
    }
}

/// When pictures that were made before are due.
#[derive(Debug)]
pub struct Pace {
    speed: f64,
    /// When the first was shown, and its time, ns.
    started: Option<(Instant, u64)>,
}

impl Pace {
    /// `speed` times as fast as they happened; at infinity, or anything that
    /// is no speed, at once.
    pub fn new(speed: f64) -> Self {
        Self { speed, started: None }
    }

    /// Whether a snapshot of this time is due.
    pub fn due(&mut self, at_ns: u64, now: Instant) -> bool {
        let (start, first_ns) = *self.started.get_or_insert((now, at_ns));
        let after = Duration::from_nanos(at_ns.saturating_sub(first_ns)).as_secs_f64() / self.speed;
        !(after.is_finite() && self.speed > 0.0)
            || now.saturating_duration_since(start).as_secs_f64() >= after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_due_when_as_much_time_has_passed_as_before() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut life = Pace::new(1.0);
        assert!(life.due(5_000_000_000, start), "the first at once");
        assert!(!life.due(6_000_000_000, after(999)));
        assert!(life.due(6_000_000_000, after(1_000)));
        let mut fast = Pace::new(10.0);
        assert!(fast.due(5_000_000_000, start) && fast.due(6_000_000_000, after(100)));
        assert!(!fast.due(6_100_000_000, after(100)));
        for speed in [f64::INFINITY, f64::NAN, 0.0, -1.0] {
            let mut at_once = Pace::new(speed);
            assert!(at_once.due(0, start) && at_once.due(u64::MAX, start), "{speed}");
        }
    }
}
