//! What a diagnosis stands on: the points of the journeys seen, the first of
//! them and the latest, in bounded memory.
//!
//! The first show a bucket that was full and a queue that was empty; the
//! latest what is going on. In go journeys as they pass, out come runs of
//! [`Sample`]s without a hole.

use std::collections::VecDeque;

use observer_ebpf::abi::flag;

use crate::component::Part;
use crate::correlate::{Journey, Outcome};

/// Samples kept from the start.
pub const FIRST: usize = 1 << 16;
/// Samples kept of the latest. With [`FIRST`] some 25 MiB.
pub const LATEST: usize = 1 << 17;

/// The points of one journey that a diagnosis needs; 0 is not seen, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Run and stream.
    pub flow: u64,
    /// It was to be offered.
    pub intended_ns: u64,
    /// It was offered.
    pub offer_ns: u64,
    /// The send call was entered.
    pub syscall_ns: u64,
    /// It left the protocol stack.
    pub dev_queue_ns: u64,
    /// It was handed to the last hop's driver.
    pub xmit_ns: u64,
    /// Time over all hops.
    pub shaper_ns: u64,
    /// Of that, on the slowest.
    pub slowest_hop_ns: u64,
    /// It entered the receiving stack.
    pub rx_ns: u64,
    /// It was put on the socket's queue.
    pub sock_enqueue_ns: u64,
    /// The application had it.
    pub app_dequeue_ns: u64,
    /// It was dropped.
    pub drop_ns: u64,
    /// Its sender was blocked on the send buffer meanwhile.
    pub blocked_ns: u64,
    /// Its sender was runnable without a CPU meanwhile.
    pub sender_starved_ns: u64,
    /// Its reader was runnable without a CPU meanwhile.
    pub reader_starved_ns: u64,
    /// Bytes with the Ethernet header.
    pub bytes: u32,
    /// The sending thread; 0 if not known.
    pub tx_tid: u32,
    /// Kernel number of the reason it was dropped for.
    pub drop_reason: u32,
    /// The slowest hop's interface.
    pub slowest_ifindex: u32,
    /// The last hop's.
    pub ifindex: u32,
    /// Hops finished.
    pub hops: u16,
    /// Position within its send call.
    pub batch_pos: u16,
    /// How it ended.
    pub end: End,
    /// Its sender is on this host, so that its offer is on this clock.
    pub sender_here: bool,
    /// It left a qdisc somewhere.
    pub qdisc_seen: bool,
    /// Every hop it began was finished.
    pub hops_known: bool,
    /// Its packet carried further datagrams.
    pub segmented: bool,
}

/// How a sample ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// Read.
    Delivered,
    /// Dropped.
    Dropped,
    /// Not known.
    #[default]
    Unknown,
}

impl Sample {
    /// The sample of `journey`.
    pub fn of(journey: &Journey) -> Self {
        let (r, s) = (&journey.record, &journey.stages);
        let part = |p: Part| s.part(p).unwrap_or(0);
        Self {
            flow: journey.flow,
            intended_ns: u64::try_from(r.intended_ns).unwrap_or(0),
            offer_ns: u64::try_from(r.offer_ns).unwrap_or(0),
            syscall_ns: r.syscall_ns,
            dev_queue_ns: r.dev_queue_ns,
            xmit_ns: r.xmit_ns,
            shaper_ns: r.shaper_ns,
            slowest_hop_ns: r.slowest_hop_ns,
            rx_ns: r.rx_ns,
            sock_enqueue_ns: r.sock_enqueue_ns,
            app_dequeue_ns: r.app_dequeue_ns,
            drop_ns: r.drop_ns,
            blocked_ns: part(Part::SndbufBlocked),
            sender_starved_ns: part(Part::SenderRunQueue),
            reader_starved_ns: part(Part::ReceiverRunQueue),
            bytes: r.l2_bytes,
            tx_tid: r.tx_tid,
            drop_reason: r.drop_reason,
            slowest_ifindex: r.slowest_ifindex,
            ifindex: r.ifindex,
            hops: r.hops,
            batch_pos: r.batch_pos,
            end: match journey.outcome {
                Outcome::Delivered => End::Delivered,
                Outcome::Dropped => End::Dropped,
                Outcome::Unresolved => End::Unknown,
            },
            sender_here: r.dev_queue_ns != 0 || s.total.is_some(),
            qdisc_seen: r.dequeue_ns != 0,
            hops_known: r.hops > 0 && r.hop_start_ns == 0,
            segmented: r.flags & flag::SEGMENTED != 0,
        }
    }
}

/// The journeys kept.
#[derive(Debug)]
pub struct Evidence {
    first: Vec<Sample>,
    latest: VecDeque<Sample>,
    /// Samples that fell out between the two.
    forgotten: u64,
    /// Others came before the first.
    joined_late: bool,
}

impl Default for Evidence {
    /// With room for all it will ever keep, so that the reader of the rings
    /// never stops to move it; pages are touched as they fill.
    fn default() -> Self {
        let (first, latest) = (Vec::with_capacity(FIRST), VecDeque::with_capacity(LATEST));
        Self { first, latest, forgotten: 0, joined_late: false }
    }
}

/// Samples in the order in which they ended, none missing between them.
#[derive(Clone, Debug, Default)]
pub struct Stretch<'a> {
    /// They.
    pub samples: Vec<&'a Sample>,
    /// Nothing came before the first of them.
    pub fresh: bool,
}

impl Evidence {
    /// Adds a journey.
    pub fn push(&mut self, journey: &Journey) {
        self.add(Sample::of(journey));
    }

    fn add(&mut self, sample: Sample) {
        if self.first.len() < FIRST {
            self.first.push(sample);
            return;
        }
        if self.latest.len() >= LATEST {
            self.latest.pop_front();
            self.forgotten += 1;
        }
        self.latest.push_back(sample);
    }

    /// Says that datagrams that are not kept came before the first.
    pub fn joined_late(&mut self) {
        self.joined_late = true;
    }

    /// Passes over the next `n`, which the latest to come will push out: all of
    /// the first are there, and at least [`LATEST`] follow.
    pub fn pass(&mut self, n: u64) {
        self.forgotten += self.latest.len() as u64 + n;
        self.latest.clear();
    }

    /// Samples seen so far.
    pub fn seen(&self) -> u64 {
        (self.first.len() + self.latest.len()) as u64 + self.forgotten
    }

    /// The stretches kept, at most two, the later last.
    pub fn stretches(&self) -> Vec<Stretch<'_>> {
        let first = self.first.iter();
        if self.forgotten == 0 {
            return vec![Stretch { samples: first.chain(&self.latest).collect(), fresh: !self.joined_late }];
        }
        vec![
            Stretch { samples: first.collect(), fresh: !self.joined_late },
            Stretch { samples: self.latest.iter().collect(), fresh: false },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_latest_are_kept_and_the_hole_is_known() {
        let mut evidence = Evidence::default();
        let n = (FIRST + LATEST) as u64;
        for i in 0..n {
            evidence.add(Sample { offer_ns: i, ..Sample::default() });
        }
        let all = evidence.stretches();
        assert_eq!((all.len(), all[0].samples.len(), all[0].fresh), (1, FIRST + LATEST, true));
        assert!(all[0].samples.windows(2).all(|w| w[0].offer_ns + 1 == w[1].offer_ns));
        evidence.add(Sample { offer_ns: n, ..Sample::default() });
        let both = evidence.stretches();
        assert_eq!((both.len(), both[0].samples.len(), both[1].samples.len()), (2, FIRST, LATEST));
        assert_eq!((both[1].samples[LATEST - 1].offer_ns, both[1].fresh), (n, false));
        assert_eq!(evidence.seen(), n + 1);
        evidence.pass(50);
        (0..LATEST as u64).for_each(|i| evidence.add(Sample { offer_ns: n + 51 + i, ..Sample::default() }));
        let passed = evidence.stretches();
        assert_eq!((passed.len(), passed[0].samples.len(), passed[1].samples.len()), (2, FIRST, LATEST));
        assert_eq!((passed[1].samples[0].offer_ns, evidence.seen()), (n + 51, n + 51 + LATEST as u64));
        assert!(size_of::<Sample>() * (FIRST + LATEST) < 40 << 20, "{}", size_of::<Sample>());
    }
}
