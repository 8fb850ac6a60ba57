//! Recording beside an observation.
//!
//! ```text
//! reader of the rings ─ batches, closings ─▶ queue ─▶ recording thread ─▶ segments
//! ```
//!
//! The observation never waits for the disk: a queue that is full costs
//! records of the trace, which are counted, and never an event of the
//! observation. If recording fails (disk full, directory gone), the
//! observation goes on, and [`Status`] says why. Batches are handed over by
//! exchanging buffers, so that nothing is copied.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::flight::Flight;
use super::meta::{End, Meta};
use super::segment::{Closing, SegmentWriter};
use super::trigger::Trigger;
use super::{TraceError, files, histograms};
use crate::correlate::FlowBook;
use crate::correlate::pair::Pairs;
use crate::diagnose::configured::{Configuration, Recorded};
use crate::host::monotonic_ns;
use crate::metrics::counts::RecordsSeen;
use crate::pipeline::SegmentView;
use crate::report::Report;
use crate::source::{Batch, SourceMeta, Tables};

pub use super::segment::Closed;

/// A segment is closed after this long.
const SEGMENT_NS: u64 = 1_000_000_000;
/// Or with so many records: its file stays small, and the reader's memory.
const SEGMENT_RECORDS: u64 = 1 << 20;
/// Records that may wait for the recording thread: some 170 MB, more than a
/// second at 800,000/s.
const QUEUE_RECORDS: u64 = 1 << 20;

/// What to record.
#[derive(Clone, Debug, Default)]
pub struct RecordOptions {
    /// The trace's directory: new, or empty.
    pub dir: PathBuf,
    /// Keep only this much of the past.
    pub window: Option<Duration>,
    /// Conditions on an interval's report that preserve the window.
    pub triggers: Vec<Trigger>,
    /// Time between two intervals.
    pub interval: Duration,
    /// For meta.json.
    pub command_line: Vec<String>,
    /// For meta.json: the configuration of the qdiscs, as far as it is known
    /// from the start.
    pub qdiscs: Option<Recorded>,
    /// For meta.json: devices that together are a shaper.
    pub pairs: Pairs,
}

impl RecordOptions {
    /// Into `dir`, with what this process knows: its command line, and the
    /// qdiscs of its own network namespace. The senders' are not known yet.
    pub fn here(dir: PathBuf, interval: Duration) -> Self {
        let mut own = Configuration::live();
        own.look(&FlowBook::default());
        Self {
            dir,
            interval,
            command_line: std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect(),
            qdiscs: Some(own.record()),
            ..Self::default()
        }
    }
}

/// What has come of a recording so far.
#[derive(Debug, Default)]
pub struct Status {
    /// Records of datagrams written in closed segments.
    pub packets: AtomicU64,
    /// Bytes written in closed segments.
    pub bytes: AtomicU64,
    /// Records the observation had and the trace has not.
    pub unrecorded: AtomicU64,
    /// CPU time of the recording thread, ns.
    pub cpu_ns: AtomicU64,
    /// Records in the queue.
    queued: AtomicU64,
    said: Mutex<Said>,
}

#[derive(Debug, Default)]
struct Said {
    failed: Option<String>,
    news: Vec<String>,
}

impl Status {
    /// Why recording ended early; `None` if it did not.
    pub fn failed(&self) -> Option<String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).failed.clone()
    }

    /// What is to be told since the last call: a failure, a window preserved.
    pub fn news(&self) -> Vec<String> {
        std::mem::take(&mut self.said.lock().unwrap_or_else(PoisonError::into_inner).news)
    }

    fn tell(&self, news: String) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).news.push(news);
    }

    fn fail(&self, why: &TraceError) {
        self.tell(format!("recording has stopped, the observation goes on: {why}"));
        self.said.lock().unwrap_or_else(PoisonError::into_inner).failed = Some(why.to_string());
    }
}

enum Message {
    Batch(Batch, i64),
    Close(Box<Closing>),
    Preserve(String),
}

/// The observation's end of a recording.
pub struct Recorder {
    options: RecordOptions,
    status: Arc<Status>,
    extract: histograms::Extract,
    writer: Option<Writing>,
    segment_from_ns: u64,
    in_segment: u64,
    unrecorded: u64,
    last_seen: RecordsSeen,
    last_forgotten: u64,
    /// A trigger that has fired is quiet until the window has passed.
    quiet_until_ns: u64,
    merged: Option<serde_json::Value>,
    qdiscs: Option<Recorded>,
}

struct Writing {
    queue: Sender<Message>,
    spare: Receiver<Batch>,
    thread: JoinHandle<()>,
}

impl Recorder {
    /// Makes the directory, which must be new or empty.
    ///
    /// # Errors
    ///
    /// [`TraceError::Exists`] if there is something, [`TraceError::Io`] if it
    /// cannot be made or written to.
    pub fn create(options: RecordOptions) -> Result<Self, TraceError> {
        let dir = &options.dir;
        fs::create_dir_all(dir).map_err(TraceError::io("create", dir))?;
        if fs::read_dir(dir).map_err(TraceError::io("read", dir))?.next().is_some() {
            return Err(TraceError::Exists { path: dir.clone() });
        }
        // Claims it, and finds out now whether it can be written to.
        let mark = files::open_mark(dir);
        fs::File::create_new(&mark).map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => TraceError::Exists { path: dir.clone() },
            _ => TraceError::io("create", &mark)(e),
        })?;
        Ok(Self {
            qdiscs: options.qdiscs.clone(),
            options,
            status: Arc::default(),
            extract: histograms::Extract::default(),
            writer: None,
            segment_from_ns: 0,
            in_segment: 0,
            unrecorded: 0,
            last_seen: RecordsSeen::default(),
            last_forgotten: 0,
            quiet_until_ns: 0,
            merged: None,
        })
    }

    /// Says in meta.json what the trace was merged from.
    pub fn merged(&mut self, merged: serde_json::Value) {
        self.merged = Some(merged);
    }

    /// Says in meta.json which devices are, two by two, the ends of a shaper;
    /// to be said before [`Recorder::begin`].
    pub fn pairs(&mut self, pairs: &Pairs) {
        self.options.pairs.clone_from(pairs);
    }

    /// What is known of it from the start.
    pub fn options(&self) -> &RecordOptions {
        &self.options
    }

    /// What comes of it.
    pub fn status(&self) -> Arc<Status> {
        Arc::clone(&self.status)
    }

    /// Writes meta.json, and starts the recording thread.
    pub fn begin(&mut self, source: &SourceMeta) {
        self.segment_from_ns = source.start_ns;
        let interval_ns = u64::try_from(self.options.interval.as_nanos()).unwrap_or(u64::MAX);
        let mut meta = Meta::new(source, self.options.command_line.clone(), interval_ns);
        meta.window_ns = self.options.window.map(|w| u64::try_from(w.as_nanos()).unwrap_or(u64::MAX));
        meta.qdiscs.clone_from(&self.options.qdiscs);
        meta.pairs.clone_from(&self.options.pairs);
        meta.merged = self.merged.take();
        match self.start(meta) {
            Ok(writing) => self.writer = Some(writing),
            Err(e) => self.status.fail(&e),
        }
    }

    fn start(&self, meta: Meta) -> Result<Writing, TraceError> {
        let dir = self.options.dir.clone();
        files::write_json(&files::meta(&dir), &meta)?;
        let segments = SegmentWriter::new(&dir, meta.start_ns, meta.window_ns.is_some())?;
        let flight = meta.window_ns.map(|window_ns| Flight::new(&dir, window_ns));
        let (queue, messages) = channel();
        let (give_back, spare) = channel();
        let mut writer = Writer {
            dir,
            meta,
            segments,
            flight,
            status: self.status(),
            give_back,
            end: End::default(),
            failed: false,
        };
        let thread = std::thread::Builder::new()
            .name("observer-record".to_owned())
            .spawn(move || writer.run(&messages))
            .map_err(TraceError::io("start the recording thread for", &self.options.dir))?;
        Ok(Writing { queue, spare, thread })
    }

    /// Takes a batch that the pipeline has seen, and leaves an empty one.
    pub fn batch(&mut self, batch: &mut Batch, measure_from_ns: i64) {
        let Some(writing) = &self.writer else { return };
        if batch.is_empty() {
            return;
        }
        let records = batch.journeys.len() as u64;
        if self.status.queued.load(Ordering::Relaxed) + records > QUEUE_RECORDS {
            // What describes flows and waits is little, and is kept.
            batch.journeys.clear();
            self.unrecorded += records;
        } else {
            self.in_segment += records;
            self.status.queued.fetch_add(records, Ordering::Relaxed);
        }
        let empty = writing.spare.try_recv().unwrap_or_default();
        let full = std::mem::replace(batch, empty);
        // A thread that is gone has said why.
        let _ = writing.queue.send(Message::Batch(full, measure_from_ns));
    }

    /// Waits until the queue has room: for sources that can wait.
    pub fn wait_for_room(&self) {
        while self.writer.as_ref().is_some_and(|w| !w.thread.is_finished())
            && self.status.queued.load(Ordering::Relaxed) > QUEUE_RECORDS / 2
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether the open segment should be closed.
    pub fn due(&self) -> bool {
        self.in_segment >= SEGMENT_RECORDS
            || monotonic_ns().saturating_sub(self.segment_from_ns) >= SEGMENT_NS
    }

    /// Closes the open segment.
    pub fn close(&mut self, segment: SegmentView<'_>, tables: &Tables, closed: Closed) {
        let qdiscs = self.configured(segment.configuration, closed);
        let Some(writing) = &self.writer else { return };
        let at_ns = match closed {
            Closed::Interval(at_ns) => at_ns,
            Closed::Open | Closed::Final => tables.at_ns,
        };
        let seen = segment.seen;
        let left_out = (seen.delivered - self.last_seen.delivered, seen.dropped - self.last_seen.dropped);
        let closing = Closing {
            at_ns,
            closed,
            tables: tables.clone(),
            rows: self.extract.rows(segment.window, segment.flows),
            forgotten: segment.waits.forgotten - self.last_forgotten,
            left_out,
            unrecorded: std::mem::take(&mut self.unrecorded),
            qdiscs,
        };
        (self.last_seen, self.last_forgotten) = (seen, segment.waits.forgotten);
        self.status.unrecorded.fetch_add(closing.unrecorded, Ordering::Relaxed);
        (self.segment_from_ns, self.in_segment) = (at_ns, 0);
        let _ = writing.queue.send(Message::Close(Box::new(closing)));
    }

    /// The configuration, where it is another one than was written last, or
    /// was written into a segment that will be forgotten.
    fn configured(&mut self, now: &Configuration, closed: Closed) -> Option<Recorded> {
        let now = Some(now.record()).filter(|r| !r.is_empty())?;
        let written = self.qdiscs.as_ref().is_some_and(|before| before.is_as(&now));
        if written && closed != Closed::Final && self.options.window.is_none() {
            return None;
        }
        self.qdiscs = Some(now.clone());
        Some(now)
    }

    /// Looks at an interval's report, and preserves the window if a trigger
    /// says so.
    pub fn watch(&mut self, interval: &Report) {
        let Some(writing) = &self.writer else { return };
        if interval.to_ns < self.quiet_until_ns {
            return;
        }
        if let Some(trigger) = self.options.triggers.iter().find(|t| t.fires(interval)) {
            let window = self.options.window.map_or(0, |w| u64::try_from(w.as_nanos()).unwrap_or(u64::MAX));
            self.quiet_until_ns = interval.to_ns.saturating_add(window);
            let _ = writing.queue.send(Message::Preserve(trigger.to_string()));
        }
    }

    /// Waits until everything is written.
    pub fn finish(self) {
        if let Some(writing) = self.writer {
            drop(writing.queue);
            if writing.thread.join().is_err() {
                let why = "the recording thread panicked; please report this";
                self.status.fail(&TraceError::Refused(why.to_owned()));
            }
        }
    }
}

/// The recording thread.
struct Writer {
    dir: PathBuf,
    meta: Meta,
    segments: SegmentWriter,
    flight: Option<Flight>,
    status: Arc<Status>,
    give_back: Sender<Batch>,
    end: End,
    failed: bool,
}

impl Writer {
    fn run(&mut self, messages: &Receiver<Message>) {
        for message in messages {
            if let Err(e) = self.message(message) {
                self.give_up(&e);
            }
        }
        self.end.at_ns = monotonic_ns();
        self.end.cpu_ns = cpu_ns();
        self.end.unrecorded = self.status.unrecorded.load(Ordering::Relaxed);
        self.status.cpu_ns.store(self.end.cpu_ns, Ordering::Relaxed);
        self.segments.unmark();
        self.meta.end = Some(self.end.clone());
        if let Err(e) = files::write_json(&files::meta(&self.dir), &self.meta)
            && !self.failed
        {
            self.status.fail(&e);
        }
    }

    fn message(&mut self, message: Message) -> Result<(), TraceError> {
        match message {
            Message::Batch(mut batch, measure_from_ns) => {
                let records = batch.journeys.len() as u64;
                let written = if self.failed {
                    self.status.unrecorded.fetch_add(records, Ordering::Relaxed);
                    Ok(())
                } else {
                    self.segments.batch(&batch, measure_from_ns)
                };
                self.status.queued.fetch_sub(records, Ordering::Relaxed);
                batch.clear();
                let _ = self.give_back.send(batch);
                written
            }
            Message::Close(closing) if !self.failed => self.close(*closing),
            Message::Preserve(why) if !self.failed => self.preserve(&why),
            Message::Close(_) | Message::Preserve(_) => Ok(()),
        }
    }

    fn close(&mut self, closing: Closing) -> Result<(), TraceError> {
        let (segment, bytes) = self.segments.close(closing)?;
        let packets = segment.files.packets.map_or(0, |f| f.rows);
        if segment.qdiscs.is_some() {
            self.meta.qdiscs.clone_from(&segment.qdiscs);
        }
        self.end.segments += 1;
        self.end.last = Some(segment.number);
        self.end.packets += packets;
        self.end.bytes += bytes;
        self.status.packets.fetch_add(packets, Ordering::Relaxed);
        self.status.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.status.cpu_ns.store(cpu_ns(), Ordering::Relaxed);
        if let Some(flight) = &mut self.flight {
            flight.closed(&segment);
            if let Some(why) = super::trigger::asked_for(&self.dir) {
                self.preserve(&why)?;
            }
        }
        Ok(())
    }

    fn preserve(&mut self, why: &str) -> Result<(), TraceError> {
        let Some(flight) = &mut self.flight else { return Ok(()) };
        let to = flight.preserve(&self.meta, why)?;
        self.status.tell(format!("{why}: preserved the last minutes in {}", to.display()));
        Ok(())
    }

    /// The open segment is lost; room is made for meta.json, which says why.
    fn give_up(&mut self, why: &TraceError) {
        self.segments.abandon();
        self.end.failed = Some(why.to_string());
        self.failed = true;
        self.status.fail(why);
    }
}

/// CPU time of this thread.
fn cpu_ns() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(t.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(t.tv_nsec).unwrap_or(0))
}

/// Whether there is a trace, or a recording under way, in `dir`.
pub fn exists(dir: &Path) -> bool {
    files::meta(dir).exists() || files::open_mark(dir).exists()
}
