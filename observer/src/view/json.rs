//! Reports as JSON lines, one report to the line.

use std::io::{self, Write};

use crate::report::Report;

/// Writes `report` as one line.
///
/// # Errors
///
/// When `out` cannot be written to; a closed pipe is
/// [`io::ErrorKind::BrokenPipe`].
pub fn line(report: &Report, out: &mut impl Write) -> io::Result<()> {
    // serde_json wraps the writer's error; the conversion unwraps it again, so
    // that the caller can tell a closed pipe from a full disk.
    serde_json::to_writer(&mut *out, report).map_err(io::Error::from)?;
    out.write_all(b"\n")
}
