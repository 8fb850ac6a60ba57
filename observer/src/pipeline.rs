//! The pipeline behind every source: correlate → metrics → snapshot.
//!
//! Live and replay push the same calls: [`Pipeline::batch`] for what a poll
//! yielded, [`Pipeline::tables`] for the tables read at an interval,
//! [`Pipeline::interval`] to close it, and [`Pipeline::finish`] once, with the
//! swept tables. Memory is bounded whatever the length of a run.

use std::sync::Arc;

use observer_ebpf::abi::{JourneyRecord, flow_id};

use crate::correlate::pair::Pairs;
use crate::correlate::{Correlator, Outcome, stream};
use crate::diagnose::configured::Configuration;
use crate::diagnose::{Diagnosis, Diagnostician};
use crate::metrics::counts::{self, RecordsSeen, Totals};
use crate::metrics::{FlowMetrics, SendCalls, Slowest, Window};
use crate::report::build::{Ingredients, report};
use crate::report::{Counts, Kind, Report};
use crate::snapshot::Snapshot;
use crate::source::{Batch, Progress, Source, SourceError, SourceMeta, Tables};
use crate::timeline::{Moment, Timeline};

/// From records to snapshots.
#[derive(Debug)]
pub struct Pipeline {
    meta: SourceMeta,
    pairs: Pairs,
    correlator: Correlator,
    interval: Window,
    whole: Window,
    flows: FlowMetrics,
    slowest: Slowest,
    diagnostician: Diagnostician,
    sending: SendCalls,
    timeline: Timeline,
    marked: Option<Marked>,
    seen: RecordsSeen,
    tables: Tables,
    last_counts: Counts,
    stolen_ns: u64,
    interval_from_ns: u64,
    snapshots: u64,
    measure_from_ns: i64,
    left_out: RecordsSeen,
}

/// What has been measured since somebody asked to start over.
#[derive(Debug)]
struct Marked {
    from_ns: u64,
    window: Window,
    counts: Counts,
}

impl Pipeline {
    /// A pipeline for the source that `meta` describes.
    pub fn new(meta: SourceMeta) -> Self {
        let start_ns = meta.start_ns;
        Self {
            meta,
            pairs: Pairs::default(),
            correlator: Correlator::default(),
            interval: Window::default(),
            whole: Window::default(),
            flows: FlowMetrics::default(),
            slowest: Slowest::default(),
            diagnostician: Diagnostician::default(),
            sending: SendCalls::default(),
            timeline: Timeline::default(),
            marked: None,
            seen: RecordsSeen::default(),
            tables: Tables::empty(start_ns),
            last_counts: Counts::default(),
            stolen_ns: 0,
            interval_from_ns: start_ns,
            snapshots: 0,
            measure_from_ns: i64::MIN,
            left_out: RecordsSeen::default(),
        }
    }

    /// Names devices that are, two by two, the ends of a shaper.
    pub fn pairs(&mut self, pairs: Pairs) {
        if !pairs.is_empty() {
            self.diagnostician.with_pairs();
        }
        self.pairs = pairs;
    }

    /// Where to learn what is configured on the way, so that it can be
    /// compared with what is measured.
    pub fn configured_by(&mut self, configuration: Configuration) {
        self.diagnostician.configured_by(configuration);
    }

    /// Leaves datagrams offered before `from_ns` (a warm-up) out of every
    /// distribution from now on. They stay in the counts.
    pub fn measure_from(&mut self, from_ns: i64) {
        self.measure_from_ns = from_ns;
    }

    /// Takes in what a poll yielded.
    pub fn batch(&mut self, batch: &Batch) {
        self.correlator.control(batch);
        if !batch.flows.is_empty() {
            self.diagnostician.look(&self.correlator.flows);
        }
        self.seen.malformed = self.seen.malformed.saturating_add(batch.malformed);
        for record in &batch.journeys {
            let journey = self.correlator.journey(&self.paired(record));
            if record.offer_ns < self.measure_from_ns {
                match journey.outcome {
                    Outcome::Delivered => self.left_out.delivered += 1,
                    Outcome::Dropped => self.left_out.dropped += 1,
                    Outcome::Unresolved => {}
                }
                self.diagnostician.joined_late();
                continue;
            }
            self.diagnostician.push(&journey);
            self.interval.record(&journey);
            if record.syscall_ns != 0 {
                self.sending.record(record.batch_pos);
            }
            if journey.outcome == Outcome::Delivered {
                self.flows.record(journey.flow, &journey.stages);
                if journey.stages.is_complete() {
                    self.slowest.offer(&journey);
                }
            }
        }
    }

    /// The record as it is with the named pairs.
    fn paired(&self, record: &JourneyRecord) -> JourneyRecord {
        if self.pairs.is_empty() {
            return *record;
        }
        let (sender, receiver) = self.correlator.flows.namespaces(flow_id(record.run, stream(record)));
        self.pairs.resolve(*record, sender, receiver)
    }

    /// Takes in the tables read at an interval. A caller that reads them less
    /// often sees counts move less often, nothing else.
    pub fn tables(&mut self, tables: Tables) {
        self.tables = tables;
    }

    /// Starts over, beside what goes on: from the end of the last interval on,
    /// snapshots have a [`marked`](Snapshot::marked) report as well.
    pub fn mark(&mut self) {
        self.marked = Some(Marked {
            from_ns: self.interval_from_ns,
            window: Window::default(),
            counts: self.last_counts.clone(),
        });
    }

    /// Closes the interval at `now_ns`.
    pub fn interval(&mut self, now_ns: u64) -> Arc<Snapshot> {
        self.close(Kind::Interval, now_ns)
    }

    /// Closes the run with the tables of the final sweep, once everything the
    /// source had has been taken in.
    pub fn finish(&mut self, tables: Tables) -> Arc<Snapshot> {
        let at_ns = tables.at_ns.max(self.interval_from_ns);
        self.tables = tables;
        self.close(Kind::Final, at_ns)
    }

    /// Runs a source that ends (a trace, a synthetic plan) to its end.
    ///
    /// # Errors
    ///
    /// When the source breaks; what came before is lost with it.
    pub fn run(source: &mut impl Source) -> Result<Arc<Snapshot>, SourceError> {
        Self::run_configured(source, Configuration::default())
    }

    /// As [`Pipeline::run`], where something is known of what was configured
    /// on the way.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::run`].
    pub fn run_configured(
        source: &mut impl Source,
        configuration: Configuration,
    ) -> Result<Arc<Snapshot>, SourceError> {
        let mut pipeline = Self::new(source.meta().clone());
        pipeline.configured_by(configuration);
        let mut batch = Batch::default();
        loop {
            batch.clear();
            let progress = source.poll(&mut batch)?;
            pipeline.batch(&batch);
            if progress == Progress::End {
                return Ok(pipeline.finish(source.tables(true)?));
            }
        }
    }

    fn close(&mut self, kind: Kind, now_ns: u64) -> Arc<Snapshot> {
        let stolen_ns = self.tables.host.stolen_ns.unwrap_or(self.stolen_ns);
        self.interval.stalls.close(stolen_ns.saturating_sub(self.stolen_ns));
        self.stolen_ns = stolen_ns;
        self.whole.merge(&self.interval);
        if let Some(marked) = &mut self.marked {
            marked.window.merge(&self.interval);
        }
        self.seen.delivered = self.whole.delivered + self.left_out.delivered;
        self.seen.dropped = self.whole.dropped + self.left_out.dropped;
        let totals = Totals::of(&self.tables, &self.meta, self.seen, kind == Kind::Final);
        let recent = counts::since(&totals.counts, &self.last_counts);

        let steal = self.tables.host.steal_ratio;
        let diagnosis =
            self.diagnostician.diagnose(&self.correlator.flows, &self.meta, steal, kind == Kind::Final);

        let span = (self.interval_from_ns, now_ns);
        let interval = self.report(Kind::Interval, span, &self.interval, recent, &totals, &diagnosis);
        let span = (self.meta.start_ns, now_ns);
        let total = self.report(kind, span, &self.whole, totals.counts.clone(), &totals, &diagnosis);

        let marked = self.marked.as_ref().map(|m| {
            let counts = counts::since(&totals.counts, &m.counts);
            Arc::new(self.report(Kind::Interval, (m.from_ns, now_ns), &m.window, counts, &totals, &diagnosis))
        });
        self.timeline.push(Arc::new(Moment::of(self.snapshots, &interval, &self.interval.total)));

        self.last_counts = totals.counts;
        self.interval_from_ns = now_ns;
        self.interval.clear();
        self.flows.rebalance();
        self.correlator.waits.prune();
        let number = self.snapshots;
        self.snapshots = number.saturating_add(1);
        Arc::new(Snapshot {
            number,
            total: Arc::new(total),
            interval: Arc::new(interval),
            marked,
            slowest: self.slowest.list(),
            sending: self.sending,
            timeline: self.timeline.list(),
        })
    }

    fn report(
        &self,
        kind: Kind,
        span_ns: (u64, u64),
        window: &Window,
        counts: Counts,
        totals: &Totals,
        diagnosis: &Diagnosis,
    ) -> Report {
        report(Ingredients {
            kind,
            span_ns,
            meta: &self.meta,
            tables: &self.tables,
            window,
            counts,
            totals,
            flows: &self.flows,
            book: &self.correlator.flows,
            waits: self.correlator.waits.totals(),
            diagnosis,
        })
    }
}
