//! Where journeys come from: the kernel's rings, a recorded trace, or a
//! synthetic plan. Everything after the source is the same for all three.
//!
//! A [`Source`] yields [`Batch`]es of records as they happened, and, when
//! asked, [`Tables`]: the counts the kernel side keeps without loss. Times are
//! CLOCK_MONOTONIC nanoseconds of the observed host throughout.

pub mod ring;
pub mod synthetic;

use std::collections::BTreeMap;

use observer_ebpf::abi::{
    Counter, Detail, FlowRecord, FlowSlot, JourneyRecord, MAX_RUNS, REASON_SLOTS, RunSlot, WaitRecord,
};

/// What one poll of a source yields.
///
/// Control records (flows, waits) are applied before journeys: the source
/// guarantees that every one that happened before a journey of this batch is
/// in this batch or in an earlier one.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Flows described for the first time, at either end.
    pub flows: Vec<FlowRecord>,
    /// Times at which a followed thread did not run.
    pub waits: Vec<WaitRecord>,
    /// Journeys with an outcome: delivered, dropped, or given up.
    pub journeys: Vec<JourneyRecord>,
    /// Records that could not be understood: wrong length or unknown kind.
    pub malformed: u64,
}

impl Batch {
    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.flows.clear();
        self.waits.clear();
        self.journeys.clear();
        self.malformed = 0;
    }

    /// Whether nothing at all was yielded.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty() && self.waits.is_empty() && self.journeys.is_empty() && self.malformed == 0
    }
}

/// What a poll left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More is waiting: poll again at once.
    More,
    /// Everything there is has been taken; more may come.
    Idle,
    /// Nothing will come any more (a trace or a synthetic plan has ended).
    End,
}

/// The tables of the kernel side, read at an interval or at the end. All
/// values are absolute: counted since the source was opened.
#[derive(Clone, Debug)]
pub struct Tables {
    /// When they were read.
    pub at_ns: u64,
    /// Flow-table entries in use (`id` ≠ 0), in any order.
    pub flows: Vec<FlowSlot>,
    /// The run table.
    pub runs: [RunSlot; MAX_RUNS],
    /// Events by [`Counter`], summed over the CPUs.
    pub counters: [u64; Counter::COUNT],
    /// Drops of followed datagrams: index into `runs`, kernel number of the
    /// reason, count.
    pub drops: Vec<(u16, u32, u64)>,
    /// Journeys without an outcome. Only at the final sweep, else empty.
    pub unfinished: Vec<JourneyRecord>,
    /// Events no program saw because one was running on that CPU already
    /// (`recursion_misses`), summed over the programs.
    pub missed: u64,
    /// Cost of each program. `runs` and `run_ns` are 0 where the kernel was
    /// not asked to measure it.
    pub programs: Vec<ProgramStats>,
    /// What the host did meanwhile.
    pub host: HostSample,
}

impl Tables {
    /// Empty tables, read at `at_ns`.
    pub fn empty(at_ns: u64) -> Self {
        Self {
            at_ns,
            flows: Vec::new(),
            runs: [RunSlot::default(); MAX_RUNS],
            counters: [0; Counter::COUNT],
            drops: Vec::new(),
            unfinished: Vec::new(),
            missed: 0,
            programs: Vec::new(),
            host: HostSample::default(),
        }
    }

    /// One counter.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(counter as usize).copied().unwrap_or(0)
    }
}

/// Run-time statistics of one eBPF program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramStats {
    /// Name of the program.
    pub name: String,
    /// The journey's point it serves, as in the design's table: `dev_queue`, …
    pub point: String,
    /// What it is attached to: `net:net_dev_queue`, …
    pub hook: String,
    /// How it is attached: `tp_btf`, `tracepoint`, `cgroup_skb`, …
    pub kind: String,
    /// Times it ran.
    pub runs: u64,
    /// Time it took, ns, the kernel's measuring included.
    pub run_ns: u64,
    /// Times it was skipped because it was running on that CPU already.
    pub missed: u64,
}

/// What the host did since the source was opened; `None` where it cannot be
/// known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostSample {
    /// Share of CPU time the hypervisor gave to others, 0 to 1 (`steal` of
    /// /proc/stat over all of its columns).
    pub steal_ratio: Option<f64>,
    /// Share of CPU time not idle, 0 to 1, steal included.
    pub busy_ratio: Option<f64>,
    /// CPUs online.
    pub cpus: Option<u32>,
    /// Time the hypervisor took, ns, in steps of 10 ms: summed over the times
    /// from one reading to the next, of each the two CPUs it took most from (a
    /// flow has a sending and a receiving thread).
    pub stolen_ns: Option<u64>,
}

/// One point of the journey and the hook chosen for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenHook {
    /// The journey's point: `dev_queue`, `rx`, …
    pub point: String,
    /// What is attached there, or why nothing is.
    pub hook: String,
    /// How: `tp_btf`, `tracepoint`, `cgroup_skb`, `payload`, `none`.
    pub kind: String,
}

/// What is known of a source from the start.
#[derive(Clone, Debug)]
pub struct SourceMeta {
    /// Where the records come from: `ring`, `trace`, `synthetic`.
    pub origin: String,
    /// When observing began.
    pub start_ns: u64,
    /// The clock of every point: `CLOCK_MONOTONIC`.
    pub clock: String,
    /// Release of the observed kernel (`uname -r`).
    pub kernel: String,
    /// Name of the observed host.
    pub host: String,
    /// How much the kernel side reports.
    pub detail: Detail,
    /// Names of the running kernel's drop reasons by number, without the
    /// `SKB_DROP_REASON_` in front.
    pub reasons: BTreeMap<u32, String>,
    /// The hook chosen for each point.
    pub hooks: Vec<ChosenHook>,
}

impl SourceMeta {
    /// The kernel's name of a drop reason; `REASON_<n>` if it has none, and
    /// `OTHER` for the table's last entry, which gathers the reasons that
    /// subsystems define for themselves.
    pub fn reason(&self, number: u32) -> String {
        match self.reasons.get(&number) {
            Some(name) => name.clone(),
            None if usize::try_from(number).is_ok_and(|n| n == REASON_SLOTS - 1) => "OTHER".to_owned(),
            None => format!("REASON_{number}"),
        }
    }
}

/// Why a source cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A table or ring of the kernel side could not be read.
    #[error("cannot read the {what}: {source}; the counts of this run are incomplete, start observer again")]
    Kernel {
        /// Which table or ring.
        what: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A recorded trace is damaged.
    #[error("cannot read the trace {path}: {why}; record it again, or replay up to the last good segment")]
    Trace {
        /// Which file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Something that yields journeys.
pub trait Source {
    /// Appends what has happened since the last poll to `batch`.
    ///
    /// # Errors
    ///
    /// When the source can yield nothing more because it broke.
    fn poll(&mut self, batch: &mut Batch) -> Result<Progress, SourceError>;

    /// Reads the tables; with `last`, sweeps the unfinished journeys as well.
    ///
    /// # Errors
    ///
    /// When a table cannot be read.
    fn tables(&mut self, last: bool) -> Result<Tables, SourceError>;

    /// What is known from the start.
    fn meta(&self) -> &SourceMeta;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_named_as_the_kernel_names_them() {
        let mut meta = synthetic::meta();
        meta.reasons = BTreeMap::from([(6, "SOCKET_RCVBUFF".to_owned())]);
        assert_eq!(meta.reason(6), "SOCKET_RCVBUFF");
        assert_eq!(meta.reason(7), "REASON_7");
        assert_eq!(meta.reason(255), "OTHER");
    }

    #[test]
    fn a_cleared_batch_is_empty() {
        let mut batch = Batch { malformed: 1, ..Batch::default() };
        assert!(!batch.is_empty());
        batch.clear();
        assert!(batch.is_empty());
    }
}
