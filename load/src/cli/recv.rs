//! `load recv`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use load::{Delivery, Progress, Receiver, Stop, Verdict};
use serde_json::json;

use super::args::RecvArgs;
use super::{Failure, completed, print, print_json, text};
use load::display::Display;

/// Receives and prints the report. Ended by Ctrl-C it is complete if nothing
/// else was to end it.
pub(crate) fn run(args: &RecvArgs, stop: &Stop) -> Result<Verdict, Failure> {
    if let Some((control, token)) = args.control.read()? {
        return super::serve::run(args, control, token, stop);
    }
    let config = args.config()?;
    let open_ended = config.count.is_none() && config.duration.is_none();
    let mut log = args.reader.log.as_deref().map(DatagramLog::create).transpose()?;
    let receiver = Receiver::bind(&config)?;
    if !args.json {
        // For whoever asked for port 0, or waits for the socket.
        let _ = writeln!(std::io::stderr(), "listening on {}", receiver.local_addr());
    }
    let progress = Progress::new();
    let display = Display::start(&progress);
    let report = receiver.run_with(stop, &progress, |d| {
        if let Some(log) = &mut log {
            log.add(d);
        }
    })?;
    drop(display);
    // A log that could not be written costs nobody the figures.
    let logged = log.map_or(Ok(()), DatagramLog::finish);
    let verdict = completed(report.interrupted && !open_ended);
    if args.json {
        print_json(&json!({ "schema": "load-recv/1", "verdict": verdict, "recv": report }))?;
    } else {
        print(&text::recv(&report))?;
    }
    logged?;
    Ok(verdict)
}

/// Every datagram's times, one line each.
pub(crate) struct DatagramLog {
    path: String,
    out: BufWriter<File>,
    error: Option<std::io::Error>,
}

impl DatagramLog {
    /// Begins the file.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let open =
            |e| Failure::Usage(format!("cannot write {name}: {e}; give a path that can be written to"));
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path).map_err(open)?);
        out.write_all(b"run,stream,seq,intended_ns,offer_ns,received_ns,bytes,arrival\n").map_err(open)?;
        Ok(Self { path: name, out, error: None })
    }

    /// Adds a line; a failure is kept for the end.
    pub(crate) fn add(&mut self, d: &Delivery) {
        let s = &d.stamp;
        let line = writeln!(
            self.out,
            "{},{},{},{},{},{},{},{:?}",
            s.run,
            s.stream(),
            s.seq(),
            s.intended_ns,
            s.offer_ns,
            d.received_ns,
            d.len,
            d.arrival
        );
        if let Err(e) = line {
            self.error.get_or_insert(e);
        }
    }

    /// Writes out what is left.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let flushed = self.out.flush();
        match self.error.map_or(flushed, Err) {
            Ok(()) => Ok(()),
            Err(e) => Err(Failure::System(format!("cannot write {}: {e}", self.path))),
        }
    }
}
