//! What a thread of a run asks of the scheduler: a CPU of its own where the
//! user named one, and timers that fire on time.

use std::num::NonZeroU64;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};

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

/// Whether the calling thread may run on `cpu`; true where that is not known,
/// so that pinning finds out.
pub fn may_use(cpu: usize) -> bool {
    cpu < CpuSet::MAX_CPU && sched_getaffinity(None).map_or(true, |set| set.is_set(cpu))
}

/// Asks for timers without the default 50 µs of slack. A kernel that refuses
/// only makes sleeps later, which shows in the send lag.
pub(crate) fn exact_timers() {
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}

/// Real time was refused.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot give a thread real-time priority: {0}; it needs CAP_SYS_NICE or `ulimit -r` of 1 or more")]
pub struct RealtimeError(#[source] pub rustix::io::Errno);

/// Puts the calling thread before all ordinary ones (SCHED_FIFO, lowest
/// priority): it runs when its timer fires, and is not preempted by them.
pub(crate) fn realtime() -> Result<(), RealtimeError> {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: the pointer is to a live sched_param, which the call only reads; 0 is this thread.
    let failed = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) } != 0;
    if failed {
        let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EPERM);
        return Err(RealtimeError(rustix::io::Errno::from_raw_os_error(code)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_cpu_is_refused_with_its_number() {
        for cpu in [1000, CpuSet::MAX_CPU, usize::MAX] {
            assert!(pin(cpu).unwrap_err().to_string().contains(&cpu.to_string()));
            assert!(!may_use(cpu));
        }
    }
}
