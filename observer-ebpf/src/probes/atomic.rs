//! Atomic operations on map memory.
//!
//! The BPF target declares itself without compare-and-swap, so `core`'s
//! atomic types have no methods for it; the instructions exist since kernel
//! 5.12 and the compiler emits them for `-C target-cpu=v3`. Operations that
//! return the old value are full barriers.

use core::intrinsics::{self, AtomicOrdering};

/// Adds `n`.
///
/// # Safety
///
/// `at` is an aligned u64 in map memory.
#[inline(always)]
pub(super) unsafe fn add(at: *mut u64, n: u64) {
    // SAFETY: by contract.
    unsafe { intrinsics::atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(at, n) };
}

/// Writes `new` if the value is `old`; true if it did.
///
/// # Safety
///
/// `at` is an aligned u64 in map memory.
#[inline(always)]
pub(super) unsafe fn compare_exchange(at: *mut u64, old: u64, new: u64) -> bool {
    // SAFETY: by contract.
    unsafe {
        intrinsics::atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(at, old, new)
            .1
    }
}

/// Writes `new` after everything written before.
///
/// # Safety
///
/// `at` is an aligned u64 in map memory.
#[inline(always)]
pub(super) unsafe fn publish(at: *mut u64, new: u64) {
    // SAFETY: by contract.
    unsafe { intrinsics::atomic_xchg::<u64, { AtomicOrdering::SeqCst }>(at, new) };
}

/// Reads a value that others may change.
///
/// # Safety
///
/// `at` is an aligned u64 in map memory.
#[inline(always)]
pub(super) unsafe fn load(at: *const u64) -> u64 {
    // SAFETY: by contract.
    unsafe { core::ptr::read_volatile(at) }
}
