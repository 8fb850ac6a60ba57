//! Running and standing still by turns, as a virtual machine does that the
//! hypervisor takes off its CPU: which of the two at a given time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A machine that runs for a while, then stands still for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StallConfig {
    /// From the start of one stall to the start of the next.
    pub every: Duration,
    /// Length of a stall; shorter than `every`.
    pub lasts: Duration,
}

/// The turns, from a start on.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    start_ns: u64,
    every_ns: u64,
    lasts_ns: u64,
}

impl Stall {
    /// Runs first, from `start_ns`, and stands still at the end of each
    /// period. A stall that fills its period is cut to half of it.
    pub fn new(config: StallConfig, start_ns: u64) -> Self {
        let ns = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let every_ns = ns(config.every).max(2);
        let lasts_ns = ns(config.lasts);
        Self { start_ns, every_ns, lasts_ns: if lasts_ns >= every_ns { every_ns / 2 } else { lasts_ns } }
    }

    /// When it runs again, if it stands still at `now_ns`.
    pub fn until(&self, now_ns: u64) -> Option<u64> {
        let since = now_ns.checked_sub(self.start_ns)?;
        let at = since % self.every_ns;
        (at >= self.every_ns - self.lasts_ns).then(|| now_ns + (self.every_ns - at))
    }

    /// When it stands still next, at or after `now_ns`; `None` if it never does.
    pub fn next(&self, now_ns: u64) -> Option<u64> {
        if self.lasts_ns == 0 {
            return None;
        }
        let since = now_ns.saturating_sub(self.start_ns);
        let (period, at) = (since / self.every_ns, since % self.every_ns);
        let begins = self.every_ns - self.lasts_ns;
        let period = if at <= begins { period } else { period + 1 };
        period.checked_mul(self.every_ns)?.checked_add(begins)?.checked_add(self.start_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_first_then_stands_still() {
        let stall = Stall::new(
            StallConfig { every: Duration::from_nanos(100), lasts: Duration::from_nanos(30) },
            1_000,
        );
        assert_eq!((stall.until(0), stall.until(1_000), stall.until(1_069)), (None, None, None));
        assert_eq!((stall.until(1_070), stall.until(1_099)), (Some(1_100), Some(1_100)));
        assert_eq!(stall.until(1_100), None);
        assert_eq!(
            (stall.next(0), stall.next(1_070), stall.next(1_071)),
            (Some(1_070), Some(1_070), Some(1_170))
        );
    }

    proptest! {
        #[test]
        fn the_share_of_stalls_is_what_was_asked(every in 2_u64..2_000, lasts in 0_u64..2_000, start in 0_u64..1_000) {
            let config = StallConfig { every: Duration::from_nanos(every), lasts: Duration::from_nanos(lasts) };
            let stall = Stall::new(config, start);
            let still = (start..start + 3 * every).filter(|t| stall.until(*t).is_some()).count() as u64;
            prop_assert_eq!(still, 3 * if lasts < every { lasts } else { every / 2 });
            for t in (start..start + 3 * every).step_by(7) {
                match (stall.until(t), stall.next(t)) {
                    (Some(again), _) => prop_assert!(again > t && stall.until(again).is_none() && again - t <= every),
                    (None, Some(next)) => prop_assert!(next > t && stall.until(next).is_some() && stall.until(next - 1).is_none()),
                    (None, None) => prop_assert_eq!(lasts, 0),
                }
            }
        }
    }
}
