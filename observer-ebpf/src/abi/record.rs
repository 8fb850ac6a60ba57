//! Records: what the programs write to the rings.

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
    /// 1 if described at the sending socket, 2 at the receiving one, 3 if only
    /// the addresses are told.
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
