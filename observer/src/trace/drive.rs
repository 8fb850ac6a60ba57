//! Records a source that ends, as a session records the live one: for tests,
//! and for large traces to measure with.

use std::sync::Arc;

use super::record::{Closed, Recorder};
use crate::diagnose::configured::Configuration;
use crate::pipeline::Pipeline;
use crate::snapshot::Snapshot;
use crate::source::{Batch, Progress, Source, SourceError};

/// Runs `source` to its end through the pipeline and `recorder`, with an
/// interval every `interval_ns` of the source's own time; the last snapshot.
///
/// # Errors
///
/// When the source breaks.
pub fn record(
    source: &mut impl Source,
    mut recorder: Recorder,
    interval_ns: u64,
) -> Result<Arc<Snapshot>, SourceError> {
    let mut pipeline = Pipeline::new(source.meta().clone());
    pipeline.pairs(recorder.options().pairs.clone());
    if let Some(qdiscs) = &recorder.options().qdiscs {
        pipeline.configured_by(Configuration::from(qdiscs));
    }
    recorder.begin(source.meta());
    pipeline.record_segments();
    let mut batch = Batch::default();
    let mut next_ns = source.meta().start_ns.saturating_add(interval_ns);
    loop {
        batch.clear();
        let progress = source.poll(&mut batch)?;
        pipeline.batch(&batch);
        recorder.wait_for_room();
        recorder.batch(&mut batch, i64::MIN);
        let last = progress == Progress::End;
        let tables = source.tables(last)?;
        if last {
            pipeline.close_segment(|segment| recorder.close(segment, &tables, Closed::Final));
            recorder.finish();
            return Ok(pipeline.finish(tables));
        }
        if tables.at_ns >= next_ns {
            next_ns = tables.at_ns.saturating_add(interval_ns);
            let at_ns = tables.at_ns;
            pipeline.close_segment(|segment| recorder.close(segment, &tables, Closed::Interval(at_ns)));
            pipeline.tables(tables);
            let snapshot = pipeline.interval(at_ns);
            recorder.watch(&snapshot.interval);
        }
    }
}
