//! The slope of send lag over time, by least squares in constant memory: a
//! publisher that falls behind for good has lag growing in proportion to
//! time, whatever its quantiles look like.

/// Sums of a regression of lag on time.
#[derive(Clone, Copy, Debug)]
pub struct Slope {
    origin: i64,
    n: f64,
    t: f64,
    y: f64,
    tt: f64,
    ty: f64,
}

impl Slope {
    /// No samples; times are taken relative to `origin` (ns).
    pub fn new(origin: i64) -> Self {
        Self { origin, n: 0.0, t: 0.0, y: 0.0, tt: 0.0, ty: 0.0 }
    }

    /// A lag at a time, both ns.
    #[inline]
    pub fn add(&mut self, at_ns: i64, lag_ns: i64) {
        let t = (at_ns - self.origin) as f64 / 1e9;
        let y = lag_ns as f64 / 1e9;
        self.n += 1.0;
        self.t += t;
        self.y += y;
        self.tt += t * t;
        self.ty += t * y;
    }

    /// Adds another's samples, which must have the same origin.
    pub fn merge(&mut self, other: &Self) {
        self.n += other.n;
        self.t += other.t;
        self.y += other.y;
        self.tt += other.tt;
        self.ty += other.ty;
    }

    /// Seconds of lag gained per second; `None` for fewer than 20 samples or
    /// no spread in time.
    pub fn per_second(&self) -> Option<f64> {
        let spread = self.n * self.tt - self.t * self.t;
        (self.n >= 20.0 && spread > 0.0).then(|| (self.n * self.ty - self.t * self.y) / spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_line_has_its_slope(per_ms in -1_000_000i64..1_000_000, offset in 0i64..1_000_000_000, origin in 0i64..1_000_000_000_000) {
            let (mut a, mut b) = (Slope::new(origin), Slope::new(origin));
            for i in 0..1000 {
                let t = i * 1_000_000;
                let s = if i % 3 == 0 { &mut a } else { &mut b };
                s.add(origin + t, offset + t / 1_000_000 * per_ms);
            }
            a.merge(&b);
            prop_assert!((a.per_second().unwrap() - per_ms as f64 / 1e6).abs() < 1e-6);
        }
    }

    #[test]
    fn few_samples_have_none() {
        let mut s = Slope::new(0);
        (0..19).for_each(|i| s.add(i, i));
        assert_eq!(s.per_second(), None);
        let mut still = Slope::new(0);
        (0..50).for_each(|_| still.add(7, 7));
        assert_eq!(still.per_second(), None);
    }
}
