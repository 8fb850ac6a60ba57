//! A waterfall per datagram, as Chrome trace JSON, which ui.perfetto.dev and
//! chrome://tracing open.
//!
//! Every run is a process there and every stream a thread name in the
//! datagrams' names; a datagram is an asynchronous slice with its components
//! nested in it, so that datagrams under way at the same time lie below one
//! another.

use std::io::{self, Write};

use super::{ExportError, Exported, Format, each};
use crate::component::Component;
use crate::correlate::{FlowBook, Journey, Outcome, sequence, stream};
use crate::trace::{Selection, Trace};

/// Writes the selected datagrams of `trace`.
///
/// # Errors
///
/// What is wrong with the trace or the output.
pub fn export(
    trace: &Trace,
    selection: &Selection,
    limit: u64,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<Exported, ExportError> {
    let start_ns = i128::from(trace.meta.start_ns);
    let mut format = Perfetto { start_ns, runs: Vec::new(), first: true, reasons: trace.meta.source() };
    each(trace, selection, limit, &mut format, out, progress)
}

struct Perfetto {
    start_ns: i128,
    runs: Vec<u32>,
    first: bool,
    reasons: crate::source::SourceMeta,
}

/// Of one slice.
struct Slice<'a> {
    name: &'a str,
    from_ns: i128,
    to_ns: i128,
    args: String,
}

impl Perfetto {
    fn event(&mut self, out: &mut dyn Write, event: &str) -> io::Result<()> {
        out.write_all(if std::mem::take(&mut self.first) { b"\n" } else { b",\n" })?;
        out.write_all(event.as_bytes())
    }

    /// Microseconds since the start, with all digits.
    fn at(&self, ns: i128) -> String {
        let ns = (ns - self.start_ns).max(0);
        format!("{}.{:03}", ns / 1_000, ns % 1_000)
    }

    fn slice(&mut self, out: &mut dyn Write, id: &str, run: u32, slice: &Slice<'_>) -> io::Result<()> {
        let common = format!("\"cat\":\"datagram\",\"id2\":{{\"local\":\"{id}\"}},\"pid\":{run},\"tid\":0");
        let (from, to) = (self.at(slice.from_ns), self.at(slice.to_ns));
        let name = slice.name;
        let begin = format!(
            "{{\"ph\":\"b\",\"name\":\"{name}\",{common},\"ts\":{from},\"args\":{{{}}}}}",
            slice.args
        );
        self.event(out, &begin)?;
        self.event(out, &format!("{{\"ph\":\"e\",\"name\":\"{name}\",{common},\"ts\":{to}}}"))
    }
}

impl Format for Perfetto {
    fn begin(&mut self, trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
        let host = serde_json::to_string(&trace.meta.host)?;
        write!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"host\":{host}}},\"traceEvents\":[")
    }

    fn journey(&mut self, j: &Journey, _: &FlowBook, out: &mut dyn Write) -> io::Result<()> {
        let r = &j.record;
        if !self.runs.contains(&r.run) {
            self.runs.push(r.run);
            let name = format!(
                "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{0},\"args\":{{\"name\":\"run {0:#x}\"}}}}",
                r.run
            );
            self.event(out, &name)?;
        }
        let (stream, seq) = (stream(r), sequence(r));
        let id = format!("{}:{stream}:{seq}", r.run);
        let time = |ns: u64| (ns != 0).then_some(i128::from(ns));
        let offer = (r.offer_ns > 0).then_some(i128::from(r.offer_ns));
        let points = [
            offer,
            time(r.syscall_ns),
            time(r.dev_queue_ns),
            time(r.xmit_ns),
            time(r.rx_ns),
            time(r.app_dequeue_ns),
            time(r.drop_ns),
        ];
        // A sender elsewhere has another clock.
        let points = if j.stages.total.is_none() && r.dev_queue_ns == 0 { &points[2..] } else { &points[..] };
        let seen = || points.iter().flatten().copied();
        let (Some(from_ns), Some(to_ns)) = (seen().min(), seen().max()) else { return Ok(()) };
        let what = match j.outcome {
            Outcome::Delivered => "delivered".to_owned(),
            Outcome::Dropped => format!("dropped: {}", self.reasons.reason(r.drop_reason)),
            Outcome::Unresolved => "unresolved".to_owned(),
        };
        let args = format!(
            "\"outcome\":\"{what}\",\"l2_bytes\":{},\"hops\":{},\"batch_pos\":{}",
            r.l2_bytes, r.hops, r.batch_pos
        );
        let name = format!("{stream}:{seq}");
        self.slice(out, &id, r.run, &Slice { name: &name, from_ns, to_ns, args })?;
        // The components lie end to end, whatever the shaper's hops were.
        let mut at = from_ns;
        for component in Component::ALL {
            let Some(ns) = j.stages.component(component) else {
                // Further ones begin at their own point.
                at = match component {
                    Component::SenderQueue => time(r.dev_queue_ns).unwrap_or(at),
                    Component::Shaper | Component::Wire => time(r.rx_ns).unwrap_or(at),
                    Component::Receiver => at,
                };
                continue;
            };
            let to_ns = at + i128::from(ns);
            self.slice(
                out,
                &id,
                r.run,
                &Slice { name: component.name(), from_ns: at, to_ns, args: String::new() },
            )?;
            at = to_ns;
        }
        Ok(())
    }

    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b"\n]}\n")
    }
}
