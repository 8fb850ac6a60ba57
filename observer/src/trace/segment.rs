//! One segment: a second or so of a trace, in files that are whole or absent.
//!
//! ```text
//! packets-000007.parquet      a row per record
//! waits-000007.parquet        a row per wait of a thread, if there were any
//! earlier-000007.parquet      in a flight recorder: waits from before it, of
//!                             threads whose datagrams were under way
//! unfinished-000007.parquet   journeys without an outcome, in the last segment
//! histograms-000007.parquet   the distributions over the segment
//! segment-000007.json         all the rest; written last, with the lengths
//!                             and checksums of the others
//! ```
//!
//! Without its segment-*.json a segment does not exist.

use std::collections::VecDeque;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use observer_ebpf::abi::{JourneyRecord, WaitKind, WaitRecord};
use serde::{Deserialize, Serialize};

use super::meta::{Anchor, SCHEMA};
use super::state::{FlowEnd, TablesState};
use super::table::{Column, FileInfo, GROUP_ROWS, Kind, Layout, TableWriter, Values, column};
use super::{TraceError, files, histograms, packets};
use crate::diagnose::configured::Recorded;
use crate::report::Waits;
use crate::source::{Batch, Tables};

/// Columns of waits-*.parquet.
pub const WAIT_COLUMNS: &[Column] = &[
    // 1 runnable without a CPU, 2 asleep on a full send buffer.
    column("kind", Kind::Few),
    column("tid", Kind::Few),
    column("from_ns", Kind::Delta),
    column("to_ns", Kind::Delta),
];

/// The whole of segment-*.json.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Segment {
    /// [`SCHEMA`].
    pub schema: String,
    /// Counts up from 0.
    pub number: u64,
    /// When the segment before was closed, ns.
    pub from_ns: u64,
    /// When this one was closed, ns.
    pub to_ns: u64,
    /// The clocks then.
    pub anchor: Anchor,
    /// Earliest and latest offer among its records, ns; null without records.
    pub offer_ns: Option<(i64, i64)>,
    /// What went through the pipeline, in order.
    pub steps: Vec<Step>,
    /// What closed it.
    pub closed: Closed,
    /// The kernel side's tables when it was closed, counted since observing
    /// began.
    pub tables: TablesState,
    /// What was measured, beside the buckets.
    pub measured: histograms::Scalars,
    /// Waits of the segment.
    pub waits: Waits,
    /// Records that could not be understood.
    pub malformed: u64,
    /// Records left out of the distributions (a warm-up): delivered, dropped.
    pub left_out: (u64, u64),
    /// Records the observation had and the trace has not: the disk was slow.
    pub unrecorded: u64,
    /// The flows described before: in a flight recorder's segments, whose
    /// predecessors are forgotten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known_flows: Vec<FlowEnd>,
    /// In a flight recorder's segments: how things stood when the one before
    /// was closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Before>,
    /// The qdisc configuration when it was closed, where it is another one
    /// than before; in a flight recorder's segments, always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qdiscs: Option<Recorded>,
    /// Its other files.
    pub files: Files,
}

/// How things stood when a segment began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Before {
    /// The tables.
    pub tables: TablesState,
    /// Where the times laid down in `waited_ns` had come to, ns by k.
    pub until_ns: Vec<u64>,
}

/// The other files of a segment; null for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// packets-*.parquet.
    pub packets: Option<FileInfo>,
    /// waits-*.parquet.
    pub waits: Option<FileInfo>,
    /// earlier-*.parquet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<FileInfo>,
    /// unfinished-*.parquet.
    pub unfinished: Option<FileInfo>,
    /// histograms-*.parquet.
    pub histograms: Option<FileInfo>,
}

impl Files {
    /// Those there are, with the names they begin with.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, FileInfo)> {
        [
            ("packets", self.packets),
            ("waits", self.waits),
            ("earlier", self.earlier),
            ("unfinished", self.unfinished),
            ("histograms", self.histograms),
        ]
        .into_iter()
        .filter_map(|(what, info)| info.map(|info| (what, info)))
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.each().map(|(_, info)| info.bytes).fold(0, u64::saturating_add)
    }
}

/// What went through the pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// So many rows of packets, after these flows and so many rows of waits.
    Batch {
        /// Rows of packets-*.parquet.
        journeys: u64,
        /// Rows of waits-*.parquet.
        #[serde(default, skip_serializing_if = "is_zero")]
        waits: u64,
        /// Records that could not be understood.
        #[serde(default, skip_serializing_if = "is_zero")]
        malformed: u64,
        /// Flows described.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        flows: Vec<FlowEnd>,
    },
    /// Datagrams offered before this are left out of the distributions.
    MeasureFrom(i64),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// What closed a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Closed {
    /// It was long enough.
    Open,
    /// With an interval of the observation, at this time, ns.
    Interval(u64),
    /// The end of the observation; the tables have been swept.
    Final,
}

/// How far the open segment has come: what is lost if it is never closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenMark {
    /// Number of the segment.
    pub segment: u64,
    /// Records in it so far.
    pub records: u64,
    /// When the last of them came, ns.
    pub at_ns: u64,
}

/// What the pipeline says when a segment is closed.
#[derive(Debug)]
pub struct Closing {
    /// When, ns.
    pub at_ns: u64,
    /// What closed it.
    pub closed: Closed,
    /// The tables then; the unfinished journeys of the last one become rows.
    pub tables: Tables,
    /// The distributions.
    pub rows: histograms::Rows,
    /// Journeys whose waits were forgotten.
    pub forgotten: u64,
    /// Records left out of the distributions: delivered, dropped.
    pub left_out: (u64, u64),
    /// Records that did not fit the queue to the recording thread.
    pub unrecorded: u64,
    /// The qdisc configuration, where it is another one than before.
    pub qdiscs: Option<Recorded>,
}

/// Writes segments, one after the other.
pub struct SegmentWriter {
    dir: PathBuf,
    number: u64,
    from_ns: u64,
    layouts: Layouts,
    packets: Rows,
    waits: Rows,
    wait_totals: Waits,
    steps: Vec<Step>,
    malformed: u64,
    measure_from_ns: i64,
    offer_ns: Option<(i64, i64)>,
    mark: Option<fs::File>,
    /// Kept where segments are forgotten.
    known_flows: Option<Vec<FlowEnd>>,
    /// The same.
    before: Option<Before>,
    /// The same: waits of the segments before this one, oldest first.
    earlier: VecDeque<WaitRecord>,
    /// Waits of this one, that will be among them.
    recent: Vec<WaitRecord>,
}

struct Layouts {
    packets: Layout,
    waits: Layout,
    histograms: Layout,
}

/// Rows on their way to a file, a group at a time.
struct Rows {
    values: Vec<Values>,
    rows: usize,
    file: Option<TableWriter>,
}

impl Rows {
    fn new(columns: &[Column]) -> Self {
        Self { values: vec![Values::default(); columns.len()], rows: 0, file: None }
    }

    /// Writes a group out if one is full, or `all` there are.
    fn flush(&mut self, path: impl Fn() -> PathBuf, layout: &Layout, all: bool) -> Result<(), TraceError> {
        if self.rows == 0 || !all && self.rows < GROUP_ROWS {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(TableWriter::create(&path(), layout)?),
        };
        file.group(&self.values, self.rows)?;
        self.values.iter_mut().for_each(Values::clear);
        self.rows = 0;
        Ok(())
    }

    fn wait(&mut self, wait: &WaitRecord) {
        if let [kind, tid, from, to] = self.values.as_mut_slice() {
            kind.push(wait.wait.into());
            tid.push(wait.tid.into());
            from.push(wait.from_ns.cast_signed());
            to.push(wait.to_ns.cast_signed());
        }
        self.rows += 1;
    }

    fn finish(
        &mut self,
        path: impl Fn() -> PathBuf,
        layout: &Layout,
    ) -> Result<Option<FileInfo>, TraceError> {
        self.flush(path, layout, true)?;
        self.file.take().map(TableWriter::finish).transpose()
    }
}

impl SegmentWriter {
    /// Writes into `dir`, from segment 0 on. With `carry_flows`, each segment
    /// says of all flows so far who they are.
    ///
    /// # Errors
    ///
    /// [`TraceError::Io`] if the directory cannot be written to.
    pub fn new(dir: &Path, start_ns: u64, carry_flows: bool) -> Result<Self, TraceError> {
        let layout = |table, columns| {
            Layout::new(table, columns)
                .map_err(|e| TraceError::Refused(format!("cannot lay out {table}: {e}")))
        };
        let layouts = Layouts {
            packets: layout("packets", packets::COLUMNS)?,
            waits: layout("waits", WAIT_COLUMNS)?,
            histograms: layout("histograms", histograms::COLUMNS)?,
        };
        let path = files::open_mark(dir);
        let mark = fs::File::create(&path).map_err(TraceError::io("create", &path))?;
        Ok(Self {
            dir: dir.to_owned(),
            number: 0,
            from_ns: start_ns,
            layouts,
            packets: Rows::new(packets::COLUMNS),
            waits: Rows::new(WAIT_COLUMNS),
            wait_totals: Waits::default(),
            steps: Vec::new(),
            malformed: 0,
            measure_from_ns: i64::MIN,
            offer_ns: None,
            mark: Some(mark),
            known_flows: carry_flows.then(Vec::new),
            before: None,
            earlier: VecDeque::new(),
            recent: Vec::new(),
        })
    }

    /// Adds a batch; `measure_from_ns` as the pipeline had it.
    ///
    /// # Errors
    ///
    /// [`TraceError::Io`].
    pub fn batch(&mut self, batch: &Batch, measure_from_ns: i64) -> Result<(), TraceError> {
        if measure_from_ns != self.measure_from_ns {
            self.measure_from_ns = measure_from_ns;
            self.steps.push(Step::MeasureFrom(measure_from_ns));
        }
        if batch.is_empty() {
            return Ok(());
        }
        self.step(batch);
        if self.known_flows.is_some() {
            self.recent.extend(&batch.waits);
        }
        for wait in &batch.waits {
            self.waits.wait(wait);
            let length = wait.to_ns.saturating_sub(wait.from_ns);
            match WaitKind::from_u8(wait.wait) {
                Some(WaitKind::RunQueue) => self.wait_totals.run_queue.count(length),
                Some(WaitKind::SendBuffer) => self.wait_totals.send_buffer.count(length),
                None => {}
            }
        }
        let (dir, number) = (&self.dir, self.number);
        for part in batch.journeys.chunks(GROUP_ROWS / 8) {
            for record in part {
                packets::push(&mut self.packets.values, record);
                let offer = record.offer_ns;
                let (first, last) = self.offer_ns.unwrap_or((offer, offer));
                self.offer_ns = Some((first.min(offer), last.max(offer)));
            }
            self.packets.rows += part.len();
            self.packets.flush(|| files::of_segment(dir, "packets", number), &self.layouts.packets, false)?;
        }
        self.waits.flush(|| files::of_segment(dir, "waits", number), &self.layouts.waits, false)?;
        self.mark(batch);
        Ok(())
    }

    /// Batches without anything before their journeys are one with the last.
    fn step(&mut self, batch: &Batch) {
        self.malformed = self.malformed.saturating_add(batch.malformed);
        let plain = batch.flows.is_empty() && batch.waits.is_empty() && batch.malformed == 0;
        if let (true, Some(Step::Batch { journeys, .. })) = (plain, self.steps.last_mut()) {
            *journeys += batch.journeys.len() as u64;
            return;
        }
        let flows: Vec<FlowEnd> = batch.flows.iter().map(FlowEnd::from).collect();
        self.steps.push(Step::Batch {
            journeys: batch.journeys.len() as u64,
            waits: batch.waits.len() as u64,
            malformed: batch.malformed,
            flows,
        });
    }

    /// Notes how far the open segment has come. If that cannot be written, the
    /// segment's own files will say so.
    fn mark(&mut self, batch: &Batch) {
        let Some(mark) = &mut self.mark else { return };
        let records = self.steps.iter().fold(0, |sum, step| match step {
            Step::Batch { journeys, .. } => sum + journeys,
            Step::MeasureFrom(_) => sum,
        });
        let latest = |r: &JourneyRecord| r.app_dequeue_ns.max(r.drop_ns);
        let at_ns = batch.journeys.last().map_or(0, latest);
        let note = OpenMark { segment: self.number, records, at_ns };
        if let Ok(mut text) = serde_json::to_string(&note) {
            // Of one length, so that a shorter note leaves nothing of a longer.
            while text.len() < 127 {
                text.push(' ');
            }
            text.push('\n');
            let _ = mark.seek(SeekFrom::Start(0)).and_then(|_| mark.write_all(text.as_bytes()));
        }
    }

    /// Closes the segment; what was written.
    ///
    /// # Errors
    ///
    /// [`TraceError::Io`].
    pub fn close(&mut self, closing: Closing) -> Result<(Segment, u64), TraceError> {
        let (dir, number) = (self.dir.clone(), self.number);
        let path = |what: &'static str| files::of_segment(&dir, what, number);
        let mut written = Files {
            packets: self.packets.finish(|| path("packets"), &self.layouts.packets)?,
            waits: self.waits.finish(|| path("waits"), &self.layouts.waits)?,
            ..Files::default()
        };
        written.earlier = self.write_earlier(closing.at_ns)?;
        if !closing.tables.unfinished.is_empty() {
            let mut rows = Rows::new(packets::COLUMNS);
            for record in &closing.tables.unfinished {
                packets::push(&mut rows.values, record);
                rows.rows += 1;
                rows.flush(|| path("unfinished"), &self.layouts.packets, false)?;
            }
            written.unfinished = rows.finish(|| path("unfinished"), &self.layouts.packets)?;
        }
        if closing.rows.rows > 0 {
            let mut file = TableWriter::create(&path("histograms"), &self.layouts.histograms)?;
            file.group(&closing.rows.values, closing.rows.rows)?;
            written.histograms = Some(file.finish()?);
        }
        let steps = std::mem::take(&mut self.steps);
        let known_flows = self.known_flows.clone().unwrap_or_default();
        self.remember(&steps);
        let segment = Segment {
            schema: SCHEMA.to_owned(),
            number,
            from_ns: self.from_ns,
            to_ns: closing.at_ns,
            anchor: Anchor::now(),
            offer_ns: self.offer_ns.take(),
            steps,
            closed: closing.closed,
            tables: TablesState::from(&closing.tables),
            measured: closing.rows.scalars,
            waits: Waits { forgotten: closing.forgotten, ..std::mem::take(&mut self.wait_totals) },
            malformed: std::mem::take(&mut self.malformed),
            left_out: closing.left_out,
            unrecorded: closing.unrecorded,
            known_flows,
            before: self.before.take(),
            qdiscs: closing.qdiscs,
            files: written,
        };
        self.before = self
            .known_flows
            .is_some()
            .then(|| Before { tables: segment.tables.clone(), until_ns: segment.measured.until_ns.clone() });
        let text = files::write_json(&path("segment"), &segment)?;
        self.number += 1;
        self.from_ns = closing.at_ns;
        Ok((segment, text + written.bytes()))
    }

    /// Writes the waits from before the segment that a datagram of it may have
    /// met, and moves its own among them.
    fn write_earlier(&mut self, now_ns: u64) -> Result<Option<FileInfo>, TraceError> {
        let first_ns = self.offer_ns.map_or(u64::MAX, |o| u64::try_from(o.0).unwrap_or(0));
        let mut rows = Rows::new(WAIT_COLUMNS);
        for wait in self.earlier.iter().filter(|w| w.to_ns > first_ns) {
            rows.wait(wait);
        }
        let path = files::of_segment(&self.dir, "earlier", self.number);
        let written = rows.finish(|| path.clone(), &self.layouts.waits)?;
        self.earlier.extend(self.recent.drain(..));
        let old = |w: &WaitRecord| w.to_ns.saturating_add(EARLIER_NS) < now_ns;
        while self.earlier.len() > EARLIER || self.earlier.front().is_some_and(old) {
            self.earlier.pop_front();
        }
        Ok(written)
    }

    fn remember(&mut self, steps: &[Step]) {
        let Some(known) = &mut self.known_flows else { return };
        for step in steps {
            let Step::Batch { flows, .. } = step else { continue };
            for flow in flows {
                known.retain(|k| (k.run, k.stream, k.side) != (flow.run, flow.stream, flow.side));
                if known.len() < KNOWN {
                    known.push(flow.clone());
                }
            }
        }
    }

    /// Gives up the open segment: removes what there is of it.
    pub fn abandon(&mut self) {
        (self.packets.file, self.waits.file) = (None, None);
        for what in files::WHAT {
            let path = files::of_segment(&self.dir, what, self.number);
            // It may not be there; what cannot be removed does no harm, since
            // it has no segment-*.json.
            let _ = fs::remove_file(files::aside(&path));
            let _ = fs::remove_file(path);
        }
    }

    /// Takes the mark away: everything is closed.
    pub fn unmark(&mut self) {
        self.mark = None;
        let _ = fs::remove_file(files::open_mark(&self.dir));
    }
}

/// Waits that a flight recorder remembers, and for how long: longer than a
/// datagram is under way.
const EARLIER: usize = GROUP_ROWS;
const EARLIER_NS: u64 = 10_000_000_000;
/// Ends of flows that a flight recorder remembers.
const KNOWN: usize = 2_048;
