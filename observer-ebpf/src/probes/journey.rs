//! The journey table: one entry per datagram on its way.
//!
//! The index is computed from run, stream and sequence, and names two
//! neighbours, so that streams whose places overlap do not evict each other;
//! the whole identity (with the offer time, so that a forger would have to copy a live datagram
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

/// The entry that holds `stamp`, or, with [`Holds::Other`], the one it would
/// take: the first of its two that nothing is on its way in, else the older.
#[inline(always)]
pub(super) fn locate(stamp: &Stamp) -> Option<(Slot, Holds)> {
    let first = slot_index(stamp.run, stamp.stream_seq, constant!(SETTINGS.slot_mask));
    let near = Slot(JOURNEYS.get_ptr_mut(first)?);
    match near.holds(stamp) {
        Holds::Other => {}
        held => return Some((near, held)),
    }
    let far = Slot(JOURNEYS.get_ptr_mut(first + 1)?);
    match far.holds(stamp) {
        Holds::Other => {}
        held => return Some((far, held)),
    }
    // SAFETY: plain loads of map memory; whoever claims looks again.
    let take_far = unsafe {
        atomic::load(near.state()) >= slot_state::CLAIMING
            && atomic::load(near.state()) <= slot_state::LIVE
            && (atomic::load(far.state()) != slot_state::LIVE
                || (*far.journey()).dev_queue_ns < (*near.journey()).dev_queue_ns)
    };
    Some((if take_far { far } else { near }, Holds::Other))
}

/// The entry of `stamp`, if that datagram is on its way.
#[inline(always)]
pub(super) fn find_live(stamp: &Stamp) -> Option<Slot> {
    match locate(stamp)? {
        (slot, Holds::Live) => Some(slot),
        (_, Holds::Done) => {
            count(Counter::LatePoint);
            None
        }
        (_, Holds::Other) => None,
    }
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

    /// Takes the entry for a new datagram: afterwards it holds the stamp and
    /// nothing else, and is this program's alone until it is published. An
    /// unfinished journey in it is reported and counted first. `None` if
    /// another CPU was quicker.
    #[inline(always)]
    pub(super) fn claim(self, stamp: &Stamp) -> Option<Claimed> {
        // SAFETY: an aligned u64 inside the element.
        let (state, taken) = unsafe {
            let state = atomic::load(self.state());
            let taken = state != slot_state::CLAIMING
                && atomic::compare_exchange(self.state(), state, slot_state::CLAIMING);
            (state, taken)
        };
        if !taken {
            count(Counter::SlotBusy);
            return None;
        }
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
        Some(Claimed(self))
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
    pub(super) fn publish(self) {
        // SAFETY: an aligned u64 inside the element.
        unsafe { atomic::publish(self.0.state(), slot_state::LIVE) };
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
