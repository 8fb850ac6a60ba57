//! The host's own clock and CPU accounting.

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

/// What the hypervisor takes from the CPUs it takes most from.
///
/// A flow has a thread at either end, so at most two CPUs matter to it at a
/// time; the sum over all CPUs of a large machine would explain anything.
#[derive(Clone, Debug)]
pub struct StolenTime {
    last: Vec<u64>,
    sum_ns: u64,
}

/// CPUs that count in each interval.
const MOST_STOLEN: usize = 2;

impl StolenTime {
    /// Counts from now; `None` where /proc is not mounted.
    pub fn start() -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        Some(Self { last: steal_by_cpu(&stat), sum_ns: 0 })
    }

    /// Time taken since the start, ns. A /proc/stat that cannot be read adds
    /// nothing.
    pub fn read_ns(&mut self) -> u64 {
        if let Ok(stat) = fs::read_to_string("/proc/stat") {
            self.advance(steal_by_cpu(&stat));
        }
        self.sum_ns
    }

    fn advance(&mut self, now: Vec<u64>) {
        // A CPU taken off line or brought back renumbers them: start afresh.
        if now.len() == self.last.len() {
            let mut taken: Vec<u64> = now.iter().zip(&self.last).map(|(n, l)| n.saturating_sub(*l)).collect();
            taken.sort_unstable_by_key(|t| std::cmp::Reverse(*t));
            let ticks: u64 = taken.iter().take(MOST_STOLEN).sum();
            self.sum_ns = self.sum_ns.saturating_add(ticks.saturating_mul(tick_ns()));
        }
        self.last = now;
    }
}

/// Steal of each CPU since boot, in ticks.
fn steal_by_cpu(stat: &str) -> Vec<u64> {
    let cpu = |line: &str| {
        let mut columns = line.strip_prefix("cpu")?.split_whitespace();
        columns.next()?.parse::<u32>().ok()?;
        columns.nth(7)?.parse().ok()
    };
    // The first line, of all CPUs together, has no number.
    stat.lines().skip(1).map_while(cpu).collect()
}

/// The unit of /proc/stat, ns: 10 ms wherever USER_HZ is 100.
fn tick_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
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
    fn the_two_cpus_with_most_steal_count_in_each_interval() {
        let stat = |steal: [u64; 3]| {
            let line = |(cpu, s)| format!("cpu{cpu} 1 2 3 4 5 6 7 {s} 0 0\n");
            let cpus: String = steal.into_iter().enumerate().map(line).collect();
            format!("cpu  3 6 9 12 15 18 21 9 0 0\n{cpus}intr 5\n")
        };
        let mut stolen = StolenTime { last: steal_by_cpu(&stat([10, 20, 30])), sum_ns: 0 };
        stolen.advance(steal_by_cpu(&stat([11, 25, 32])));
        assert_eq!(stolen.sum_ns, 7 * tick_ns());
        stolen.advance(steal_by_cpu(&stat([20, 25, 32])));
        assert_eq!(stolen.sum_ns, 16 * tick_ns());
        stolen.advance(vec![900]);
        assert_eq!(stolen.sum_ns, 16 * tick_ns(), "another number of CPUs");
    }

    #[test]
    fn nonsense_is_none() {
        for text in ["", "cpu ", "cpu  1 2 3", "cpu  a b c d e f g h", "intr 5"] {
            assert_eq!(CpuTimes::parse(text), None, "{text}");
        }
    }
}
