//! When datagrams are wanted: a grid of intended times, fixed before the run
//! and never moved by how the run goes.
//!
//! A [`Schedule`] describes the grid of the whole run; [`Schedule::slots`]
//! deals it to the streams round-robin, so that adding streams spreads a
//! load without changing it (Poisson arrivals are drawn per stream at an
//! equal part of the rate: their sum is Poisson of the whole rate). Offsets
//! are nanoseconds from the start of the run.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::num::{duration_ns, round_u64, signed};

/// A stretch of constant rate in [`Schedule::Steps`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Datagrams per second.
    pub rate: f64,
    /// How long.
    pub lasts: Duration,
}

/// The grid of intended times of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Schedule {
    /// No schedule: as fast as possible, intended time = offer time.
    Unthrottled,
    /// Equal intervals.
    Constant {
        /// Datagrams per second.
        rate: f64,
    },
    /// `size` datagrams at a time.
    Bursts {
        /// Datagrams in a burst, N of the models.
        size: u64,
        /// Rate inside a burst, P of the models; `None`: all at once.
        dispatch: Option<f64>,
        /// From the start of one burst to the next; `None`: a single burst.
        every: Option<Duration>,
        /// How many bursts; `None` with `every`: until the run's bound.
        repeat: Option<u64>,
    },
    /// Constant rate for `on`, silence for `off`, repeated.
    OnOff {
        /// Datagrams per second while on.
        rate: f64,
        /// Length of the active part.
        on: Duration,
        /// Length of the silence.
        off: Duration,
    },
    /// Exponentially distributed intervals.
    Poisson {
        /// Mean datagrams per second.
        rate: f64,
        /// Equal seeds give equal arrivals.
        seed: u64,
    },
    /// Stretches of constant rate, one after the other.
    Steps {
        /// The stretches.
        steps: Vec<Step>,
    },
    /// A recorded arrival pattern.
    Replay {
        /// Offsets from the start, ns, ascending.
        #[serde(skip)]
        offsets_ns: Arc<[u64]>,
    },
}

/// A schedule that makes no sense, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("impossible schedule: {0}")]
pub struct ScheduleError(String);

/// Highest rate accepted, per second: one datagram per nanosecond.
pub const MAX_RATE: f64 = 1e9;
/// Lowest rate accepted, per second: one datagram in 1,000 s.
pub const MIN_RATE: f64 = 1e-3;

fn rate_ok(what: &str, rate: f64) -> Result<(), ScheduleError> {
    if (MIN_RATE..=MAX_RATE).contains(&rate) {
        Ok(())
    } else {
        Err(ScheduleError(format!("{what} is {rate}/s; it must be from 0.001/s to 1G/s")))
    }
}

fn lasts_ok(what: &str, d: Duration) -> Result<(), ScheduleError> {
    if d.is_zero() { Err(ScheduleError(format!("{what} is 0; it must be longer"))) } else { Ok(()) }
}

impl Schedule {
    /// Checks that every figure is usable.
    ///
    /// # Errors
    /// Names the first that is not.
    pub fn check(&self) -> Result<(), ScheduleError> {
        match self {
            Self::Unthrottled => Ok(()),
            Self::Constant { rate } | Self::Poisson { rate, .. } => rate_ok("rate", *rate),
            Self::Bursts { size, dispatch, every, repeat } => {
                if *size == 0 {
                    return Err(ScheduleError("a burst of 0 datagrams; give its size".into()));
                }
                if let Some(p) = dispatch {
                    rate_ok("dispatch rate", *p)?;
                }
                match (every, repeat) {
                    (Some(e), _) => {
                        lasts_ok("time between bursts", *e)?;
                        let length = dispatch.map_or(0.0, |p| *size as f64 / p);
                        if length > e.as_secs_f64() {
                            return Err(ScheduleError(format!(
                                "a burst of {size} at its dispatch rate takes {length:.6} s, longer than the \
                                 {e:?} to the next one"
                            )));
                        }
                        Ok(())
                    }
                    (None, Some(n)) if *n != 1 => {
                        Err(ScheduleError(format!("{n} bursts need the time between them")))
                    }
                    _ => Ok(()),
                }
            }
            Self::OnOff { rate, on, off } => {
                rate_ok("rate", *rate)?;
                lasts_ok("on", *on)?;
                lasts_ok("off", *off)
            }
            Self::Steps { steps } => {
                if steps.is_empty() {
                    return Err(ScheduleError("no steps".into()));
                }
                steps.iter().try_for_each(|s| {
                    rate_ok("a step's rate", s.rate)?;
                    lasts_ok("a step's length", s.lasts)
                })
            }
            Self::Replay { offsets_ns } => {
                if offsets_ns.is_empty() {
                    return Err(ScheduleError("the recorded pattern is empty".into()));
                }
                if !offsets_ns.is_sorted() {
                    return Err(ScheduleError("the recorded pattern steps back in time".into()));
                }
                Ok(())
            }
        }
    }

    /// Mean interval of the whole grid, ns, where it has one: what lateness
    /// is measured against.
    pub fn interval_ns(&self) -> Option<f64> {
        let per_second = match self {
            Self::Unthrottled => return None,
            Self::Constant { rate } | Self::Poisson { rate, .. } | Self::OnOff { rate, .. } => *rate,
            Self::Bursts { dispatch, .. } => (*dispatch)?,
            Self::Steps { steps } => steps.iter().map(|s| s.rate).fold(0.0, f64::max),
            Self::Replay { offsets_ns } => {
                let (first, last) = (offsets_ns.first()?, offsets_ns.last()?);
                if last == first {
                    return None;
                }
                (offsets_ns.len() - 1) as f64 / ((last - first) as f64 / 1e9)
            }
        };
        Some(1e9 / per_second)
    }

    /// The length of the grid where it is finite by itself, ns: the last
    /// slot's offset plus one interval.
    pub fn length_ns(&self) -> Option<u64> {
        match self {
            Self::Bursts { size, dispatch, every, repeat } => {
                let one = dispatch.map_or(0, |p| round_u64(*size as f64 * 1e9 / p));
                match (every, repeat) {
                    (None, _) => Some(one),
                    (Some(_), None) => None,
                    (Some(e), Some(n)) => {
                        let every = duration_ns(*e).unsigned_abs();
                        Some(every.saturating_mul(n.saturating_sub(1)).saturating_add(one))
                    }
                }
            }
            Self::Steps { steps } => {
                Some(steps.iter().map(|s| duration_ns(s.lasts).unsigned_abs()).fold(0, u64::saturating_add))
            }
            Self::Replay { offsets_ns } => {
                offsets_ns.last().map(|l| l.saturating_add(round_u64(self.interval_ns().unwrap_or(0.0))))
            }
            _ => None,
        }
    }

    /// How many datagrams the whole grid has within `duration`, about; `None`
    /// where it does not end, or is not laid down beforehand.
    pub fn planned(&self, duration: Option<Duration>) -> Option<u64> {
        let within = duration.map(|d| duration_ns(d).unsigned_abs());
        let limit = [within, self.length_ns().map(|l| l.saturating_add(1))].into_iter().flatten().min()?;
        match self {
            Self::Unthrottled => None,
            Self::Poisson { rate, .. } => Some(round_u64(rate * limit as f64 / 1e9)),
            _ => Some(self.slots(0, 1, None).count_before(limit)),
        }
    }

    /// How late a slot may be before policy `skip` gives it up, ns: ten
    /// intervals and at least 100 µs (the bounds from which a run is
    /// questioned), a whole period for bursts.
    pub fn tolerance_ns(&self) -> i64 {
        const LEAST: i64 = 100_000;
        match self {
            Self::Bursts { every, .. } => every.map_or(i64::MAX, duration_ns),
            _ => self.interval_ns().map_or(LEAST, |i| signed(round_u64(10.0 * i)).max(LEAST)),
        }
    }

    /// The slots of one stream out of `streams`, at most `count` over all
    /// streams together.
    pub fn slots(&self, stream: u16, streams: u16, count: Option<u64>) -> Slots {
        let (stream, streams) = (u64::from(stream), u64::from(streams.max(1)));
        let grid = match self {
            Self::Unthrottled => Grid::Free,
            Self::Constant { rate } => Grid::Even { interval: 1e9 / rate },
            Self::Bursts { size, dispatch, every, repeat } => Grid::Bursts {
                size: (*size).max(1),
                interval: dispatch.map_or(0.0, |p| 1e9 / p),
                every: every.map_or(0, |e| duration_ns(e).unsigned_abs()),
                bursts: if every.is_none() { 1 } else { repeat.unwrap_or(u64::MAX) },
            },
            Self::OnOff { rate, on, off } => Grid::Bursts {
                size: round_u64(rate * on.as_secs_f64()).max(1),
                interval: 1e9 / rate,
                every: duration_ns(on.saturating_add(*off)).unsigned_abs(),
                bursts: u64::MAX,
            },
            Self::Poisson { rate, seed } => Grid::Poisson {
                rng: fastrand::Rng::with_seed(seed ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
                mean: 1e9 * streams as f64 / rate,
                at: 0.0,
            },
            Self::Steps { steps } => {
                let mut parts = Vec::with_capacity(steps.len());
                let (mut first, mut from) = (0_u64, 0_u64);
                for s in steps {
                    parts.push(Part { first, from, interval: 1e9 / s.rate });
                    first = first.saturating_add(round_u64(s.rate * s.lasts.as_secs_f64()));
                    from = from.saturating_add(duration_ns(s.lasts).unsigned_abs());
                }
                Grid::Steps { parts, total: first }
            }
            Self::Replay { offsets_ns } => Grid::Replay(Arc::clone(offsets_ns)),
        };
        Slots { grid, next: stream, stride: streams, limit: count.unwrap_or(u64::MAX) }
    }
}

#[derive(Clone, Copy, Debug)]
struct Part {
    first: u64,
    from: u64,
    interval: f64,
}

#[derive(Clone, Debug)]
enum Grid {
    Free,
    Even { interval: f64 },
    Bursts { size: u64, interval: f64, every: u64, bursts: u64 },
    Poisson { rng: fastrand::Rng, mean: f64, at: f64 },
    Steps { parts: Vec<Part>, total: u64 },
    Replay(Arc<[u64]>),
}

/// One stream's slots, in order: an iterator over offsets from the start, ns.
/// An unthrottled schedule yields 0 for each of its slots.
#[derive(Clone, Debug)]
pub struct Slots {
    grid: Grid,
    next: u64,
    stride: u64,
    limit: u64,
}

impl Grid {
    /// The offset of slot `k`, ns, on a grid that is laid down beforehand;
    /// `None` beyond its end, and where it is drawn as it goes.
    fn offset(&self, k: u64) -> Option<u64> {
        match self {
            Self::Free => Some(0),
            Self::Poisson { .. } => None,
            Self::Even { interval } => Some(round_u64(k as f64 * interval)),
            Self::Bursts { size, interval, every, bursts } => {
                let (burst, within) = (k / size, k % size);
                (burst < *bursts)
                    .then(|| burst.saturating_mul(*every).saturating_add(round_u64(within as f64 * interval)))
            }
            Self::Steps { parts, total } => {
                if k >= *total {
                    return None;
                }
                let part = parts.get(parts.partition_point(|p| p.first <= k).checked_sub(1)?)?;
                Some(part.from.saturating_add(round_u64((k - part.first) as f64 * part.interval)))
            }
            Self::Replay(offsets) => offsets.get(usize::try_from(k).ok()?).copied(),
        }
    }
}

impl Iterator for Slots {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        let k = self.next;
        if k >= self.limit {
            return None;
        }
        let offset = match &mut self.grid {
            Grid::Poisson { rng, mean, at } => {
                *at -= *mean * (1.0 - rng.f64()).ln();
                round_u64(*at)
            }
            grid => grid.offset(k)?,
        };
        self.next = k.saturating_add(self.stride);
        Some(offset)
    }
}

/// Slots of a Poisson schedule that are drawn only to be counted; of more, the
/// rest is reckoned by their mean, which is then within 0.03 % (1/√n).
const MOST_DRAWN: u64 = 10_000_000;

impl Slots {
    /// True where there is no schedule to be late against.
    pub fn is_free(&self) -> bool {
        matches!(self.grid, Grid::Free)
    }

    /// How many of the remaining slots have an offset below `limit_ns`;
    /// consumes the slots. Takes bounded time, however many there are.
    pub fn count_before(mut self, limit_ns: u64) -> u64 {
        match self.grid {
            Grid::Free => 0,
            Grid::Poisson { .. } => self.drawn_before(limit_ns),
            _ => {
                // Offsets grow with the index: the first at or after the limit.
                let (mut from, mut to) = (self.next, self.limit.max(self.next));
                while from < to {
                    let k = from + (to - from) / 2;
                    if self.grid.offset(k).is_some_and(|offset| offset < limit_ns) {
                        from = k + 1;
                    } else {
                        to = k;
                    }
                }
                // The stream's share of them.
                (from - self.next).div_ceil(self.stride)
            }
        }
    }

    fn drawn_before(&mut self, limit_ns: u64) -> u64 {
        let mut n = 0;
        while n < MOST_DRAWN {
            match self.next() {
                Some(offset) if offset < limit_ns => n += 1,
                _ => return n,
            }
        }
        let Grid::Poisson { mean, at, .. } = self.grid else { return n };
        let rest = round_u64(((limit_ns as f64 - at) / mean).max(0.0));
        n + rest.min(self.limit.saturating_sub(self.next).div_ceil(self.stride))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(s: &Schedule, streams: u16, count: Option<u64>, most: usize) -> Vec<u64> {
        let mut v: Vec<u64> =
            (0..streams).flat_map(|i| s.slots(i, streams, count).take(most).collect::<Vec<_>>()).collect();
        v.sort_unstable();
        v
    }

    #[test]
    fn a_constant_rate_is_an_even_grid_that_does_not_drift() {
        let s = Schedule::Constant { rate: 3.0 };
        assert_eq!(all(&s, 1, Some(4), 10), [0, 333_333_333, 666_666_667, 1_000_000_000]);
        let late = Slots { next: 3_000_000, ..s.slots(0, 1, None) }.next();
        assert_eq!(late, Some(1_000_000_000_000_000));
    }

    #[test]
    fn bursts_are_dispatched_at_their_own_rate_and_repeat() {
        let s = Schedule::Bursts {
            size: 3,
            dispatch: Some(1e6),
            every: Some(Duration::from_millis(1)),
            repeat: Some(2),
        };
        assert_eq!(all(&s, 1, None, 99), [0, 1000, 2000, 1_000_000, 1_001_000, 1_002_000]);
        assert_eq!(s.length_ns(), Some(1_003_000));
        let unpaced = Schedule::Bursts { size: 3, dispatch: None, every: None, repeat: None };
        assert_eq!(all(&unpaced, 2, None, 99), [0, 0, 0]);
    }

    #[test]
    fn steps_follow_each_other_without_a_gap() {
        let s = Schedule::Steps {
            steps: vec![
                Step { rate: 10.0, lasts: Duration::from_millis(200) },
                Step { rate: 1000.0, lasts: Duration::from_millis(3) },
            ],
        };
        let ms: Vec<u64> = all(&s, 1, None, 99).iter().map(|x| x / 1_000_000).collect();
        assert_eq!(ms, [0, 100, 200, 201, 202]);
    }

    #[test]
    fn poisson_intervals_have_the_mean_and_the_spread_of_the_exponential() {
        let s = Schedule::Poisson { rate: 1000.0, seed: 7 };
        for streams in [1, 4] {
            let v = all(&s, streams, None, 40_000 / usize::from(streams));
            let v = &v[..30_000];
            let gaps: Vec<f64> = v.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let var = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            assert!((mean / 1e6 - 1.0).abs() < 0.03, "mean {mean}");
            assert!((var.sqrt() / mean - 1.0).abs() < 0.05, "cv {}", var.sqrt() / mean);
        }
    }

    #[test]
    fn very_many_poisson_arrivals_are_reckoned() {
        let s = Schedule::Poisson { rate: 1e9, seed: 1 };
        let n = s.slots(0, 1, None).count_before(3_600_000_000_000);
        assert!((n as f64 / 3.6e12 - 1.0).abs() < 1e-3, "{n}");
        assert_eq!(s.slots(0, 1, Some(50_000_000)).count_before(3_600_000_000_000), 50_000_000);
    }

    #[test]
    fn a_grid_knows_how_much_it_has() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(Schedule::Constant { rate: 1e3 }.planned(second), Some(1000));
        assert_eq!(Schedule::Constant { rate: 1e3 }.planned(None), None);
        let bursts = Schedule::Bursts { size: 10, dispatch: None, every: second, repeat: Some(3) };
        assert_eq!((bursts.planned(None), bursts.planned(second)), (Some(30), Some(10)));
        assert_eq!(Schedule::Unthrottled.planned(second), None);
    }

    #[test]
    fn nonsense_is_refused() {
        let every = Some(Duration::from_millis(1));
        for bad in [
            Schedule::Constant { rate: 0.0 },
            Schedule::Constant { rate: 1e-10 },
            Schedule::Constant { rate: f64::NAN },
            Schedule::Constant { rate: 2e9 },
            Schedule::Bursts { size: 0, dispatch: None, every, repeat: None },
            Schedule::Bursts { size: 2000, dispatch: Some(1e6), every, repeat: None },
            Schedule::Bursts { size: 1, dispatch: None, every: None, repeat: Some(2) },
            Schedule::OnOff { rate: 1.0, on: Duration::ZERO, off: Duration::from_secs(1) },
            Schedule::Steps { steps: vec![] },
            Schedule::Replay { offsets_ns: Arc::from([3, 2]) },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    fn any_schedule() -> impl Strategy<Value = Schedule> {
        prop_oneof![
            (1.0..1e6f64).prop_map(|rate| Schedule::Constant { rate }),
            (1u64..50, proptest::option::of(1e5..1e7f64), 1u64..20).prop_map(|(size, dispatch, n)| {
                Schedule::Bursts { size, dispatch, every: Some(Duration::from_millis(1)), repeat: Some(n) }
            }),
            (1.0..1e5f64, 1u64..50, 1u64..50).prop_map(|(rate, on, off)| Schedule::OnOff {
                rate,
                on: Duration::from_millis(on),
                off: Duration::from_millis(off)
            }),
            proptest::collection::vec(0u64..1_000_000_000, 1..80).prop_map(|mut v| {
                v.sort_unstable();
                Schedule::Replay { offsets_ns: v.into() }
            }),
        ]
    }

    proptest! {
        #[test]
        fn streams_share_the_grid_without_changing_it(s in any_schedule(), streams in 1u16..9, count in 1u64..300) {
            prop_assert_eq!(all(&s, streams, Some(count), 400), all(&s, 1, Some(count), 400));
        }

        #[test]
        fn slots_never_step_back(s in any_schedule(), streams in 1u16..5) {
            for i in 0..streams {
                let v: Vec<u64> = s.slots(i, streams, None).take(300).collect();
                prop_assert!(v.is_sorted());
            }
        }

        #[test]
        fn counting_agrees_with_walking(s in any_schedule(), streams in 1u16..5, limit in 0u64..50_000_000, skip in 0usize..20) {
            let mut slots = s.slots(0, streams, Some(5000));
            slots.by_ref().take(skip).for_each(drop);
            let walked = slots.clone().take_while(|o| *o < limit).count();
            prop_assert_eq!(slots.count_before(limit), walked as u64);
        }

        #[test]
        fn slots_without_end_are_counted_at_once(size in 1u64..u64::MAX, every in 1u64..1_000_000, limit: u64) {
            let every = Some(Duration::from_millis(every));
            let s = Schedule::Bursts { size, dispatch: None, every, repeat: Some(u64::MAX) };
            prop_assert!(s.slots(0, 3, None).count_before(limit) > 0 || limit == 0);
        }
    }
}
