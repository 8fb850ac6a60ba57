//! What arrived, how late, and what is not known of it.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::hist::LatencyHistogram;
use crate::track::Counts;

/// Why a report has no latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoLatency {
    /// No datagram was measured.
    NothingMeasured,
    /// The sender's clock is not the receiver's.
    AnotherClock,
}

impl fmt::Display for NoLatency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NothingMeasured => "no datagram was measured",
            Self::AnotherClock => {
                "the sender's clock is not the receiver's: it is another machine, or another time namespace"
            }
        })
    }
}

/// Arrivals of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowReport {
    /// Run id.
    pub run: u32,
    /// Stream.
    pub stream: u16,
    /// Its counts.
    #[serde(flatten)]
    pub counts: Counts,
}

/// The report of a run's receiving side. Times are ns of CLOCK_MONOTONIC.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecvReport {
    /// Local address.
    pub local: SocketAddr,
    /// Stopped before its bound.
    pub interrupted: bool,
    /// Datagrams were still waiting to be read when it ended: they are not lost.
    #[serde(default)]
    pub unread: bool,
    /// All streams together.
    pub total: Counts,
    /// Payload bytes of stamped datagrams.
    pub bytes: u64,
    /// Datagrams without a stamp.
    pub unstamped: u64,
    /// Stamped datagrams of runs not followed, or beyond [`MAX_FLOWS`].
    pub foreign: u64,
    /// Datagrams this socket dropped: its receive buffer was full. Null where
    /// the kernel does not say.
    pub socket_drops: Option<u32>,
    /// Read calls that returned data.
    pub reads: u64,
    /// First datagram read.
    pub first_ns: Option<i64>,
    /// Last datagram read.
    pub last_ns: Option<i64>,
    /// Different datagrams of the measured window.
    pub measured: u64,
    /// From the first read of those to the last, ns.
    pub measured_span_ns: i64,
    /// Datagrams per second between the first and the last.
    pub received_per_s: Option<f64>,
    /// Receive time − offer time; null where the clocks do not match.
    #[serde(skip_deserializing)]
    pub from_offer: Option<LatencyHistogram>,
    /// Receive time − intended time; null where the clocks do not match.
    #[serde(skip_deserializing)]
    pub from_intended: Option<LatencyHistogram>,
    /// Why there are no latencies.
    pub no_latency: Option<NoLatency>,
    /// Streams, by run and number.
    pub flows: Vec<FlowReport>,
    /// Receive buffer granted, bytes as the kernel counts them (twice the usable).
    pub rcvbuf: usize,
}

impl RecvReport {
    /// Leaves the latencies out, for this reason.
    pub(crate) fn forget_latency(&mut self, why: NoLatency) {
        (self.from_offer, self.from_intended) = (None, None);
        self.no_latency = Some(why);
    }
}

#[cfg(test)]
impl RecvReport {
    /// A report with these latencies and nothing else.
    pub(crate) fn for_test(latency: LatencyHistogram) -> Self {
        Self {
            local: SocketAddr::from(([127, 0, 0, 1], 9)),
            interrupted: false,
            unread: false,
            total: Counts::default(),
            bytes: 0,
            unstamped: 0,
            foreign: 0,
            socket_drops: Some(0),
            reads: 0,
            first_ns: None,
            last_ns: None,
            measured: latency.count(),
            measured_span_ns: 0,
            received_per_s: None,
            from_offer: Some(latency.clone()),
            from_intended: Some(latency),
            no_latency: None,
            flows: Vec::new(),
            rcvbuf: 0,
        }
    }
}
