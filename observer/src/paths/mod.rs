//! Paths: how fast each one is, and how fast they are against each other,
//! from a few hundred probing datagrams.
//!
//! ```text
//! journeys ─▶ Collector ─▶ trains ─┬▶ dispersion: capacity per path
//!                                  ├▶ asnd:       capacity ratio of two paths, without a clock
//!                                  └▶ peak:       best second, what iperf would have shown
//!          ─▶ Report ─▶ text | html | json (`observer-paths/1`)
//! ```
//!
//! A *path* is what one stream's datagrams take from their sender to the
//! receiver. It is probed by trains of datagrams offered all at once
//! (`load send --pattern pairs|trains`): what limits the path spaces them out,
//! and the spacing at the receiver tells its rate. Datagrams of a stream
//! with the same intended time are one train, whoever sent them; a load of
//! bursts is as good. Everything is taken from the order and the times of
//! arrival at one host; no clock is compared with another.
//!
//! In go journey records, in any order; out comes a [`Report`].

use std::collections::BTreeMap;

use observer_ebpf::abi::{JourneyRecord, RecordKind, flag, flow_id};
use observer_ebpf::stamp::SEQ_MAX;
use serde::{Deserialize, Serialize};

use crate::correlate::stream;
use crate::report::FlowKey;

pub mod asnd;
pub mod dispersion;
pub mod gather;
pub mod html;
pub mod peak;
pub mod text;
pub mod train;

#[cfg(test)]
mod simulate;
#[cfg(test)]
mod tests;

pub use asnd::Ratio;
pub use dispersion::{Capacity, Mode};
pub use gather::Gatherer;
use train::Train;

/// The schema of [`Report`].
pub const SCHEMA: &str = "observer-paths/1";
/// Arrivals kept, some 200 MB; what comes beyond is counted and left out.
const MOST_ARRIVALS: usize = 4_000_000;
/// Paths compared with each other, busiest first.
const MOST_COMPARED: usize = 8;

/// One datagram's arrival at the receiving host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its number in its stream.
    pub seq: u64,
    /// When the schedule wanted it, ns of the sender's clock: what tells one
    /// train from the next.
    pub intended_ns: i64,
    /// When it entered the receiving stack, ns of the receiver's clock.
    pub rx_ns: u64,
    /// Bytes with the Ethernet header.
    pub l2_bytes: u32,
    /// Bytes of UDP payload.
    pub payload_bytes: u32,
}

/// Ethernet, and UDP, headers, bytes.
const ETHERNET: u32 = 14;
const UDP: u32 = 8;

impl Arrival {
    /// The arrival in `record`; `None` if it did not arrive, or was not seen
    /// to. A datagram that found the receive buffer full did arrive.
    pub fn of(record: &JourneyRecord) -> Option<Self> {
        let arrived = record.rx_ns != 0 && record.kind != RecordKind::Unresolved as u8;
        let ip = if record.flags & flag::V6 == 0 { 20 } else { 40 };
        arrived.then(|| Self {
            seq: record.stream_seq & SEQ_MAX,
            intended_ns: record.intended_ns,
            rx_ns: record.rx_ns,
            l2_bytes: record.l2_bytes,
            payload_bytes: record.l2_bytes.saturating_sub(ETHERNET + ip + UDP),
        })
    }
}

/// Gathers journeys until there is something to say about them.
#[derive(Clone, Debug, Default)]
pub struct Collector {
    flows: BTreeMap<u64, Vec<Arrival>>,
    arrivals: usize,
    left_out: u64,
    datagrams: u64,
    bytes: u64,
}

impl Collector {
    /// Takes in one journey, whatever became of it.
    pub fn journey(&mut self, record: &JourneyRecord) {
        self.datagrams = self.datagrams.saturating_add(1);
        self.bytes = self.bytes.saturating_add(u64::from(record.l2_bytes));
        let Some(arrival) = Arrival::of(record) else { return };
        if self.arrivals >= MOST_ARRIVALS {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        self.arrivals += 1;
        self.flows.entry(flow_id(record.run, stream(record))).or_default().push(arrival);
    }

    /// What they tell. `name` says who a flow is, by its [`flow_id`].
    pub fn finish(self, name: impl Fn(u64) -> FlowKey) -> Report {
        let mut probed: Vec<(u64, Vec<Arrival>, Vec<Train>)> = self
            .flows
            .into_iter()
            .map(|(id, arrivals)| {
                let trains = train::split(&arrivals);
                (id, arrivals, trains)
            })
            .collect();
        probed.sort_by_key(|(id, arrivals, _)| (std::cmp::Reverse(arrivals.len()), *id));
        let paths: Vec<PathReport> =
            probed.iter().map(|(id, arrivals, trains)| PathReport::of(name(*id), arrivals, trains)).collect();
        let mut ratios = Vec::new();
        for (i, (a_id, _, a)) in probed.iter().enumerate().take(MOST_COMPARED) {
            for (b_id, _, b) in probed.iter().take(MOST_COMPARED).skip(i + 1) {
                ratios.extend(asnd::compare(a, b).map(|r| r.named(name(*a_id), name(*b_id))));
            }
        }
        let trains = || probed.iter().flat_map(|(.., trains)| trains);
        let cost = Cost {
            datagrams: self.datagrams,
            bytes: self.bytes,
            probe_datagrams: trains().map(|t| t.arrivals.len() as u64).sum(),
            probe_bytes: trains().map(Train::bytes).sum(),
            left_out: self.left_out,
        };
        Report { schema: SCHEMA.to_owned(), paths, ratios, cost }
    }
}

/// What `journeys` tell about the paths they took: [`Collector`] in one call.
pub fn analyse(journeys: impl IntoIterator<Item = JourneyRecord>, name: impl Fn(u64) -> FlowKey) -> Report {
    let mut collector = Collector::default();
    for journey in journeys {
        collector.journey(&journey);
    }
    collector.finish(name)
}

/// What was found: `observer-paths/1`. Rates are bits per second with
/// Ethernet headers, unless said otherwise; what could not be found is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// One per stream, the one with most arrivals first.
    pub paths: Vec<PathReport>,
    /// One per two paths whose trains met at the receiver.
    pub ratios: Vec<Ratio>,
    /// What the measurement took.
    pub cost: Cost,
}

impl Report {
    /// Whether anything was found.
    pub fn is_empty(&self) -> bool {
        self.ratios.is_empty() && self.paths.iter().all(|p| p.capacity.is_none())
    }
}

/// What the measurement took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Datagrams seen leaving or arriving, whatever became of them.
    pub datagrams: u64,
    /// Their bytes, Ethernet headers included.
    pub bytes: u64,
    /// Of those, arrivals in trains.
    pub probe_datagrams: u64,
    /// Their bytes.
    pub probe_bytes: u64,
    /// Arrivals not looked at because there were too many.
    pub left_out: u64,
}

/// One path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathReport {
    /// Whose datagrams took it.
    pub flow: FlowKey,
    /// Datagrams that arrived.
    pub arrivals: u64,
    /// Trains of two or more among them.
    pub trains: u64,
    /// Its capacity; null without enough trains.
    pub capacity: Option<Capacity>,
    /// Payload bits of the best whole second among the first ten, the figure
    /// that is read off iperf; null below a second of traffic.
    pub peak_second_bit_s: Option<f64>,
}

impl PathReport {
    fn of(flow: FlowKey, arrivals: &[Arrival], trains: &[Train]) -> Self {
        Self {
            flow,
            arrivals: arrivals.len() as u64,
            trains: trains.len() as u64,
            capacity: dispersion::capacity(trains),
            peak_second_bit_s: peak::second(arrivals),
        }
    }
}
