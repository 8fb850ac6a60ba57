//! `observer export`: a trace in formats that other tools read.
//!
//! | format | for | what is in it |
//! |---|---|---|
//! | [`csv`] | spreadsheets, anything | a line per datagram: points, components |
//! | [`hlog`] | HdrHistogram's tools | the distributions, segment by segment |
//! | [`perfetto`] | ui.perfetto.dev, chrome://tracing | a waterfall per datagram |
//! | [`pcapng`] | Wireshark, tshark | a packet per datagram, its journey as a comment |
//!
//! All but hlog take a selection.

pub mod csv;
pub mod hlog;
pub mod pcapng;
pub mod perfetto;

use std::io::{self, Write};

use super::select::{Picker, Selection};
use super::{Trace, TraceError};
use crate::correlate::{FlowBook, Journey};
use crate::report::Detail;

/// Why an export ended.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The output.
    #[error("cannot write the export: {0}")]
    Output(#[from] io::Error),
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Datagrams (or intervals of a distribution).
    pub written: u64,
    /// Whether there was more, beyond the limit.
    pub more: bool,
}

/// A format that is written datagram by datagram.
trait Format {
    /// Before the first.
    fn begin(&mut self, trace: &Trace, out: &mut dyn Write) -> io::Result<()>;
    /// One datagram.
    fn journey(&mut self, j: &Journey, flows: &FlowBook, out: &mut dyn Write) -> io::Result<()>;
    /// After the last.
    fn end(&mut self, out: &mut dyn Write) -> io::Result<()>;
}

fn each(
    trace: &Trace,
    selection: &Selection,
    limit: u64,
    format: &mut dyn Format,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<Exported, ExportError> {
    if trace.meta.detail != Detail::Full {
        let why = "this trace has no record of every datagram: of its distributions there is --format hlog";
        return Err(TraceError::Refused(why.to_owned()).into());
    }
    format.begin(trace, out)?;
    let mut picker = Picker::new(selection, trace.meta.start_ns);
    let mut exported = Exported::default();
    let mut journeys = trace.journeys();
    while let Some(journey) = journeys.next() {
        let journey = journey?;
        if !picker.pick(&journey, true) {
            continue;
        }
        if exported.written >= limit {
            exported.more = true;
            break;
        }
        format.journey(&journey, &journeys.correlator.flows, out)?;
        exported.written += 1;
        if exported.written.is_multiple_of(10_000) {
            progress(exported.written);
        }
    }
    format.end(out)?;
    out.flush()?;
    Ok(exported)
}
