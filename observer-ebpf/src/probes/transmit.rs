//! The way out: leaving the protocol stack, the qdisc, and for the driver, on
//! every hop on this host.

use aya_ebpf::{helpers::bpf_ktime_get_ns, macros::btf_tracepoint, programs::BtfTracePointContext};
use aya_log_ebpf::{debug, info};
use observer_ebpf::{
    abi::{Counter, flag},
    stamp::Stamp,
};

use super::{
    count::count,
    flow::{self, Sender},
    journey::{self, Found, Slot},
    kernel::{self, Object},
    packet::{self, Headers, Packet},
    settings::constant,
    thread, user,
};

/// Packets looked at when a qdisc hands over several at once.
const BULK: u32 = 8;

/// `net:net_dev_queue(skb)`: the packet enters the queueing of a device. The
/// first time a datagram comes by it is claimed; later times begin a hop.
#[btf_tracepoint(function = "net_dev_queue")]
fn net_dev_queue(ctx: BtfTracePointContext) -> i32 {
    let skb = Object(ctx.arg(0));
    let mut headers = packet::headers();
    let stamp = match packet::at_network_header(skb, &mut headers) {
        Packet::Stamped(stamp) => stamp,
        Packet::Other => return 0,
        other => {
            if !skb.follow(constant!(OFFSETS.skb_sk)).is_null() {
                count(match other {
                    Packet::Paged => Counter::Paged,
                    Packet::Unreadable => Counter::KernelReadFailed,
                    _ => Counter::UnstampedSent,
                });
            }
            return 0;
        }
    };
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    match journey::find(&stamp) {
        Found::Live(slot) => next_hop(slot, skb, &stamp, &headers, now),
        Found::Done => count(Counter::LatePoint),
        Found::Absent => {
            if first_seen(skb, &stamp, &headers, now) {
                debug!(&ctx, "follows run {:x} stream {} seq {}", stamp.run, stamp.stream(), stamp.seq());
            } else {
                info!(
                    &ctx,
                    "does not follow run {:x} stream {} seq {}",
                    stamp.run,
                    stamp.stream(),
                    stamp.seq()
                );
            }
        }
    }
    0
}

#[inline(always)]
fn ifindex_of(skb: Object) -> u32 {
    skb.follow(constant!(OFFSETS.skb_dev)).load::<u32>(constant!(OFFSETS.dev_ifindex))
}

/// A datagram on its way enters another device's queue, or, if the socket
/// layer was faster than the protocol stack, its first.
#[inline(always)]
fn next_hop(slot: Slot, skb: Object, stamp: &Stamp, headers: &Headers, now: u64) {
    let journey = slot.journey();
    // SAFETY: an entry found live; points of one datagram follow each other.
    unsafe {
        (*journey).hop_start_ns = now;
        (*journey).rx_ns = 0;
        (*journey).ifindex = ifindex_of(skb);
        if (*journey).dev_queue_ns == 0 {
            (*journey).dev_queue_ns = now;
            (*journey).l2_bytes = skb.load::<u32>(constant!(OFFSETS.skb_len));
            (*journey).flags = ((*journey).flags & !flag::NO_DEV_QUEUE) | flag::DEFERRED;
            let sock = skb.follow(constant!(OFFSETS.skb_sk));
            flow::reconsider(stamp, sock, headers, (*journey).ifindex, now);
        }
    }
}

/// A stamp offers itself for following: claims its slot. False if it is not
/// followed.
#[inline(always)]
fn first_seen(skb: Object, stamp: &Stamp, headers: &Headers, now: u64) -> bool {
    let sock = skb.follow(constant!(OFFSETS.skb_sk));
    if sock.is_null() {
        // Forwarded from another host, or not followed: not sent here.
        return false;
    }
    if !plausible(stamp, now) {
        count(Counter::Implausible);
        return false;
    }
    let (tid, tgid) = thread::current();
    let in_call = user::is_send(kernel::current_syscall().nr);
    let ifindex = ifindex_of(skb);
    let sender = Sender { sock, tgid, tid, in_call, headers: Some(headers), ifindex };
    let Some((flow, flow_index)) = flow::of_sender(stamp, &sender, now) else {
        return false;
    };
    flow::note_sent(flow, stamp);
    flow::add(flow, flow::Count::DevQueued);
    let Some(claimed) = journey::claim(stamp) else {
        flow::add(flow, flow::Count::Unclaimed);
        return false;
    };
    let journey = claimed.journey();
    // SAFETY: a claimed entry; elements of the flow and thread tables.
    unsafe {
        (*journey).dev_queue_ns = now;
        (*journey).hop_start_ns = now;
        (*journey).ifindex = ifindex;
        (*journey).l2_bytes = skb.load::<u32>(constant!(OFFSETS.skb_len));
        (*journey).run_index = (*flow).run_index as u16;
        let mut flags = if headers.version() == 6 { flag::V6 } else { 0 };
        match thread::owned(tid) {
            Some(thread) if in_call && (*flow).tx_tgid == tgid => {
                (*journey).syscall_ns = (*thread).send_enter_ns;
                (*journey).tx_tid = tid;
                (*journey).batch_pos = (*thread).batch_pos;
                (*thread).claimed = 1;
                (*thread).followed = 1;
                (*thread).send_flow = flow_index + 1;
            }
            _ => flags |= flag::DEFERRED,
        }
        (*journey).flags = flags;
    }
    claimed.publish();
    true
}

/// Whether the offer time can be a time at which this host offered something.
#[inline(always)]
pub(super) fn plausible(stamp: &Stamp, now: u64) -> bool {
    let age = (now as i64).wrapping_add(constant!(SETTINGS.clock_offset_ns)).wrapping_sub(stamp.offer_ns);
    // CLOCK_MONOTONIC of two CPUs may differ a little.
    const SLACK_NS: i64 = 1_000_000;
    age > -SLACK_NS && age < constant!(SETTINGS.max_age_ns) as i64
}

/// `qdisc:qdisc_dequeue(qdisc, txq, packets, skb)`: a qdisc hands over one
/// packet, or the first of a list; with null when it has none.
#[btf_tracepoint(function = "qdisc_dequeue")]
fn qdisc_dequeue(ctx: BtfTracePointContext) -> i32 {
    let mut skb = Object(ctx.arg(3));
    let packets: i32 = ctx.arg(2);
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    let mut i = 0;
    while i < BULK {
        if skb.is_null() {
            return 0;
        }
        dequeued(skb, now);
        i += 1;
        if i as i32 >= packets {
            return 0;
        }
        skb = skb.follow(constant!(OFFSETS.skb_next));
    }
    0
}

#[inline(always)]
fn dequeued(skb: Object, now: u64) {
    let mut headers = packet::headers();
    if let Packet::Stamped(stamp) = packet::at_network_header(skb, &mut headers)
        && let Some(slot) = journey::find_live(&stamp)
    {
        // SAFETY: an entry found live.
        unsafe { (*slot.journey()).dequeue_ns = now };
    }
}

/// `net:net_dev_start_xmit(skb, dev)`: the driver gets the packet; the hop is
/// over.
#[btf_tracepoint(function = "net_dev_start_xmit")]
fn net_dev_start_xmit(ctx: BtfTracePointContext) -> i32 {
    let skb = Object(ctx.arg(0));
    let mut headers = packet::headers();
    if let Packet::Stamped(stamp) = packet::at_network_header(skb, &mut headers)
        && let Some(slot) = journey::find_live(&stamp)
    {
        // SAFETY: the helper has no preconditions.
        let now = unsafe { bpf_ktime_get_ns() };
        journey::finish_hop(slot.journey(), now);
    }
    0
}
