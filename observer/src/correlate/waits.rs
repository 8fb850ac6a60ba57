//! When each followed thread waited, and how much of a journey falls into it.
//!
//! Intervals arrive in the order in which they ended, nearly. Each thread keeps a
//! bounded window of them, sorted, with a running sum, so that the overlap of
//! any span with all waits is two binary searches.

use std::collections::VecDeque;

use foldhash::HashMap;
use observer_ebpf::abi::{WaitKind, WaitRecord};

use crate::report::Waits;

/// Intervals kept for one thread and kind: at a thousand waits per second more
/// than a minute.
pub const PER_TRACK: usize = 1 << 16;

/// Intervals kept in all (24 bytes each), so that many threads do not add up
/// to memory without bound.
pub const IN_ALL: usize = 1 << 21;

/// Threads followed. Threads that have not waited for longest make room.
pub const THREADS: usize = 4096;

/// What is older than this before the latest wait is forgotten.
pub const KEEP_NS: u64 = 120_000_000_000;

/// The waits of all followed threads.
#[derive(Debug, Default)]
pub struct WaitBook {
    threads: HashMap<u32, Thread>,
    held: usize,
    latest_ns: u64,
    totals: Waits,
}

/// One thread's waits, by kind.
#[derive(Debug, Default)]
pub struct Thread {
    run_queue: Track,
    send_buffer: Track,
}

impl Thread {
    /// How much of [`from_ns`, `to_ns`] the thread spent in waits of `kind`,
    /// ns; `None` if that time has been forgotten.
    pub fn overlap(&self, kind: WaitKind, from_ns: u64, to_ns: u64) -> Option<u64> {
        match kind {
            WaitKind::RunQueue => self.run_queue.overlap(from_ns, to_ns),
            WaitKind::SendBuffer => self.send_buffer.overlap(from_ns, to_ns),
        }
    }

    fn last_ns(&self) -> u64 {
        self.run_queue.last_ns().max(self.send_buffer.last_ns())
    }

    fn held(&self) -> usize {
        self.run_queue.waits.len() + self.send_buffer.waits.len()
    }

    fn forget_before(&mut self, ns: u64) {
        self.run_queue.forget_before(ns);
        self.send_buffer.forget_before(ns);
    }

    fn halve(&mut self) {
        let longest = if self.run_queue.waits.len() > self.send_buffer.waits.len() {
            &mut self.run_queue
        } else {
            &mut self.send_buffer
        };
        longest.drop_oldest(longest.waits.len().div_ceil(2));
    }
}

impl WaitBook {
    /// Enters a wait.
    pub fn add(&mut self, record: &WaitRecord) {
        let Some(kind) = WaitKind::from_u8(record.wait) else { return };
        let length = record.to_ns.saturating_sub(record.from_ns);
        let totals = match kind {
            WaitKind::RunQueue => &mut self.totals.run_queue,
            WaitKind::SendBuffer => &mut self.totals.send_buffer,
        };
        totals.count(length);
        self.latest_ns = self.latest_ns.max(record.to_ns);

        if !self.threads.contains_key(&record.tid) && self.threads.len() >= THREADS {
            self.make_room();
        }
        let thread = self.threads.entry(record.tid).or_default();
        let before = thread.held();
        match kind {
            WaitKind::RunQueue => thread.run_queue.insert(record.from_ns, record.to_ns),
            WaitKind::SendBuffer => thread.send_buffer.insert(record.from_ns, record.to_ns),
        }
        self.held = self.held + thread.held() - before;
        if self.held > IN_ALL
            && let Some(longest) = self.threads.values_mut().max_by_key(|t| t.held())
        {
            let before = longest.held();
            longest.halve();
            self.held -= before - longest.held();
        }
    }

    /// The waits of thread `tid`, if it had any.
    pub fn thread(&self, tid: u32) -> Option<&Thread> {
        self.threads.get(&tid)
    }

    /// Counts a journey whose waits have been forgotten.
    pub fn count_forgotten(&mut self) {
        self.totals.forgotten = self.totals.forgotten.saturating_add(1);
    }

    /// Forgets what is too old for any journey still to come.
    pub fn prune(&mut self) {
        let horizon = self.latest_ns.saturating_sub(KEEP_NS);
        for thread in self.threads.values_mut() {
            thread.forget_before(horizon);
        }
        self.held = self.threads.values().map(Thread::held).sum();
    }

    /// Waits seen so far.
    pub fn totals(&self) -> Waits {
        self.totals
    }

    /// Adds what a trace says was seen.
    pub fn add_totals(&mut self, more: &Waits) {
        self.totals.add(more);
    }

    /// Says that so much was seen: of waits that are looked at again.
    pub fn set_totals(&mut self, totals: Waits) {
        self.totals = totals;
    }

    fn make_room(&mut self) {
        if let Some((&tid, _)) = self.threads.iter().min_by_key(|(_, t)| t.last_ns()) {
            let gone = self.threads.remove(&tid).map_or(0, |t| t.held());
            self.held -= gone;
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    from_ns: u64,
    to_ns: u64,
    /// Sum of all waits before this one, ns. Only differences matter.
    before_ns: u64,
}

/// Disjoint waits in order of time.
#[derive(Debug, Default)]
struct Track {
    waits: VecDeque<Wait>,
    /// Nothing is known before this.
    known_from_ns: u64,
}

impl Track {
    fn last_ns(&self) -> u64 {
        self.waits.back().map_or(0, |w| w.to_ns)
    }

    /// Inserts a wait. One thread waits for one thing at a time, so where it
    /// overlaps others, only what is new is taken.
    fn insert(&mut self, from_ns: u64, to_ns: u64) {
        let at = self.begun_before(from_ns);
        let floor = at.checked_sub(1).and_then(|i| self.waits.get(i)).map_or(0, |w| w.to_ns);
        let ceiling = self.waits.get(at).map_or(u64::MAX, |w| w.from_ns);
        let (from_ns, to_ns) = (from_ns.max(floor), to_ns.min(ceiling));
        if from_ns >= to_ns || to_ns <= self.known_from_ns {
            return;
        }
        let before_ns = match at.checked_sub(1).and_then(|i| self.waits.get(i)) {
            Some(w) => w.before_ns.wrapping_add(w.to_ns - w.from_ns),
            None => self.waits.front().map_or(0, |w| w.before_ns.wrapping_sub(to_ns - from_ns)),
        };
        self.waits.insert(at, Wait { from_ns, to_ns, before_ns });
        if at > 0 {
            // Late arrivals land near the end: few follow them.
            for w in self.waits.range_mut(at + 1..) {
                w.before_ns = w.before_ns.wrapping_add(to_ns - from_ns);
            }
        }
        if self.waits.len() > PER_TRACK {
            self.drop_oldest(1);
        }
    }

    fn overlap(&self, from_ns: u64, to_ns: u64) -> Option<u64> {
        if from_ns < self.known_from_ns {
            return None;
        }
        if self.last_ns() <= from_ns || to_ns <= from_ns {
            return Some(0);
        }
        Some(self.waited_until(to_ns).wrapping_sub(self.waited_until(from_ns)))
    }

    /// Sum of the waits up to `ns`, counted from an arbitrary origin.
    fn waited_until(&self, ns: u64) -> u64 {
        let after = self.begun_before(ns);
        match after.checked_sub(1).and_then(|i| self.waits.get(i)) {
            Some(w) => w.before_ns.wrapping_add(ns.min(w.to_ns) - w.from_ns),
            None => self.waits.front().map_or(0, |w| w.before_ns),
        }
    }

    /// How many waits began before `ns`. What is asked about has just happened,
    /// so the search begins at the end, in steps that double.
    fn begun_before(&self, ns: u64) -> usize {
        let begun = |i: usize| self.waits.get(i).is_some_and(|w| w.from_ns < ns);
        let (mut high, mut step) = (self.waits.len(), 1);
        let mut low = loop {
            let probe = high.saturating_sub(step);
            if probe == 0 || begun(probe) {
                break probe;
            }
            (high, step) = (probe, step * 2);
        };
        while low < high {
            let middle = low + (high - low) / 2;
            if begun(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn forget_before(&mut self, ns: u64) {
        let old = self.waits.partition_point(|w| w.to_ns <= ns);
        self.drop_oldest(old);
    }

    fn drop_oldest(&mut self, n: usize) {
        if let Some(last) = n.checked_sub(1).and_then(|i| self.waits.get(i)) {
            self.known_from_ns = last.to_ns;
            self.waits.drain(..n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::WaitTotals;
    use crate::source::synthetic::wait;
    use proptest::prelude::*;

    fn run_queue(book: &WaitBook, tid: u32, from: u64, to: u64) -> Option<u64> {
        book.thread(tid).unwrap().overlap(WaitKind::RunQueue, from, to)
    }

    #[test]
    fn overlap_counts_the_common_time_alone() {
        let mut book = WaitBook::default();
        for from in [100, 300, 200] {
            book.add(&wait(WaitKind::RunQueue, 1, from, 50));
        }
        book.add(&wait(WaitKind::SendBuffer, 1, 0, 1_000));
        assert_eq!(run_queue(&book, 1, 0, 1_000), Some(150));
        assert_eq!(run_queue(&book, 1, 120, 310), Some(30 + 50 + 10));
        assert_eq!(run_queue(&book, 1, 150, 200), Some(0));
        assert_eq!(run_queue(&book, 1, 400, 500), Some(0));
        assert!(book.thread(2).is_none());
        assert_eq!(book.totals().run_queue, WaitTotals { count: 3, total_ns: 150, max_ns: 50 });
    }

    #[test]
    fn what_is_forgotten_is_not_known_rather_than_zero() {
        let mut book = WaitBook::default();
        for n in 0..=PER_TRACK as u64 {
            book.add(&wait(WaitKind::RunQueue, 1, 100 * n, 10));
        }
        assert_eq!(run_queue(&book, 1, 5, 50), None);
        assert_eq!(run_queue(&book, 1, 100, 220), Some(20));
        assert_eq!(book.held, PER_TRACK);
        book.add(&wait(WaitKind::RunQueue, 1, 2 * KEEP_NS, 10));
        book.prune();
        assert_eq!(book.held, 1);
    }

    #[test]
    fn memory_is_bounded_by_threads_and_by_waits() {
        let mut book = WaitBook::default();
        for tid in 0..u32::try_from(2 * THREADS).unwrap() {
            for n in 0..300 {
                book.add(&wait(WaitKind::RunQueue, tid, u64::from(tid) * 10_000 + 20 * n, 10));
            }
        }
        assert_eq!(book.threads.len(), THREADS);
        let held: usize = book.threads.values().map(Thread::held).sum();
        assert_eq!(book.held, held);
        for n in 0..IN_ALL {
            book.add(&wait(WaitKind::SendBuffer, [1, 2, 3, 4, 5][n % 5], 100_000_000 + 20 * n as u64, 10));
        }
        assert!(book.held <= IN_ALL, "{}", book.held);
    }

    proptest! {
        #[test]
        fn overlap_agrees_with_counting_every_nanosecond(
            waits in proptest::collection::vec((0_usize..200, 1_usize..30), 0..30),
            from in 0_usize..250, length in 0_usize..250,
        ) {
            let mut book = WaitBook::default();
            let mut waiting = [false; 600];
            for (at, len) in waits {
                // As a thread does: only waits that overlap no other.
                if waiting[at..at + len].iter().all(|w| !w) {
                    waiting[at..at + len].fill(true);
                    book.add(&wait(WaitKind::RunQueue, 1, at as u64, len as u64));
                }
            }
            let expected = waiting[from..from + length].iter().filter(|w| **w).count();
            let found = book.thread(1).map_or(Some(0), |t| t.overlap(WaitKind::RunQueue, from as u64, (from + length) as u64));
            prop_assert_eq!(found, Some(expected as u64));
        }

        #[test]
        fn overlap_never_exceeds_the_span_whatever_arrives(
            waits in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..30), a: u64, b: u64,
        ) {
            let mut book = WaitBook::default();
            for (x, y) in waits {
                book.add(&WaitRecord { kind: 5, wait: 1, pad: 0, tid: 1, from_ns: x.min(y), to_ns: x.max(y) });
            }
            if let Some(Some(found)) = book.thread(1).map(|t| t.overlap(WaitKind::RunQueue, a, b)) {
                prop_assert!(found <= b.saturating_sub(a));
            }
        }
    }
}
