//! The distributions as an HdrHistogram interval log (version 1.3): a line per
//! segment and component, with the component as its tag. Read by
//! HistogramLogProcessor, hdr-plot and their like.

use std::io::Write;
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::{ExportError, Exported};
use crate::component::Component;
use crate::metrics::latency::HIGHEST_NS;
use crate::metrics::{Latency, Window};
use crate::trace::{Trace, TraceError, histograms, path_of};

/// Writes the distributions of the whole trace; they need no record.
///
/// # Errors
///
/// What is wrong with the trace or the output.
pub fn export(
    trace: &Trace,
    mut out: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<Exported, ExportError> {
    let mut serializer = V2DeflateSerializer::new();
    let start = trace.meta.start_ns;
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("latencies by component and in total, ns; written by observer export")
        .with_start_time(time(trace, start))
        .with_base_time(time(trace, start))
        .with_max_value_divisor(1_000_000.0)
        .begin_log_with(&mut out, &mut serializer)?;
    let mut exported = Exported::default();
    for number in trace.numbers() {
        let segment = trace.segment(*number)?;
        let mut window = Window::default();
        let mut table = trace.table(&segment, "histograms", |_| true)?;
        let path = path_of(trace, "histograms", *number);
        histograms::put_back(table.as_mut(), &segment.measured, &path, &mut window, None)?;
        let from = Duration::from_nanos(segment.from_ns.saturating_sub(start));
        let length = Duration::from_nanos(segment.to_ns - segment.from_ns);
        let all = Component::ALL.iter().map(|c| c.name()).zip(&window.components);
        for (name, latency) in all.chain([("total", &window.total)]).filter(|(_, l)| l.count() > 0) {
            let histogram = histogram(latency)?;
            let tag = Tag::new(name);
            log.write_histogram(&histogram, from, length, tag)
                .map_err(|e| ExportError::Output(std::io::Error::other(format!("{e:?}"))))?;
            exported.written += 1;
        }
        progress(exported.written);
    }
    Ok(exported)
}

/// The same values in a histogram of the library. Values above an hour have no
/// bucket; they are put at an hour.
fn histogram(latency: &Latency) -> Result<Histogram<u64>, ExportError> {
    let bad = |e: &dyn std::fmt::Display| TraceError::Refused(format!("no histogram can be made: {e}"));
    let mut h = Histogram::new_with_bounds(1, HIGHEST_NS, 3).map_err(|e| bad(&e))?;
    for (ns, count) in latency.buckets() {
        h.record_n(ns.min(HIGHEST_NS), count).map_err(|e| bad(&e))?;
    }
    h.record_n(HIGHEST_NS, latency.overflow()).map_err(|e| bad(&e))?;
    Ok(h)
}

/// A time of the trace's clock, as the host's wall clock had it.
fn time(trace: &Trace, ns: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(trace.meta.wall_ns(ns))
}
