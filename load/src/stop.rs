//! A request to finish: one flag shared by every thread of a run, set by a
//! caller, a signal handler or the run's own supervisor, looked at between
//! batches and during waits (at least every 50 ms).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest time a thread of this crate goes without looking at its [`Stop`].
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// A cheap, cloneable stop flag; all clones are the same flag.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    own: Arc<AtomicBool>,
    parent: Option<Arc<AtomicBool>>,
}

impl Stop {
    /// A flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks everything that holds a clone to finish.
    pub fn set(&self) {
        self.own.store(true, Ordering::Release);
    }

    /// True once [`set`](Self::set) was called, on it or on its parent.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.own.load(Ordering::Acquire) || self.parent.as_ref().is_some_and(|p| p.load(Ordering::Acquire))
    }

    /// Sleeps for `time`, or until the flag is set: it is looked at every 50 ms.
    pub(crate) fn sleep(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() && !self.is_set() {
            let now = left.min(POLL);
            std::thread::sleep(now);
            left -= now;
        }
    }

    /// A flag that follows this one and can be set without setting it: a run
    /// ends its own threads without ending its caller's.
    pub(crate) fn child(&self) -> Self {
        Self { own: Arc::default(), parent: Some(Arc::clone(&self.own)) }
    }

    /// The flag itself, for a signal handler: storing to it is all that
    /// async-signal-safety allows.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_ends_with_the_flag() {
        let stop = Stop::new();
        let (begin, other) = (std::time::Instant::now(), stop.clone());
        let setter = std::thread::spawn(move || other.set());
        stop.sleep(Duration::from_secs(3600));
        setter.join().unwrap();
        assert!(begin.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_child_follows_and_does_not_lead() {
        let parent = Stop::new();
        let (one, other) = (parent.child(), parent.child());
        one.set();
        assert_eq!([parent.is_set(), one.is_set(), other.is_set()], [false, true, false]);
        parent.set();
        assert!(other.is_set());
    }
}
