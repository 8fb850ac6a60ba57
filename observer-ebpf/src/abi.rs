//! What crosses the kernel boundary: records, tables and load-time constants.
//!
//! Every type is `repr(C)`, free of implicit padding, and has its size and
//! the offsets that matter asserted at compile time: both sides are built
//! from this file, so a change that moves a field does not compile until the
//! assertion (and [`ABI_VERSION`]) is changed with it.
//!
//! All times are CLOCK_MONOTONIC nanoseconds of the host that ran the hook
//! (`bpf_ktime_get_ns`); 0 means the hook was not seen.

use core::mem::{offset_of, size_of};

/// Version of everything in this module; stored in traces.
pub const ABI_VERSION: u32 = 1;

/// Runs that can be followed at once.
pub const MAX_RUNS: usize = 8;
/// Entries of the flow table; a power of two.
pub const FLOW_SLOTS: u32 = 4096;
/// Entries probed in the flow table before a flow is refused (and counted).
pub const FLOW_PROBES: u32 = 4;
/// Entries of the thread table; a power of two. Threads whose ids agree
/// modulo this number share an entry, which is detected and counted.
pub const THREAD_SLOTS: u32 = 1 << 16;
/// Default entries of the journey table; a power of two.
pub const JOURNEY_SLOTS: u32 = 1 << 18;
/// Journey rings; CPUs share them round-robin.
pub const JOURNEY_RINGS: usize = 4;
/// Drop reasons counted one by one; anything beyond (the subsystem reasons,
/// which start at 2^16) is counted in the last entry.
pub const REASON_SLOTS: usize = 256;
/// Datagrams looked at in one segmented (GSO) or merged (GRO) packet.
pub const MAX_SEGMENTS: u32 = 64;

/// First byte of every record: what it is.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// A datagram reached the application: a [`JourneyRecord`].
    Delivered = 1,
    /// A datagram was dropped: a [`JourneyRecord`] with `drop_*` set.
    Dropped = 2,
    /// A datagram's slot was needed for another before it finished: a
    /// [`JourneyRecord`] with whatever points were seen.
    Unresolved = 3,
    /// A flow was seen for the first time: a [`FlowRecord`].
    Flow = 4,
    /// A thread of a followed flow waited: a [`WaitRecord`].
    Wait = 5,
}

impl RecordKind {
    /// The kind whose number is `n`.
    pub const fn from_u8(n: u8) -> Option<Self> {
        Some(match n {
            1 => Self::Delivered,
            2 => Self::Dropped,
            3 => Self::Unresolved,
            4 => Self::Flow,
            5 => Self::Wait,
            _ => return None,
        })
    }
}

/// How much the kernel side reports. Every record carries the level in force.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Detail {
    /// No records, histograms only.
    Summary = 0,
    /// Records of the tail and of one datagram in N.
    Tail = 1,
    /// One record per datagram.
    Full = 2,
}

impl Detail {
    /// The level whose number is `n`.
    pub const fn from_u8(n: u8) -> Option<Self> {
        Some(match n {
            0 => Self::Summary,
            1 => Self::Tail,
            2 => Self::Full,
            _ => return None,
        })
    }
}

/// Bits of [`JourneyRecord::flags`].
pub mod flag {
    /// The datagram travelled over IPv6.
    pub const V6: u16 = 1;
    /// The packet carried further datagrams (GSO) when it left the stack.
    pub const SEGMENTED: u16 = 1 << 1;
    /// Sent by a thread other than one seen entering a send call for it: the
    /// protocol stack held it back (address resolution, corking).
    pub const DEFERRED: u16 = 1 << 2;
    /// First seen on its way in: the sender is not on this host.
    pub const RX_ONLY: u16 = 1 << 3;
    /// Sent through the socket layer but never seen leaving the protocol stack.
    pub const NO_DEV_QUEUE: u16 = 1 << 4;
}

/// One datagram's journey through this host: the points in the order in
/// which a datagram passes them, and what happened between them. Also the
/// layout of the journey table's entries.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JourneyRecord {
    /// A [`RecordKind`].
    pub kind: u8,
    /// A [`Detail`].
    pub detail: u8,
    /// Bits of [`flag`].
    pub flags: u16,
    /// Run id from the stamp.
    pub run: u32,
    /// Stream (upper 16 bits) and sequence (lower 48) from the stamp.
    pub stream_seq: u64,
    /// Intended time from the stamp.
    pub intended_ns: i64,
    /// Offer time from the stamp.
    pub offer_ns: i64,
    /// The send call that carried it was entered.
    pub syscall_ns: u64,
    /// It left the protocol stack for the first device.
    pub dev_queue_ns: u64,
    /// It left a qdisc, on the last hop that has one.
    pub dequeue_ns: u64,
    /// It was handed to the driver of the last hop.
    pub xmit_ns: u64,
    /// It entered the receiving stack, the last time before the socket.
    pub rx_ns: u64,
    /// It was about to be put on the socket's receive queue.
    pub sock_enqueue_ns: u64,
    /// The application had it.
    pub app_dequeue_ns: u64,
    /// It was dropped.
    pub drop_ns: u64,
    /// Sum over the finished hops of (xmit − dev_queue).
    pub shaper_ns: u64,
    /// The longest single hop's (xmit − dev_queue).
    pub slowest_hop_ns: u64,
    /// Qdisc sojourn (dequeue − dev_queue) on that hop; 0 if no qdisc was seen.
    pub slowest_qdisc_ns: u64,
    /// When the hop that is not finished yet began; 0 if none.
    pub hop_start_ns: u64,
    /// Return address inside the kernel of the drop.
    pub drop_location: u64,
    /// Interface of the slowest hop (index in its own network namespace).
    pub slowest_ifindex: u32,
    /// Interface of the last hop.
    pub ifindex: u32,
    /// Bytes with the Ethernet header, without the frame check sequence.
    pub l2_bytes: u32,
    /// Kernel number of the drop reason (`enum skb_drop_reason`).
    pub drop_reason: u32,
    /// Thread that sent it; 0 if the stack held it back.
    pub tx_tid: u32,
    /// Thread that received it.
    pub rx_tid: u32,
    /// Hops finished on this host: devices the datagram was handed to.
    pub hops: u16,
    /// Position within its send call, from 0.
    pub batch_pos: u16,
    /// Index into the run table.
    pub run_index: u16,
    /// Explicit padding, 0.
    pub pad: u16,
}

/// A followed flow: one stream of one run, and the sockets at its ends as far
/// as they are on this host. Addresses are in network byte order, IPv4 ones
/// in the first four bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRecord {
    /// [`RecordKind::Flow`].
    pub kind: u8,
    /// 1 if described at the sending socket, 2 at the receiving one.
    pub side: u8,
    /// 4 or 6; 0 if this end does not know the addresses.
    pub ip_version: u8,
    /// Explicit padding, 0.
    pub pad: u8,
    /// Run id.
    pub run: u32,
    /// When it was first seen.
    pub first_ns: u64,
    /// Stream number.
    pub stream: u16,
    /// Source port, host byte order.
    pub sport: u16,
    /// Destination port, host byte order.
    pub dport: u16,
    /// Explicit padding, 0.
    pub pad2: u16,
    /// Process (thread group) at this side; 0 if unknown.
    pub tgid: u32,
    /// Thread at this side; 0 if unknown.
    pub tid: u32,
    /// Inode number of the socket's network namespace.
    pub netns: u32,
    /// The socket's buffer limit at this side, bytes (`sk_sndbuf`, `sk_rcvbuf`).
    pub buffer_bytes: u32,
    /// Source address.
    pub saddr: [u8; 16],
    /// Destination address.
    pub daddr: [u8; 16],
    /// Name of the thread at this side, NUL-padded.
    pub comm: [u8; 16],
}

/// What a thread waited for.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitKind {
    /// Runnable, but another task had the CPU.
    RunQueue = 1,
    /// Asleep inside a send call: the socket's send buffer was full.
    SendBuffer = 2,
}

impl WaitKind {
    /// The kind whose number is `n`.
    pub const fn from_u8(n: u8) -> Option<Self> {
        Some(match n {
            1 => Self::RunQueue,
            2 => Self::SendBuffer,
            _ => return None,
        })
    }
}

/// A thread that carries a followed flow did not run from `from_ns` to `to_ns`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitRecord {
    /// [`RecordKind::Wait`].
    pub kind: u8,
    /// A [`WaitKind`].
    pub wait: u8,
    /// Explicit padding, 0.
    pub pad: u16,
    /// The thread.
    pub tid: u32,
    /// Start of the wait.
    pub from_ns: u64,
    /// End of the wait.
    pub to_ns: u64,
}

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

/// Events counted on each CPU. What is in here was seen, and not followed or
/// not fully followed; nothing disappears without a count.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counter {
    /// UDP datagrams without a stamp that left the stack.
    UnstampedSent = 0,
    /// Datagrams without a stamp read by an application.
    UnstampedReceived,
    /// Stamps of runs that are not followed, or from a socket or process that
    /// does not own them.
    ForeignSent,
    /// Stamps read by an application that match no followed datagram.
    ForeignReceived,
    /// Stamps whose offer time lies in the future or too far in the past.
    Implausible,
    /// Runs refused because [`MAX_RUNS`] were followed already.
    RunTableFull,
    /// Flows refused because the flow table was full there.
    FlowTableFull,
    /// A slot was being claimed by another CPU.
    SlotBusy,
    /// A journey record did not fit its ring.
    RingFull,
    /// A control record (flow, wait) did not fit its ring.
    ControlRingFull,
    /// Packets whose stamp lies in page fragments, out of reach.
    Paged,
    /// A packet's header could not be read.
    KernelReadFailed,
    /// The application's buffer could not be read (page not present).
    UserReadFailed,
    /// A read whose buffer is unknown (io_uring, an unknown system call).
    NoUserBuffer,
    /// A read too short to hold the stamp of a datagram.
    ShortRead,
    /// Two threads shared a thread-table entry.
    ThreadConflict,
    /// A drop of a clone: another holder still has the datagram.
    CloneDropped,
    /// A point was passed by a datagram already finished.
    LatePoint,
    /// A stamp was seen coming in for which there is no slot.
    UnmatchedReceive,
}

impl Counter {
    /// How many there are.
    pub const COUNT: usize = 19;

    /// All of them, in order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::UnstampedSent,
        Self::UnstampedReceived,
        Self::ForeignSent,
        Self::ForeignReceived,
        Self::Implausible,
        Self::RunTableFull,
        Self::FlowTableFull,
        Self::SlotBusy,
        Self::RingFull,
        Self::ControlRingFull,
        Self::Paged,
        Self::KernelReadFailed,
        Self::UserReadFailed,
        Self::NoUserBuffer,
        Self::ShortRead,
        Self::ThreadConflict,
        Self::CloneDropped,
        Self::LatePoint,
        Self::UnmatchedReceive,
    ];
}

/// Load-time constants: where the running kernel keeps the fields the
/// programs read, in bytes, taken from its BTF. Placed in read-only data, so
/// that the verifier sees constants.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    /// `sk_buff.next`
    pub skb_next: u32,
    /// `sk_buff.dev`
    pub skb_dev: u32,
    /// `sk_buff.sk`
    pub skb_sk: u32,
    /// `sk_buff.len`
    pub skb_len: u32,
    /// `sk_buff.data_len`
    pub skb_data_len: u32,
    /// The byte that holds `sk_buff.cloned`
    pub skb_cloned: u32,
    /// Mask of `cloned` in that byte
    pub skb_cloned_mask: u32,
    /// The byte that holds `sk_buff.encapsulation`
    pub skb_encap: u32,
    /// Mask of `encapsulation` in that byte
    pub skb_encap_mask: u32,
    /// `sk_buff.protocol`
    pub skb_protocol: u32,
    /// `sk_buff.network_header`
    pub skb_network_header: u32,
    /// `sk_buff.inner_network_header`
    pub skb_inner_network_header: u32,
    /// `sk_buff.tail`
    pub skb_tail: u32,
    /// `sk_buff.end`
    pub skb_end: u32,
    /// `sk_buff.head`
    pub skb_head: u32,
    /// `sk_buff.data`
    pub skb_data: u32,
    /// `skb_shared_info.gso_size`
    pub shinfo_gso_size: u32,
    /// `skb_shared_info.gso_segs`
    pub shinfo_gso_segs: u32,
    /// `skb_shared_info.dataref`
    pub shinfo_dataref: u32,
    /// `net_device.ifindex`
    pub dev_ifindex: u32,
    /// `sock.__sk_common.skc_family`
    pub sk_family: u32,
    /// `sock.__sk_common.skc_num` (host byte order)
    pub sk_num: u32,
    /// `sock.__sk_common.skc_dport` (network byte order)
    pub sk_dport: u32,
    /// `sock.__sk_common.skc_net`
    pub sk_net: u32,
    /// `sock.sk_protocol`
    pub sk_protocol: u32,
    /// `sock.sk_rcvbuf`
    pub sk_rcvbuf: u32,
    /// `sock.sk_sndbuf`
    pub sk_sndbuf: u32,
    /// `net.ns.inum`
    pub net_inum: u32,
    /// `task_struct.pid`
    pub task_pid: u32,
    /// `task_struct.tgid`
    pub task_tgid: u32,
    /// `task_struct.__state`
    pub task_state: u32,
    /// `pt_regs`: system call number
    pub regs_nr: u32,
    /// `pt_regs`: second argument of the system call
    pub regs_arg1: u32,
    /// `pt_regs`: third argument of the system call
    pub regs_arg2: u32,
}

/// System call numbers of the running architecture.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Syscalls {
    /// `read`
    pub read: u32,
    /// `write`
    pub write: u32,
    /// `readv`
    pub readv: u32,
    /// `writev`
    pub writev: u32,
    /// `sendto`
    pub sendto: u32,
    /// `recvfrom`
    pub recvfrom: u32,
    /// `sendmsg`
    pub sendmsg: u32,
    /// `recvmsg`
    pub recvmsg: u32,
    /// `sendmmsg`
    pub sendmmsg: u32,
    /// `recvmmsg`
    pub recvmmsg: u32,
}

/// What the programs are asked to do. 0 means "any" in every filter.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// A [`Detail`].
    pub detail: u32,
    /// Entries of the journey table minus one.
    pub slot_mask: u32,
    /// Offset of the stamp in the UDP payload.
    pub stamp_offset: u32,
    /// 1: follow only the runs already in the run table.
    pub only_named_runs: u32,
    /// Process (thread group) at either end.
    pub tgid: u32,
    /// Inode of the network namespace at either end.
    pub netns: u32,
    /// Port at either end, host byte order.
    pub port: u32,
    /// Device of the first hop.
    pub ifindex: u32,
    /// Cgroup (version 2) id at either end.
    pub cgroup: u64,
    /// Address at either end (network byte order, IPv4 in the first four bytes).
    pub addr: [u8; 16],
    /// 0, 4 or 6: which of them `addr` is.
    pub addr_version: u32,
    /// Explicit padding, 0.
    pub pad: u32,
    /// Waits shorter than this are not recorded, ns.
    pub min_wait_ns: u64,
    /// Offer times older than this are implausible, ns.
    pub max_age_ns: u64,
    /// What the observed application's CLOCK_MONOTONIC is ahead of the host's
    /// (time namespaces), ns.
    pub clock_offset_ns: i64,
    /// Wake the reader when a ring holds this many bytes.
    pub wake_bytes: u64,
    /// Number of the drop reason that only ever frees a capture's copy
    /// (`PACKET_SOCK_ERROR`); `u32::MAX` if the kernel has none.
    pub reason_packet_sock: u32,
    /// 1: the kernel passes a reason to `kfree_skb` (5.17).
    pub has_drop_reason: u32,
}

/// Plain data that may be copied to and from the kernel byte by byte.
///
/// # Safety
///
/// Implementors are `repr(C)`, have no padding and accept every bit pattern.
pub unsafe trait Plain: Copy + 'static {}

// SAFETY: an array of integers.
unsafe impl<const N: usize> Plain for [u32; N] {}

/// The bytes of a plain value.
pub const fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: `Plain` types have no padding, so every byte is initialized.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// The plain value at the start of `bytes`; `None` if they are too few.
pub fn value_of<T: Plain>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: enough bytes, and every bit pattern of them is a `T`.
    Some(unsafe { core::ptr::read_unaligned(bytes.as_ptr().cast()) })
}

macro_rules! plain {
    ($($t:ty: $size:expr;)*) => {$(
        const _: () = assert!(size_of::<$t>() == $size);
        // SAFETY: integers and arrays of integers in repr(C); the size above is
        // the sum of the fields, so there is no padding.
        unsafe impl Plain for $t {}
    )*};
}

plain! {
    JourneyRecord: 168;
    FlowRecord: 88;
    WaitRecord: 24;
    JourneySlot: 192;
    FlowSlot: 128;
    ThreadSlot: 64;
    RunSlot: 24;
    Offsets: 136;
    Syscalls: 40;
    Settings: 104;
}

macro_rules! unset {
    ($($t:ty),*) => {$(
        impl $t {
            /// Every field 0: what the programs are built with, and replaced
            /// at load time.
            // SAFETY: `Plain`: every bit pattern is a value.
            pub const UNSET: Self = unsafe { core::mem::zeroed() };
        }
    )*};
}
unset!(Offsets, Syscalls, Settings);

const _: () = {
    assert!(offset_of!(JourneyRecord, stream_seq) == 8);
    assert!(offset_of!(JourneyRecord, dev_queue_ns) == 40);
    assert!(offset_of!(JourneyRecord, app_dequeue_ns) == 80);
    assert!(offset_of!(JourneyRecord, slowest_ifindex) == 136);
    assert!(offset_of!(JourneyRecord, hops) == 160);
    assert!(offset_of!(JourneySlot, journey) == 8);
    assert!(offset_of!(FlowRecord, saddr) == 40);
    assert!(offset_of!(Settings, cgroup) == 32);
    assert!(offset_of!(Settings, min_wait_ns) == 64);
    assert!(Counter::ALL.len() == Counter::COUNT);
    assert!(Counter::UnmatchedReceive as usize == Counter::COUNT - 1);
};

/// First journey slot of a stream: streams spread over the table, sequences
/// of one stream are neighbours.
#[inline(always)]
pub const fn slot_base(run: u32, stream: u16) -> u32 {
    let h = (run ^ ((stream as u32) << 16 | stream as u32)).wrapping_mul(0x9E37_79B1);
    h ^ (h >> 15)
}

/// Journey slot of one datagram.
#[inline(always)]
pub const fn slot_index(run: u32, stream_seq: u64, mask: u32) -> u32 {
    slot_base(run, (stream_seq >> crate::stamp::SEQ_BITS) as u16).wrapping_add(stream_seq as u32) & mask
}

/// Identity of a flow in the flow table: run and stream.
#[inline(always)]
pub const fn flow_id(run: u32, stream: u16) -> u64 {
    (run as u64) << 16 | stream as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::Stamp;

    #[test]
    fn neighbouring_sequences_have_neighbouring_slots() {
        let mask = JOURNEY_SLOTS - 1;
        let at = |seq| slot_index(7, Stamp::new(7, 3, seq, 0, 0).stream_seq, mask);
        for seq in [0, 1, 99, u64::from(mask), 1 << 40] {
            assert_eq!(at(seq + 1), (at(seq) + 1) & mask);
        }
    }

    #[test]
    fn streams_spread_over_the_table() {
        let mut bases: Vec<u32> = (0..64).map(|s| slot_base(0xDEAD_BEEF, s) & (JOURNEY_SLOTS - 1)).collect();
        bases.sort_unstable();
        let closest = bases.windows(2).map(|w| w[1] - w[0]).min().unwrap();
        assert!(closest > 16, "two streams start {closest} slots apart");
    }

    #[test]
    fn numbers_and_kinds_agree() {
        for n in 0..=u8::MAX {
            assert!(RecordKind::from_u8(n).is_none_or(|k| k as u8 == n));
            assert!(WaitKind::from_u8(n).is_none_or(|k| k as u8 == n));
            assert!(Detail::from_u8(n).is_none_or(|k| k as u8 == n));
        }
        for (i, c) in Counter::ALL.iter().enumerate() {
            assert_eq!(*c as usize, i);
        }
    }
}
