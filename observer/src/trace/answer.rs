//! A trace's report: from the recorded distributions where nothing is
//! selected, else from the records, through the pipeline of the live
//! observation.
//!
//! Both ways end in the same code and in the same figures, to the last digit.
//! The first reads some thousand rows per segment, however many datagrams it
//! had, and of the records those that a diagnosis stands on, the first and the
//! latest; the second reads each record.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use observer_ebpf::abi::FlowRecord;

use super::lookback::{self, Need};
use super::reader::{self, Event, Trace};
use super::segment::{Closed, Segment, Step};
use super::select::{Picker, Selection};
use super::table::CHUNK_ROWS;
use super::{TraceError, files, histograms};
use crate::metrics::counts::RecordsSeen;
use crate::pipeline::Pipeline;
use crate::report::{Detail, Finding, Level, Report};
use crate::snapshot::Snapshot;
use crate::source::{Batch, Tables};

/// Where an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The recorded distributions.
    Histograms,
    /// Every record.
    Records,
}

/// A report of a trace.
#[derive(Clone, Debug)]
pub struct Answer {
    /// As a live observation would have published it last.
    pub snapshot: Arc<Snapshot>,
    /// Where it came from.
    pub from: From,
    /// Datagrams in the segments read.
    pub datagrams: u64,
}

/// Called with segments done and segments in all.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize);

/// The report of what is selected.
///
/// # Errors
///
/// [`TraceError::Refused`] if the trace has no records to select from, else
/// what is wrong with it.
pub fn report(trace: &Trace, selection: &Selection, progress: Progress<'_>) -> Result<Answer, TraceError> {
    if selection.is_all() {
        from_histograms(trace, progress)
    } else {
        from_records(trace, selection, progress)
    }
}

/// The report from the recorded distributions.
///
/// # Errors
///
/// What is wrong with the trace.
pub fn from_histograms(trace: &Trace, progress: Progress<'_>) -> Result<Answer, TraceError> {
    added_up(trace, lookback::needs(trace)?, progress)
}

/// As [`from_histograms`], without a diagnosis: no record is read.
///
/// # Errors
///
/// What is wrong with the trace.
pub fn undiagnosed(trace: &Trace, progress: Progress<'_>) -> Result<Answer, TraceError> {
    added_up(trace, vec![Need::Nothing; trace.numbers().len()], progress)
}

fn added_up(trace: &Trace, needs: Vec<Need>, progress: Progress<'_>) -> Result<Answer, TraceError> {
    let diagnosed = needs.contains(&Need::Records);
    let mut pipeline = pipeline(trace)?;
    let mut datagrams = 0;
    let mut last = None;
    let mut measure_from_ns = i64::MIN;
    let numbers = trace.numbers();
    for (done, (number, need)) in numbers.iter().zip(needs).enumerate() {
        let segment = trace.segment(*number)?;
        begin(&mut pipeline, &segment, last.is_none());
        match need {
            Need::Records => {
                let mut replay = trace.replay_segment(done);
                replay.measure_from_ns = measure_from_ns;
                let mut batch = Batch::default();
                while replay.next(&mut batch)?.is_some() {
                    pipeline.measure_from(replay.measure_from_ns);
                    pipeline.evidence(&batch);
                }
                measure_from_ns = replay.measure_from_ns;
            }
            Need::Waits | Need::Nothing => {
                pipeline.batch(&flows_of(&segment, last.is_none()));
                if need == Need::Waits {
                    waits(trace, &segment, &mut pipeline)?;
                }
                for step in &segment.steps {
                    if let Step::MeasureFrom(ns) = step {
                        measure_from_ns = *ns;
                    }
                }
                if diagnosed {
                    let (delivered, dropped) = segment.left_out;
                    pipeline.pass_evidence(segment.measured.journeys(), delivered.saturating_add(dropped));
                }
            }
        }
        absorb(trace, &segment, &mut pipeline)?;
        datagrams += segment.measured.journeys();
        last = Some(segment);
        progress(done + 1, numbers.len());
    }
    finish(trace, pipeline, last, From::Histograms, datagrams, None)
}

/// The report from the records.
///
/// # Errors
///
/// [`TraceError::Refused`] if there are no records, else what is wrong with
/// the trace.
pub fn from_records(
    trace: &Trace,
    selection: &Selection,
    progress: Progress<'_>,
) -> Result<Answer, TraceError> {
    match replay(trace, selection, progress, &mut |_| true)? {
        Some(answer) => Ok(answer),
        None => Err(TraceError::Refused("the trace was not read to its end".to_owned())),
    }
}

/// Goes through the records as the observation did, and shows `published` what
/// it published at each interval and at its end, for as long as it says true.
///
/// # Errors
///
/// As [`from_records`].
pub fn play(
    trace: &Trace,
    selection: &Selection,
    published: &mut dyn FnMut(Arc<Snapshot>) -> bool,
) -> Result<(), TraceError> {
    if let Some(answer) = replay(trace, selection, &mut |_, _| {}, published)? {
        published(answer.snapshot);
    }
    Ok(())
}

fn replay(
    trace: &Trace,
    selection: &Selection,
    progress: Progress<'_>,
    published: &mut dyn FnMut(Arc<Snapshot>) -> bool,
) -> Result<Option<Answer>, TraceError> {
    if trace.meta.detail != Detail::Full {
        let level = if trace.meta.detail == Detail::Tail { "tail" } else { "summary" };
        return Err(TraceError::Refused(format!(
            "this was recorded at detail {level}: there are complete distributions and no record of every \
             datagram, so that nothing can be selected; record at full detail for that"
        )));
    }
    let mut pipeline = pipeline(trace)?;
    let start_ns = trace.meta.start_ns;
    if !selection.is_all() {
        let (from, _) = selection.bounds_ns(start_ns);
        pipeline.pick(Picker::new(selection, start_ns), u64::try_from(from).unwrap_or(0).max(start_ns));
    }
    let first = trace.numbers().first().map(|n| trace.segment(*n)).transpose()?;
    if let Some(first) = first.filter(|_| selection.is_all()) {
        begin(&mut pipeline, &first, true);
    }
    let mut replay = trace.replay();
    let offered = selection.bounds_ns(start_ns);
    replay.only_offered(offered);
    let mut batch = Batch::default();
    let (mut datagrams, mut done, mut last) = (0, 0, None);
    while let Some(event) = replay.next(&mut batch)? {
        match event {
            Event::Before => pipeline.evidence(&batch),
            Event::Batch => {
                datagrams += batch.journeys.len() as u64;
                pipeline.measure_from(replay.measure_from_ns);
                pipeline.batch(&batch);
            }
            Event::Close(segment) => {
                done += 1;
                progress(done, trace.numbers().len());
                if replay.leaves_out(&segment) {
                    datagrams += segment.files.packets.map_or(0, |f| f.rows);
                    if segment.offer_ns.is_some_and(|(first, _)| first < offered.0) {
                        pipeline.joined_late();
                    }
                }
                if let Closed::Interval(now_ns) = segment.closed {
                    pipeline.tables(Tables::from(&segment.tables));
                    if !published(pipeline.interval(now_ns)) {
                        return Ok(None);
                    }
                }
                last = Some(*segment);
            }
        }
    }
    let selected = (!selection.is_all()).then(|| selection.clone());
    finish(trace, pipeline, last, From::Records, datagrams, selected).map(Some)
}

/// What the observation had, but for the records.
fn pipeline(trace: &Trace) -> Result<Pipeline, TraceError> {
    let mut pipeline = Pipeline::new(trace.meta.source());
    pipeline.pairs(trace.meta.pairs.clone());
    pipeline.configured_by(trace.configuration()?);
    Ok(pipeline)
}

/// The waits of a segment, as evidence.
fn waits(trace: &Trace, segment: &Segment, pipeline: &mut Pipeline) -> Result<(), TraceError> {
    let path = files::of_segment(trace.dir(), "waits", segment.number);
    let mut left = segment.files.waits.map_or(0, |f| f.rows);
    let mut table = trace.table(segment, "waits", |_| true)?;
    let mut batch = Batch::default();
    while left > 0 {
        let some = left.min(CHUNK_ROWS as u64);
        batch.clear();
        reader::waits(table.as_mut(), some, &mut batch, &path)?;
        pipeline.evidence(&batch);
        left -= some;
    }
    Ok(())
}

/// A trace that does not begin with its observation begins with these counts.
fn begin(pipeline: &mut Pipeline, segment: &Segment, first: bool) {
    if let Some(before) = segment.before.as_ref().filter(|_| first) {
        pipeline.begin_at(&Tables::from(&before.tables), &before.until_ns);
    }
}

/// The flows that a segment describes.
pub fn flows_of(segment: &Segment, first: bool) -> Batch {
    let mut batch = Batch::default();
    if first {
        batch.flows.extend(segment.known_flows.iter().map(FlowRecord::from));
    }
    for step in &segment.steps {
        if let Step::Batch { flows, .. } = step {
            batch.flows.extend(flows.iter().map(FlowRecord::from));
        }
    }
    batch
}

fn absorb(trace: &Trace, segment: &Segment, pipeline: &mut Pipeline) -> Result<(), TraceError> {
    let path: PathBuf = files::of_segment(trace.dir(), "histograms", segment.number);
    let seen = RecordsSeen {
        delivered: segment.left_out.0,
        dropped: segment.left_out.1,
        malformed: segment.malformed,
    };
    let mut table = trace.table(segment, "histograms", |_| true)?;
    pipeline.absorb(
        |window, flows| histograms::put_back(table.as_mut(), &segment.measured, &path, window, Some(flows)),
        &segment.measured.waited_ns,
        &segment.waits,
        seen,
    )?;
    if matches!(segment.closed, Closed::Interval(_)) {
        pipeline.pass_interval(Tables::from(&segment.tables));
    }
    Ok(())
}

fn finish(
    trace: &Trace,
    mut pipeline: Pipeline,
    last: Option<Segment>,
    from: From,
    datagrams: u64,
    selected: Option<Selection>,
) -> Result<Answer, TraceError> {
    let Some(last) = last else {
        let why = "it has no segment".to_owned();
        return Err(TraceError::NoTrace { path: trace.dir().to_owned(), why });
    };
    let tables = trace.tables(&last)?;
    let mut snapshot = if last.closed == Closed::Final {
        pipeline.finish(tables)
    } else {
        pipeline.tables(tables);
        pipeline.break_off(last.to_ns)
    };
    let mut findings = Vec::new();
    if let Some(missing) = trace.missing()?.sentence() {
        findings.push(Finding {
            check: "trace-complete".to_owned(),
            level: Level::Warning,
            observed: missing,
            means: "the figures are those of what was recorded".to_owned(),
            detail: String::new(),
            advice: String::new(),
            evidence: BTreeMap::new(),
        });
    }
    if let Some(selected) = selected {
        findings.push(Finding {
            check: "selection".to_owned(),
            level: Level::Passed,
            observed: format!("{selected}; of {} recorded", crate::view::units::count(datagrams)),
            means:
                "counts are of the records selected; lost events and other datagrams are of the whole trace"
                    .to_owned(),
            detail: format!(
                "what was sent and left no record is not in it{}",
                if selected.is_time() {
                    ""
                } else {
                    "; the queues are diagnosed by all datagrams of that time, which they serve alike"
                }
            ),
            advice: String::new(),
            evidence: BTreeMap::new(),
        });
    }
    if !findings.is_empty() {
        let snapshot = Arc::make_mut(&mut snapshot);
        add(Arc::make_mut(&mut snapshot.total), findings);
    }
    Ok(Answer { snapshot, from, datagrams })
}

fn add(report: &mut Report, findings: Vec<Finding>) {
    report.findings.extend(findings);
    report.findings.sort_by_key(|f| std::cmp::Reverse(f.level));
    report.verdict = crate::diagnose::registry::verdict(&report.findings);
}
