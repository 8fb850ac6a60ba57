//! Finds the two halves of each journey.
//!
//! Both traces are read side by side, the one whose records were offered
//! earlier first, so that only what is on its way between them has to be
//! remembered: a bounded number of halves, of which the oldest are given up.

use std::collections::{HashMap, VecDeque};

use observer_ebpf::abi::{JourneyRecord, flag};

use crate::source::Batch;
use crate::trace::reader::{Event, Replay};
use crate::trace::{Trace, TraceError};

/// Halves that wait for their other one, in each direction: some 200 MB. At a
/// million per second that is half a second on the way and in queues.
const WAITING: usize = 1 << 19;

/// What became of a record.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    /// Two halves of one journey; `forth` from the first host to the other.
    Pair {
        /// The sender's half.
        sent: JourneyRecord,
        /// The receiver's half.
        received: JourneyRecord,
        /// Sent by the first host.
        forth: bool,
    },
    /// A sender's half alone.
    Sent {
        /// It.
        sent: JourneyRecord,
        /// Sent by the first host.
        forth: bool,
    },
    /// A receiver's half alone.
    Received {
        /// It.
        received: JourneyRecord,
        /// Received by the other host.
        forth: bool,
    },
    /// A journey that began and ended on one host.
    Local {
        /// It.
        record: JourneyRecord,
        /// On the first host.
        first: bool,
    },
}

/// Run, stream and sequence, and the offer, which a reused sequence has not.
type Key = (u32, u64, i64);

fn key(r: &JourneyRecord) -> Key {
    (r.run, r.stream_seq, r.offer_ns)
}

/// One direction's halves.
#[derive(Default)]
struct Waiting {
    sent: Halves,
    received: Halves,
}

/// Halves that wait, oldest first; those that were found may still be in the
/// order.
#[derive(Default)]
struct Halves {
    by_key: HashMap<Key, JourneyRecord>,
    order: VecDeque<Key>,
}

impl Halves {
    fn take(&mut self, other: &JourneyRecord) -> Option<JourneyRecord> {
        self.by_key.remove(&key(other))
    }

    /// Keeps a half; of too many, the oldest are given up.
    fn keep(
        &mut self,
        half: JourneyRecord,
        out: &mut VecDeque<Found>,
        found: impl Fn(JourneyRecord) -> Found,
    ) {
        // The same once more replaces itself.
        if self.by_key.insert(key(&half), half).is_none() {
            self.order.push_back(key(&half));
        }
        while self.by_key.len() > WAITING {
            let Some(oldest) = self.order.pop_front() else { break };
            out.extend(self.by_key.remove(&oldest).map(&found));
        }
        if self.order.len() > 2 * WAITING {
            let by_key = &self.by_key;
            self.order.retain(|k| by_key.contains_key(k));
        }
    }

    fn give_up(&mut self, out: &mut VecDeque<Found>, found: impl Fn(JourneyRecord) -> Found) {
        for k in std::mem::take(&mut self.order) {
            out.extend(self.by_key.remove(&k).map(&found));
        }
    }
}

/// A trace being read.
struct Side<'a> {
    trace: &'a Trace,
    replay: Replay<'a>,
    batch: Batch,
    at: usize,
    /// Once the segments are over: journeys without an outcome.
    unfinished: Option<Vec<JourneyRecord>>,
    over: bool,
    /// Latest offer of a sender's half read, on this host's clock.
    sent_ns: Option<i64>,
    /// Latest offer of a receiver's half read, on the other host's clock.
    received_ns: Option<i64>,
    segments: usize,
}

/// Goes through two traces.
pub(super) struct Pairs<'a> {
    sides: [Side<'a>; 2],
    waiting: [Waiting; 2],
    ready: VecDeque<Found>,
    drained: bool,
}

impl<'a> Side<'a> {
    fn new(trace: &'a Trace) -> Self {
        Self {
            trace,
            replay: trace.replay(),
            batch: Batch::default(),
            at: 0,
            unfinished: None,
            over: false,
            sent_ns: None,
            received_ns: None,
            segments: 0,
        }
    }

    /// The next record.
    fn next(&mut self) -> Result<Option<JourneyRecord>, TraceError> {
        loop {
            if let Some(record) = self.batch.journeys.get(self.at) {
                self.at += 1;
                return Ok(Some(*record));
            }
            if let Some(left) = &mut self.unfinished {
                let next = left.pop();
                self.over = next.is_none();
                return Ok(next);
            }
            self.at = 0;
            match self.replay.next(&mut self.batch)? {
                Some(Event::Before | Event::Batch) => {}
                Some(Event::Close(_)) => self.segments += 1,
                None => {
                    let last = self.trace.numbers().last().map(|n| self.trace.segment(*n)).transpose()?;
                    let tables = last.map(|s| self.trace.tables(&s)).transpose()?;
                    let mut unfinished = tables.map_or_else(Vec::new, |t| t.unfinished);
                    // Taken from the end: the earliest offered is to come first.
                    unfinished.sort_by_key(|r| std::cmp::Reverse(r.offer_ns));
                    self.batch.clear();
                    self.unfinished = Some(unfinished);
                }
            }
        }
    }
}

impl<'a> Pairs<'a> {
    pub(super) fn new(first: &'a Trace, other: &'a Trace) -> Self {
        Self {
            sides: [Side::new(first), Side::new(other)],
            waiting: Default::default(),
            ready: VecDeque::new(),
            drained: false,
        }
    }

    /// Segments read, of both.
    pub(super) fn segments_done(&self) -> usize {
        self.sides.iter().map(|s| s.segments).sum()
    }

    /// The next finding.
    pub(super) fn next(&mut self) -> Result<Option<Found>, TraceError> {
        loop {
            if let Some(found) = self.ready.pop_front() {
                return Ok(Some(found));
            }
            if self.drained {
                return Ok(None);
            }
            let i = self.behind();
            let Some(i) = i else {
                self.drain();
                continue;
            };
            if let Some(record) = self.sides[i].next()? {
                self.place(record, i == 0);
            }
        }
    }

    /// The side to be read on; `None` at the end of both. Each direction has its
    /// sender's clock: by that, the side that is behind.
    fn behind(&self) -> Option<usize> {
        let [a, b] = &self.sides;
        match (a.over, b.over) {
            (true, true) => return None,
            (true, false) => return Some(1),
            (false, true) => return Some(0),
            (false, false) => {}
        }
        // How far the first is ahead, ns.
        let forth = a.sent_ns.zip(b.received_ns).map(|(a, b)| a.saturating_sub(b));
        let back = a.received_ns.zip(b.sent_ns).map(|(a, b)| a.saturating_sub(b));
        let ahead = match (forth, back) {
            (Some(x), Some(y)) if x.unsigned_abs() < y.unsigned_abs() => y,
            (Some(x), _) => x,
            (None, Some(y)) => y,
            // One of them has not come to a half yet.
            (None, None) => match (a.sent_ns.or(a.received_ns), b.sent_ns.or(b.received_ns)) {
                (Some(_), None) => 1,
                (None, _) => -1,
                (Some(_), Some(_)) => i64::from(a.segments > b.segments) * 2 - 1,
            },
        };
        Some(usize::from(ahead > 0))
    }

    /// Puts a record of the first (or the other) host where it belongs.
    fn place(&mut self, record: JourneyRecord, first: bool) {
        let left = record.dev_queue_ns != 0;
        let arrived = record.rx_ns != 0 || record.app_dequeue_ns != 0;
        let dropped_on_the_way_out = record.drop_ns != 0 && !arrived && left;
        match (left, arrived || record.flags & flag::RX_ONLY != 0) {
            (true, false) if !dropped_on_the_way_out => self.sent(record, usize::from(!first)),
            (false, true) => self.received(record, usize::from(first)),
            _ => self.ready.push_back(Found::Local { record, first }),
        }
    }

    /// Direction 0 is from the first host to the other.
    fn sent(&mut self, sent: JourneyRecord, direction: usize) {
        let forth = direction == 0;
        let side = &mut self.sides[direction];
        side.sent_ns = side.sent_ns.max(Some(sent.offer_ns));
        let w = &mut self.waiting[direction];
        match w.received.take(&sent) {
            Some(received) => self.ready.push_back(Found::Pair { sent, received, forth }),
            None => w.sent.keep(sent, &mut self.ready, |sent| Found::Sent { sent, forth }),
        }
    }

    fn received(&mut self, received: JourneyRecord, direction: usize) {
        let forth = direction == 0;
        let side = &mut self.sides[1 - direction];
        side.received_ns = side.received_ns.max(Some(received.offer_ns));
        let w = &mut self.waiting[direction];
        match w.sent.take(&received) {
            Some(sent) => self.ready.push_back(Found::Pair { sent, received, forth }),
            None => {
                w.received.keep(received, &mut self.ready, |received| Found::Received { received, forth })
            }
        }
    }

    /// At the end: what waits has nobody to wait for.
    fn drain(&mut self) {
        for (direction, w) in self.waiting.iter_mut().enumerate() {
            let forth = direction == 0;
            w.sent.give_up(&mut self.ready, |sent| Found::Sent { sent, forth });
            w.received.give_up(&mut self.ready, |received| Found::Received { received, forth });
        }
        self.drained = true;
    }
}
