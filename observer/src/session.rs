//! A live observation: a thread of its own that reads the rings, runs the
//! pipeline and publishes a snapshot per interval.
//!
//! ```text
//! Session::start ─ attach ─▶ reader thread: wait, poll, correlate, publish ─▶ watch channel
//! Session::finish ─ let what is under way arrive, final sweep ─▶ last snapshot, detached
//! ```

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use observer_ebpf::abi::{Detail, FlowSlot};
use tokio::sync::watch;

use crate::{
    diagnose::configured::Configuration,
    host::monotonic_ns,
    kernel::{
        KernelError,
        attach::{AttachOptions, Attached},
    },
    pipeline::Pipeline,
    snapshot::Snapshot,
    source::{Batch, Progress, Source, SourceError, SourceMeta, Tables, ring::RingSource},
    trace::record::{Closed, Recorder},
};

/// How long records may sit in the rings. Ten milliseconds at a million
/// datagrams per second fill a tenth of the default rings.
const POLL: Duration = Duration::from_millis(10);
/// How long the end of an observation waits for datagrams that are on their
/// way; what is still under way then is reported as in flight.
const SETTLE: Duration = Duration::from_millis(500);

/// Sees every batch before the pipeline does: recording, and tests.
pub type Tap = Box<dyn FnMut(&Batch) + Send>;

/// What can go wrong while observing.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Nothing could be attached.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The rings or tables became unreadable.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The reader thread could not be started or ended unexpectedly.
    #[error("the reader of the rings {0}; please report this")]
    Reader(String),
}

/// Asks a running observation to start over, from any thread: see
/// [`Snapshot::marked`].
#[derive(Clone, Debug, Default)]
pub struct Marker(Arc<AtomicBool>);

impl Marker {
    /// From the interval that runs now on.
    pub fn mark(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn taken(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// A running observation. Dropping it detaches everything.
pub struct Session {
    stop: Arc<AtomicBool>,
    measure_from: Arc<AtomicI64>,
    reader: Option<JoinHandle<Result<Arc<Snapshot>, SessionError>>>,
    snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    meta: SourceMeta,
    marker: Marker,
}

impl Session {
    /// Attaches, and starts reading. When this returns, every datagram sent
    /// from now on is seen.
    ///
    /// # Errors
    ///
    /// [`SessionError::Kernel`] if the programs cannot be attached.
    pub fn start(options: &AttachOptions, interval: Duration) -> Result<Self, SessionError> {
        Self::start_tapped(options, interval, Box::new(|_| {}))
    }

    /// As [`Session::start`], with every batch shown to `tap` first.
    ///
    /// # Errors
    ///
    /// [`SessionError::Kernel`] if the programs cannot be attached.
    pub fn start_tapped(options: &AttachOptions, interval: Duration, tap: Tap) -> Result<Self, SessionError> {
        Self::start_recorded(options, interval, tap, None)
    }

    /// As [`Session::start_tapped`], recorded by `recorder`.
    ///
    /// # Errors
    ///
    /// [`SessionError::Kernel`] if the programs cannot be attached. What goes
    /// wrong with the recording is no error of the observation; the recorder's
    /// status has it.
    pub fn start_recorded(
        options: &AttachOptions,
        interval: Duration,
        tap: Tap,
        recorder: Option<Recorder>,
    ) -> Result<Self, SessionError> {
        let attached = Attached::new(options)?;
        let source = RingSource::new(attached, Detail::Full)?;
        let meta = source.meta().clone();
        let stop = Arc::new(AtomicBool::new(false));
        let (publish, snapshots) = watch::channel(None);
        let stopped = Arc::clone(&stop);
        let measure_from = Arc::new(AtomicI64::new(i64::MIN));
        let from = Arc::clone(&measure_from);
        let marker = Marker::default();
        let recorder = recorder.map(|mut recorder| {
            recorder.pairs(&options.pairs);
            recorder
        });
        let mut reader = Reader::new(source, tap, from, recorder);
        reader.pipeline.pairs(options.pairs.clone());
        reader.marker = marker.clone();
        let thread = std::thread::Builder::new()
            .name("observer-reader".to_owned())
            .spawn(move || reader.read(&stopped, interval, &publish))
            .map_err(|e| SessionError::Reader(format!("could not be started: {e}")))?;
        Ok(Self { stop, measure_from, reader: Some(thread), snapshots, meta, marker })
    }

    /// Leaves datagrams offered before `from_ns` (CLOCK_MONOTONIC) out of the
    /// distributions; they stay in the counts. To be called before the first
    /// of them is sent.
    pub fn measure_from(&self, from_ns: i64) {
        self.measure_from.store(from_ns, Ordering::Relaxed);
    }

    /// A snapshot per interval; `None` until the first.
    pub fn snapshots(&self) -> watch::Receiver<Option<Arc<Snapshot>>> {
        self.snapshots.clone()
    }

    /// A handle to start over with.
    pub fn marker(&self) -> Marker {
        self.marker.clone()
    }

    /// What is known of the source.
    pub fn meta(&self) -> &SourceMeta {
        &self.meta
    }

    /// Ends the observation and detaches: takes up to half a second for
    /// datagrams that are still on their way.
    ///
    /// # Errors
    ///
    /// What kept the reader from going on.
    pub fn finish(mut self) -> Result<Arc<Snapshot>, SessionError> {
        self.stop.store(true, Ordering::Relaxed);
        match self.reader.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) | None => Err(SessionError::Reader("panicked".to_owned())),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            // Its error, if any, has nobody left to hear it.
            let _ = reader.join();
        }
    }
}

/// The reader thread's state.
struct Reader {
    source: RingSource,
    pipeline: Pipeline,
    batch: Batch,
    tap: Tap,
    measure_from: Arc<AtomicI64>,
    marker: Marker,
    recorder: Option<Recorder>,
}

impl Reader {
    fn new(
        source: RingSource,
        tap: Tap,
        measure_from: Arc<AtomicI64>,
        mut recorder: Option<Recorder>,
    ) -> Self {
        let mut pipeline = Pipeline::new(source.meta().clone());
        pipeline.configured_by(Configuration::live());
        if let Some(recorder) = &mut recorder {
            recorder.begin(source.meta());
            pipeline.record_segments();
        }
        let (batch, marker) = (Batch::default(), Marker::default());
        Self { source, pipeline, batch, tap, measure_from, marker, recorder }
    }

    fn read(
        mut self,
        stop: &AtomicBool,
        interval: Duration,
        publish: &watch::Sender<Option<Arc<Snapshot>>>,
    ) -> Result<Arc<Snapshot>, SessionError> {
        let mut next = Instant::now() + interval;
        while !stop.load(Ordering::Relaxed) {
            self.source.wait(POLL);
            self.drain()?;
            if self.marker.taken() {
                self.pipeline.mark();
            }
            let now = Instant::now();
            if now >= next {
                // The tables first: what they count is then in the rings.
                let tables = self.source.tables(false)?;
                self.drain()?;
                let now_ns = monotonic_ns();
                self.close_segment(&tables, Closed::Interval(now_ns));
                self.pipeline.tables(tables);
                let snapshot = self.pipeline.interval(now_ns);
                if let Some(recorder) = &mut self.recorder {
                    recorder.watch(&snapshot.interval);
                }
                publish.send_replace(Some(snapshot));
                // A late interval does not make the following ones short.
                next = (next + interval).max(now);
            } else if self.recorder.as_ref().is_some_and(Recorder::due) {
                let tables = self.source.tables(false)?;
                self.drain()?;
                self.close_segment(&tables, Closed::Open);
            }
        }
        self.source.follow_no_more();
        let deadline = Instant::now() + SETTLE;
        while Instant::now() < deadline && !settled(&self.source.flows()) {
            self.source.wait(POLL);
            self.drain()?;
        }
        let tables = self.source.tables(true)?;
        self.drain()?;
        self.pipeline.look();
        self.close_segment(&tables, Closed::Final);
        if let Some(recorder) = self.recorder.take() {
            recorder.finish();
        }
        Ok(self.pipeline.finish(tables))
    }

    fn close_segment(&mut self, tables: &Tables, closed: Closed) {
        if let Some(recorder) = &mut self.recorder {
            self.pipeline.close_segment(|segment| recorder.close(segment, tables, closed));
        }
    }

    fn drain(&mut self) -> Result<(), SourceError> {
        loop {
            self.batch.clear();
            let progress = self.source.poll(&mut self.batch)?;
            (self.tap)(&self.batch);
            let from_ns = self.measure_from.load(Ordering::Relaxed);
            self.pipeline.measure_from(from_ns);
            self.pipeline.batch(&self.batch);
            if let Some(recorder) = &mut self.recorder {
                recorder.batch(&mut self.batch, from_ns);
            }
            if progress != Progress::More {
                return Ok(());
            }
        }
    }
}

/// Whether everything that was sent has an outcome.
fn settled(flows: &[FlowSlot]) -> bool {
    flows.iter().filter(|f| f.admitted != 0).all(|f| {
        let known =
            f.delivered.saturating_add(f.dropped).saturating_add(f.evicted).saturating_add(f.unclaimed);
        known >= f.sent
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settled_is_when_every_admitted_datagram_has_an_outcome() {
        let flow =
            FlowSlot { admitted: 1, sent: 10, delivered: 7, dropped: 2, evicted: 1, ..FlowSlot::default() };
        assert!(settled(&[flow]));
        assert!(settled(&[]));
        let late = FlowSlot { delivered: 6, ..flow };
        assert!(!settled(&[flow, late]));
        assert!(settled(&[flow, FlowSlot { admitted: 0, ..late }]));
    }
}
