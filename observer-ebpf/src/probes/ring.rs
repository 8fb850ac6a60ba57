//! Handing records to userspace.
//!
//! Nobody is woken per record: a wake-up costs thirty times what the record
//! does. The reader polls on a timer, and is woken early only when a ring
//! fills up.

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::generated::bpf_get_smp_processor_id,
    maps::RingBuf,
};
use observer_ebpf::abi::{Counter, JOURNEY_RINGS, JourneyRecord, Plain};

use super::{
    count::count,
    maps::{CONTROL, RING_0, RING_1, RING_2, RING_3},
    settings::constant,
};

/// Records of one stream between two looks at how full its ring is.
const LOOK_EVERY: u64 = 64;

/// Copies a journey to this CPU's ring; false, and counted, if it is full.
#[inline(always)]
pub(super) fn emit_journey(journey: *const JourneyRecord) -> bool {
    // SAFETY: the helper has no preconditions.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    match cpu as usize % JOURNEY_RINGS {
        0 => put_journey(&RING_0, journey),
        1 => put_journey(&RING_1, journey),
        2 => put_journey(&RING_2, journey),
        _ => put_journey(&RING_3, journey),
    }
}

#[inline(always)]
fn put_journey(ring: &RingBuf, journey: *const JourneyRecord) -> bool {
    let Some(mut entry) = ring.reserve::<JourneyRecord>(0) else {
        count(Counter::RingFull);
        return false;
    };
    // SAFETY: `journey` points into the journey table, whose entry this
    // program completed and nobody else writes to any more.
    let seq = unsafe {
        core::ptr::copy_nonoverlapping(journey, entry.as_mut_ptr(), 1);
        (*journey).stream_seq
    };
    let look = seq % LOOK_EVERY == 0;
    let flags = if look && ring.query(u64::from(BPF_RB_AVAIL_DATA)) > constant!(SETTINGS.wake_bytes) {
        BPF_RB_FORCE_WAKEUP
    } else {
        BPF_RB_NO_WAKEUP
    };
    entry.submit(u64::from(flags));
    true
}

/// Copies a flow or wait record to the control ring; counted if it is full.
#[inline(always)]
pub(super) fn emit_control<T: Plain>(record: &T) {
    match CONTROL.reserve::<T>(0) {
        Some(mut entry) => {
            entry.write(*record);
            entry.submit(u64::from(BPF_RB_NO_WAKEUP));
        }
        None => count(Counter::ControlRingFull),
    }
}
