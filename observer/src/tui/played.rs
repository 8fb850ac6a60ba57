//! A recorded trace as pictures: a thread reads it, a few intervals ahead of
//! what is shown, so that the event loop never waits for the disk.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Instant;

use super::feed::{Fed, Feed, Pace};
use crate::snapshot::Snapshot;
use crate::surroundings::Update;
use crate::trace::{Selection, Trace, answer};

/// Intervals read ahead.
const AHEAD: usize = 8;
/// Pictures skipped at once at most: a fast replay must not stop the keys.
const AT_ONCE: usize = 64;

/// A trace that is played.
pub struct Played {
    read: Receiver<Read>,
    pace: Pace,
    next: Option<Arc<Snapshot>>,
    over: String,
}

/// What the reading thread says.
enum Read {
    Interval(Arc<Snapshot>),
    Failed(String),
}

impl Played {
    /// Plays what is selected of `trace`, `speed` times as fast as it happened.
    ///
    /// # Errors
    ///
    /// If no thread can be started to read it.
    pub fn start(trace: Trace, selection: Selection, speed: f64) -> std::io::Result<Self> {
        let (intervals, read) = sync_channel(AHEAD);
        std::thread::Builder::new()
            .name("observer-replay".to_owned())
            .spawn(move || read_all(&trace, &selection, &intervals))?;
        Ok(Self { read, pace: Pace::new(speed), next: None, over: "the trace is over".to_owned() })
    }
}

/// Reads until everything has been handed over, or nobody looks any more.
fn read_all(trace: &Trace, selection: &Selection, intervals: &SyncSender<Read>) {
    let mut publish = |snapshot| intervals.send(Read::Interval(snapshot)).is_ok();
    if let Err(e) = answer::play(trace, selection, &mut publish) {
        // Whoever looks no more need not be told.
        let _ = intervals.send(Read::Failed(e.to_string()));
    }
}

impl Feed for Played {
    fn next(&mut self) -> Fed {
        let now = Instant::now();
        let mut latest = None;
        for _ in 0..AT_ONCE {
            let read = self.next.take().map_or_else(|| self.read.try_recv(), |s| Ok(Read::Interval(s)));
            match read {
                Ok(Read::Interval(snapshot)) if self.pace.due(snapshot.total.to_ns, now) => {
                    latest = Some(Update::from(snapshot));
                }
                Ok(Read::Interval(snapshot)) => {
                    self.next = Some(snapshot);
                    break;
                }
                Ok(Read::Failed(why)) => self.over = why,
                Err(TryRecvError::Disconnected) if latest.is_none() => {
                    return Fed::Ended(std::mem::take(&mut self.over));
                }
                Err(_) => break,
            }
        }
        latest.map_or(Fed::Nothing, Fed::Update)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::synthetic::{Plan, Synthetic};
    use crate::trace::drive;
    use crate::trace::record::{RecordOptions, Recorder};
    use std::time::Duration;

    #[test]
    fn a_trace_plays_to_its_last_report() {
        let dir = tempfile::tempdir().unwrap();
        let options = RecordOptions { dir: dir.path().to_owned(), ..RecordOptions::default() };
        let plan = Plan { datagrams: 60_000, gap_ns: 10_000, ..Plan::default() };
        let live = drive::record(&mut Synthetic::new(plan), Recorder::create(options).unwrap(), 100_000_000)
            .unwrap();
        let play = |speed| {
            let trace = Trace::open(dir.path()).unwrap();
            let mut played = Played::start(trace, Selection::default(), speed).unwrap();
            let (mut pictures, mut last) = (0, None);
            for _ in 0..10_000 {
                match played.next() {
                    Fed::Update(update) => {
                        pictures += 1;
                        last = Some(update);
                    }
                    Fed::Ended(why) => return (pictures, last.unwrap(), why),
                    _ => std::thread::sleep(Duration::from_millis(5)),
                }
            }
            panic!("it does not end");
        };
        let (_, last, why) = play(f64::INFINITY);
        assert_eq!(last.snapshot.total.components, live.total.components);
        assert_eq!(why, "the trace is over");
        let (pictures, ..) = play(10.0);
        assert!(pictures > 1, "each at its time: {pictures}");
    }
}
