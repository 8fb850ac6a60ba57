//! A scenario played under the real observer, with all of its records.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use load::{Progress, Stop};
use observer::{
    kernel::attach::{AttachOptions, NamedRun},
    lab::{
        priority::{Role, raise},
        scenario::{Outcome, Scenario, Stage},
    },
    session::Session,
    snapshot::Snapshot,
};
use observer_ebpf::abi::JourneyRecord;

/// What came of it.
pub(crate) struct Observed {
    /// The applications' and the kernel's accounts.
    pub(crate) outcome: Outcome,
    /// The observer's.
    pub(crate) snapshot: Arc<Snapshot>,
    /// Every record of the run.
    pub(crate) records: Vec<JourneyRecord>,
}

/// Attaches for the scenario's run alone, plays it, and detaches.
pub(crate) fn play(scenario: &Scenario) -> Observed {
    let stage = Stage::set(scenario).unwrap();
    let options = AttachOptions { runs: vec![NamedRun::ours(scenario.load.run)], ..AttachOptions::default() };
    let (session, records) = recorded(&options);
    let (outcome, _lab) = stage.run(&Stop::new(), &Progress::new()).unwrap();
    let snapshot = session.finish().unwrap();
    let records = records.take();
    Observed { outcome, snapshot, records }
}

/// The records that a session has read.
pub(crate) struct Records(Arc<Mutex<Vec<JourneyRecord>>>);

impl Records {
    /// All so far.
    pub(crate) fn take(&self) -> Vec<JourneyRecord> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Attaches, and keeps every record.
pub(crate) fn recorded(options: &AttachOptions) -> (Session, Records) {
    let records = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&records);
    let tap = move |batch: &observer::source::Batch| kept.lock().unwrap().extend_from_slice(&batch.journeys);
    let start = || Session::start_tapped(options, Duration::from_millis(500), Box::new(tap)).unwrap();
    (as_observer(start), Records(records))
}

/// Starts `work` so that the threads it makes come before the load's.
pub(crate) fn as_observer<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                raise(Role::Observer);
                work()
            })
            .join()
            .unwrap()
    })
}

impl Observed {
    /// From the first dev_queue to the last, ns.
    pub(crate) fn dev_queue_span_ns(&self) -> u64 {
        let seen = || self.records.iter().map(|r| r.dev_queue_ns).filter(|at| *at != 0);
        seen().max().unwrap_or(0) - seen().min().unwrap_or(0)
    }

    /// What is wrong with single records: order of points, identity.
    pub(crate) fn malformed(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut ends: HashMap<u64, u64> = HashMap::new();
        for r in &self.records {
            *ends.entry(r.stream_seq).or_default() += 1;
            let points = [
                r.offer_ns.cast_unsigned(),
                r.syscall_ns,
                r.dev_queue_ns,
                r.dequeue_ns,
                r.xmit_ns,
                r.rx_ns,
                r.sock_enqueue_ns,
                r.app_dequeue_ns,
            ];
            let seen: Vec<u64> = points.into_iter().filter(|p| *p != 0).collect();
            // CLOCK_MONOTONIC of two CPUs may differ by less than 1 us.
            if seen.windows(2).any(|w| w[1] + 1_000 <= w[0]) {
                wrong.push(format!("points out of order: {r:?}"));
            }
        }
        wrong.extend(
            ends.iter().filter(|(_, n)| **n != 1).map(|(key, n)| format!("{key:#x} ended {n} times")),
        );
        wrong.truncate(5);
        wrong
    }
}
