//! What threads are doing: the thread table.
//!
//! Indexed by the low bits of the thread id. A thread takes an entry when it
//! enters a send or recvmmsg call; it does not take one from a thread that
//! carries a followed flow and was active lately (that is counted).

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use observer_ebpf::abi::{Counter, THREAD_SLOTS, ThreadSlot};

use super::{count::count, maps::THREADS};

/// A followed thread that made no send or receive call for this long gives up
/// its entry to another that needs it.
const STALE_NS: u64 = 10_000_000_000;

/// Thread id and thread-group id of the current task.
#[inline(always)]
pub(super) fn current() -> (u32, u32) {
    let both = bpf_get_current_pid_tgid();
    (both as u32, (both >> 32) as u32)
}

/// The entry that `tid` may use, whoever owns it.
#[inline(always)]
fn entry(tid: u32) -> Option<*mut ThreadSlot> {
    THREADS.get_ptr_mut(tid & (THREAD_SLOTS - 1))
}

/// The entry `tid` owns, if it does.
#[inline(always)]
pub(super) fn owned(tid: u32) -> Option<*mut ThreadSlot> {
    let slot = entry(tid)?;
    // SAFETY: an element of the thread table; a torn view is impossible for
    // one aligned word.
    unsafe { ((*slot).tid == tid).then_some(slot) }
}

/// Makes `tid` the owner of its entry. `None`, counted, if a followed thread
/// has it.
#[inline(always)]
pub(super) fn own(tid: u32, now: u64) -> Option<*mut ThreadSlot> {
    let slot = entry(tid)?;
    // SAFETY: an element of the thread table. Two threads racing for it leave
    // one of them as the owner, and every use checks the owner.
    unsafe {
        if (*slot).tid != tid {
            if (*slot).followed != 0 && now.wrapping_sub((*slot).active_ns) < STALE_NS {
                count(Counter::ThreadConflict);
                return None;
            }
            *slot = ThreadSlot {
                tid,
                followed: 0,
                active_ns: now,
                send_enter_ns: 0,
                send_flow: 0,
                batch_pos: 0,
                claimed: 0,
                recv_vec: 0,
                recv_index: 0,
                pad: 0,
                runnable_ns: 0,
                blocked_ns: 0,
            };
        }
        Some(slot)
    }
}
