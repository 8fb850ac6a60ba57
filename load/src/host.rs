//! Was the host itself quiet? Time stolen by the hypervisor, from /proc/stat,
//! readable without privilege.

use serde::Serialize;

/// The host's CPU time so far, in ticks, over all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTime {
    steal: u64,
    total: u64,
}

/// What happened on the host during a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HostReport {
    /// Share of all CPU time the hypervisor kept for others, 0 to 1.
    pub steal: f64,
}

impl CpuTime {
    /// Reads it now; `None` where /proc does not tell.
    pub fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line of /proc/stat: user nice system idle iowait irq softirq
    /// steal guest guest_nice, of which the guests are part of user and nice.
    fn parse(stat: &str) -> Option<Self> {
        let mut fields = stat.lines().next()?.split_ascii_whitespace();
        if fields.next()? != "cpu" {
            return None;
        }
        let ticks: Vec<u64> = fields.take(8).map_while(|f| f.parse().ok()).collect();
        let steal = *ticks.get(7)?;
        Some(Self { steal, total: ticks.iter().copied().fold(0, u64::saturating_add) })
    }

    /// What happened from `self` to `later`.
    pub fn until(self, later: Self) -> HostReport {
        let total = later.total.saturating_sub(self.total);
        let steal = later.steal.saturating_sub(self.steal);
        HostReport { steal: if total == 0 { 0.0 } else { steal as f64 / total as f64 } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_a_share_of_all_time_guests_counted_once() {
        let a = CpuTime::parse("cpu  10 0 10 70 0 0 0 10 5 5\ncpu0 ...").unwrap();
        let b = CpuTime::parse("cpu  20 0 20 140 0 0 0 20 9 9\n").unwrap();
        assert_eq!(a.until(b).steal, 0.1);
        assert_eq!(a.until(a).steal, 0.0);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "cpu", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8 9", "cpu a b c d e f g h"] {
            assert_eq!(CpuTime::parse(text), None);
        }
        assert!(CpuTime::now().is_some());
    }
}
