//! Probing patterns: loads that measure a path instead of filling it.
//!
//! A pattern is a row of *trains*, datagrams offered all at once with the same
//! intended time, by which whoever looks at the arrivals knows them as one
//! train. What limits the path spaces a train out, and the spacing tells the
//! path's capacity; the order in which two synchronized senders' trains arrive
//! tells the ratio of theirs. `observer paths` does both.
//!
//! Two senders are synchronized by the time at which they start
//! ([`monotonic_at`]): their trains must overlap, no more, so clocks that agree
//! within a tenth of a train will do.

use std::time::Duration;

use rustix::thread::ClockId;
use rustix::time::clock_gettime;

use crate::clock;
use crate::schedule::Schedule;

/// A probing pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Trains of two: many independent gaps, little load. Other traffic that
    /// comes between shows as a mode of its own.
    Pairs,
    /// Long trains: their later half is behind any token bucket they emptied,
    /// and two of them compare paths. Four of 300 datagrams of 160 bytes are a
    /// quarter of a megabyte.
    Trains,
}

impl Pattern {
    /// The pattern called `name`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "pairs" => Some(Self::Pairs),
            "trains" => Some(Self::Trains),
            _ => None,
        }
    }

    /// Its schedule: trains of `size` datagrams (pairs have two), a number of
    /// them, so far apart. Without: 60 pairs 10 ms apart, or 4 trains of 300,
    /// a second apart.
    pub fn schedule(self, size: Option<u64>, every: Option<Duration>, repeat: Option<u64>) -> Schedule {
        let (length, apart, count) = match self {
            Self::Pairs => (2, Duration::from_millis(10), 60),
            Self::Trains => (size.unwrap_or(300), Duration::from_secs(1), 4),
        };
        Schedule::Bursts {
            size: length,
            dispatch: None,
            every: Some(every.unwrap_or(apart)),
            repeat: Some(repeat.unwrap_or(count)),
        }
    }
}

/// The time on this host's CLOCK_MONOTONIC, ns, at which its wall clock shows
/// `unix_s` seconds since 1970; `None` beyond the range of either.
pub fn monotonic_at(unix_s: f64) -> Option<i64> {
    let wall = clock_gettime(ClockId::Realtime);
    let now = wall.tv_sec as f64 + wall.tv_nsec as f64 / 1e9;
    let ahead = (unix_s - now) * 1e9;
    // A century: more is a mistake, and the sum below stays in range.
    if !ahead.is_finite() || ahead.abs() > 3.2e18 {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked above")]
    clock::now_ns().checked_add(ahead as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_has_one_intended_time() {
        for (pattern, size, trains) in [(Pattern::Pairs, 2, 60), (Pattern::Trains, 300, 4)] {
            let schedule = pattern.schedule(None, None, None);
            schedule.check().unwrap();
            let slots: Vec<u64> = schedule.slots(0, 1, None).collect();
            let lengths: Vec<usize> = slots.chunk_by(|a, b| a == b).map(<[u64]>::len).collect();
            assert_eq!(lengths, vec![size; trains]);
            assert!(schedule.length_ns().is_some(), "it ends by itself");
        }
        let asked = Pattern::Trains.schedule(Some(50), Some(Duration::from_millis(200)), Some(7));
        let slots: Vec<u64> = asked.slots(0, 1, None).collect();
        assert_eq!((slots.len(), slots[349]), (350, 1_200_000_000));
        assert_eq!(Pattern::Pairs.schedule(Some(50), None, None), Pattern::Pairs.schedule(None, None, None));
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        assert_eq!(Pattern::named("pairs"), Some(Pattern::Pairs));
        assert_eq!(Pattern::named("trains"), Some(Pattern::Trains));
        assert_eq!(Pattern::named("chirps"), None);
    }

    #[test]
    fn wall_clock_times_become_monotonic_ones() {
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let in_a_minute = monotonic_at(wall + 60.0).unwrap() - clock::now_ns();
        assert!((59_000_000_000..=60_000_100_000).contains(&in_a_minute), "{in_a_minute}");
        for unusable in [f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(monotonic_at(unusable), None);
        }
    }
}
