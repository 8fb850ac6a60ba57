//! What a receiver keeps while it reads: a tracker per stream and two
//! distributions, in memory that does not grow with what comes in.

use std::collections::HashMap;

use observer_ebpf::stamp::{STAMP_LEN, Stamp};

use super::config::RecvConfig;
use super::report::{FlowReport, NoLatency, RecvReport};
use super::{Delivery, MAX_FLOWS};
use crate::batch::RecvBatch;
use crate::hist::LatencyHistogram;
use crate::num::count;
use crate::progress::Progress;
use crate::socket::{self, RxSocket};
use crate::track::{Arrival, Counts, Tracker};

struct Flow {
    id: u64,
    tracker: Tracker,
}

/// Everything kept while reading.
pub(super) struct State<'a> {
    config: &'a RecvConfig,
    flows: Vec<Flow>,
    index: HashMap<u64, usize>,
    current: usize,
    /// Different datagrams so far.
    pub(super) unique: u64,
    bytes: u64,
    unstamped: u64,
    foreign: u64,
    reads: u64,
    measured: u64,
    measured_first: Option<i64>,
    measured_last: i64,
    /// When the first datagram was read, ns.
    pub(super) first: Option<i64>,
    last: Option<i64>,
    from_offer: LatencyHistogram,
    from_intended: LatencyHistogram,
}

impl<'a> State<'a> {
    pub(super) fn new(config: &'a RecvConfig) -> Self {
        Self {
            config,
            flows: Vec::with_capacity(16),
            index: HashMap::new(),
            current: 0,
            unique: 0,
            bytes: 0,
            unstamped: 0,
            foreign: 0,
            reads: 0,
            measured: 0,
            measured_first: None,
            measured_last: 0,
            first: None,
            last: None,
            from_offer: LatencyHistogram::batched(),
            from_intended: LatencyHistogram::batched(),
        }
    }

    pub(super) fn take(
        &mut self,
        batch: &RecvBatch,
        received_ns: i64,
        progress: &Progress,
        log: &mut impl FnMut(&Delivery),
    ) {
        self.reads += 1;
        let mut stamped = 0;
        for datagram in batch.datagrams() {
            let Some(stamp) = Stamp::parse(datagram.bytes) else {
                self.unstamped += 1;
                continue;
            };
            let Some(flow) = self.flow(&stamp) else {
                self.foreign += 1;
                continue;
            };
            stamped += 1;
            let arrival = flow.tracker.arrive(stamp.seq());
            self.bytes += count(datagram.len);
            if arrival == Arrival::New {
                self.unique += 1;
                if self.config.window.is_none_or(|(from, to)| (from..to).contains(&stamp.offer_ns)) {
                    self.measured += 1;
                    self.measured_first.get_or_insert(received_ns);
                    self.measured_last = received_ns;
                    // Stamps come from the network: any difference is possible.
                    self.from_offer.record(received_ns.saturating_sub(stamp.offer_ns));
                    self.from_intended.record(received_ns.saturating_sub(stamp.intended_ns));
                }
            }
            log(&Delivery { stamp, received_ns, len: datagram.len, arrival });
        }
        if stamped > 0 {
            self.first.get_or_insert(received_ns);
            self.last = Some(received_ns);
            progress.add_received(stamped);
        }
    }

    #[inline]
    fn flow(&mut self, stamp: &Stamp) -> Option<&mut Flow> {
        let id = flow_id(stamp);
        if self.flows.get(self.current).is_none_or(|f| f.id != id) {
            self.current = match self.index.get(&id) {
                Some(i) => *i,
                None => {
                    let wanted = self.config.run.is_none_or(|r| r == stamp.run);
                    if !wanted || self.flows.len() >= MAX_FLOWS {
                        return None;
                    }
                    self.flows.push(Flow { id, tracker: Tracker::new() });
                    self.index.insert(id, self.flows.len() - 1);
                    self.flows.len() - 1
                }
            };
        }
        self.flows.get_mut(self.current)
    }

    pub(super) fn report(self, socket: &RxSocket, interrupted: bool) -> RecvReport {
        let mut flows: Vec<FlowReport> = self
            .flows
            .iter()
            .map(|f| FlowReport { run: run_of(f.id), stream: stream_of(f.id), counts: f.tracker.counts() })
            .collect();
        flows.sort_unstable_by_key(|f| (f.run, f.stream));
        let mut total = Counts::default();
        for c in flows.iter().map(|f| &f.counts) {
            total.received += c.received;
            total.unique += c.unique;
            total.lost += c.lost;
            total.duplicated += c.duplicated;
            total.reordered += c.reordered;
            total.stale += c.stale;
            total.implausible += c.implausible;
        }
        let outside = self.from_offer.underflow() + self.from_offer.overflow();
        let no_latency = if self.from_offer.count() == 0 {
            Some(NoLatency::NothingMeasured)
        } else if outside * 100 > self.from_offer.count() {
            Some(NoLatency::AnotherClock)
        } else {
            None
        };
        let keep = no_latency.is_none();
        let span = self.first.zip(self.last).map_or(0, |(a, b)| b - a);
        RecvReport {
            local: socket.local,
            interrupted,
            unread: false,
            total,
            bytes: self.bytes,
            unstamped: self.unstamped,
            foreign: self.foreign,
            socket_drops: socket::drops(&socket.fd).ok(),
            reads: self.reads,
            first_ns: self.first,
            last_ns: self.last,
            measured: self.measured,
            measured_span_ns: self.measured_first.map_or(0, |first| self.measured_last - first),
            received_per_s: (span > 0).then(|| total.unique.saturating_sub(1) as f64 * 1e9 / span as f64),
            from_offer: keep.then_some(self.from_offer),
            from_intended: keep.then_some(self.from_intended),
            no_latency,
            flows,
            rcvbuf: socket.rcvbuf,
        }
    }
}

fn flow_id(stamp: &Stamp) -> u64 {
    observer_ebpf::abi::flow_id(stamp.run, stamp.stream())
}

fn run_of(id: u64) -> u32 {
    u32::try_from(id >> 16).unwrap_or(0)
}

fn stream_of(id: u64) -> u16 {
    u16::try_from(id & 0xFFFF).unwrap_or(0)
}

const _: () = assert!(STAMP_LEN <= 64, "the smallest buffer of a batch holds a stamp");
