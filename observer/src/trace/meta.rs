//! `meta.json`: what is true of a trace as a whole.
//!
//! Written when recording begins, and again, aside and renamed, when it ends:
//! without `end`, the recording was cut short.

use std::collections::BTreeMap;
use std::path::Path;

use observer_ebpf::abi::{self, ABI_VERSION};
use serde::{Deserialize, Serialize};

use super::TraceError;
use crate::correlate::pair::Pairs;
use crate::diagnose::configured::Recorded;
use crate::host::monotonic_ns;
use crate::report::Detail;
use crate::source::{ChosenHook, SourceMeta};

/// Name and version of everything in a trace.
pub const SCHEMA: &str = "observer-trace/1";

/// Largest meta.json or segment-*.json that is read: far above what the
/// recorder writes, far below what hurts.
pub const LARGEST_JSON: u64 = 64 << 20;

/// The whole of meta.json.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the kernel side's records they were made from.
    pub abi: u32,
    /// Program and version that wrote it.
    pub created_by: String,
    /// Random, so that two traces can be told apart.
    pub trace_id: String,
    /// The command line of the observation.
    pub command_line: Vec<String>,
    /// Name of the observed host.
    pub host: String,
    /// Release of its kernel.
    pub kernel: String,
    /// The clock of every `*_ns` that is a time: CLOCK_MONOTONIC of that host.
    pub clock: String,
    /// When observing began, on that clock, ns.
    pub start_ns: u64,
    /// The same moments on this clock and on others, as recording began.
    pub anchor: Anchor,
    /// How much the kernel side reported.
    pub detail: Detail,
    /// Time between two closings of an interval, ns.
    pub interval_ns: u64,
    /// Window of a flight recorder, ns; null if everything is kept.
    pub window_ns: Option<u64>,
    /// The hook chosen for each point.
    pub hooks: Vec<HookMeta>,
    /// The kernel's names of its drop reasons.
    pub reasons: BTreeMap<u32, String>,
    /// Qdisc configuration by namespace and device: the observer's own
    /// namespace as recording begins, those of the senders too as it ends.
    /// Null where nobody read it.
    pub qdiscs: Option<Recorded>,
    /// Devices that are, two by two, the ends of a shaper (`--pair`).
    #[serde(default)]
    pub pairs: Pairs,
    /// What two traces it was merged from; null otherwise.
    pub merged: Option<serde_json::Value>,
    /// In what a flight recorder kept: why.
    #[serde(default)]
    pub preserved: Option<String>,
    /// How recording ended; null if it was cut short.
    pub end: Option<End>,
}

/// One hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookMeta {
    /// The journey's point.
    pub point: String,
    /// What was attached there, or why nothing was.
    pub hook: String,
    /// How.
    pub kind: String,
}

/// One moment on three clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    /// CLOCK_MONOTONIC, ns.
    pub monotonic_ns: u64,
    /// CLOCK_REALTIME, ns since 1970.
    pub realtime_ns: u64,
    /// How far apart the two readings may be, ns.
    pub within_ns: u64,
}

/// How recording ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// When, CLOCK_MONOTONIC ns.
    pub at_ns: u64,
    /// Why it ended before the observation did; null if it did not.
    pub failed: Option<String>,
    /// Segments written.
    pub segments: u64,
    /// Number of the last one; null if there is none.
    pub last: Option<u64>,
    /// Records of datagrams in them.
    pub packets: u64,
    /// Records that the observation had and the trace has not: the disk did
    /// not keep up, or recording failed.
    pub unrecorded: u64,
    /// Bytes written.
    pub bytes: u64,
    /// CPU time of the recording thread, ns.
    pub cpu_ns: u64,
}

impl Anchor {
    /// Now.
    pub fn now() -> Self {
        let read = || {
            let before = monotonic_ns();
            let real = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
            let after = monotonic_ns();
            let realtime_ns = u64::try_from(real.tv_sec)
                .unwrap_or(0)
                .saturating_mul(1_000_000_000)
                .saturating_add(u64::try_from(real.tv_nsec).unwrap_or(0));
            let within_ns = after.saturating_sub(before);
            Self { monotonic_ns: before + within_ns / 2, realtime_ns, within_ns }
        };
        // The tightest of a few: one may be interrupted.
        let first = read();
        (0..4).map(|_| read()).fold(first, |best, a| if a.within_ns < best.within_ns { a } else { best })
    }
}

impl Meta {
    /// For a recording of `source` that begins now.
    pub fn new(source: &SourceMeta, command_line: Vec<String>, interval_ns: u64) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            abi: ABI_VERSION,
            created_by: concat!("observer ", env!("CARGO_PKG_VERSION")).to_owned(),
            trace_id: format!("{:016x}", fastrand::u64(..)),
            command_line,
            host: source.host.clone(),
            kernel: source.kernel.clone(),
            clock: source.clock.clone(),
            start_ns: source.start_ns,
            anchor: Anchor::now(),
            detail: source.detail.into(),
            interval_ns,
            window_ns: None,
            hooks: source
                .hooks
                .iter()
                .map(|h| HookMeta { point: h.point.clone(), hook: h.hook.clone(), kind: h.kind.clone() })
                .collect(),
            reasons: source.reasons.clone(),
            qdiscs: None,
            pairs: Pairs::default(),
            merged: None,
            preserved: None,
            end: None,
        }
    }

    /// What the pipeline is told of the source.
    pub fn source(&self) -> SourceMeta {
        SourceMeta {
            origin: "trace".to_owned(),
            start_ns: self.start_ns,
            clock: self.clock.clone(),
            kernel: self.kernel.clone(),
            host: self.host.clone(),
            detail: match self.detail {
                Detail::Full => abi::Detail::Full,
                Detail::Tail => abi::Detail::Tail,
                Detail::Summary => abi::Detail::Summary,
            },
            reasons: self.reasons.clone(),
            hooks: self
                .hooks
                .iter()
                .map(|h| ChosenHook { point: h.point.clone(), hook: h.hook.clone(), kind: h.kind.clone() })
                .collect(),
        }
    }

    /// The host's wall clock at a time of the trace's clock, ns since 1970, as
    /// it was when recording began.
    pub fn wall_ns(&self, ns: u64) -> u64 {
        let since = i128::from(ns) - i128::from(self.anchor.monotonic_ns);
        u64::try_from((i128::from(self.anchor.realtime_ns) + since).max(0)).unwrap_or(u64::MAX)
    }

    /// Reads the meta.json of the trace in `dir`.
    ///
    /// # Errors
    ///
    /// If there is none, if it cannot be understood, or is of another version.
    pub fn read(dir: &Path) -> Result<Self, TraceError> {
        let path = super::files::meta(dir);
        if !dir.is_dir() {
            let why = if dir.exists() { "it is not a directory" } else { "there is no such directory" };
            return Err(TraceError::NoTrace { path: dir.to_owned(), why: why.to_owned() });
        }
        if !path.exists() {
            let why = "it has no meta.json".to_owned();
            return Err(TraceError::NoTrace { path: dir.to_owned(), why });
        }
        super::files::read_json(&path)
    }
}
