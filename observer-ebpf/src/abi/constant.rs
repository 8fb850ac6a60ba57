//! Load-time constants: what userspace tells the programs before the verifier
//! looks at them.

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
    /// How far below the root that cgroup is; processes of its descendants
    /// match as well.
    pub cgroup_level: u32,
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
