//! The report, `observer-report/1`: what observer says, as data.
//!
//! One schema for every command, interval and final alike; the text view, the
//! demo and later tools read these types and nothing else. Fields, units and
//! the reading of each are explained in `docs/report.md`; the JSON schema is
//! `docs/report.schema.json`. New fields may be added to version 1, none
//! change their meaning or go away.
//!
//! What is not known is `None` (JSON null), never 0.

pub mod build;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::component::Component;
use crate::diagnose::limiter::Limiter;
use crate::diagnose::receiver::ReceiverQueue;
use crate::diagnose::sender::SenderQueue;

/// Name and version of the schema.
pub const SCHEMA: &str = "observer-report/1";

/// A report over one interval, or over everything up to now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// Whether the run goes on.
    pub kind: Kind,
    /// Start of what it covers, CLOCK_MONOTONIC ns.
    pub from_ns: u64,
    /// End of what it covers, CLOCK_MONOTONIC ns.
    pub to_ns: u64,
    /// How much the kernel side reported.
    pub detail: Detail,
    /// The worst level among the findings.
    pub verdict: Level,
    /// Where the tail hides; null while there are too few datagrams to say.
    pub culprit: Option<Culprit>,
    /// What was checked, and what came out.
    pub findings: Vec<Finding>,
    /// Datagrams, by what became of them.
    pub counts: Counts,
    /// The same for each run.
    pub by_run: Vec<RunCounts>,
    /// Latency, by component and in total.
    pub components: Components,
    /// How late the application offered; null if no stamp says when its
    /// datagram was wanted.
    pub send_lag: Option<SendLag>,
    /// Who makes up the tail above each quantile that can be quoted.
    pub tail: Vec<Tail>,
    /// The flows with most datagrams, each by itself.
    pub flows: Vec<FlowReport>,
    /// The rest of the flows, together; null if there are none.
    pub other_flows: Option<OtherFlows>,
    /// Waits of the flows' threads.
    pub waits: Waits,
    /// The hook behind each point, and what it cost.
    pub hooks: Vec<Hook>,
    /// The observed host.
    pub host: Host,
    /// The Sender whose datagrams waited longest; null while too little left
    /// this host.
    pub sender_queue: Option<SenderQueue>,
    /// The limiter that held most back, or what was found in its place; null
    /// while nothing was on the way.
    pub limiter: Option<Limiter>,
    /// The socket that lost most or was read latest; null while nothing
    /// arrived.
    pub receiver_queue: Option<ReceiverQueue>,
}

impl Report {
    /// Name of the culprit: a component, `host-noise`, or `none`, also where
    /// there is too little to say.
    pub fn culprit_name(&self) -> &'static str {
        self.culprit.as_ref().map_or(Blame::None, |c| c.component).name()
    }

    /// The balance of one run.
    pub fn run(&self, run: u32) -> Option<&RunCounts> {
        self.by_run.iter().find(|r| r.run == run)
    }

    /// Seconds covered.
    pub fn seconds(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "an interval in ns is far below 2^53")]
        let ns = self.to_ns.saturating_sub(self.from_ns) as f64;
        ns / 1e9
    }
}

/// What a report covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The run goes on: datagrams on their way are in flight.
    Interval,
    /// The run is over and everything has been swept.
    Final,
}

/// How much the kernel side reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Detail {
    /// Every journey.
    Full,
    /// Journeys of the tail and one in N.
    Tail,
    /// None.
    Summary,
}

impl From<observer_ebpf::abi::Detail> for Detail {
    fn from(detail: observer_ebpf::abi::Detail) -> Self {
        match detail {
            observer_ebpf::abi::Detail::Full => Self::Full,
            observer_ebpf::abi::Detail::Tail => Self::Tail,
            observer_ebpf::abi::Detail::Summary => Self::Summary,
        }
    }
}

/// How a check came out, best first. Also the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Nothing to say against it.
    Passed,
    /// Sound, with something to know.
    Warning,
    /// Sound, and an objective was missed.
    Failed,
    /// The run did not measure what it was asked to.
    Invalid,
}

impl Level {
    /// Its name in the report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Warning => "warning",
            Self::Failed => "failed",
            Self::Invalid => "invalid",
        }
    }

    /// The process's exit code for this verdict: 0 passed (warnings included),
    /// 1 failed, 2 invalid.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Passed | Self::Warning => 0,
            Self::Failed => 1,
            Self::Invalid => 2,
        }
    }
}

/// One check and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of the check: `observer-complete`, `counts-reconcile`, …
    pub check: String,
    /// How it came out.
    pub level: Level,
    /// What was observed, with its unit.
    pub observed: String,
    /// What that means for the reader of the figures.
    pub means: String,
    /// Causes and bounds; may be empty.
    pub detail: String,
    /// What to do about it, with the numbers; may be empty.
    #[serde(default)]
    pub advice: String,
    /// The figures it rests on, by name and unit.
    #[serde(default)]
    pub evidence: BTreeMap<String, f64>,
}

/// Who is to blame for the tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Blame {
    /// The application and its Sender.
    #[serde(rename = "sender_queue")]
    SenderQueue,
    /// A qdisc.
    #[serde(rename = "shaper")]
    Shaper,
    /// The way between the hosts.
    #[serde(rename = "wire")]
    Wire,
    /// The receiving stack, socket or application.
    #[serde(rename = "receiver")]
    Receiver,
    /// A busy or starved host.
    #[serde(rename = "host-noise")]
    HostNoise,
    /// Nobody: there is no tail worth naming.
    #[serde(rename = "none")]
    None,
}

impl Blame {
    /// Its name in the report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SenderQueue => "sender_queue",
            Self::Shaper => "shaper",
            Self::Wire => "wire",
            Self::Receiver => "receiver",
            Self::HostNoise => "host-noise",
            Self::None => "none",
        }
    }
}

impl From<Component> for Blame {
    fn from(component: Component) -> Self {
        match component {
            Component::SenderQueue => Self::SenderQueue,
            Component::Shaper => Self::Shaper,
            Component::Wire => Self::Wire,
            Component::Receiver => Self::Receiver,
        }
    }
}

/// Where the tail hides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Culprit {
    /// Who.
    pub component: Blame,
    /// The quantile whose tail was judged; null where loss alone speaks.
    pub quantile: Option<f64>,
    /// Share of the tail's excess that is the culprit's, 0 to 1; null where
    /// nobody is blamed or loss alone speaks.
    pub share: Option<f64>,
    /// One sentence with the figures behind it.
    pub cause: String,
}

/// Datagrams by what became of them. Each is counted once, however many
/// sockets got a copy.
///
/// `in_flight_before + sent + received_only = delivered + Σ dropped +
/// in_flight + unobserved + unaccounted`, always.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Highest sequence seen plus one, summed over the streams.
    pub offered: u64,
    /// Accepted by the socket layer; null if no sender is on this host.
    pub sent: Option<u64>,
    /// Delivered or dropped here, of streams whose sender is elsewhere.
    pub received_only: u64,
    /// Read by an application.
    pub delivered: u64,
    /// Dropped, by the kernel's name of the reason.
    pub dropped: BTreeMap<String, u64>,
    /// On the way at the start of the interval; 0 in reports of a whole run.
    pub in_flight_before: u64,
    /// On the way at the end: in a qdisc, in a socket queue, or younger than a
    /// second.
    pub in_flight: u64,
    /// Sent, and no end was seen.
    pub unobserved: u64,
    /// What is left of the balance. Anything but 0 in a final report means
    /// that the counts contradict each other.
    pub unaccounted: i64,
    /// Delivered with all components known.
    pub complete: u64,
    /// Delivered with some component unknown.
    pub partial: u64,
    /// Further copies of datagrams delivered already.
    pub duplicated: u64,
    /// Stamps of runs that are not followed, or of followed runs from a socket
    /// that does not own them. The two below together.
    pub foreign: u64,
    /// Of those, seen leaving.
    pub foreign_sent: u64,
    /// Of those, seen arriving.
    pub foreign_received: u64,
    /// UDP datagrams without a stamp that left the stack.
    pub unstamped_sent: u64,
    /// UDP datagrams without a stamp read by an application.
    pub unstamped_received: u64,
    /// Send calls that failed for want of buffers.
    pub send_errors: u64,
    /// Payload bytes delivered.
    pub delivered_bytes: u64,
    /// Events lost to the observer, by cause; not datagrams lost by the
    /// network. A cause that did not occur is absent.
    pub lost_events: BTreeMap<String, u64>,
    /// Events set aside without loss, by kind; one that did not occur is
    /// absent.
    pub other_events: BTreeMap<String, u64>,
}

impl Counts {
    /// All drops together.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// All lost events together.
    pub fn lost_total(&self) -> u64 {
        self.lost_events.values().fold(0, |sum, n| sum.saturating_add(*n))
    }
}

/// The balance of one run or flow; fields as in [`Counts`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balance {
    /// Highest sequence seen plus one, summed over the streams.
    pub offered: u64,
    /// Accepted by the socket layer; null if the sender is elsewhere.
    pub sent: Option<u64>,
    /// Delivered or dropped here, of streams whose sender is elsewhere.
    pub received_only: u64,
    /// Read by an application.
    pub delivered: u64,
    /// Dropped, for whatever reason.
    pub dropped: u64,
    /// On the way at the end.
    pub in_flight: u64,
    /// Sent, and no end was seen.
    pub unobserved: u64,
    /// What is left of the balance; 0 in a sound run.
    pub unaccounted: i64,
    /// Further copies.
    pub duplicated: u64,
}

/// The balance of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCounts {
    /// Run id.
    pub run: u32,
    /// What admitted it: `named`, `sent`, `received`.
    pub origin: String,
    /// Process that sends it; null if that is not known or not here.
    pub pid: Option<u32>,
    /// Its balance since the start.
    #[serde(flatten)]
    pub balance: Balance,
    /// Drops by the kernel's name of the reason.
    pub drop_reasons: BTreeMap<String, u64>,
}

/// A distribution: how many, quantiles, largest. Quantiles carry three
/// significant digits; one for which there are fewer than 10/(1 − q) values
/// is null.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    /// Values recorded, overflow included.
    pub count: u64,
    /// Median, ns.
    pub p50_ns: Option<u64>,
    /// 0.9 quantile, ns.
    pub p90_ns: Option<u64>,
    /// 0.99 quantile, ns.
    pub p99_ns: Option<u64>,
    /// 0.999 quantile, ns.
    pub p99_9_ns: Option<u64>,
    /// Largest, exact, ns.
    pub max_ns: Option<u64>,
    /// Values above an hour: counted, and above every quantile quoted.
    pub overflow: u64,
}

/// A component's distribution, its parts, and what was odd about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentReport {
    /// Its distribution.
    #[serde(flatten)]
    pub distribution: Distribution,
    /// Delivered datagrams for which it is not known.
    pub partial: u64,
    /// Differences in (−1 µs, 0), taken as 0: clocks of two CPUs.
    pub negatives: u64,
    /// Differences of −1 µs or less: an error, taken as not known.
    pub out_of_order: u64,
    /// Differences of −1 µs or less inside it: its parts are not known there.
    pub parts_out_of_order: u64,
    /// Its parts by name; one that was never seen is absent.
    pub parts: BTreeMap<String, Distribution>,
    /// Shaper only: the datagram that lost most on one hop.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slowest_hop: Option<SlowestHop>,
}

/// offer − intended over the delivered datagrams: a delay before the journey
/// begins, in none of its components.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendLag {
    /// Its distribution.
    #[serde(flatten)]
    pub distribution: Distribution,
    /// Datagrams offered before they were wanted, taken as 0.
    pub early: u64,
}

/// The largest wait on one hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowestHop {
    /// Interface, as numbered in its own network namespace.
    pub ifindex: u32,
    /// xmit − dev_queue there, ns.
    pub span_ns: u64,
    /// Of that, in the qdisc, ns; null if no qdisc was seen.
    pub qdisc_ns: Option<u64>,
}

/// The four components and the total.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Components {
    /// dev_queue − offer.
    pub sender_queue: ComponentReport,
    /// Σ (xmit − dev_queue).
    pub shaper: ComponentReport,
    /// What is left between dev_queue and rx.
    pub wire: ComponentReport,
    /// app_dequeue − rx.
    pub receiver: ComponentReport,
    /// app_dequeue − offer.
    pub total: ComponentReport,
}

impl Components {
    /// One of the four.
    pub fn get(&self, component: Component) -> &ComponentReport {
        match component {
            Component::SenderQueue => &self.sender_queue,
            Component::Shaper => &self.shaper,
            Component::Wire => &self.wire,
            Component::Receiver => &self.receiver,
        }
    }
}

/// One figure for each component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// Of the sender queue.
    pub sender_queue: f64,
    /// Of the shaper.
    pub shaper: f64,
    /// Of the wire.
    pub wire: f64,
    /// Of the receiver.
    pub receiver: f64,
}

impl Shares {
    /// One of the four.
    pub fn get(&self, component: Component) -> f64 {
        match component {
            Component::SenderQueue => self.sender_queue,
            Component::Shaper => self.shaper,
            Component::Wire => self.wire,
            Component::Receiver => self.receiver,
        }
    }
}

/// Who makes up the tail above a quantile of the total. Only complete
/// journeys take part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tail {
    /// The quantile, 0.99 or 0.999.
    pub quantile: f64,
    /// Its value over the complete journeys, ns.
    pub threshold_ns: u64,
    /// Datagrams above it.
    pub count: u64,
    /// Mean total of those, ns.
    pub mean_ns: u64,
    /// Their mean above the total's median, ns.
    pub excess_ns: i64,
    /// Σ component / Σ total over those: sums to 1.
    pub share: Shares,
    /// Σ (component − its median) / Σ (total − its median) over those. Sums to
    /// nearly 1, since medians do not add up exactly; null if the tail does
    /// not rise above the median.
    pub excess_share: Option<Shares>,
    /// Σ part / Σ total over those, named `<component>_<part>`; a part that
    /// was never seen is absent.
    pub part_share: BTreeMap<String, f64>,
    /// The parts' share of the excess, as `excess_share` for the components.
    pub part_excess_share: BTreeMap<String, f64>,
    /// The datagram in it that lost most on one hop; null if no hop was seen.
    pub slowest_hop: Option<SlowestHop>,
    /// Wall time in which any datagram about as slow as these was under way,
    /// ns (the threshold rounded down to a power of two).
    pub waited_ns: u64,
    /// Most of that which CPU time stolen by the hypervisor may explain, ns:
    /// interval by interval no more than was stolen in it.
    pub stolen_ns: u64,
}

/// One end of a flow, as its socket described it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Process (thread group); null if unknown.
    pub pid: Option<u32>,
    /// Thread; null if unknown.
    pub tid: Option<u32>,
    /// Name of the thread.
    pub comm: String,
    /// Inode of the socket's network namespace.
    pub netns: u32,
    /// The socket's buffer limit, bytes (`sk_sndbuf` or `sk_rcvbuf`).
    pub buffer_bytes: u32,
}

/// What tells a flow from another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowKey {
    /// Run id.
    pub run: u32,
    /// Stream of the run.
    pub stream: u16,
    /// Source, `address:port`; null if no end was described.
    pub source: Option<String>,
    /// Destination, `address:port`; null if no end was described.
    pub destination: Option<String>,
    /// The sending end; null if it is elsewhere.
    pub sender: Option<Endpoint>,
    /// The receiving end; null if it is elsewhere.
    pub receiver: Option<Endpoint>,
}

/// A flow's components; two significant digits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowComponents {
    /// dev_queue − offer.
    pub sender_queue: Distribution,
    /// Σ (xmit − dev_queue).
    pub shaper: Distribution,
    /// What is left between dev_queue and rx.
    pub wire: Distribution,
    /// app_dequeue − rx.
    pub receiver: Distribution,
    /// app_dequeue − offer.
    pub total: Distribution,
}

/// One flow, since the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowReport {
    /// Which.
    pub key: FlowKey,
    /// Its balance.
    pub counts: Balance,
    /// Its latency. Counts less than delivered if it joined the flows shown
    /// late.
    pub components: FlowComponents,
}

/// The flows that are not shown one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherFlows {
    /// How many.
    pub flows: u64,
    /// Their balance together.
    pub counts: Balance,
    /// Their latency together.
    pub components: FlowComponents,
}

/// Waits of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitTotals {
    /// How many.
    pub count: u64,
    /// Their sum, ns.
    pub total_ns: u64,
    /// The longest, ns.
    pub max_ns: u64,
}

/// Waits of the flows' threads since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// Runnable without a CPU.
    pub run_queue: WaitTotals,
    /// Asleep for want of send buffer.
    pub send_buffer: WaitTotals,
    /// Journeys so old that the waits of their time had been forgotten: their
    /// parts by waits are not known.
    pub forgotten: u64,
}

impl WaitTotals {
    /// Counts one more, ns.
    pub fn count(&mut self, length_ns: u64) {
        self.add(&Self { count: 1, total_ns: length_ns, max_ns: length_ns });
    }

    /// Adds those in `more`.
    pub fn add(&mut self, more: &Self) {
        self.count = self.count.saturating_add(more.count);
        self.total_ns = self.total_ns.saturating_add(more.total_ns);
        self.max_ns = self.max_ns.max(more.max_ns);
    }
}

impl Waits {
    /// Adds those in `more`.
    pub fn add(&mut self, more: &Self) {
        self.run_queue.add(&more.run_queue);
        self.send_buffer.add(&more.send_buffer);
        self.forgotten = self.forgotten.saturating_add(more.forgotten);
    }
}

/// The hook behind a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hook {
    /// The journey's point.
    pub point: String,
    /// What is attached there.
    pub hook: String,
    /// How.
    pub kind: String,
    /// Mean cost of a call, ns; null if the kernel was not asked to measure.
    pub ns_per_call: Option<f64>,
    /// Calls; null if the kernel was not asked to measure.
    pub calls: Option<u64>,
    /// Calls skipped because the program was running on that CPU already.
    pub missed: u64,
}

/// The observed host and its clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Release of its kernel.
    pub kernel: String,
    /// The clock of every point.
    pub clock: String,
    /// CPUs online.
    pub cpus: Option<u32>,
    /// Share of CPU time the hypervisor gave to others, 0 to 1.
    pub steal_ratio: Option<f64>,
    /// Share of CPU time not idle, 0 to 1.
    pub busy_ratio: Option<f64>,
}
