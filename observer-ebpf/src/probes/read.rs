//! The receiving application has the datagram.

use aya_ebpf::{
    helpers::bpf_ktime_get_ns,
    macros::{btf_tracepoint, tracepoint},
    programs::{BtfTracePointContext, TracePointContext},
};
use aya_log_ebpf::info;
use observer_ebpf::{
    abi::{Counter, FlowSlot, RecordKind, flag},
    stamp::Stamp,
};

use super::{
    count::count,
    flow,
    journey::{self, Holds},
    kernel::{self, Object},
    packet::{self, Packet},
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

/// `skb:consume_skb(skb)`: stands in for `sock_recv_length` before 6.3, where
/// it fires in the reading thread right after the copy (`skb_consume_udp`, and
/// not for MSG_PEEK, which leaves the packet queued). From 6.18 on it fires
/// late, for many packets at once; there it is not attached.
///
/// It also fires for packets that are done with elsewhere. A read is one of a
/// datagram that has passed its socket's filter, inside a receive call, and
/// not of a packet that another socket owns (a capture's copy).
#[btf_tracepoint(function = "consume_skb")]
fn consume_skb(ctx: BtfTracePointContext) -> i32 {
    let skb = Object(ctx.arg(0));
    if !user::is_receive(kernel::current_syscall().nr) || !skb.follow(constant!(OFFSETS.skb_sk)).is_null() {
        return 0;
    }
    let mut headers = packet::headers();
    let Packet::Stamped(stamp) = packet::at_network_header(skb, &mut headers) else {
        return 0;
    };
    let Some(slot) = journey::find_live(&stamp) else {
        return 0;
    };
    // SAFETY: an entry found live; the helper has no preconditions.
    let (queued, now) = unsafe { ((*slot.journey()).sock_enqueue_ns, bpf_ktime_get_ns()) };
    let Some((flow, _)) = flow::find(stamp.run, stamp.stream()) else {
        return 0;
    };
    if queued == 0 || !slot.finish() {
        return 0;
    }
    let (tid, _) = thread::current();
    // The socket layer has pulled the headers: what is left is the payload.
    let bytes = skb.load::<u32>(constant!(OFFSETS.skb_len));
    read(slot, flow, u64::from(bytes), tid, now);
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
    flow::note_receiver(stamp, flow, sock, now);
    read(slot, flow, bytes, tid, now);
}

/// The journey that this program finished ended in the application.
#[inline(always)]
fn read(slot: journey::Slot, flow: *mut FlowSlot, bytes: u64, tid: u32, now: u64) {
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
