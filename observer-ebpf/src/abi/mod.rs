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

mod constant;
mod counter;
mod record;
mod table;

pub use constant::{Offsets, Settings, Syscalls};
pub use counter::Counter;
pub use record::{Detail, FlowRecord, JourneyRecord, RecordKind, WaitKind, WaitRecord, flag};
pub use table::{
    FlowSlot, JourneySlot, RunSlot, ThreadSlot, flow_id, run_origin, slot_base, slot_index, slot_state,
};

/// Version of everything in this module; stored in traces.
pub const ABI_VERSION: u32 = 1;

/// Runs that can be followed in one observation; a power of two.
pub const MAX_RUNS: usize = 16;
/// Of those, runs that one process may bring in: a process that makes up run
/// ids does not keep the others out.
pub const MAX_RUNS_OF_PROCESS: u32 = 8;
/// Entries of the flow table; a power of two.
pub const FLOW_SLOTS: u32 = 4096;
/// Entries probed in the flow table before a flow is refused (and counted).
pub const FLOW_PROBES: u32 = 4;
/// Entries of the thread table; a power of two. Threads whose ids agree
/// modulo this number share an entry, which is detected and counted.
pub const THREAD_SLOTS: u32 = 1 << 16;
/// Entries of the journey table that a datagram may be in.
pub const JOURNEY_WAYS: u32 = 2;
/// Default entries of the journey table; a power of two.
pub const JOURNEY_SLOTS: u32 = 1 << 18;
/// Journey rings; CPUs share them round-robin.
pub const JOURNEY_RINGS: usize = 4;
/// Drop reasons counted one by one; anything beyond (the subsystem reasons,
/// which start at 2^16) is counted in the last entry.
pub const REASON_SLOTS: usize = 256;
/// Datagrams looked at in one segmented (GSO) or merged (GRO) packet.
pub const MAX_SEGMENTS: u32 = 64;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::Stamp;

    #[test]
    fn neighbouring_sequences_have_neighbouring_slots() {
        let mask = JOURNEY_SLOTS - 1;
        let at = |seq| slot_index(7, Stamp::new(7, 3, seq, 0, 0).stream_seq, mask);
        for seq in [0, 1, 99, u64::from(mask), 1 << 40] {
            assert_eq!(at(seq + 1), (at(seq) + JOURNEY_WAYS) & mask);
            assert_eq!(at(seq) % JOURNEY_WAYS, 0);
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
