//! What a thread of a run asks of the scheduler: a CPU of its own where the
//! user named one, and timers that fire on time.

use std::num::NonZeroU64;

use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};

/// A CPU the calling thread could not be pinned to.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot pin a thread to CPU {cpu}: {source}; `taskset -p $$` lists the CPUs this process may use")]
pub struct PinError {
    /// The CPU asked for.
    pub cpu: usize,
    /// The kernel's answer.
    pub source: rustix::io::Errno,
}

/// Pins the calling thread to `cpu`.
pub fn pin(cpu: usize) -> Result<(), PinError> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(PinError { cpu, source: rustix::io::Errno::INVAL });
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|source| PinError { cpu, source })
}

/// Asks for timers without the default 50 µs of slack. A kernel that refuses
/// only makes sleeps later, which shows in the send lag.
pub(crate) fn exact_timers() {
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_cpu_is_refused_with_its_number() {
        for cpu in [1000, CpuSet::MAX_CPU, usize::MAX] {
            assert!(pin(cpu).unwrap_err().to_string().contains(&cpu.to_string()));
        }
    }
}
