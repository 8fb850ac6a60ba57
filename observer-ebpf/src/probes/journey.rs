//! The journey table: one entry per datagram on its way.
//!
//! The index is computed from run, stream and sequence, and names two
//! neighbours, so that streams whose places overlap do not evict each other;
//! the whole identity (with the offer time, so that a forger would have to
//! copy a live datagram bit by bit) is stored and compared at every hook. An
//! entry changes hands by compare-and-swap only:
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

/// Where a datagram is, by the table.
pub(super) enum Found {
    /// On its way, in this entry.
    Live(Slot),
    /// Finished.
    Done,
    /// In neither of its entries.
    Absent,
}

/// What an entry holds with respect to one datagram.
enum Holds {
    Live,
    Done,
    Other,
}

/// The two entries that `stamp` may be in.
#[inline(always)]
fn places(stamp: &Stamp) -> Option<(Slot, Slot)> {
    let first = slot_index(stamp.run, stamp.stream_seq, constant!(SETTINGS.slot_mask));
    Some((Slot(JOURNEYS.get_ptr_mut(first)?), Slot(JOURNEYS.get_ptr_mut(first + 1)?)))
}

/// Looks for `stamp` in its entries.
#[inline(always)]
pub(super) fn find(stamp: &Stamp) -> Found {
    let Some((near, far)) = places(stamp) else {
        return Found::Absent;
    };
    match near.holds(stamp) {
        Holds::Live => return Found::Live(near),
        Holds::Done => return Found::Done,
        Holds::Other => {}
    }
    match far.holds(stamp) {
        Holds::Live => Found::Live(far),
        Holds::Done => Found::Done,
        Holds::Other => Found::Absent,
    }
}

/// The entry of `stamp`, if that datagram is on its way.
#[inline(always)]
pub(super) fn find_live(stamp: &Stamp) -> Option<Slot> {
    match find(stamp) {
        Found::Live(slot) => Some(slot),
        Found::Done => {
            count(Counter::LatePoint);
            None
        }
        Found::Absent => None,
    }
}

/// Takes an entry for a new datagram: afterwards it holds the stamp and
/// nothing else, and is this program's alone until it is published. That is
/// the first of its two that nothing is on its way in, else the older, whose
/// unfinished journey is reported and counted first. `None`, counted, if other
/// CPUs were quicker twice.
#[inline(always)]
pub(super) fn claim(stamp: &Stamp) -> Option<Claimed> {
    let (near, far) = places(stamp)?;
    let mut tries = 0;
    while tries < 2 {
        // What is taken is what was looked at: an entry that changed hands
        // since makes the exchange fail, and both are looked at again.
        let (in_near, in_far) = (near.load(), far.load());
        let (slot, state) = if vacant(in_near) {
            (near, in_near)
        } else if vacant(in_far) || in_near == slot_state::CLAIMING {
            (far, in_far)
        } else if in_far == slot_state::CLAIMING || near.began_before(far) {
            (near, in_near)
        } else {
            (far, in_far)
        };
        // SAFETY: an aligned u64 inside the element.
        if state != slot_state::CLAIMING
            && unsafe { atomic::compare_exchange(slot.state(), state, slot_state::CLAIMING) }
        {
            slot.refill(stamp, state);
            return Some(Claimed(slot));
        }
        tries += 1;
    }
    count(Counter::SlotBusy);
    None
}

#[inline(always)]
fn vacant(state: u64) -> bool {
    state != slot_state::CLAIMING && state != slot_state::LIVE
}

impl Slot {
    #[inline(always)]
    fn state(self) -> *mut u64 {
        // SAFETY: only computes an address inside the element.
        unsafe { &raw mut (*self.0).state }
    }

    /// The journey in this entry.
    #[inline(always)]
    pub(super) fn journey(self) -> *mut JourneyRecord {
        // SAFETY: only computes an address inside the element.
        unsafe { &raw mut (*self.0).journey }
    }

    #[inline(always)]
    fn load(self) -> u64 {
        // SAFETY: an aligned u64 inside the element.
        unsafe { atomic::load(self.state()) }
    }

    /// Whether the journey in this entry began before that in another.
    #[inline(always)]
    fn began_before(self, other: Self) -> bool {
        // SAFETY: plain loads of map memory; a torn one ends a journey early,
        // which is reported like any other that had to make room.
        unsafe { (*self.journey()).dev_queue_ns <= (*other.journey()).dev_queue_ns }
    }

    /// Compares the entry with a datagram's whole identity.
    #[inline(always)]
    fn holds(self, stamp: &Stamp) -> Holds {
        let journey = self.journey();
        // An entry being refilled is in state CLAIMING, and the state is
        // looked at first.
        let state = self.load();
        // SAFETY: plain loads of map memory.
        let same = unsafe {
            (*journey).stream_seq == stamp.stream_seq
                && (*journey).run == stamp.run
                && (*journey).offer_ns == stamp.offer_ns
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

    /// Empties an entry that is held (CLAIMING) and was in `state` before, and
    /// writes the stamp into it.
    #[inline(always)]
    fn refill(self, stamp: &Stamp, state: u64) {
        let journey = self.journey();
        if state == slot_state::LIVE {
            self.report(RecordKind::Unresolved);
            // SAFETY: this program holds the entry (CLAIMING).
            let (run, stream) = unsafe { ((*journey).run, ((*journey).stream_seq >> 48) as u16) };
            if let Some((evicted, _)) = flow::find(run, stream) {
                flow::add(evicted, flow::Count::Evicted);
            }
        }
        // SAFETY: this program holds the entry, whose journey is made of whole
        // words. Volatile, so that this stays a row of stores: as an
        // initializer it becomes a byte-wise loop in a subprogram, which took
        // longer than everything else in the hook.
        unsafe {
            let mut word = 0;
            while word < size_of::<JourneyRecord>() / 8 {
                core::ptr::write_volatile(journey.cast::<u64>().add(word), 0);
                word += 1;
            }
            (*journey).run = stamp.run;
            (*journey).stream_seq = stamp.stream_seq;
            (*journey).intended_ns = stamp.intended_ns;
            (*journey).offer_ns = stamp.offer_ns;
        }
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

/// An entry that this program alone may write to.
#[must_use = "an entry that is not published is lost to everybody"]
pub(super) struct Claimed(Slot);

impl Claimed {
    /// The journey to fill in.
    #[inline(always)]
    pub(super) fn journey(&self) -> *mut JourneyRecord {
        self.0.journey()
    }

    /// Lets everybody see it.
    #[inline(always)]
    pub(super) fn publish(self) -> Slot {
        // SAFETY: an aligned u64 inside the element.
        unsafe { atomic::publish(self.0.state(), slot_state::LIVE) };
        self.0
    }
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
