//! Journeys as data: `tests/journeys/*.toml` say what is sent through which
//! lab, and what must come of it.
//!
//! [`all`] loads them. [`Journey::scenario`] is what the lab plays.
//! [`Journey::accounts`] compares the applications' and the kernel's accounts
//! with the expectation, without an observer; [`Journey::observed`] does the
//! same with what an observer saw. Both return what is wrong, in
//! sentences.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use load::{Buffer, CatchUp, Engine, Idle, ReadCall, Schedule, SendCall, SendConfig};
use observer::lab::LabConfig;
use observer::lab::scenario::{self, Outcome, Pauses, Scenario};
use observer::report::{Level, Report};
use observer::snapshot::Snapshot;
use observer_ebpf::abi::slot_base;
use serde::Deserialize;

/// Pairs of entries in the programs' table of journeys.
const PLACES: u32 = 1 << 17;

/// One file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Journey {
    /// What it is for.
    pub(crate) about: String,
    /// The hosts and what stands between them.
    #[serde(default)]
    pub(crate) lab: LabConfig,
    /// What is sent.
    pub(crate) load: Load,
    /// Who reads it.
    #[serde(default)]
    pub(crate) reader: Reader,
    /// What must come of it.
    pub(crate) expect: Expect,
}

/// What is sent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Load {
    /// Run id; absent: drawn.
    pub(crate) run: Option<u32>,
    /// Datagrams, over all streams.
    pub(crate) count: u64,
    /// Per second; absent: all at once.
    pub(crate) rate: Option<f64>,
    /// Threads, each with a stream of its own.
    #[serde(default = "one")]
    pub(crate) streams: u16,
    /// Payload, bytes.
    #[serde(default = "bytes_160")]
    pub(crate) size: usize,
    /// `direct` or `driver`.
    #[serde(default)]
    pub(crate) engine: EngineKind,
    /// Most messages in one call.
    #[serde(default = "batch_64")]
    pub(crate) batch: usize,
    /// Datagrams in one message (UDP GSO).
    #[serde(default = "one_segment")]
    pub(crate) segments: usize,
    /// The system call: `sendmmsg`, `sendmsg`, `sendto`, `write`.
    #[serde(default)]
    pub(crate) call: SendBy,
    /// Whether the socket is connected.
    #[serde(default = "yes")]
    pub(crate) connect: bool,
    /// IPv6 instead of IPv4.
    #[serde(default)]
    pub ipv6: bool,
    /// SO_SNDBUF.
    #[serde(default)]
    pub(crate) sndbuf: Room,
}

/// Who reads it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Reader {
    /// The system call: `recvmmsg`, `recvmsg`, `recvfrom`, `read`.
    pub(crate) call: ReadBy,
    /// Take several datagrams as one message (UDP GRO).
    pub(crate) gro: bool,
    /// SO_RCVBUF.
    pub(crate) rcvbuf: Room,
    /// It pauses this long, ms…
    pub(crate) pause_ms: u64,
    /// …this often, ms.
    pub(crate) every_ms: u64,
}

/// What must come of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expect {
    /// Culprits that are right, as the report names them.
    pub(crate) culprit: Vec<String>,
    /// Everything offered is sent and delivered with a complete journey, and
    /// nothing is lost to the observer.
    #[serde(default)]
    pub(crate) exact: bool,
    /// Hops of every datagram on the sending host.
    pub(crate) hops: Option<u16>,
    /// The one reason of drops; their number is the kernel's counter and what
    /// is missing at the reader.
    pub(crate) drops: Option<String>,
    /// The longest wait in the shaper is that of the closed form, within this
    /// share of it.
    pub(crate) shaper_wait_within: Option<f64>,
    /// The longest wait in the sender queue is that of the closed form, within
    /// this share of it.
    pub(crate) sender_wait_within: Option<f64>,
    /// Two streams are on their way at once with places in the programs' table
    /// that overlap; checked, since otherwise it would test nothing.
    #[serde(default)]
    pub(crate) overlapping_places: bool,
    /// The sender is blocked on SO_SNDBUF for most of its wait.
    #[serde(default)]
    pub(crate) blocked_on_sndbuf: bool,
    /// The payload lies in page fragments (UDP GSO), where the observer cannot
    /// read it: it must say so.
    #[serde(default)]
    pub(crate) paged: bool,
}

/// A socket buffer: `"large"`, `"kernel"` (its default) or bytes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Room {
    /// So many bytes.
    Bytes(usize),
    /// By name.
    Named(RoomName),
}

/// A socket buffer by name.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RoomName {
    /// As large as useful.
    Large,
    /// The kernel's default.
    Kernel,
}

impl Default for Room {
    fn default() -> Self {
        Self::Named(RoomName::Large)
    }
}

impl From<Room> for Buffer {
    fn from(room: Room) -> Self {
        match room {
            Room::Bytes(bytes) => Self::Bytes(bytes),
            Room::Named(RoomName::Large) => Self::Large,
            Room::Named(RoomName::Kernel) => Self::Kernel,
        }
    }
}

/// How datagrams get to the kernel.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EngineKind {
    /// The application's thread sends.
    #[default]
    Direct,
    /// One thread drains a ring.
    Driver,
}

/// [`SendCall`] in a file.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SendBy {
    #[default]
    Sendmmsg,
    Sendmsg,
    Sendto,
    Write,
}

/// [`ReadCall`] in a file.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ReadBy {
    #[default]
    Recvmmsg,
    Recvmsg,
    Recvfrom,
    Read,
}

fn one() -> u16 {
    1
}

fn one_segment() -> usize {
    1
}

fn bytes_160() -> usize {
    160
}

fn batch_64() -> usize {
    64
}

fn yes() -> bool {
    true
}

/// All journeys, by name of their file, in the order of the names.
pub(crate) fn all() -> BTreeMap<String, Journey> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/journeys");
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let toml = files.filter(|path| path.extension().is_some_and(|e| e == "toml"));
    toml.map(|path| {
        let text = fs::read_to_string(&path).unwrap();
        let journey = toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        (path.file_stem().unwrap().to_string_lossy().into_owned(), journey)
    })
    .collect()
}

impl Journey {
    /// What the lab is to play.
    pub(crate) fn scenario(&self) -> Scenario {
        let load = &self.load;
        let target = if load.ipv6 { scenario::target_v6() } else { scenario::target() };
        let schedule = match load.rate {
            Some(rate) => Schedule::Constant { rate },
            None => Schedule::Bursts { size: load.count, dispatch: None, every: None, repeat: None },
        };
        let engine = match load.engine {
            EngineKind::Direct => Engine::Direct { batch: load.batch },
            EngineKind::Driver => Engine::Driver {
                ring: usize::try_from(load.count).unwrap().next_power_of_two(),
                batch: load.batch,
                idle: Idle::Sleep(Duration::from_micros(100)),
            },
        };
        let call = match load.call {
            SendBy::Sendmmsg => SendCall::Sendmmsg,
            SendBy::Sendmsg => SendCall::Sendmsg,
            SendBy::Sendto => SendCall::Sendto,
            SendBy::Write => SendCall::Write,
        };
        let mut scenario = Scenario::new(SendConfig {
            connect: load.connect,
            streams: load.streams,
            size: load.size,
            engine,
            call,
            segments: load.segments,
            schedule,
            catch_up: CatchUp::Burst,
            count: Some(load.count),
            sndbuf: load.sndbuf.into(),
            ..SendConfig::new(target)
        });
        if let Some(run) = load.run {
            scenario.load.run = run;
        }
        scenario.lab = self.lab;
        scenario.reader.call = match self.reader.call {
            ReadBy::Recvmmsg => ReadCall::Recvmmsg,
            ReadBy::Recvmsg => ReadCall::Recvmsg,
            ReadBy::Recvfrom => ReadCall::Recvfrom,
            ReadBy::Read => ReadCall::Read,
        };
        scenario.reader.gro = self.reader.gro;
        scenario.reader.rcvbuf = self.reader.rcvbuf.into();
        scenario.pauses = (self.reader.pause_ms > 0).then(|| Pauses {
            every: Duration::from_millis(self.reader.every_ms),
            lasts: Duration::from_millis(self.reader.pause_ms),
        });
        scenario
    }

    /// What is wrong with the applications' and the kernel's accounts.
    pub(crate) fn accounts(&self, outcome: &Outcome) -> Vec<String> {
        let mut wrong = Wrong::default();
        let (sent, read) = (outcome.sent.sent, outcome.received.total.unique);
        wrong.equal("offered", outcome.sent.offered, self.load.count);
        wrong.equal("sent", sent, self.load.count);
        wrong.equal("duplicated", outcome.received.total.duplicated, 0);
        if outcome.unaccounted() != 0 {
            wrong.0.push(format!("{} datagrams are in nobody's account", outcome.unaccounted()));
        }
        if self.expect.exact {
            wrong.equal("read", read, sent);
        }
        if self.expect.drops.is_some() {
            wrong.check(read < sent, || "nothing was dropped".into());
            wrong.equal("drops counted by the kernel", self.kernel_drops(outcome), sent - read);
        }
        wrong.0
    }

    /// What is wrong with what an observer said of packets whose payload lies
    /// out of its reach: it must not pretend.
    fn out_of_reach(report: &Report) -> Vec<String> {
        let mut wrong = Wrong::default();
        let paged = report.counts.lost_events.get("paged").copied().unwrap_or(0);
        wrong.check(paged > 0, || "no packet was counted as paged".into());
        wrong.check(report.verdict >= Level::Warning, || format!("the verdict is {:?}", report.verdict));
        wrong.equal("complete journeys", report.counts.complete, 0);
        wrong.0
    }

    /// What is wrong with what an observer saw; `span_ns` is the time from the
    /// first dev_queue to the last.
    pub(crate) fn observed(&self, outcome: &Outcome, snapshot: &Snapshot, span_ns: u64) -> Vec<String> {
        let mut wrong = Wrong::default();
        let report = &snapshot.total;
        if self.expect.paged {
            return Self::out_of_reach(report);
        }
        let (counts, expect) = (&report.counts, &self.expect);
        let culprit = report.culprit_name();
        // Where nothing is in the way, ten datagrams make the tail, and a pause of
        // a busy machine falls on whoever was running: up to the time slices
        // that pass for the host's, either end may be named.
        let slices = 5 * observer::culprit::FLOOR_NS;
        let plain = expect.culprit.iter().any(|c| c == "none");
        let pause = plain && report.tail.last().is_some_and(|t| t.threshold_ns < slices);
        let machine = pause && matches!(culprit, "sender_queue" | "receiver");
        wrong.check(machine || expect.culprit.iter().any(|c| c == culprit), || {
            let cause = report.culprit.as_ref().map_or("", |c| c.cause.as_str());
            format!("the culprit found is {culprit}, not {}: {cause}", expect.culprit.join(" or "))
        });
        wrong.equal("offered", counts.offered, outcome.sent.offered);
        wrong.equal("sent", counts.sent.unwrap_or(0), outcome.sent.sent);
        wrong.check(counts.unaccounted == 0, || format!("{} unaccounted for", counts.unaccounted));
        if expect.exact {
            wrong.equal("delivered", counts.delivered, outcome.sent.sent);
            wrong.equal("complete", counts.complete, outcome.sent.sent);
            wrong.equal("unobserved", counts.unobserved, 0);
            wrong.equal("events lost", counts.lost_total(), 0);
        }
        if expect.overlapping_places {
            wrong.equal("delivered", counts.delivered, outcome.sent.sent);
            wrong.equal("unobserved", counts.unobserved, 0);
            wrong.equal("foreign", counts.foreign, 0);
            let place = |stream| slot_base(outcome.sent.run, stream);
            let apart = u64::from(place(1).wrapping_sub(place(0)) % PLACES);
            wrong.check(apart < self.load.count / 4, || {
                format!("the places are {apart} apart: choose another run id")
            });
        }
        if let Some(hops) = expect.hops {
            let kept = snapshot.slowest.iter().map(|j| j.record.hops);
            wrong.check(kept.len() > 0, || "no journey was kept".into());
            for other in kept.filter(|n| *n != hops) {
                wrong.0.push(format!("a datagram made {other} hops, not {hops}"));
            }
        }
        if let Some(reason) = &expect.drops {
            let dropped = counts.dropped.get(reason).copied().unwrap_or(0);
            wrong.equal(reason, dropped, self.kernel_drops(outcome));
            wrong.equal("all drops", counts.dropped_total(), dropped);
        }
        if let Some(within) = expect.shaper_wait_within {
            let waited = report.components.shaper.distribution.max_ns.unwrap_or(0);
            wrong.near(
                "longest wait in the shaper",
                waited as f64,
                self.shaper_wait_ns(outcome, span_ns),
                within,
            );
        }
        if let Some(within) = expect.sender_wait_within {
            let waited = report.components.sender_queue.distribution.max_ns.unwrap_or(0);
            wrong.near(
                "longest wait in the sender queue",
                waited as f64,
                self.sender_wait_ns(outcome),
                within,
            );
        }
        if expect.blocked_on_sndbuf {
            let longest = report.components.sender_queue.distribution.max_ns.unwrap_or(0);
            let blocked = report.components.sender_queue.parts.get("sndbuf_blocked").and_then(|d| d.max_ns);
            wrong.check(blocked.is_some_and(|b| b > longest / 2), || {
                format!("blocked on SO_SNDBUF {blocked:?} ns of {longest} ns")
            });
        }
        wrong.0
    }

    fn kernel_drops(&self, outcome: &Outcome) -> u64 {
        match self.expect.drops.as_deref() {
            Some("SOCKET_RCVBUFF") => outcome.receiver_udp.rcvbuf_errors,
            Some("QDISC_DROP") => outcome.way_out.drops,
            other => panic!("no counter is known for drops by {other:?}"),
        }
    }

    /// (N·L − b)/r − (N − 1)/P, with r and b as the kernel has them; `span_ns`
    /// is (N − 1)/P, from the first datagram's dev_queue to the last's.
    pub(crate) fn shaper_wait_ns(&self, outcome: &Outcome, span_ns: u64) -> f64 {
        // UDP, IPv4 or IPv6, Ethernet.
        let headers = 8 + if self.load.ipv6 { 40 } else { 20 } + 14;
        let bytes = self.load.count * (self.load.size as u64 + headers);
        let tbf = outcome.way_out.options;
        let drained = (bytes as f64 - tbf.burst_bytes as f64) / tbf.rate_byte_per_s as f64;
        drained * 1e9 - span_ns as f64
    }

    /// (N/D)·(1 − D/P), with D from the send times after the first tenth and P
    /// from the offer times.
    pub(crate) fn sender_wait_ns(&self, outcome: &Outcome) -> f64 {
        let sent = &outcome.sent;
        let n = sent.sent as f64;
        let skip = sent.sent / 10;
        let from = sent.marks.iter().find(|m| m.sent > skip).unwrap();
        let to = sent.marks.last().unwrap();
        let per_datagram = (to.at_ns - from.at_ns) as f64 / (to.sent - from.sent) as f64;
        let offered = (sent.last_offer_ns.unwrap() - sent.first_offer_ns.unwrap()) as f64;
        n * per_datagram - offered * n / (n - 1.0)
    }
}

/// What is wrong, in sentences.
#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    fn check(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.0.push(otherwise());
        }
    }

    fn equal(&mut self, what: &str, is: u64, should_be: u64) {
        self.check(is == should_be, || format!("{what}: {is}, not {should_be}"));
    }

    fn near(&mut self, what: &str, is: f64, should_be: f64, within: f64) {
        let off = (is - should_be).abs() / should_be;
        self.check(off <= within, || {
            format!("{what}: {:.3} ms, not {:.3} ms within {within}", is / 1e6, should_be / 1e6)
        });
    }
}
