//! The way in: entering the receiving stack, and the socket's queue.

use core::mem::MaybeUninit;

use aya_ebpf::{
    helpers::{bpf_ktime_get_ns, generated::bpf_skb_load_bytes},
    macros::{btf_tracepoint, cgroup_skb},
    programs::{BtfTracePointContext, SkBuffContext},
};
use observer_ebpf::{
    abi::{Counter, flag},
    stamp::Stamp,
};

use super::{
    count::count,
    flow,
    journey::{self, Found},
    kernel::Object,
    packet::{self, Packet},
    sched,
    settings::constant,
};

/// `net:napi_gro_receive_entry(skb)`: from a driver, before segments merge.
#[btf_tracepoint(function = "napi_gro_receive_entry")]
fn napi_gro_receive_entry(ctx: BtfTracePointContext) -> i32 {
    received(Object(ctx.arg(0)));
    0
}

/// `net:netif_rx(skb)`: from a software device (veth, lo), before the backlog.
#[btf_tracepoint(function = "netif_rx")]
fn netif_rx(ctx: BtfTracePointContext) -> i32 {
    received(Object(ctx.arg(0)));
    0
}

/// `net:netif_receive_skb(skb)`: behind the backlog and RPS; what is left when
/// the two others did not fire.
#[btf_tracepoint(function = "netif_receive_skb")]
fn netif_receive_skb(ctx: BtfTracePointContext) -> i32 {
    received(Object(ctx.arg(0)));
    0
}

/// The earliest of the three since the datagram last left a device counts.
#[inline(always)]
fn received(skb: Object) {
    let mut headers = packet::headers();
    let Packet::Stamped(stamp) = packet::at_data(skb, &mut headers) else {
        return;
    };
    match journey::find(&stamp) {
        Found::Live(slot) => {
            let journey = slot.journey();
            // SAFETY: an entry found live.
            unsafe {
                if (*journey).rx_ns == 0 {
                    (*journey).rx_ns = bpf_ktime_get_ns();
                }
            }
        }
        // A copy (netem, a capture's loop) behind the datagram itself.
        Found::Done => count(Counter::LatePoint),
        Found::Absent => from_elsewhere(skb, &stamp, &headers),
    }
}

/// A datagram of a followed run whose sender is on another host.
#[inline(always)]
fn from_elsewhere(skb: Object, stamp: &Stamp, headers: &packet::Headers) {
    let Some((flow, _)) = flow::of_remote(stamp) else {
        count(Counter::UnmatchedReceive);
        return;
    };
    flow::note_offered(flow, stamp);
    let Some(claimed) = journey::claim(stamp) else {
        flow::add(flow, flow::Count::Unclaimed);
        return;
    };
    let journey = claimed.journey();
    // SAFETY: a claimed entry; an element of the flow table; the helper has no
    // preconditions.
    unsafe {
        (*journey).flags = if headers.version() == 6 { flag::RX_ONLY | flag::V6 } else { flag::RX_ONLY };
        (*journey).l2_bytes = skb.load::<u32>(constant!(OFFSETS.skb_len)) + ETHERNET_HEADER;
        (*journey).rx_ns = bpf_ktime_get_ns();
        (*journey).run_index = (*flow).run_index as u16;
    }
    claimed.publish();
}

const ETHERNET_HEADER: u32 = 14;
/// `SK_PASS`
const LET_THROUGH: i32 = 1;

/// cgroup_skb/ingress on the root of the cgroup2 tree: runs for every datagram
/// that has found its socket, just before it is queued there. Lets all pass.
#[cgroup_skb]
fn sock_enqueue(ctx: SkBuffContext) -> i32 {
    // SAFETY: a field of the context, readable in this program type.
    let protocol = unsafe { (*ctx.skb.skb).protocol };
    let Some(payload) = packet::payload_offset(protocol) else {
        return LET_THROUGH;
    };
    let mut words = MaybeUninit::<[u64; 4]>::uninit();
    // SAFETY: `words` has the 32 bytes asked for; the helper fills them or
    // fails (a packet too short for a stamp).
    let words = unsafe {
        let failed = bpf_skb_load_bytes(
            ctx.skb.skb.cast(),
            payload + constant!(SETTINGS.stamp_offset),
            words.as_mut_ptr().cast(),
            size_of_val(&words) as u32,
        );
        if failed != 0 {
            return LET_THROUGH;
        }
        words.assume_init()
    };
    // IPv4 options move the stamp: such datagrams have no softirq part.
    if let Some(stamp) = Stamp::from_words(&words)
        && let Some(slot) = journey::find_live(&stamp)
    {
        // SAFETY: an entry found live; the helper has no preconditions.
        let now = unsafe { bpf_ktime_get_ns() };
        // SAFETY: as above.
        unsafe { (*slot.journey()).sock_enqueue_ns = now };
        sched::expect_reader(now);
    }
    LET_THROUGH
}
