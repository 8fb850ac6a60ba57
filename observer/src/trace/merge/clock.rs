//! How far apart two hosts' clocks are, from one-way times that bound it.
//!
//! A datagram from A to B that left at a and arrived at b (each on its host's
//! clock) says that B's clock is ahead of A's by at most b − a, since no
//! datagram arrives before it leaves; one from B to A that it is ahead by at
//! least as much. If the difference θ changes linearly (a constant drift),
//! the lines that satisfy all of these are a polygon, and the largest and the
//! smallest θ at either end of the run are two small linear programs. Between
//! the ends a line's error is between the errors at the ends: so the line
//! through the two midpoints is nowhere further from the truth than the
//! larger half width. With traffic in one direction there is no bound from
//! below, and the supporting line of the earliest arrivals is taken (S. Moon,
//! P. Skelly and D. Towsley, Estimation and removal of clock skew from network
//! delay measurements, INFOCOM 1999): times between the hosts are then
//! relative to their own minimum.

use std::collections::BTreeMap;

/// Of the bounds in so long a time only the tightest is kept.
const BIN_NS: u64 = 10_000_000;
/// Most corners that are kept of a hull; dropping some only widens the bound.
const CORNERS: usize = 64;

/// The clocks' difference: B's reading less A's, when B's reads `t`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// B's time to which `offset_ns` belongs.
    pub at_ns: u64,
    /// B − A then, ns.
    pub offset_ns: i64,
    /// How fast the difference grows, ns per ns of B's time.
    pub drift: f64,
    /// How far the offset may be from the truth anywhere in the run, ns; `None`
    /// with traffic in one direction, where it is B − A plus the shortest time
    /// on the wire.
    pub within_ns: Option<u64>,
    /// Of that, what is there because no constant drift fits all datagrams.
    pub bent_ns: u64,
}

impl Clock {
    /// The difference at B's time `t`, ns.
    pub fn offset_at(&self, t: u64) -> i64 {
        let since = i128::from(t) - i128::from(self.at_ns);
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            reason = "a run in ns is below 2^53"
        )]
        let grown = (since as f64 * self.drift).round() as i64;
        self.offset_ns.saturating_add(grown)
    }

    /// A's time at B's time `t`; 0, which is no time, stays 0.
    pub fn to_a(&self, t: u64) -> u64 {
        if t == 0 {
            return 0;
        }
        let a = i128::from(t) - i128::from(self.offset_at(t));
        u64::try_from(a.max(1)).unwrap_or(u64::MAX)
    }
}

/// Bounds on the difference, gathered datagram by datagram.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// By time, the smallest b − a of datagrams from A to B: B's time, value.
    above: BTreeMap<u64, (u64, i64)>,
    /// By time, the largest b − a of datagrams from B to A.
    below: BTreeMap<u64, (u64, i64)>,
}

impl Bounds {
    /// A datagram left A at `a` and arrived at B at `b`.
    pub fn forth(&mut self, a: u64, b: u64) {
        let d = difference(b, a);
        let kept = self.above.entry(b / BIN_NS).or_insert((b, d));
        if d < kept.1 {
            *kept = (b, d);
        }
    }

    /// A datagram left B at `b` and arrived at A at `a`.
    pub fn back(&mut self, b: u64, a: u64) {
        let d = difference(b, a);
        let kept = self.below.entry(b / BIN_NS).or_insert((b, d));
        if d > kept.1 {
            *kept = (b, d);
        }
    }

    /// The difference; `None` without a datagram in either direction.
    pub fn clock(&self) -> Option<Clock> {
        let all = || self.above.values().chain(self.below.values());
        let (start, end) = (all().map(|p| p.0).min()?, all().map(|p| p.0).max()?);
        let origin = all().next()?.1;
        // Relative to the first, so that nanoseconds survive in a float.
        let relative = |p: &(u64, i64), sign: f64| Point {
            t: small(i128::from(p.0) - i128::from(start)),
            d: sign * small(i128::from(p.1) - i128::from(origin)),
        };
        let above = hull(self.above.values().map(|p| relative(p, 1.0)));
        let below: Vec<Point> = hull(self.below.values().map(|p| relative(p, -1.0)))
            .into_iter()
            .map(|p| Point { d: -p.d, ..p })
            .collect();
        let length = small(i128::from(end) - i128::from(start));
        let (first, last, within, bent) = match (above.is_empty(), below.is_empty()) {
            (false, false) => {
                let (first, last, within, bent) = both(&above, &below, length);
                // Where no line fits, what the line found misses is looked at
                // piece by piece.
                let line = |t: f64| first + if length > 0.0 { (last - first) / length * t } else { 0.0 };
                let missed = if bent > 0.0 {
                    let above = self.above.values().map(|p| relative(p, 1.0));
                    let below = self.below.values().map(|p| relative(p, 1.0));
                    missed(above, below, line, length)
                } else {
                    0.0
                };
                (first, last, within.map(|w| w.max(missed)), bent)
            }
            (false, true) => one(&above, length),
            _ => {
                let mirrored: Vec<Point> = below.iter().map(|p| Point { d: -p.d, ..*p }).collect();
                let (first, last, within, bent) = one(&mirrored, length);
                (-first, -last, within, bent)
            }
        };
        #[expect(clippy::cast_possible_truncation, reason = "far below 2^63")]
        let offset_ns = origin.saturating_add(first.round() as i64);
        let drift = if length > 0.0 { (last - first) / length } else { 0.0 };
        let up = |ns: f64| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "not negative, and far below 2^64"
            )]
            let ns = ns.max(0.0).ceil() as u64;
            // What rounding to whole ns may add.
            ns + 2
        };
        let bent_ns = if bent > 0.0 { up(bent) } else { 0 };
        Some(Clock { at_ns: start, offset_ns, drift, within_ns: within.map(up), bent_ns })
    }
}

fn difference(b: u64, a: u64) -> i64 {
    let d = i128::from(b) - i128::from(a);
    i64::try_from(d).unwrap_or(if d < 0 { i64::MIN } else { i64::MAX })
}

#[expect(clippy::cast_precision_loss, reason = "a run in ns is below 2^53")]
fn small(ns: i128) -> f64 {
    ns as f64
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    t: f64,
    d: f64,
}

/// The lower hull of points in order of time.
fn hull(points: impl Iterator<Item = Point>) -> Vec<Point> {
    let mut hull: Vec<Point> = Vec::new();
    for p in points {
        while let [.., a, b] = hull.as_slice() {
            if (b.t - a.t) * (p.d - a.d) - (b.d - a.d) * (p.t - a.t) > 0.0 {
                break;
            }
            hull.pop();
        }
        if hull.last().is_none_or(|last| last.t < p.t) {
            hull.push(p);
        }
    }
    let step = hull.len().div_ceil(CORNERS).max(1);
    let last = hull.len().saturating_sub(1);
    hull.into_iter().enumerate().filter(|(i, _)| i % step == 0 || *i == last).map(|(_, p)| p).collect()
}

/// The supporting line in the middle of the run.
fn one(above: &[Point], length: f64) -> (f64, f64, Option<f64>, f64) {
    let middle = length / 2.0;
    let at = above.windows(2).find(|w| w[1].t >= middle).or_else(|| above.windows(2).last());
    let (a, drift) = match at {
        Some(w) => (w[0], (w[1].d - w[0].d) / (w[1].t - w[0].t)),
        None => (above.first().copied().unwrap_or(Point { t: 0.0, d: 0.0 }), 0.0),
    };
    (a.d - drift * a.t, a.d + drift * (length - a.t), None, 0.0)
}

/// The line through the midpoints, and its bound.
fn both(above: &[Point], below: &[Point], length: f64) -> (f64, f64, Option<f64>, f64) {
    // If no line fits, all bounds are relaxed until one does.
    let mut slack = 0.0;
    if range(above, below, 0.0, length, slack).is_none() {
        let (mut low, mut high) = (0.0, 1.0);
        while range(above, below, 0.0, length, high).is_none() && high < 1e15 {
            high *= 2.0;
        }
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if range(above, below, 0.0, length, middle).is_some() { high = middle } else { low = middle }
        }
        slack = high;
    }
    let at = |t| range(above, below, t, length, slack).unwrap_or((0.0, 0.0));
    let ((first_low, first_high), (last_low, last_high)) = (at(0.0), at(length));
    let within = ((first_high - first_low) / 2.0).max((last_high - last_low) / 2.0);
    ((first_low + first_high) / 2.0, (last_low + last_high) / 2.0, Some(within + slack), slack)
}

/// Pieces in which a bent clock is taken to be straight.
const PIECES: usize = 64;

/// The largest error that the bounds allow of `line`, piece by piece.
fn missed(
    above: impl Iterator<Item = Point>,
    below: impl Iterator<Item = Point>,
    line: impl Fn(f64) -> f64,
    length: f64,
) -> f64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 64")]
    let piece = |t: f64| ((t / length.max(1.0) * 64.0) as usize).min(PIECES - 1);
    let mut upper = [f64::INFINITY; PIECES];
    let mut lower = [f64::NEG_INFINITY; PIECES];
    for p in above {
        let at = &mut upper[piece(p.t)];
        *at = at.min(p.d - line(p.t));
    }
    for p in below {
        let at = &mut lower[piece(p.t)];
        *at = at.max(p.d - line(p.t));
    }
    // Within a piece the error moves about as much as from one to the next.
    let known = |of: [f64; PIECES]| of.into_iter().filter(|e| e.is_finite()).collect::<Vec<f64>>();
    let worst = |of: &[f64]| {
        let step = of.windows(2).map(|w| (w[1] - w[0]).abs()).fold(0.0, f64::max);
        of.iter().map(|e| e.abs()).fold(0.0, f64::max) + step
    };
    worst(&known(upper)).max(worst(&known(lower)))
}

/// Fastest drift that is thought possible: 1,000 ppm, twice what NTP corrects.
const FASTEST: f64 = 1e-3;

/// The smallest and largest value at `t` of lines y = a + b·t below all of
/// `above` and above all of `below`, each relaxed by `slack`.
fn range(above: &[Point], below: &[Point], t: f64, _length: f64, slack: f64) -> Option<(f64, f64)> {
    // With b fixed, a is between two bounds; the width is concave in b, and
    // the value at t is a + b·t: so the corners are where two bounds meet.
    let lowest = |b: f64| below.iter().map(|p| p.d - slack - b * p.t).fold(f64::NEG_INFINITY, f64::max);
    let highest = |b: f64| above.iter().map(|p| p.d + slack - b * p.t).fold(f64::INFINITY, f64::min);
    let width = |b: f64| highest(b) - lowest(b);
    // The drift at which there is most room.
    let (mut low, mut high) = (-FASTEST, FASTEST);
    for _ in 0..200 {
        let (x, y) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if width(x) < width(y) { low = x } else { high = y }
    }
    let widest = (low + high) / 2.0;
    if width(widest) < 0.0 {
        return None;
    }
    // The drifts at which there is none any more.
    let edge = |mut outside: f64| {
        if width(outside) >= 0.0 {
            return outside;
        }
        let mut inside = widest;
        for _ in 0..200 {
            let middle = (inside + outside) / 2.0;
            if width(middle) >= 0.0 { inside = middle } else { outside = middle }
        }
        outside
    };
    let (left, right) = (edge(-FASTEST), edge(FASTEST));
    // highest(b) + b·t is concave in b, lowest(b) + b·t convex.
    let best = |value: &dyn Fn(f64) -> f64| {
        let (mut low, mut high) = (left, right);
        for _ in 0..200 {
            let (x, y) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
            if value(x) < value(y) { low = x } else { high = y }
        }
        value((low + high) / 2.0).max(value(left)).max(value(right))
    };
    let most = best(&|b| highest(b) + b * t);
    let least = -best(&|b| -(lowest(b) + b * t));
    Some((least.min(most), most.max(least)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::cast_possible_truncation, reason = "a test's times")]
    fn whole(ns: f64) -> i64 {
        ns.round() as i64
    }

    /// A minute of traffic, 500/s, with queueing noise, some of it never gone.
    struct Case {
        rng: fastrand::Rng,
        offset: i64,
        drift: f64,
        start: u64,
    }

    impl Case {
        fn new(seed: u64) -> Self {
            let mut rng = fastrand::Rng::with_seed(seed);
            let offset = rng.i64(-1_000_000_000_000_000..1_000_000_000_000_000);
            let drift = (rng.f64() - 0.5) * 2e-4;
            Self { rng, offset, drift, start: 2_000_000_000_000_000 }
        }

        fn truth(&self, b: u64) -> f64 {
            self.offset as f64 + (b - self.start) as f64 * self.drift
        }

        fn to_a(&self, b: u64) -> u64 {
            let offset = self.offset + whole((b - self.start) as f64 * self.drift);
            (b.cast_signed() - offset).cast_unsigned()
        }

        fn wire(&mut self) -> u64 {
            let queue = if self.rng.u8(..4) == 0 { -self.rng.f64().max(1e-9).ln() * 300_000.0 } else { 0.0 };
            20_000 + self.rng.u64(..2_000) + whole(queue).cast_unsigned()
        }

        fn bounds(&mut self, back: bool) -> Bounds {
            let mut bounds = Bounds::default();
            for i in 0..30_000_u64 {
                let b = self.start + i * 2_000_000;
                let wire = self.wire();
                // Where A's clock was when it left: the drift in so short a
                // time is below a nanosecond.
                bounds.forth(self.to_a(b) - wire, b);
                let wire = self.wire();
                if back {
                    bounds.back(b, self.to_a(b + wire));
                }
            }
            bounds
        }
    }

    #[test]
    fn the_offset_is_within_the_stated_bound_in_all_of_a_hundred_cases() {
        for seed in 0..100 {
            let mut case = Case::new(seed);
            let bounds = case.bounds(true);
            let clock = bounds.clock().unwrap();
            let within = clock.within_ns.unwrap();
            for b in [case.start, case.start + 30_000_000_000, case.start + 60_000_000_000] {
                let error = (clock.offset_at(b) as f64 - case.truth(b)).abs();
                assert!(error <= within as f64, "seed {seed}: off by {error} of {within}");
            }
            // Half the shortest round trip, and little more: it is of use.
            assert!((15_000..40_000).contains(&within), "seed {seed}: {within}");
            assert!((clock.drift - case.drift).abs() < 2e-6, "seed {seed}: {}", clock.drift);
        }
    }

    #[test]
    fn with_one_direction_the_drift_is_found_and_no_bound_is_claimed() {
        for seed in 0..20 {
            let mut case = Case::new(seed);
            let clock = case.bounds(false).clock().unwrap();
            assert_eq!(clock.within_ns, None);
            assert!((clock.drift - case.drift).abs() < 1e-6, "seed {seed}: {} {}", clock.drift, case.drift);
            // Relative to the shortest time on the wire.
            let b = case.start + 30_000_000_000;
            let above = clock.offset_at(b) as f64 - case.truth(b);
            assert!((19_000.0..23_000.0).contains(&above), "seed {seed}: {above}");
        }
    }

    #[test]
    fn a_bent_clock_widens_the_bound() {
        let mut bounds = Bounds::default();
        let start = 1_000_000_000_000_u64;
        let truth = |i: u64| if i < 500 { 0 } else { (i - 500) * 2_000 };
        for i in 0..1_000 {
            let b = start + i * 20_000_000;
            bounds.forth(b - truth(i) - 10_000, b);
            bounds.back(b, b - truth(i) + 10_000);
        }
        let clock = bounds.clock().unwrap();
        assert!(clock.bent_ns > 100_000, "{clock:?}");
        for i in [0, 250, 500, 750, 999] {
            let error = (clock.offset_at(start + i * 20_000_000) - truth(i).cast_signed()).unsigned_abs();
            assert!(error <= clock.within_ns.unwrap(), "{error} at {i}: {clock:?}");
        }
    }

    #[test]
    fn nothing_is_said_from_nothing_and_little_from_little() {
        assert_eq!(Bounds::default().clock(), None);
        let mut bounds = Bounds::default();
        bounds.forth(1_000, 5_000);
        let clock = bounds.clock().unwrap();
        assert_eq!((clock.offset_at(5_000), clock.drift), (4_000, 0.0));
        assert_eq!((clock.to_a(5_000), clock.to_a(0)), (1_000, 0));
        bounds.back(5_000, 9_000);
        let clock = bounds.clock().unwrap();
        assert_eq!(clock.offset_at(5_000), 0);
        assert!(clock.within_ns.unwrap() >= 4_000);
    }
}
