//! The HdrHistogram interval log, version 1.3, as HistogramLogProcessor and
//! its relatives read it: one interval per workload, tagged with its name,
//! latencies from the intended time in ns.

use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::Report;

/// The log's text.
///
/// # Errors
/// What the writer says.
pub(super) fn hlog(report: &Report) -> Result<String, String> {
    let mut out = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    // The log wants wall-clock times; only monotonic ones were recorded.
    let now = SystemTime::now();
    let clock = crate::clock::now_ns();
    let wall = |ns: i64| now - Duration::from_nanos(u64::try_from(clock - ns).unwrap_or(0));
    let origin = report.workloads.first().map_or(now, |w| wall(w.send.start_ns));
    {
        let mut writer = IntervalLogWriterBuilder::new()
            .add_comment("load: receive time - intended time, ns")
            .with_start_time(origin)
            .with_base_time(origin)
            // Values are logged in ns: the reader is told nothing else.
            .with_max_value_divisor(1.0)
            .begin_log_with(&mut out, &mut serializer)
            .map_err(|e| e.to_string())?;
        for w in &report.workloads {
            let Some(latency) = w.recv.as_ref().and_then(|r| r.from_intended.as_ref()) else { continue };
            // A tag holds neither commas nor blanks.
            let tag: String = w
                .name
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' })
                .collect();
            // The measured time: the warm-up is in no figure.
            let measured_from = w.send.start_ns + (w.send.length_ns - w.send.measured_ns);
            let from = wall(measured_from).duration_since(origin).unwrap_or(Duration::ZERO);
            let length = Duration::from_nanos(u64::try_from(w.send.measured_ns).unwrap_or(0));
            writer
                .write_histogram(latency.inside(), from, length, Tag::new(&tag))
                .map_err(|e| format!("{e:?}"))?;
        }
    }
    String::from_utf8(out).map_err(|e| e.to_string())
}
