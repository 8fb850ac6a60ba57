//! When the threads of a followed flow had to wait: for the CPU, or for room
//! in the send buffer. Waits are recorded as intervals, and laid over the
//! journeys in userspace.

use aya_ebpf::{helpers::bpf_ktime_get_ns, macros::btf_tracepoint, programs::BtfTracePointContext};
use observer_ebpf::abi::{RecordKind, ThreadSlot, WaitKind, WaitRecord};

use super::{
    kernel::{self, Object},
    maps::QUEUED,
    ring,
    settings::constant,
    thread, user,
};

/// `TASK_INTERRUPTIBLE`: how `sock_wait_for_wmem` sleeps.
const INTERRUPTIBLE: u32 = 1;

/// `sched:sched_waking(task)`: a sleep ends; from here it is the run queue's
/// fault.
#[btf_tracepoint(function = "sched_waking")]
fn sched_waking(ctx: BtfTracePointContext) -> i32 {
    let task = Object(ctx.arg(0));
    let tid = task.load::<u32>(constant!(OFFSETS.task_pid));
    let Some(thread) = followed(tid).or_else(|| reader(tid)) else {
        return 0;
    };
    // SAFETY: an element of the thread table. Waking and switching of one
    // thread are serialized by the scheduler; a spurious waking of a running
    // thread is undone by its next switch.
    unsafe {
        // A wake-up of a thread that has not left its CPU yet changes nothing.
        if task.load::<u32>(constant!(OFFSETS.task_state)) == 0 {
            return 0;
        }
        let now = bpf_ktime_get_ns();
        let blocked = (*thread).blocked_ns;
        if blocked != 0 {
            (*thread).blocked_ns = 0;
            record(WaitKind::SendBuffer, tid, blocked, now);
        }
        (*thread).runnable_ns = now;
    }
    0
}

/// `sched:sched_switch(preempt, prev, next, …)`.
#[btf_tracepoint(function = "sched_switch")]
fn sched_switch(ctx: BtfTracePointContext) -> i32 {
    let preempted: u32 = ctx.arg(0);
    let prev = Object(ctx.arg(1));
    let next = Object(ctx.arg(2));
    let prev_tid = prev.load::<u32>(constant!(OFFSETS.task_pid));
    if let Some(thread) = followed(prev_tid) {
        // SAFETY: as in `sched_waking`.
        unsafe { switched_out(thread, prev, preempted & 0xff != 0) };
    }
    let next_tid = next.load::<u32>(constant!(OFFSETS.task_pid));
    if let Some(thread) = followed(next_tid) {
        // SAFETY: as in `sched_waking`.
        unsafe {
            let since = (*thread).runnable_ns;
            if since != 0 {
                (*thread).runnable_ns = 0;
                record(WaitKind::RunQueue, next_tid, since, bpf_ktime_get_ns());
            }
        }
    }
    0
}

/// The entry of `tid`, if it sends or reads a followed flow.
#[inline(always)]
fn followed(tid: u32) -> Option<*mut ThreadSlot> {
    let thread = thread::owned(tid)?;
    // SAFETY: an element of the thread table.
    unsafe { ((*thread).followed != 0).then_some(thread) }
}

/// Time from a datagram's queueing to the wake-up it causes, at most: both
/// happen in one softirq, a function call apart.
const WAKES_WITHIN_NS: u64 = 20_000;

/// This CPU is about to queue a followed datagram on its socket. A thread that
/// it wakes next is the reader, who is not known before it has read once; its
/// first wait for a CPU would be taken for a slow reader.
#[inline(always)]
pub(super) fn expect_reader(now: u64) {
    if let Some(queued) = QUEUED.get_ptr_mut(0) {
        // SAFETY: an element of a per-CPU array.
        unsafe { *queued = now };
    }
}

/// The entry of a thread that a followed datagram has just woken. Should
/// something else have woken it in between, it is followed in vain: waits are
/// laid over the journeys of those who read.
#[inline(always)]
fn reader(tid: u32) -> Option<*mut ThreadSlot> {
    let queued = QUEUED.get_ptr_mut(0)?;
    // SAFETY: an element of a per-CPU array; the helper has no preconditions.
    let now = unsafe {
        if *queued == 0 {
            return None;
        }
        let now = bpf_ktime_get_ns();
        let since = now.wrapping_sub(*queued);
        *queued = 0;
        if since > WAKES_WITHIN_NS {
            return None;
        }
        now
    };
    let thread = thread::own(tid, now)?;
    // SAFETY: an element of the thread table, owned by `tid`.
    unsafe {
        (*thread).followed = 1;
        (*thread).active_ns = now;
    }
    Some(thread)
}

/// The current task leaves its CPU: still runnable, or asleep.
///
/// # Safety
///
/// `thread` is the entry of the current task.
#[inline(always)]
unsafe fn switched_out(thread: *mut ThreadSlot, task: Object, preempted: bool) {
    let state = task.load::<u32>(constant!(OFFSETS.task_state));
    // SAFETY: see above; the helpers have no preconditions.
    unsafe {
        let now = bpf_ktime_get_ns();
        if preempted || state == 0 {
            (*thread).runnable_ns = now;
        } else if state & INTERRUPTIBLE != 0 && user::is_send(kernel::current_syscall().nr) {
            (*thread).blocked_ns = now;
        }
    }
}

#[inline(always)]
fn record(kind: WaitKind, tid: u32, from_ns: u64, to_ns: u64) {
    if to_ns.wrapping_sub(from_ns) < constant!(SETTINGS.min_wait_ns) {
        return;
    }
    ring::emit_control(&WaitRecord {
        kind: RecordKind::Wait as u8,
        wait: kind as u8,
        pad: 0,
        tid,
        from_ns,
        to_ns,
    });
}
