//! The host itself: its clock and CPU accounting, and (in [`qdisc`]) the
//! queues of its devices.

pub mod qdisc;

use std::fs;

use rustix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC, ns: the clock of every point of a journey.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// The first line of /proc/stat: time of all CPUs together, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTimes {
    total: u64,
    idle: u64,
    steal: u64,
}

impl CpuTimes {
    /// Reads it now; `None` where /proc is not mounted.
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        // user nice system idle iowait irq softirq steal guest guest_nice;
        // guest time is part of user already.
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        let &[_, _, _, idle, iowait, _, _, steal] = ticks.as_slice() else { return None };
        Some(Self { total: ticks.iter().sum(), idle: idle + iowait, steal })
    }

    /// Share of the time since `start` that the hypervisor gave to others, 0
    /// to 1. `None` if no tick passed.
    pub fn steal_ratio_since(&self, start: &Self) -> Option<f64> {
        ratio(self.steal.checked_sub(start.steal)?, self.total.checked_sub(start.total)?)
    }

    /// Share of the time since `start` that was not idle, 0 to 1.
    pub fn busy_ratio_since(&self, start: &Self) -> Option<f64> {
        let total = self.total.checked_sub(start.total)?;
        let idle = self.idle.checked_sub(start.idle)?;
        ratio(total.checked_sub(idle)?, total)
    }
}

#[expect(clippy::cast_precision_loss, reason = "ticks stay far below 2^53")]
fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole != 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_known_interval() {
        let start = CpuTimes::parse("cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 …").unwrap();
        let end = CpuTimes::parse("cpu  150 0 120 820 0 0 0 10 7 0\n").unwrap();
        assert_eq!(end.steal_ratio_since(&start), Some(0.1));
        assert_eq!(end.busy_ratio_since(&start), Some(0.8));
        assert_eq!(start.steal_ratio_since(&start), None);
    }

    #[test]
    fn nonsense_is_none() {
        for text in ["", "cpu ", "cpu  1 2 3", "cpu  a b c d e f g h", "intr 5"] {
            assert_eq!(CpuTimes::parse(text), None, "{text}");
        }
    }
}
