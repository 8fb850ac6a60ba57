//! The receiving application has the datagram.

use aya_ebpf::{
    helpers::bpf_ktime_get_ns,
    macros::{btf_tracepoint, tracepoint},
    programs::{BtfTracePointContext, TracePointContext},
};
use aya_log_ebpf::info;
use observer_ebpf::{
    abi::{Counter, RecordKind, flag},
    stamp::Stamp,
};

use super::{
    count::count,
    flow,
    journey::{self, Holds},
    kernel::{self, Object},
    settings::constant,
    thread,
    user::{self, NoStamp},
};

/// Entry of recvmmsg: the first message of a new array comes next.
#[tracepoint]
fn sys_enter_recvmmsg(_ctx: TracePointContext) -> u32 {
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    let (tid, _) = thread::current();
    if let Some(thread) = thread::own(tid, now) {
        // SAFETY: an element of the thread table, owned by this thread.
        unsafe {
            (*thread).recv_index = 0;
            (*thread).active_ns = now;
        }
    }
    0
}

/// `sock:sock_recv_length(sk, ret, flags)` (6.3): one message was copied to
/// the application, or there was none.
///
/// Fires for every protocol, for failed reads, for MSG_PEEK and for the error
/// queue, where the sender's own packet comes back.
#[btf_tracepoint(function = "sock_recv_length")]
fn sock_recv_length(ctx: BtfTracePointContext) -> i32 {
    const MSG_PEEK: i32 = 2;
    const MSG_ERRQUEUE: i32 = 0x2000;
    let sock = Object(ctx.arg(0));
    let ret: i32 = ctx.arg(1);
    let flags: i32 = ctx.arg(2);
    if ret < 0 || !kernel::is_udp(sock) {
        return 0;
    }
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    let (tid, _) = thread::current();
    let call = kernel::current_syscall();
    let mut index = 0;
    if call.nr == constant!(SYSCALLS.recvmmsg) {
        let Some(thread) = thread::owned(tid) else {
            count(Counter::NoUserBuffer);
            return 0;
        };
        // SAFETY: an element of the thread table, owned by this thread.
        unsafe {
            index = (*thread).recv_index;
            (*thread).recv_index = index + 1;
        }
    }
    if flags & (MSG_PEEK | MSG_ERRQUEUE) != 0 {
        return 0;
    }
    match user::received(call, index, ret as u64) {
        Ok(stamp) => delivered(&stamp, sock, ret as u64, tid, now),
        Err(NoStamp::Unstamped) => count(Counter::UnstampedReceived),
        Err(NoStamp::UnknownCall) => {
            count(Counter::NoUserBuffer);
            info!(&ctx, "thread {} reads by system call {}, whose buffer is unknown", tid, call.nr);
        }
        Err(NoStamp::Unreadable) => {
            count(Counter::UserReadFailed);
            info!(&ctx, "the buffer of thread {} could not be read", tid);
        }
        Err(NoStamp::Short) => count(Counter::ShortRead),
    }
    0
}

#[inline(always)]
fn delivered(stamp: &Stamp, sock: Object, bytes: u64, tid: u32, now: u64) {
    let Some((slot, held)) = journey::locate(stamp) else {
        return;
    };
    match held {
        Holds::Live => {}
        Holds::Done => {
            match flow::find(stamp.run, stamp.stream()) {
                Some((flow, _)) => flow::add(flow, flow::Count::Duplicated),
                None => count(Counter::ForeignReceived),
            }
            return;
        }
        Holds::Other => {
            if !claim_remote(slot, stamp, sock, now) {
                return;
            }
        }
    }
    let Some((flow, _)) = flow::find(stamp.run, stamp.stream()) else {
        count(Counter::ForeignReceived);
        return;
    };
    if !slot.finish() {
        flow::add(flow, flow::Count::Duplicated);
        return;
    }
    let journey = slot.journey();
    // SAFETY: this program finished the journey; nobody else writes to it.
    unsafe {
        (*journey).app_dequeue_ns = now;
        (*journey).rx_tid = tid;
    }
    if let Some(thread) = thread::own(tid, now) {
        // SAFETY: an element of the thread table, owned by this thread.
        unsafe {
            (*thread).followed = 1;
            (*thread).active_ns = now;
        }
    }
    flow::note_receiver(stamp, flow, sock, now);
    flow::add(flow, flow::Count::Delivered);
    flow::add_n(flow, flow::Count::DeliveredBytes, bytes);
    slot.emit(RecordKind::Delivered, flow);
}

/// A datagram that no hook on this host has seen before. True once it has a
/// slot, because its run is followed from the receiving end.
#[inline(always)]
fn claim_remote(slot: journey::Slot, stamp: &Stamp, sock: Object, now: u64) -> bool {
    let Some((flow, _)) = flow::of_remote(stamp) else {
        count(Counter::ForeignReceived);
        flow::consider_remote(stamp, sock, now);
        return false;
    };
    flow::note_offered(flow, stamp);
    let Some(claimed) = slot.claim(stamp) else {
        flow::add(flow, flow::Count::Unclaimed);
        return false;
    };
    // SAFETY: a claimed entry; an element of the flow table.
    unsafe {
        (*claimed.journey()).flags = flag::RX_ONLY;
        (*claimed.journey()).run_index = (*flow).run_index as u16;
    }
    claimed.publish();
    true
}
