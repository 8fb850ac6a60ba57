//! Where a datagram died, and why.

use aya_ebpf::{helpers::bpf_ktime_get_ns, macros::btf_tracepoint, programs::BtfTracePointContext};
use aya_log_ebpf::debug;
use observer_ebpf::{
    abi::{Counter, RecordKind, flag},
    stamp::Stamp,
};

use super::{
    count::{count, count_drop},
    flow::{self, Sender},
    journey::{self, Found, Slot},
    kernel::{self, Object},
    packet::{self, Headers, Packet},
    settings::constant,
    thread, user,
};

/// `skb:kfree_skb(skb, location, reason)` (reason since 5.17): a packet is
/// freed because something went wrong.
#[btf_tracepoint(function = "kfree_skb")]
fn kfree_skb(ctx: BtfTracePointContext) -> i32 {
    let skb = Object(ctx.arg(0));
    let mut headers = packet::headers();
    let Packet::Stamped(stamp) = packet::at_network_header(skb, &mut headers) else {
        return 0;
    };
    let location: u64 = ctx.arg(1);
    let reason: u32 = if constant!(SETTINGS.has_drop_reason) != 0 { ctx.arg(2) } else { UNSPECIFIED };
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    match journey::find(&stamp) {
        Found::Live(_) if is_copy(skb, reason) => count(Counter::CloneDropped),
        Found::Live(slot) => {
            dropped(slot, &stamp, location, reason, now);
            debug!(
                &ctx,
                "run {:x} stream {} seq {} dropped, reason {}",
                stamp.run,
                stamp.stream(),
                stamp.seq(),
                reason
            );
        }
        // A copy of a datagram that was delivered, or dropped, elsewhere.
        Found::Done => count(Counter::CloneDropped),
        Found::Absent => {
            if let Some(slot) = claim_unsent(skb, &stamp, &headers, now) {
                dropped(slot, &stamp, location, reason, now);
            }
        }
    }
    0
}

/// `SKB_DROP_REASON_NOT_SPECIFIED`, the same number since reasons exist (5.17).
const UNSPECIFIED: u32 = 2;

/// Whether somebody else still holds the datagram: a capture's copy has its
/// own reason; without a reason, data shared with another packet tells.
#[inline(always)]
fn is_copy(skb: Object, reason: u32) -> bool {
    if reason == constant!(SETTINGS.reason_packet_sock) {
        return true;
    }
    if reason != UNSPECIFIED {
        return false;
    }
    let cloned = skb.load::<u8>(constant!(OFFSETS.skb_cloned)) & constant!(OFFSETS.skb_cloned_mask) as u8;
    if cloned == 0 {
        return false;
    }
    let shared_info = skb.load::<u64>(constant!(OFFSETS.skb_head))
        + u64::from(skb.load::<u32>(constant!(OFFSETS.skb_end)))
        + u64::from(constant!(OFFSETS.shinfo_dataref));
    // The lower half counts references to the data.
    kernel::copy::<u32>(shared_info).is_some_and(|dataref| dataref & 0xffff > 1)
}

#[inline(always)]
fn dropped(slot: Slot, stamp: &Stamp, location: u64, reason: u32, now: u64) {
    let Some((flow, _)) = flow::find(stamp.run, stamp.stream()) else {
        return;
    };
    if !slot.finish() {
        return;
    }
    let journey = slot.journey();
    // SAFETY: this program finished the journey; an element of the flow table.
    let (run_index, admitted) = unsafe {
        (*journey).drop_ns = now;
        (*journey).drop_location = location;
        (*journey).drop_reason = reason;
        ((*flow).run_index, (*flow).admitted)
    };
    flow::add(flow, flow::Count::Dropped);
    if admitted != 0 {
        count_drop(run_index, reason);
    }
    slot.emit(RecordKind::Dropped, flow);
}

/// A datagram that died before it left the protocol stack (a firewall, a full
/// neighbour queue): it was sent, and never seen before. It gets an entry if
/// it is followed.
#[inline(always)]
fn claim_unsent(skb: Object, stamp: &Stamp, headers: &Headers, now: u64) -> Option<Slot> {
    let sock = skb.follow(constant!(OFFSETS.skb_sk));
    let (tid, tgid) = thread::current();
    let in_call = user::is_send(kernel::current_syscall().nr);
    if sock.is_null() || !in_call || !super::transmit::plausible(stamp, now) {
        return None;
    }
    let sender = Sender { sock, tgid, tid, in_call, headers: Some(headers), ifindex: 0 };
    let Some((flow, flow_index)) = flow::of_sender(stamp, &sender, now) else {
        return None;
    };
    flow::note_sent(flow, stamp);
    let Some(claimed) = journey::claim(stamp) else {
        flow::add(flow, flow::Count::Unclaimed);
        return None;
    };
    let journey = claimed.journey();
    // SAFETY: a claimed entry; elements of the flow and thread tables.
    unsafe {
        (*journey).flags = flag::NO_DEV_QUEUE;
        (*journey).tx_tid = tid;
        (*journey).l2_bytes = skb.load::<u32>(constant!(OFFSETS.skb_len));
        (*journey).run_index = (*flow).run_index as u16;
        if let Some(thread) = thread::owned(tid) {
            (*journey).syscall_ns = (*thread).send_enter_ns;
            (*thread).claimed = 1;
            (*thread).followed = 1;
            (*thread).send_flow = flow_index + 1;
        }
    }
    Some(claimed.publish())
}
