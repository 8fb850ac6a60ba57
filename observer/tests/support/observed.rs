//! A scenario played under the real observer, with all of its records.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use load::{Progress, Stop};
use observer::{
    kernel::attach::AttachOptions,
    lab::scenario::{Outcome, Scenario, Stage},
    report::Report,
    session::Session,
};
use observer_ebpf::abi::{JourneyRecord, RecordKind};

use super::journey::Seen;

/// What came of it.
pub(crate) struct Observed {
    /// The applications' and the kernel's accounts.
    pub(crate) outcome: Outcome,
    /// The observer's.
    pub(crate) report: Report,
    /// Every record of the run.
    pub(crate) records: Vec<JourneyRecord>,
}

/// Attaches for the scenario's run alone, plays it, and detaches.
pub(crate) fn play(scenario: &Scenario) -> Observed {
    let records = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&records);
    let stage = Stage::set(scenario).unwrap();
    let options = AttachOptions { runs: vec![scenario.load.run], ..AttachOptions::default() };
    let session = Session::start_tapped(
        &options,
        Duration::from_millis(500),
        Box::new(move |batch| kept.lock().unwrap().extend_from_slice(&batch.journeys)),
    )
    .unwrap();
    let (outcome, _lab) = stage.run(&Stop::new(), &Progress::new()).unwrap();
    let report = session.finish().unwrap().total.as_ref().clone();
    let records = std::mem::take(&mut *records.lock().unwrap());
    Observed { outcome, report, records }
}

impl Observed {
    /// What the records say beyond the report.
    pub(crate) fn seen(&self) -> Seen {
        let mut seen = Seen::default();
        let mut span: Option<(u64, u64)> = None;
        for r in &self.records {
            if r.kind == RecordKind::Delivered as u8 {
                *seen.hops.entry(r.hops).or_default() += 1;
            }
            if r.dev_queue_ns != 0 {
                let (first, last) = span.unwrap_or((r.dev_queue_ns, r.dev_queue_ns));
                span = Some((first.min(r.dev_queue_ns), last.max(r.dev_queue_ns)));
            }
        }
        seen.dev_queue_span_ns = span.map_or(0, |(first, last)| last - first);
        seen
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
        wrong.extend(ends.iter().filter(|(_, n)| **n != 1).map(|(key, n)| format!("{key:#x} ended {n} times")));
        wrong.truncate(5);
        wrong
    }
}
