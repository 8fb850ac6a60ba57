//! Reading a trace.
//!
//! [`Trace::open`] reads meta.json and lists the segments; everything else is
//! read segment by segment, and of a segment's records some thousands at a
//! time, so that memory does not grow with the trace. Nothing is believed
//! before its checksum is.
//!
//! ```no_run
//! # fn main() -> Result<(), observer::trace::TraceError> {
//! let trace = observer::trace::Trace::open(std::path::Path::new("t1"))?;
//! for journey in trace.journeys() {
//!     let journey = journey?;
//!     println!("{} {:?}", journey.record.offer_ns, journey.stages.total);
//! }
//! # Ok(())
//! # }
//! ```

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use observer_ebpf::abi::{FlowRecord, JourneyRecord, RecordKind, WaitKind, WaitRecord, flow_id};

use super::meta::Meta;
use super::segment::{Closed, OpenMark, Segment, Step, WAIT_COLUMNS};
use super::table::{CHUNK_ROWS, FileInfo, TableReader};
use super::{TraceError, files, packets};
use crate::correlate::{Correlator, Journey, stream};
use crate::diagnose::configured::Configuration;
use crate::source::{Batch, Tables};

/// A trace on disk.
#[derive(Debug)]
pub struct Trace {
    dir: PathBuf,
    /// meta.json.
    pub meta: Meta,
    numbers: Vec<u64>,
    open: Option<OpenMark>,
    skip_damaged: bool,
}

/// What of a trace is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Recording was cut short: nothing says how it ended.
    pub cut_short: bool,
    /// How far the segment had come that was open then.
    pub open: Option<OpenMark>,
    /// Recording ended before the observation, and why.
    pub failed: Option<String>,
    /// Segments in the middle that are not there.
    pub gaps: Vec<u64>,
    /// Records the observation had and the segments have not.
    pub unrecorded: u64,
}

impl Missing {
    /// In a sentence; `None` if nothing is missing.
    pub fn sentence(&self) -> Option<String> {
        let mut said = Vec::new();
        if self.cut_short {
            said.push(match self.open {
                Some(open) => format!(
                    "recording was cut short; the open segment is lost, which had {} datagrams",
                    crate::view::units::count(open.records)
                ),
                None => "recording was cut short; at most the open segment is lost".to_owned(),
            });
        }
        if let Some(why) = &self.failed {
            said.push(format!("recording ended before the observation: {why}"));
        }
        if !self.gaps.is_empty() {
            let some: Vec<String> = self.gaps.iter().take(5).map(u64::to_string).collect();
            let more = if self.gaps.len() > 5 { ", …" } else { "" };
            said.push(format!("segments {}{more} are not there", some.join(", ")));
        }
        if self.unrecorded > 0 {
            let n = crate::view::units::count(self.unrecorded);
            said.push(format!("{n} records were not recorded: the disk did not keep up"));
        }
        (!said.is_empty()).then(|| said.join("; "))
    }
}

impl Trace {
    /// Opens the trace in `dir`. A damaged segment will be an error when it is
    /// reached.
    ///
    /// # Errors
    ///
    /// [`TraceError::NoTrace`], [`TraceError::Version`] or
    /// [`TraceError::Damaged`] for what is no trace, of another version, or
    /// has no segment.
    pub fn open(dir: &Path) -> Result<Self, TraceError> {
        let meta = Meta::read(dir)?;
        let mut numbers = Vec::new();
        for entry in fs::read_dir(dir).map_err(TraceError::io("read", dir))? {
            let name = entry.map_err(TraceError::io("read", dir))?.file_name();
            let number = name.to_str().and_then(|n| n.strip_prefix("segment-")?.strip_suffix(".json"));
            numbers.extend(number.and_then(|n| n.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.is_empty() {
            let why = "it has no closed segment".to_owned();
            return Err(TraceError::NoTrace { path: dir.to_owned(), why });
        }
        let mark = files::read_bounded(&files::open_mark(dir), 4_096).ok();
        let open = mark.and_then(|text| serde_json::from_slice(&text).ok());
        Ok(Self { dir: dir.to_owned(), meta, numbers, open, skip_damaged: false })
    }

    /// Leaves damaged segments out from now on, as [`Trace::missing`] will say.
    ///
    /// # Errors
    ///
    /// [`TraceError::NoTrace`] if nothing is left.
    pub fn skip_damaged(&mut self) -> Result<(), TraceError> {
        self.skip_damaged = true;
        let sound: Vec<u64> = self.numbers.iter().copied().filter(|n| self.is_sound(*n)).collect();
        if sound.is_empty() {
            let why = "all of its segments are damaged".to_owned();
            return Err(TraceError::NoTrace { path: self.dir.clone(), why });
        }
        self.numbers = sound;
        Ok(())
    }

    fn is_sound(&self, number: u64) -> bool {
        let Ok(segment) = self.segment(number) else { return false };
        segment.files.each().all(|(what, info)| {
            let path = files::of_segment(&self.dir, what, number);
            fs::read(path).is_ok_and(|b| b.len() as u64 == info.bytes && crc32fast::hash(&b) == info.crc32)
        })
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The numbers of its segments, in order.
    pub fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// What is missing. Reads every segment-*.json.
    ///
    /// # Errors
    ///
    /// If one cannot be read.
    pub fn missing(&self) -> Result<Missing, TraceError> {
        let (first, last) = (self.numbers.first().copied(), self.numbers.last().copied());
        let mut missing = Missing {
            cut_short: self.meta.end.is_none(),
            open: self.open.filter(|o| Some(o.segment) > last && self.meta.end.is_none()),
            failed: self.meta.end.as_ref().and_then(|e| e.failed.clone()),
            ..Missing::default()
        };
        if let (Some(first), Some(last)) = (first, last) {
            // Names are input: a gap may be of any size.
            let there: std::collections::BTreeSet<u64> = self.numbers.iter().copied().collect();
            let end = self.meta.end.as_ref().and_then(|e| e.last).unwrap_or(last).max(last);
            missing.gaps = (first..=end).filter(|n| !there.contains(n)).take(1_000).collect();
        }
        for number in &self.numbers {
            missing.unrecorded += self.segment(*number)?.unrecorded;
        }
        if let Some(end) = &self.meta.end {
            missing.unrecorded = missing.unrecorded.max(end.unrecorded);
        }
        Ok(missing)
    }

    /// Reads segment-*.json of a segment.
    ///
    /// # Errors
    ///
    /// If it is damaged.
    pub fn segment(&self, number: u64) -> Result<Segment, TraceError> {
        let path = files::of_segment(&self.dir, "segment", number);
        let segment: Segment = files::read_json(&path)?;
        let damaged = |why: &str| Err(TraceError::damaged(&path, why));
        if segment.number != number {
            return damaged("it is another segment's");
        }
        let (mut journeys, mut waits) = (0_u64, 0_u64);
        for step in &segment.steps {
            if let Step::Batch { journeys: j, waits: w, .. } = step {
                journeys = journeys.saturating_add(*j);
                waits = waits.saturating_add(*w);
            }
        }
        let rows = |info: Option<FileInfo>| info.map_or(0, |f| f.rows);
        if journeys != rows(segment.files.packets) || waits != rows(segment.files.waits) {
            return damaged("its steps and its files have different numbers of rows");
        }
        if segment.to_ns < segment.from_ns {
            return damaged("it ends before it begins");
        }
        Ok(segment)
    }

    /// What was configured on the way of its datagrams, as it was read last.
    ///
    /// # Errors
    ///
    /// If a segment cannot be read.
    pub fn configuration(&self) -> Result<Configuration, TraceError> {
        // meta.json has what was read last if it was written at the end.
        if self.meta.end.is_none() {
            for number in self.numbers.iter().rev() {
                if let Some(qdiscs) = self.segment(*number)?.qdiscs {
                    return Ok(Configuration::from(&qdiscs));
                }
            }
        }
        Ok(self.meta.qdiscs.as_ref().map(Configuration::from).unwrap_or_default())
    }

    /// Opens a file of a segment, with the columns `wanted`.
    ///
    /// # Errors
    ///
    /// [`TraceError::Damaged`].
    pub fn table(
        &self,
        segment: &Segment,
        what: &'static str,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Option<TableReader>, TraceError> {
        let (info, columns) = match what {
            "packets" => (segment.files.packets, packets::COLUMNS),
            "unfinished" => (segment.files.unfinished, packets::COLUMNS),
            "waits" => (segment.files.waits, WAIT_COLUMNS),
            "earlier" => (segment.files.earlier, WAIT_COLUMNS),
            _ => (segment.files.histograms, super::histograms::COLUMNS),
        };
        let path = files::of_segment(&self.dir, what, segment.number);
        info.map(|info| TableReader::open(&path, &info, columns, wanted)).transpose()
    }

    /// The tables when a segment was closed, with the unfinished journeys of
    /// the last one.
    ///
    /// # Errors
    ///
    /// [`TraceError::Damaged`].
    pub fn tables(&self, segment: &Segment) -> Result<Tables, TraceError> {
        let mut tables = Tables::from(&segment.tables);
        if let Some(mut reader) = self.table(segment, "unfinished", |_| true)? {
            let path = files::of_segment(&self.dir, "unfinished", segment.number);
            loop {
                let rows = reader.next(CHUNK_ROWS)?;
                if rows == 0 {
                    break;
                }
                for record in packets::Rows::unfinished(&reader.values, rows) {
                    tables.unfinished.push(record.map_err(|why| TraceError::damaged(&path, why))?);
                }
            }
        }
        Ok(tables)
    }

    /// The records as they came, in batches.
    pub fn replay(&self) -> Replay<'_> {
        Replay {
            trace: self,
            next: 0,
            end: self.numbers.len(),
            current: None,
            offered: (i64::MIN, i64::MAX),
            measure_from_ns: i64::MIN,
        }
    }

    /// The records of the segment at place `at` of [`Trace::numbers`] alone.
    pub fn replay_segment(&self, at: usize) -> Replay<'_> {
        Replay { next: at, end: self.numbers.len().min(at.saturating_add(1)), ..self.replay() }
    }

    /// The journeys in the order in which they ended, or nearly: the kernel's
    /// rings are read one after the other, every few milliseconds.
    pub fn journeys(&self) -> Journeys<'_> {
        Journeys {
            replay: self.replay(),
            correlator: Correlator::default(),
            batch: Batch::default(),
            ready: VecDeque::new(),
            over: false,
        }
    }
}

/// What [`Replay::next`] found.
#[derive(Debug)]
pub enum Event {
    /// What a flight recorder forgot, before anything else: flows, and waits of
    /// their threads that are none of the trace's.
    Before,
    /// A batch, or a part of one. Its flows and waits belong before its
    /// journeys.
    Batch,
    /// The segment is over.
    Close(Box<Segment>),
}

/// Goes through a trace as the pipeline went through the observation.
pub struct Replay<'a> {
    trace: &'a Trace,
    next: usize,
    end: usize,
    /// Records are only wanted of datagrams offered from the first of these
    /// times on and before the second, ns.
    offered: (i64, i64),
    current: Option<Current>,
    /// Datagrams offered before this are left out of the distributions.
    pub measure_from_ns: i64,
}

struct Current {
    segment: Segment,
    packets: Option<TableReader>,
    left_out: bool,
    waits: Option<TableReader>,
    step: usize,
    /// Rows of the step that are still to come.
    left: u64,
}

impl Replay<'_> {
    /// Leaves out, from now on, the records of segments without a datagram that
    /// was offered from `from_ns` on and before `to_ns`.
    pub fn only_offered(&mut self, (from_ns, to_ns): (i64, i64)) {
        self.offered = (from_ns, to_ns);
    }

    /// Whether a segment's records are left out.
    pub fn leaves_out(&self, segment: &Segment) -> bool {
        let (from_ns, to_ns) = self.offered;
        segment.offer_ns.is_some_and(|(first, last)| last < from_ns || first >= to_ns)
    }

    /// Fills `batch` with what came next; `None` at the end.
    ///
    /// # Errors
    ///
    /// [`TraceError`] for a segment that is damaged.
    pub fn next(&mut self, batch: &mut Batch) -> Result<Option<Event>, TraceError> {
        batch.clear();
        loop {
            let Some(current) = &mut self.current else {
                let Some(number) = self.trace.numbers.get(..self.end).and_then(|n| n.get(self.next)) else {
                    return Ok(None);
                };
                let segment = self.trace.segment(*number)?;
                if self.next == 0 {
                    batch.flows.extend(segment.known_flows.iter().map(FlowRecord::from));
                    let mut earlier = self.trace.table(&segment, "earlier", |_| true)?;
                    let path = files::of_segment(&self.trace.dir, "earlier", segment.number);
                    let rows = segment.files.earlier.map_or(0, |f| f.rows);
                    waits(earlier.as_mut(), rows, batch, &path)?;
                }
                self.next += 1;
                let packets = if self.leaves_out(&segment) {
                    None
                } else {
                    Some(self.trace.table(&segment, "packets", |_| true)?)
                };
                self.current = Some(Current {
                    left_out: packets.is_none(),
                    packets: packets.flatten(),
                    waits: self.trace.table(&segment, "waits", |_| true)?,
                    segment,
                    step: 0,
                    left: 0,
                });
                if batch.is_empty() {
                    continue;
                }
                return Ok(Some(Event::Before));
            };
            let path = |what| files::of_segment(&self.trace.dir, what, current.segment.number);
            if current.left > 0 {
                let (left, path) = (current.left, path("packets"));
                let rows = journeys(current.packets.as_mut(), left, batch, &path)?;
                current.left -= rows;
                return Ok(Some(Event::Batch));
            }
            match current.segment.steps.get(current.step) {
                Some(Step::MeasureFrom(ns)) => self.measure_from_ns = *ns,
                Some(Step::Batch { journeys, waits: n, malformed, flows }) => {
                    batch.flows.extend(flows.iter().map(FlowRecord::from));
                    batch.malformed += malformed;
                    current.left = if current.left_out { 0 } else { *journeys };
                    let (n, path) = (*n, path("waits"));
                    waits(current.waits.as_mut(), n, batch, &path)?;
                    current.step += 1;
                    if batch.is_empty() {
                        continue;
                    }
                    return Ok(Some(Event::Batch));
                }
                None => {
                    let over = self.current.take().map(|c| Event::Close(Box::new(c.segment)));
                    return Ok(over);
                }
            }
            current.step += 1;
        }
    }
}

/// Reads at most `left` journeys into `batch`; how many.
fn journeys(
    reader: Option<&mut TableReader>,
    left: u64,
    batch: &mut Batch,
    path: &Path,
) -> Result<u64, TraceError> {
    let ended = || TraceError::damaged(path, "it ends early");
    let reader = reader.ok_or_else(ended)?;
    let rows = reader.next(usize::try_from(left).unwrap_or(CHUNK_ROWS))?;
    if rows == 0 {
        return Err(ended());
    }
    for record in packets::Rows::new(&reader.values, rows) {
        batch.journeys.push(record.map_err(|why| TraceError::damaged(path, why))?);
    }
    Ok(rows as u64)
}

/// Reads `left` waits into `batch`.
pub(super) fn waits(
    mut reader: Option<&mut TableReader>,
    mut left: u64,
    batch: &mut Batch,
    path: &Path,
) -> Result<(), TraceError> {
    while left > 0 {
        let reader = reader.as_deref_mut().ok_or_else(|| TraceError::damaged(path, "it is not there"))?;
        let rows = reader.next(usize::try_from(left).unwrap_or(CHUNK_ROWS))?;
        if rows == 0 {
            return Err(TraceError::damaged(path, "it ends early"));
        }
        let [kinds, tids, froms, tos] = reader.values.as_slice() else { break };
        let rows_of = kinds.ints.iter().zip(&tids.ints).zip(&froms.ints).zip(&tos.ints);
        for (((kind, tid), from), to) in rows_of {
            let wait = u8::try_from(*kind).ok().filter(|k| WaitKind::from_u8(*k).is_some());
            let (Some(wait), Ok(tid)) = (wait, u32::try_from(*tid)) else {
                return Err(TraceError::damaged(path, "a wait of no known kind"));
            };
            let (from_ns, to_ns) = (from.cast_unsigned(), to.cast_unsigned());
            if from_ns > to_ns {
                return Err(TraceError::damaged(path, "a wait that ends before it begins"));
            }
            batch.waits.push(WaitRecord { kind: RecordKind::Wait as u8, wait, pad: 0, tid, from_ns, to_ns });
        }
        left -= rows as u64;
    }
    Ok(())
}

/// Iterates over a trace's journeys.
pub struct Journeys<'a> {
    replay: Replay<'a>,
    /// Who the flows are, and when their threads waited, as far as is known by
    /// now.
    pub correlator: Correlator,
    batch: Batch,
    ready: VecDeque<JourneyRecord>,
    over: bool,
}

impl Iterator for Journeys<'_> {
    type Item = Result<Journey, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() && !self.over {
            match self.replay.next(&mut self.batch) {
                Ok(Some(Event::Before | Event::Batch)) => {
                    self.correlator.control(&self.batch);
                    self.ready.extend(self.batch.journeys.drain(..));
                }
                // As the pipeline does at an interval.
                Ok(Some(Event::Close(segment))) => {
                    if matches!(segment.closed, Closed::Interval(_)) {
                        self.correlator.waits.prune();
                    }
                }
                Ok(None) => self.over = true,
                Err(e) => {
                    self.over = true;
                    return Some(Err(e));
                }
            }
        }
        let record = self.ready.pop_front()?;
        let (sender, receiver) = self.correlator.flows.namespaces(flow_id(record.run, stream(&record)));
        let record = self.replay.trace.meta.pairs.resolve(record, sender, receiver);
        Some(Ok(self.correlator.journey(&record)))
    }
}
