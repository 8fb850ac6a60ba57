//! The journey table: one entry per datagram on its way.
//!
//! The index is computed from run, stream and sequence; the whole identity
//! (with the offer time, so that a forger would have to copy a live datagram
//! bit by bit) is stored and compared at every hook. An entry changes hands
//! by compare-and-swap only:
//!
//! ```text
//! FREE ─claim→ CLAIMING ─publish→ LIVE ─finish→ DONE ─claim→ CLAIMING …
//!                                  └──claim (unfinished: counted)──┘
//! ```

use observer_ebpf::{
    abi::{Counter, Detail, FlowSlot, JourneyRecord, JourneySlot, RecordKind, slot_index, slot_state},
    stamp::Stamp,
};

use super::{atomic, count::count, flow, maps::JOURNEYS, ring, settings::constant};

/// An entry of the journey table.
#[derive(Clone, Copy)]
pub(super) struct Slot(*mut JourneySlot);

/// What an entry holds with respect to one datagram.
#[derive(PartialEq, Eq)]
pub(super) enum Holds {
    /// This datagram, on its way.
    Live,
    /// This datagram, finished.
    Done,
    /// Something else, or nothing.
    Other,
}

/// The entry `stamp` belongs in.
#[inline(always)]
pub(super) fn slot_of(stamp: &Stamp) -> Option<Slot> {
    let mask = constant!(SETTINGS.slot_mask);
    JOURNEYS.get_ptr_mut(slot_index(stamp.run, stamp.stream_seq, mask)).map(Slot)
}

/// The entry of `stamp`, if that datagram is on its way.
#[inline(always)]
pub(super) fn find_live(stamp: &Stamp) -> Option<Slot> {
    let slot = slot_of(stamp)?;
    match slot.holds(stamp) {
        Holds::Live => Some(slot),
        Holds::Done => {
            count(Counter::LatePoint);
            None
        }
        Holds::Other => None,
    }
}

impl Slot {
    #[inline(always)]
    fn state(&self) -> *mut u64 {
        // SAFETY: only computes an address inside the element.
        unsafe { &raw mut (*self.0).state }
    }

    /// The journey in this entry.
    #[inline(always)]
    pub(super) fn journey(&self) -> *mut JourneyRecord {
        // SAFETY: only computes an address inside the element.
        unsafe { &raw mut (*self.0).journey }
    }

    /// Compares the entry with a datagram's whole identity.
    #[inline(always)]
    pub(super) fn holds(&self, stamp: &Stamp) -> Holds {
        let journey = self.journey();
        // SAFETY: plain loads of map memory; an entry being refilled is in
        // state CLAIMING, and the state is looked at first.
        let (state, same) = unsafe {
            let state = atomic::load(self.state());
            let same = (*journey).stream_seq == stamp.stream_seq
                && (*journey).run == stamp.run
                && (*journey).offer_ns == stamp.offer_ns;
            (state, same)
        };
        if !same {
            Holds::Other
        } else if state == slot_state::LIVE {
            Holds::Live
        } else if state == slot_state::DONE {
            Holds::Done
        } else {
            Holds::Other
        }
    }

    /// Takes the entry for a new datagram and publishes it as live. An
    /// unfinished journey in it is reported and counted first. False if
    /// another CPU was quicker.
    #[inline(always)]
    pub(super) fn claim(&self, new: &JourneyRecord) -> bool {
        // SAFETY: an aligned u64 inside the element.
        let (state, taken) = unsafe {
            let state = atomic::load(self.state());
            let taken = state != slot_state::CLAIMING
                && atomic::compare_exchange(self.state(), state, slot_state::CLAIMING);
            (state, taken)
        };
        if !taken {
            count(Counter::SlotBusy);
            return false;
        }
        if state == slot_state::LIVE {
            self.report(RecordKind::Unresolved);
            // SAFETY: this program holds the entry (CLAIMING).
            let (run, stream) =
                unsafe { ((*self.journey()).run, ((*self.journey()).stream_seq >> 48) as u16) };
            if let Some((evicted, _)) = flow::find(run, stream) {
                flow::add(evicted, flow::Count::Evicted);
            }
        }
        // SAFETY: this program holds the entry.
        unsafe {
            *self.journey() = *new;
            atomic::publish(self.state(), slot_state::LIVE);
        }
        true
    }

    /// Ends the journey; true for the one caller who did it.
    #[inline(always)]
    pub(super) fn finish(&self) -> bool {
        // SAFETY: an aligned u64 inside the element.
        unsafe { atomic::compare_exchange(self.state(), slot_state::LIVE, slot_state::DONE) }
    }

    /// Hands the finished journey to userspace if its flow is admitted; a
    /// record that finds no room is counted with the flow.
    #[inline(always)]
    pub(super) fn emit(&self, kind: RecordKind, flow: *mut FlowSlot) {
        // SAFETY: an element of the flow table.
        if unsafe { (*flow).admitted } == 0 {
            return;
        }
        if !self.report(kind) {
            flow::add(flow, flow::Count::RingLost);
        }
    }

    /// Sends the journey as it stands, if the detail level asks for records.
    #[inline(always)]
    fn report(&self, kind: RecordKind) -> bool {
        if constant!(SETTINGS.detail) != Detail::Full as u32 {
            return true;
        }
        let journey = self.journey();
        // SAFETY: this program finished or claimed the entry and is the only
        // one to write these two fields.
        unsafe {
            (*journey).kind = kind as u8;
            (*journey).detail = constant!(SETTINGS.detail) as u8;
        }
        ring::emit_journey(journey)
    }
}

/// A journey of which only the stamp is known yet.
#[inline(always)]
pub(super) fn begin(stamp: &Stamp) -> JourneyRecord {
    // SAFETY: `Plain`: every bit pattern is a value.
    let mut new: JourneyRecord = unsafe { core::mem::zeroed() };
    new.run = stamp.run;
    new.stream_seq = stamp.stream_seq;
    new.intended_ns = stamp.intended_ns;
    new.offer_ns = stamp.offer_ns;
    new
}

/// Adds one finished hop: from `hop_start_ns` to now.
#[inline(always)]
pub(super) fn finish_hop(journey: *mut JourneyRecord, now: u64) {
    // SAFETY: an entry found live. Hops of one datagram are strictly one
    // after the other, whatever CPUs they run on.
    unsafe {
        let start = (*journey).hop_start_ns;
        if start == 0 {
            return;
        }
        let span = now.wrapping_sub(start);
        (*journey).shaper_ns += span;
        (*journey).hops += 1;
        if span >= (*journey).slowest_hop_ns {
            (*journey).slowest_hop_ns = span;
            (*journey).slowest_ifindex = (*journey).ifindex;
            let left = (*journey).dequeue_ns;
            (*journey).slowest_qdisc_ns = if left >= start { left - start } else { 0 };
        }
        (*journey).hop_start_ns = 0;
        (*journey).xmit_ns = now;
    }
}
