//! Where pictures come from: a live session, a daemon's socket, the demo's
//! scenarios, a replayed trace. The event loop asks a [`Feed`] for the newest
//! one and never waits for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::session::Marker;
use crate::snapshot::Snapshot;
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

/// Pictures at hand, shown at the pace at which they were made: a trace.
pub struct Replay<I> {
    snapshots: I,
    speed: f64,
    next: Option<Arc<Snapshot>>,
    /// When the first was shown, and its time, ns.
    started: Option<(Instant, u64)>,
}

impl<I: Iterator<Item = Arc<Snapshot>>> Replay<I> {
    /// Shows `snapshots` `speed` times as fast as they happened; at
    /// infinity, or anything that is no speed, as fast as they are asked for.
    pub fn new(snapshots: I, speed: f64) -> Self {
        Self { snapshots, speed, next: None, started: None }
    }

    /// Whether a snapshot of this time is due.
    fn due(&mut self, at_ns: u64, now: Instant) -> bool {
        let (start, first_ns) = *self.started.get_or_insert((now, at_ns));
        let after = Duration::from_nanos(at_ns.saturating_sub(first_ns)).as_secs_f64() / self.speed;
        !(after.is_finite() && self.speed > 0.0)
            || now.saturating_duration_since(start).as_secs_f64() >= after
    }
}

impl<I: Iterator<Item = Arc<Snapshot>>> Feed for Replay<I> {
    fn next(&mut self) -> Fed {
        let now = Instant::now();
        let mut latest = None;
        // At most this many at once: a fast replay must not stop the keys.
        for _ in 0..64 {
            let Some(snapshot) = self.next.take().or_else(|| self.snapshots.next()) else {
                return latest.map_or_else(|| Fed::Ended("the trace is over".to_owned()), Fed::Update);
            };
            if !self.due(snapshot.total.to_ns, now) {
                self.next = Some(snapshot);
                break;
            }
            latest = Some(Update::from(snapshot));
        }
        latest.map_or(Fed::Nothing, Fed::Update)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Pipeline;
    use crate::source::synthetic::{Plan, Synthetic};

    fn snapshots(n: u64) -> Vec<Arc<Snapshot>> {
        let whole = Pipeline::run(&mut Synthetic::new(Plan { datagrams: 10, ..Plan::default() })).unwrap();
        (0..n)
            .map(|i| {
                let mut snapshot = (*whole).clone();
                snapshot.number = i;
                Arc::make_mut(&mut snapshot.total).to_ns = i * 1_000_000_000;
                Arc::new(snapshot)
            })
            .collect()
    }

    #[test]
    fn a_replay_as_fast_as_can_be_ends_with_the_last_picture() {
        let mut replay = Replay::new(snapshots(100).into_iter(), f64::INFINITY);
        let mut seen = Vec::new();
        loop {
            match replay.next() {
                Fed::Update(update) => seen.push(update.snapshot.number),
                Fed::Ended(_) => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seen, [63, 99]);
    }

    #[test]
    fn a_replay_at_the_pace_of_life_waits_for_the_second() {
        let mut replay = Replay::new(snapshots(3).into_iter(), 1.0);
        assert!(matches!(replay.next(), Fed::Update(u) if u.snapshot.number == 0));
        assert!(matches!(replay.next(), Fed::Nothing), "the next is a second away");
        assert!(matches!(replay.next(), Fed::Nothing), "and it is not lost");
        let mut fast = Replay::new(snapshots(3).into_iter(), 1e12);
        fast.next();
        std::thread::sleep(Duration::from_millis(1));
        assert!(matches!(fast.next(), Fed::Update(u) if u.snapshot.number == 2));
    }
}
