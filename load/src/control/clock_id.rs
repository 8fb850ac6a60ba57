//! Which CLOCK_MONOTONIC a process reads. Two ends may subtract each other's
//! times only if it is the same one: same boot of the same kernel, same
//! offset of the time namespace (`time_namespaces(7)`, Linux 5.6).

use serde::{Deserialize, Serialize};

/// Identity of a clock; equal for two processes that read the same one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClockId {
    /// Random, made at each boot.
    boot: String,
    /// Offset of this process's time namespace, as the kernel prints it.
    offset: Option<String>,
}

impl ClockId {
    /// This process's; `None` where /proc does not tell.
    pub(super) fn here() -> Option<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets").ok();
        Some(Self { boot, offset: offsets.as_deref().and_then(monotonic) })
    }
}

fn monotonic(offsets: &str) -> Option<String> {
    let mut fields = offsets.lines().find(|l| l.starts_with("monotonic"))?.split_ascii_whitespace().skip(1);
    Some(format!("{}.{}", fields.next()?, fields.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_itself_and_a_namespace_with_another_offset_is_not() {
        assert!(ClockId::here().is_some());
        assert_eq!(ClockId::here(), ClockId::here());
        assert_eq!(monotonic("monotonic           0         0\nboottime 0 0\n").unwrap(), "0.0");
        assert_ne!(monotonic("monotonic  5 0\n"), monotonic("monotonic  0 0\n"));
        assert_eq!(monotonic("monotonic"), None);
    }
}
