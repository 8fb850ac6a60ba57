//! Which datagrams of a stream arrived: lost, duplicated, reordered, in
//! constant memory.
//!
//! Sequences start at 0 and grow by one, so the highest seen plus one is the
//! number offered as far as the receiver can know. A window of the last
//! [`WINDOW`] sequences tells a copy from a late original; what arrives from
//! before the window is counted apart (`stale`), since it could be either. A
//! sequence far ahead is followed only when its successor comes too (the rule
//! of RFC 3550, A.1, for sequences that jump): one forged stamp cannot turn
//! a whole run into loss.

use serde::{Deserialize, Serialize};

/// Sequences told apart behind the highest.
pub const WINDOW: u64 = 1 << 16;
/// Largest jump ahead that is believed at once.
pub const MAX_JUMP: u64 = 1 << 22;

const WORDS: usize = 1 << 10;

/// Counts of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Datagrams that came, copies included.
    pub received: u64,
    /// Different datagrams that came.
    pub unique: u64,
    /// Datagrams that did not come: highest + 1 − unique.
    pub lost: u64,
    /// Further copies of datagrams within the window.
    pub duplicated: u64,
    /// Originals that came after a later one.
    pub reordered: u64,
    /// Datagrams from before the window, late or copies.
    pub stale: u64,
    /// Sequences too far ahead to be believed.
    pub implausible: u64,
    /// The first sequence that came.
    pub first_seq: Option<u64>,
    /// The highest sequence that came.
    pub highest_seq: Option<u64>,
}

/// What one datagram was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Not seen before.
    New,
    /// Seen before.
    Duplicate,
    /// Before the window.
    Stale,
    /// Too far ahead; not followed.
    Implausible,
}

/// One stream's arrivals.
#[derive(Clone, Debug)]
pub struct Tracker {
    seen: Box<[u64; WORDS]>,
    /// The highest sequence plus one; 0 before the first.
    next: u64,
    counts: Counts,
    /// The sequence that would confirm a jump.
    candidate: Option<u64>,
}

impl Tracker {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self { seen: Box::new([0; WORDS]), next: 0, counts: Counts::default(), candidate: None }
    }

    /// Takes note of sequence `seq`.
    #[inline]
    pub fn arrive(&mut self, seq: u64) -> Arrival {
        if seq >= self.next {
            return self.ahead(seq);
        }
        self.counts.received += 1;
        if seq + WINDOW < self.next {
            self.counts.stale += 1;
            return Arrival::Stale;
        }
        let (word, bit) = place(seq);
        if self.seen[word] & bit != 0 {
            self.counts.duplicated += 1;
            return Arrival::Duplicate;
        }
        self.seen[word] |= bit;
        self.counts.unique += 1;
        self.counts.reordered += 1;
        Arrival::New
    }

    #[inline]
    fn ahead(&mut self, seq: u64) -> Arrival {
        let jump = seq - self.next;
        if jump > MAX_JUMP && self.candidate != Some(seq) {
            self.candidate = Some(seq + 1);
            self.counts.implausible += 1;
            return Arrival::Implausible;
        }
        self.candidate = None;
        // The places of the sequences jumped over, and of this one, become theirs.
        if jump >= WINDOW {
            self.seen.fill(0);
        } else {
            for skipped in self.next..seq {
                let (word, bit) = place(skipped);
                self.seen[word] &= !bit;
            }
        }
        let (word, bit) = place(seq);
        self.seen[word] |= bit;
        self.next = seq + 1;
        self.counts.received += 1;
        self.counts.unique += 1;
        self.counts.first_seq.get_or_insert(seq);
        Arrival::New
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        Counts { lost: self.next - self.counts.unique, highest_seq: self.next.checked_sub(1), ..self.counts }
    }
}

impl Default for Tracker {
    fn default() -> Self {
        Self::new()
    }
}

#[inline]
fn place(seq: u64) -> (usize, u64) {
    let slot = seq % WINDOW;
    // Below 2^16: fits any usize.
    (usize::try_from(slot / 64).unwrap_or(0), 1 << (slot % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn a_late_datagram_is_reordered_and_no_longer_lost() {
        let mut t = Tracker::new();
        for s in [0, 1, 3, 4, 2, 2, 6] {
            t.arrive(s);
        }
        let c = t.counts();
        assert_eq!((c.received, c.unique, c.lost, c.duplicated, c.reordered), (7, 6, 1, 1, 1));
        assert_eq!((c.first_seq, c.highest_seq), (Some(0), Some(6)));
    }

    #[test]
    fn before_the_window_nothing_is_guessed() {
        let mut t = Tracker::new();
        t.arrive(0);
        t.arrive(WINDOW - 1);
        assert_eq!(t.arrive(0), Arrival::Duplicate);
        t.arrive(WINDOW);
        assert_eq!(t.arrive(0), Arrival::Stale);
        assert_eq!(t.counts().lost, WINDOW + 1 - 3);
    }

    #[test]
    fn one_forged_sequence_is_not_believed_two_in_a_row_are() {
        let mut t = Tracker::new();
        for s in 0..100 {
            t.arrive(s);
        }
        let far = 1 << 40;
        assert_eq!(t.arrive(far), Arrival::Implausible);
        t.arrive(100);
        assert_eq!((t.counts().lost, t.counts().implausible), (0, 1));
        assert_eq!(t.arrive(far + 7), Arrival::Implausible);
        assert_eq!(t.arrive(far + 8), Arrival::New);
        assert_eq!(t.counts().highest_seq, Some(far + 8));
    }

    proptest! {
        #[test]
        fn counts_agree_with_a_set(
            seqs in proptest::collection::vec(0u64..3000, 1..2000)
        ) {
            let (mut t, mut set, mut highest, mut reordered) = (Tracker::new(), HashSet::new(), None, 0);
            for s in &seqs {
                let new = set.insert(*s);
                prop_assert_eq!(t.arrive(*s) == Arrival::New, new);
                if new && highest.is_some_and(|h| *s < h) {
                    reordered += 1;
                }
                highest = highest.max(Some(*s));
            }
            let c = t.counts();
            let n = seqs.len() as u64;
            prop_assert_eq!((c.received, c.unique, c.duplicated), (n, set.len() as u64, n - set.len() as u64));
            prop_assert_eq!(c.lost, highest.unwrap() + 1 - set.len() as u64);
            prop_assert_eq!((c.reordered, c.stale), (reordered, 0));
        }

        #[test]
        fn any_sequences_are_survived(seqs in proptest::collection::vec(prop_oneof![
            0u64..200_000, (1u64 << 40)..(1 << 40) + 100_000, 0..(1u64 << 48)], 0..500)) {
            let mut t = Tracker::new();
            seqs.iter().for_each(|s| { t.arrive(*s); });
            let c = t.counts();
            prop_assert_eq!(c.received + c.implausible, seqs.len() as u64);
            prop_assert_eq!(c.received, c.unique + c.duplicated + c.stale);
            prop_assert_eq!(c.highest_seq.map_or(0, |h| h + 1), c.unique + c.lost);
        }
    }
}
