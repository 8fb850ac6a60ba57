//! A line per datagram. What is not known is empty.

use std::io::{self, Write};

use super::{ExportError, Exported, Format, each};
use crate::component::Component;
use crate::correlate::{FlowBook, Journey, Outcome, sequence, stream};
use crate::source::SourceMeta;
use crate::trace::{Selection, Trace};

const HEADER: &str = "outcome,run,stream,seq,l2_bytes,hops,ifindex,intended_ns,offer_ns,syscall_ns,dev_queue_ns,\
dequeue_ns,xmit_ns,rx_ns,sock_enqueue_ns,app_dequeue_ns,drop_ns,drop_reason,sender_queue_ns,shaper_ns,wire_ns,\
receiver_ns,total_ns\n";

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
    each(trace, selection, limit, &mut Csv { meta: trace.meta.source(), line: String::new() }, out, progress)
}

struct Csv {
    meta: SourceMeta,
    line: String,
}

impl Format for Csv {
    fn begin(&mut self, _: &Trace, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(HEADER.as_bytes())
    }

    fn journey(&mut self, j: &Journey, _: &FlowBook, out: &mut dyn Write) -> io::Result<()> {
        use std::fmt::Write as _;
        let r = &j.record;
        let outcome = match j.outcome {
            Outcome::Delivered => "delivered",
            Outcome::Dropped => "dropped",
            Outcome::Unresolved => "unresolved",
        };
        self.line.clear();
        // Writing to a string does not fail.
        let _ = write!(
            self.line,
            "{outcome},{},{},{},{},{},{},{},{}",
            r.run,
            stream(r),
            sequence(r),
            r.l2_bytes,
            r.hops,
            r.ifindex,
            r.intended_ns,
            r.offer_ns
        );
        let points = [
            r.syscall_ns,
            r.dev_queue_ns,
            r.dequeue_ns,
            r.xmit_ns,
            r.rx_ns,
            r.sock_enqueue_ns,
            r.app_dequeue_ns,
            r.drop_ns,
        ];
        for ns in points {
            let _ = if ns == 0 { write!(self.line, ",") } else { write!(self.line, ",{ns}") };
        }
        self.line.push(',');
        if j.outcome == Outcome::Dropped {
            self.line.push_str(&self.meta.reason(r.drop_reason));
        }
        for ns in Component::ALL.into_iter().map(|c| j.stages.component(c)).chain([j.stages.total]) {
            let _ = match ns {
                Some(ns) => write!(self.line, ",{ns}"),
                None => write!(self.line, ","),
            };
        }
        self.line.push('\n');
        out.write_all(self.line.as_bytes())
    }

    fn end(&mut self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}
