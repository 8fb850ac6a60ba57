//! Counting what could not be followed.

use observer_ebpf::abi::{Counter, MAX_RUNS, REASON_SLOTS};

use super::maps::{COUNTERS, DROPS};

/// Adds one to `counter` on this CPU.
#[inline(always)]
pub(super) fn count(counter: Counter) {
    if let Some(value) = COUNTERS.get_ptr_mut(counter as u32) {
        // SAFETY: a per-CPU array element; programs on one CPU may nest, which
        // can lose a count of a count but nothing else.
        unsafe { *value += 1 };
    }
}

/// Adds one drop for `reason` to a run.
#[inline(always)]
pub(super) fn count_drop(run_index: u32, reason: u32) {
    let slot = if reason < REASON_SLOTS as u32 { reason } else { REASON_SLOTS as u32 - 1 };
    let run = run_index & (MAX_RUNS as u32 - 1);
    if let Some(value) = DROPS.get_ptr_mut(run * REASON_SLOTS as u32 + slot) {
        // SAFETY: as in `count`.
        unsafe { *value += 1 };
    }
}
