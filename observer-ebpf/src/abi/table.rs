//! Tables: what the programs keep, and how a place in them is found.

use super::{JOURNEY_WAYS, JourneyRecord};

/// State of a journey-table entry.
pub mod slot_state {
    /// Never used.
    pub const FREE: u64 = 0;
    /// Being filled by one CPU; nobody else touches it.
    pub const CLAIMING: u64 = 1;
    /// A datagram is on its way.
    pub const LIVE: u64 = 2;
    /// Its outcome is known; kept to recognize duplicates.
    pub const DONE: u64 = 3;
}

/// Entry of the journey table.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct JourneySlot {
    /// A [`slot_state`], changed by compare-and-swap only.
    pub state: u64,
    /// The journey so far.
    pub journey: JourneyRecord,
    /// Explicit padding to three cache lines, 0.
    pub pad: [u8; 16],
}

/// Entry of the flow table, counted without loss: what the rings may lose,
/// these counts still have. Zero-initialized; `run` ≠ 0 marks it used.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowSlot {
    /// `run << 16 | stream`, claimed by compare-and-swap; 0 is free.
    pub id: u64,
    /// Address of the sending socket, compared and never followed: a stamp of
    /// this flow from another socket is foreign. 0 if the sender is elsewhere.
    pub tx_socket: u64,
    /// Address of the receiving socket last seen; compared only.
    pub rx_socket: u64,
    /// Process that sends; 0 if elsewhere.
    pub tx_tgid: u32,
    /// 1 once either end matched the filters.
    pub admitted: u32,
    /// Highest sequence seen plus one.
    pub offered: u64,
    /// Datagrams accepted by the socket layer.
    pub sent: u64,
    /// Of those, datagrams that left the protocol stack.
    pub dev_queued: u64,
    /// Distinct datagrams read by an application.
    pub delivered: u64,
    /// Further copies read.
    pub duplicated: u64,
    /// Datagrams whose drop was seen.
    pub dropped: u64,
    /// Datagrams whose slot was overwritten before they finished.
    pub evicted: u64,
    /// Datagrams lost to the observer: no slot could be claimed.
    pub unclaimed: u64,
    /// Datagrams whose record did not fit the ring.
    pub ring_lost: u64,
    /// Send calls that failed for want of buffers (EAGAIN, ENOBUFS).
    pub send_errors: u64,
    /// Bytes delivered, payload.
    pub delivered_bytes: u64,
    /// Index into the run table.
    pub run_index: u32,
    /// Explicit padding, 0.
    pub pad: u32,
}

/// Entry of the thread table.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadSlot {
    /// Thread that owns the entry; 0 is free.
    pub tid: u32,
    /// Non-zero once the thread carried a followed flow: its waits are recorded.
    pub followed: u32,
    /// When it last entered a send call.
    pub send_enter_ns: u64,
    /// When it last entered a send or receive call.
    pub active_ns: u64,
    /// Flow-table index plus one of the datagram it last sent; 0 if none.
    pub send_flow: u32,
    /// Datagrams of the current send call seen so far.
    pub batch_pos: u16,
    /// 1 if a stamped datagram left the stack since the last send returned.
    pub claimed: u16,
    /// User address of the `mmsghdr` array of the current recvmmsg.
    pub recv_vec: u64,
    /// Next entry of that array.
    pub recv_index: u32,
    /// Explicit padding, 0.
    pub pad: u32,
    /// When it became runnable without running; 0 if it runs or sleeps.
    pub runnable_ns: u64,
    /// When it fell asleep inside a send call; 0 if it did not.
    pub blocked_ns: u64,
}

/// Where a run table entry came from.
pub mod run_origin {
    /// Not used.
    pub const FREE: u32 = 0;
    /// Named on the command line.
    pub const NAMED: u32 = 1;
    /// A local socket sent its stamps.
    pub const SENT: u32 = 2;
    /// A local socket received its stamps.
    pub const RECEIVED: u32 = 3;
}

/// Entry of the run table.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunSlot {
    /// Run id, claimed by compare-and-swap; 0 is free.
    pub id: u64,
    /// A [`run_origin`].
    pub origin: u32,
    /// Process that sends it; stamps of this run from others are foreign. 0 if
    /// any may (named run) or the sender is elsewhere.
    pub tgid: u32,
    /// When it was admitted.
    pub since_ns: u64,
}

/// First journey slot of a stream: streams spread over the table, sequences
/// of one stream are neighbours.
#[inline(always)]
pub const fn slot_base(run: u32, stream: u16) -> u32 {
    let h = (run ^ ((stream as u32) << 16 | stream as u32)).wrapping_mul(0x9E37_79B1);
    h ^ (h >> 15)
}

/// First of the [`JOURNEY_WAYS`] neighbouring slots that a datagram may be in;
/// `mask` is the number of slots minus one. Two streams whose places overlap
/// take one way each.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a mask keeps fewer bits than the cast does")]
pub const fn slot_index(run: u32, stream_seq: u64, mask: u32) -> u32 {
    let set = slot_base(run, (stream_seq >> crate::stamp::SEQ_BITS) as u16).wrapping_add(stream_seq as u32);
    (set & (mask / JOURNEY_WAYS)) * JOURNEY_WAYS
}

/// Identity of a flow in the flow table: run and stream.
#[inline(always)]
pub const fn flow_id(run: u32, stream: u16) -> u64 {
    (run as u64) << 16 | stream as u64
}
