//! The tables and rings shared with userspace.
//!
//! Arrays only: an index computed from the key takes a nanosecond and no
//! lock. The big ones can be mapped by userspace, which then reads them
//! without a system call per entry.

use aya_ebpf::{
    macros::map,
    maps::{Array, PerCpuArray, RingBuf},
};
use observer_ebpf::abi::{
    Counter, FLOW_SLOTS, FlowSlot, JOURNEY_SLOTS, JourneySlot, MAX_RUNS, REASON_SLOTS, RunSlot, THREAD_SLOTS,
    ThreadSlot,
};

/// `BPF_F_MMAPABLE` (kernel 5.5).
const MMAPABLE: u32 = 1 << 10;
/// Ring sizes are set by userspace; this is the least that loads.
const ONE_PAGE: u32 = 4096;

/// Datagrams on their way.
#[map]
pub(super) static JOURNEYS: Array<JourneySlot> = Array::with_max_entries(JOURNEY_SLOTS, MMAPABLE);
/// Streams of the followed runs, and their counts.
#[map]
pub(super) static FLOWS: Array<FlowSlot> = Array::with_max_entries(FLOW_SLOTS, MMAPABLE);
/// Followed runs.
#[map]
pub(super) static RUNS: Array<RunSlot> = Array::with_max_entries(MAX_RUNS as u32, 0);
/// The run last seen arriving that is not followed: admitted if it repeats.
#[map]
pub(super) static CANDIDATE: Array<u64> = Array::with_max_entries(1, 0);
/// 1 once streams that are only seen arriving may be followed.
#[map]
pub(super) static REMOTE_OPEN: Array<u64> = Array::with_max_entries(1, 0);
/// What threads are doing, by thread id.
#[map]
pub(super) static THREADS: Array<ThreadSlot> = Array::with_max_entries(THREAD_SLOTS, 0);
/// When a followed datagram was last about to be queued on a socket by this
/// CPU, ns; 0: the wake-up that followed has been seen.
#[map]
pub(super) static QUEUED: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);
/// One count per `Counter`.
#[map]
pub(super) static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Counter::COUNT as u32, 0);
/// Drops per run and reason.
#[map]
pub(super) static DROPS: PerCpuArray<u64> =
    PerCpuArray::with_max_entries((MAX_RUNS * REASON_SLOTS) as u32, 0);

/// Journey records of CPUs 0, 4, 8, …
#[map]
pub(super) static RING_0: RingBuf = RingBuf::with_byte_size(ONE_PAGE, 0);
/// Journey records of CPUs 1, 5, 9, …
#[map]
pub(super) static RING_1: RingBuf = RingBuf::with_byte_size(ONE_PAGE, 0);
/// Journey records of CPUs 2, 6, 10, …
#[map]
pub(super) static RING_2: RingBuf = RingBuf::with_byte_size(ONE_PAGE, 0);
/// Journey records of CPUs 3, 7, 11, …
#[map]
pub(super) static RING_3: RingBuf = RingBuf::with_byte_size(ONE_PAGE, 0);
/// Flow and wait records of all CPUs. Read after the journey rings and applied
/// before their contents, so that whatever happened before a journey's end is
/// known when the journey is looked at.
#[map]
pub(super) static CONTROL: RingBuf = RingBuf::with_byte_size(ONE_PAGE, 0);
