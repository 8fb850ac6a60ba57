//! The sending application: when it entered its send call, and what became of
//! each message.

use aya_ebpf::{
    helpers::bpf_ktime_get_ns,
    macros::{btf_tracepoint, tracepoint},
    programs::{BtfTracePointContext, TracePointContext},
};
use observer_ebpf::abi::flag;

use super::{
    flow::{self, Sender},
    journey,
    kernel::{self, Object},
    thread, user,
};

/// Entry of sendmmsg, sendmsg, sendto, write and writev: one program, attached
/// to each of the five.
#[tracepoint]
fn sys_enter_send(_ctx: TracePointContext) -> u32 {
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    let (tid, _) = thread::current();
    if let Some(thread) = thread::own(tid, now) {
        // SAFETY: an element of the thread table, owned by this thread.
        unsafe {
            (*thread).send_enter_ns = now;
            (*thread).active_ns = now;
            (*thread).batch_pos = 0;
            (*thread).claimed = 0;
        }
    }
    0
}

/// `sock:sock_send_length(sk, ret, flags)` (6.3): one message was handed to
/// the protocol, or refused.
///
/// Usually the datagram was seen leaving already, in the same call. If not, it
/// waits for address resolution, sits in a corked socket, or was thrown away
/// on the way: then the application's buffer tells which one it was, and it
/// counts as sent from here on.
#[btf_tracepoint(function = "sock_send_length")]
fn sock_send_length(ctx: BtfTracePointContext) -> i32 {
    let sock = Object(ctx.arg(0));
    let ret: i32 = ctx.arg(1);
    if !kernel::is_udp(sock) {
        return 0;
    }
    let (tid, tgid) = thread::current();
    let Some(thread) = thread::owned(tid) else {
        return 0;
    };
    // SAFETY: an element of the thread table, owned by this thread.
    let (claimed, send_flow, index) = unsafe {
        let state = ((*thread).claimed, (*thread).send_flow, (*thread).batch_pos);
        (*thread).claimed = 0;
        (*thread).batch_pos = state.2.wrapping_add(1);
        state
    };
    if ret < 0 {
        const EAGAIN: i32 = 11;
        const ENOBUFS: i32 = 105;
        if (ret == -EAGAIN || ret == -ENOBUFS) && send_flow != 0 {
            if let Some(flow) = super::maps::FLOWS.get_ptr_mut(send_flow - 1) {
                flow::add(flow, flow::Count::SendErrors);
            }
        }
        return 0;
    }
    if claimed != 0 {
        return 0;
    }
    let call = kernel::current_syscall();
    let Ok(stamp) = user::sent(call, u32::from(index), ret as u64) else {
        return 0;
    };
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    if !super::transmit::plausible(&stamp, now) {
        return 0;
    }
    if !matches!(journey::find(&stamp), journey::Found::Absent) {
        return 0;
    }
    let sender = Sender { sock, tgid, tid, in_call: true, headers: None, ifindex: 0 };
    let Some((flow, flow_index)) = flow::of_sender(&stamp, &sender, now) else {
        return 0;
    };
    flow::note_sent(flow, &stamp);
    let Some(claimed) = journey::claim(&stamp) else {
        flow::add(flow, flow::Count::Unclaimed);
        return 0;
    };
    let journey = claimed.journey();
    // SAFETY: a claimed entry; elements of the thread and flow tables.
    unsafe {
        (*thread).send_flow = flow_index + 1;
        (*thread).followed = 1;
        (*journey).flags = flag::NO_DEV_QUEUE;
        (*journey).syscall_ns = (*thread).send_enter_ns;
        (*journey).tx_tid = tid;
        (*journey).batch_pos = index;
        (*journey).run_index = (*flow).run_index as u16;
    }
    claimed.publish();
    0
}
