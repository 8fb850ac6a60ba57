//! From what was seen to the cause and the setting that fixes it.
//!
//! ```text
//! journeys ─▶ evidence ─▶ sender   ─┐
//!                      ─▶ limiter  ─┼▶ Diagnosis ─▶ report ─▶ registry of checks ─▶ findings
//!                      ─▶ receiver ─┘      ▲
//!                         configured (netlink, /proc) ┘
//! ```
//!
//! [`evidence`] keeps points of journeys in bounded memory. [`sender`],
//! [`limiter`] and [`receiver`] put the models of [`crate::model`] to them, at
//! snapshots. [`registry`] lists every check there is; each is documented in
//! `docs/findings.md`.

pub mod checks;
pub mod configured;
pub mod evidence;
pub mod limiter;
pub mod receiver;
pub mod registry;
pub mod sender;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::correlate::{FlowBook, Journey};
use crate::source::SourceMeta;
use configured::Configuration;
use evidence::Evidence;
use limiter::Limiter;
use receiver::ReceiverQueue;
use sender::SenderQueue;

/// Waits below this are not worth a diagnosis: as for a tail.
pub const FLOOR_NS: u64 = crate::culprit::FLOOR_NS;

/// Whether `late` of `all` datagrams that waited for [`FLOOR_NS`] are enough to
/// look for a cause: as many as it takes to quote a p99.9.
pub(crate) fn worth_naming(late: usize, all: usize) -> bool {
    late >= 10 && late * 1_000 >= all
}

/// T of the advice where none was asked for, s.
pub const TARGET_S: f64 = 1e-3;

/// While a run goes on, a diagnosis takes at most one part in so many of the
/// reader's time.
const COST: u32 = 50;

/// A thread of a flow, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its process; null if unknown.
    pub pid: Option<u32>,
    /// It; null if unknown.
    pub tid: Option<u32>,
    /// Its name.
    pub comm: String,
}

impl Thread {
    fn sender(tid: u32, flow: u64, book: &FlowBook) -> Self {
        let end = book.key(flow).sender;
        Self {
            pid: end.as_ref().and_then(|e| e.pid),
            tid: Some(tid),
            comm: end.map(|e| e.comm).unwrap_or_default(),
        }
    }

    fn reader(flow: u64, book: &FlowBook) -> Self {
        book.key(flow).receiver.map_or_else(Self::default, |e| Self { pid: e.pid, tid: e.tid, comm: e.comm })
    }
}

/// What was found about the queues of a run; null where there is too little.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnosis {
    /// The Sender whose datagrams waited longest.
    pub sender_queue: Option<SenderQueue>,
    /// The limiter that held most back, or what stands in its place.
    pub limiter: Option<Limiter>,
    /// The socket that lost most or was read latest.
    pub receiver_queue: Option<ReceiverQueue>,
    /// Whether the generator offered when it meant to.
    pub generator: Option<checks::generator::Lag>,
}

/// The value of `key` in a short list, entered if it is new; `None` for a new
/// one if the list has `most` already, so that strangers cannot make it long.
pub(crate) fn entry<K: PartialEq, V: Default>(list: &mut Vec<(K, V)>, key: K, most: usize) -> Option<&mut V> {
    let at = match list.iter().position(|x| x.0 == key) {
        Some(at) => at,
        None if list.len() < most => {
            list.push((key, V::default()));
            list.len() - 1
        }
        None => return None,
    };
    list.get_mut(at).map(|x| &mut x.1)
}

/// Keeps the evidence of a run, and the latest diagnosis.
#[derive(Debug)]
pub struct Diagnostician {
    evidence: Evidence,
    configuration: Configuration,
    target_s: f64,
    latest: Diagnosis,
    seen: u64,
    /// When the latest was made, and what it took.
    made: Option<(Instant, Duration)>,
    pairs: bool,
    /// The configuration has been read since the last journey.
    looked: bool,
}

impl Default for Diagnostician {
    fn default() -> Self {
        Self {
            evidence: Evidence::default(),
            configuration: Configuration::default(),
            target_s: TARGET_S,
            latest: Diagnosis::default(),
            seen: 0,
            made: None,
            pairs: false,
            looked: false,
        }
    }
}

impl Diagnostician {
    /// Takes in a journey.
    pub fn push(&mut self, journey: &Journey) {
        self.evidence.push(journey);
        self.looked = false;
    }

    /// Passes over journeys that the latest to come will push out of the
    /// evidence, see [`Evidence::pass`].
    pub fn pass(&mut self, n: u64) {
        self.evidence.pass(n);
    }

    /// Says that datagrams came before the first one kept, so that nothing is
    /// known of the queues then.
    pub fn joined_late(&mut self) {
        self.evidence.joined_late();
    }

    /// Where to learn what is configured.
    pub fn configured_by(&mut self, configuration: Configuration) {
        self.configuration = configuration;
    }

    /// Says that two devices together may be a shaper, so that one without a
    /// qdisc may be one.
    pub fn with_pairs(&mut self) {
        self.pairs = true;
    }

    /// Looks at the devices of flows not seen before.
    pub fn look(&mut self, book: &FlowBook) {
        self.configuration.look(book);
    }

    /// What is configured, as of now.
    pub fn look_again(&mut self, book: &FlowBook) -> &Configuration {
        if !self.looked {
            self.configuration.look(book);
            self.looked = true;
        }
        &self.configuration
    }

    /// What is configured, as it was last read.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// The diagnosis as of now. Made anew if `last`, or if there is something
    /// new and the last one's cost permits; else the latest.
    pub fn diagnose(
        &mut self,
        book: &FlowBook,
        meta: &SourceMeta,
        steal: Option<f64>,
        last: bool,
    ) -> Diagnosis {
        let seen = self.evidence.seen();
        let affordable = self.made.is_none_or(|(at, took)| at.elapsed() >= took.saturating_mul(COST));
        if !last && (seen == self.seen || !affordable) {
            return self.latest.clone();
        }
        let start = Instant::now();
        self.look_again(book);
        let stretches = self.evidence.stretches();
        let sender_queue = sender::diagnose(&stretches, book, self.target_s);
        let limiter = limiter::diagnose(&stretches, book, &self.configuration, steal, self.pairs);
        let receiver_queue = receiver::diagnose(&stretches, book, meta, self.configuration.rmem_max_bytes());
        let generator = checks::generator::lag(&stretches);
        self.latest = Diagnosis { sender_queue, limiter, receiver_queue, generator };
        self.seen = seen;
        self.made = Some((start, start.elapsed()));
        self.latest.clone()
    }
}
