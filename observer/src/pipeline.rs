//! The pipeline behind every source: correlate → metrics → snapshot.
//!
//! Live and replay push the same calls: [`Pipeline::batch`] for what a poll
//! yielded, [`Pipeline::tables`] for the tables read at an interval,
//! [`Pipeline::interval`] to close it, and [`Pipeline::finish`] once, with the
//! swept tables. Memory is bounded whatever the length of a run.

use std::cmp::Ordering;
use std::sync::Arc;

use observer_ebpf::abi::{JourneyRecord, flow_id};

use crate::correlate::pair::Pairs;
use crate::correlate::{Correlator, Outcome, stream};
use crate::diagnose::configured::Configuration;
use crate::diagnose::{Diagnosis, Diagnostician};
use crate::metrics::counts::{self, RecordsSeen, Totals};
use crate::metrics::{FlowMetrics, SendCalls, Slowest, Window};
use crate::report::build::{Ingredients, report};
use crate::report::{Counts, Kind, Report, Waits};
use crate::snapshot::Snapshot;
use crate::source::{Batch, Progress, Source, SourceError, SourceMeta, Tables};
use crate::timeline::{Moment, Timeline};
use crate::trace::select::Picker;

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
    /// Where recording: what came since the last segment, and is not in
    /// `interval` yet.
    segment: Option<Box<Window>>,
    /// Where what is replayed does not begin with the run: the counts then.
    base: Option<Counts>,
    /// Where a part of a trace is asked for: which, and how much it is.
    picker: Option<Picker>,
}

/// What was measured since the last segment of a trace, and what a trace
/// needs beside its records to come to the same report.
#[derive(Debug)]
pub struct SegmentView<'a> {
    /// Distributions since the last segment.
    pub window: &'a Window,
    /// Distributions by flow since the start.
    pub flows: &'a mut FlowMetrics,
    /// Waits since the start.
    pub waits: Waits,
    /// Records since the start that could not be understood, and those left
    /// out of the distributions.
    pub seen: RecordsSeen,
    /// What is configured, as it was last read.
    pub configuration: &'a Configuration,
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
            segment: None,
            base: None,
            picker: None,
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

    /// Takes in only what `picker` picks from now on, counts included; what is
    /// reported begins at `from_ns`.
    pub fn pick(&mut self, picker: Picker, from_ns: u64) {
        self.picker = Some(picker);
        self.meta.start_ns = from_ns;
        self.interval_from_ns = from_ns;
    }

    /// Keeps apart from now on what comes between two segments of a trace.
    pub fn record_segments(&mut self) {
        self.segment.get_or_insert_default();
    }

    /// Closes a segment: shows `take` what came since the last one, and adds
    /// it to the interval.
    pub fn close_segment<T>(&mut self, take: impl FnOnce(SegmentView<'_>) -> T) -> Option<T> {
        let window = self.segment.as_deref_mut()?;
        let taken = take(SegmentView {
            window,
            flows: &mut self.flows,
            waits: self.correlator.waits.totals(),
            seen: RecordsSeen { malformed: self.seen.malformed, ..self.left_out },
            configuration: self.diagnostician.configuration(),
        });
        self.interval.merge(window);
        window.clear();
        Some(taken)
    }

    /// Reads what is configured once more, so that the last segment and the
    /// report say the same of it.
    pub fn look(&mut self) {
        self.diagnostician.look_again(&self.correlator.flows);
    }

    /// Takes in a batch of a segment that is absorbed, as evidence for the
    /// diagnosis alone.
    pub fn evidence(&mut self, batch: &Batch) {
        let totals = self.correlator.waits.totals();
        self.correlator.control(batch);
        for record in &batch.journeys {
            let journey = self.correlator.journey(&self.paired(record));
            if record.offer_ns < self.measure_from_ns {
                self.diagnostician.joined_late();
            } else {
                self.diagnostician.push(&journey);
            }
        }
        self.correlator.waits.set_totals(totals);
    }

    /// Passes over a segment that is absorbed and is no evidence, since the
    /// latest push it out: it has `measured` journeys, beside those `left_out`.
    pub fn pass_evidence(&mut self, measured: u64, left_out: u64) {
        if left_out > 0 {
            self.diagnostician.joined_late();
        }
        self.diagnostician.pass(measured);
    }

    /// Takes in a segment's distributions in place of its records: `put_back`
    /// adds them to those it is shown. `waited_ns`, `waits` and `seen` are the
    /// segment's.
    ///
    /// # Errors
    ///
    /// What `put_back` says.
    pub fn absorb<E>(
        &mut self,
        put_back: impl FnOnce(&mut Window, &mut FlowMetrics) -> Result<(), E>,
        waited_ns: &[u64],
        waits: &Waits,
        seen: RecordsSeen,
    ) -> Result<(), E> {
        put_back(&mut self.whole, &mut self.flows)?;
        self.interval.stalls.put_back(waited_ns);
        self.correlator.waits.add_totals(waits);
        self.seen.malformed = self.seen.malformed.saturating_add(seen.malformed);
        self.left_out.delivered = self.left_out.delivered.saturating_add(seen.delivered);
        self.left_out.dropped = self.left_out.dropped.saturating_add(seen.dropped);
        Ok(())
    }

    /// Passes the end of an interval between two segments absorbed, without a
    /// report.
    pub fn pass_interval(&mut self, tables: Tables) {
        self.tables(tables);
        self.close_stalls();
        self.whole.stalls.merge(&self.interval.stalls);
        self.interval.stalls.clear();
    }

    /// Starts in the middle of a run, when the tables were `tables` and times
    /// had been laid down until `until_ns`, by octave: a flight recorder
    /// forgets what came before. Counts are from then on.
    pub fn begin_at(&mut self, tables: &Tables, until_ns: &[u64]) {
        self.interval.stalls.resume(until_ns);
        let totals = Totals::of(tables, &self.meta, RecordsSeen::default(), false);
        self.left_out.delivered = totals.counts.delivered;
        self.left_out.dropped = totals.counts.dropped_total();
        self.stolen_ns = tables.host.stolen_ns.unwrap_or(0);
        self.meta.start_ns = tables.at_ns;
        self.interval_from_ns = tables.at_ns;
        self.last_counts = totals.counts.clone();
        self.base = Some(totals.counts);
        self.joined_late();
    }

    /// Says that datagrams came before the first that is taken in.
    pub fn joined_late(&mut self) {
        self.diagnostician.joined_late();
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
            if let Some(picker) = &mut self.picker {
                // A queue is what all its datagrams make of it, not some.
                match picker.time_of(record) {
                    Ordering::Less => self.diagnostician.joined_late(),
                    Ordering::Equal => self.diagnostician.push(&journey),
                    Ordering::Greater => {}
                }
                let sender_here = record.dev_queue_ns != 0 || self.correlator.flows.sender_here(journey.flow);
                if !picker.pick(&journey, sender_here) {
                    continue;
                }
            } else {
                self.diagnostician.push(&journey);
            }
            self.segment.as_deref_mut().unwrap_or(&mut self.interval).record(&journey);
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
        self.tables = match &self.picker {
            None => tables,
            Some(picker) => picker.tables(&tables),
        };
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
        self.close(Kind::Interval, now_ns, false)
    }

    /// As [`Pipeline::interval`], where no further one comes although the run
    /// was not ended: a recording that was cut short.
    pub fn break_off(&mut self, now_ns: u64) -> Arc<Snapshot> {
        self.close(Kind::Interval, now_ns, true)
    }

    /// Closes the run with the tables of the final sweep, once everything the
    /// source had has been taken in.
    pub fn finish(&mut self, tables: Tables) -> Arc<Snapshot> {
        let at_ns = tables.at_ns.max(self.interval_from_ns);
        self.tables(tables);
        self.close(Kind::Final, at_ns, true)
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

    fn close_stalls(&mut self) {
        let stolen_ns = self.tables.host.stolen_ns.unwrap_or(self.stolen_ns);
        self.interval.stalls.close(stolen_ns.saturating_sub(self.stolen_ns));
        self.stolen_ns = stolen_ns;
    }

    fn close(&mut self, kind: Kind, now_ns: u64, last: bool) -> Arc<Snapshot> {
        // A segment that nobody closed.
        let _ = self.close_segment(|_| ());
        self.close_stalls();
        self.whole.merge(&self.interval);
        if let Some(marked) = &mut self.marked {
            marked.window.merge(&self.interval);
        }
        self.seen.delivered = self.whole.delivered + self.left_out.delivered;
        self.seen.dropped = self.whole.dropped + self.left_out.dropped;
        let totals = Totals::of(&self.tables, &self.meta, self.seen, kind == Kind::Final);
        let recent = counts::since(&totals.counts, &self.last_counts);

        let steal = self.tables.host.steal_ratio;
        let diagnosis = self.diagnostician.diagnose(&self.correlator.flows, &self.meta, steal, last);

        let span = (self.interval_from_ns, now_ns);
        let interval = self.report(Kind::Interval, span, &self.interval, recent, &totals, &diagnosis);
        let counts = match &self.base {
            None => totals.counts.clone(),
            Some(base) => counts::since(&totals.counts, base),
        };
        let span = (self.meta.start_ns, now_ns);
        let total = self.report(kind, span, &self.whole, counts, &totals, &diagnosis);

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
