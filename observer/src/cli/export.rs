//! `observer export`: a trace in other tools' formats.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use observer::trace::TraceError;
use observer::trace::export::{self, ExportError};
use observer::view::units::count;

use super::report::{DamageArgs, SelectArgs, TraceFailure};

/// Datagrams in a waterfall, unless more are asked for: a browser shows that
/// many well.
const WATERFALL: u64 = 20_000;

/// Options of `observer export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The trace's directory
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// What to write
    #[arg(long)]
    format: Format,
    /// Where to, a new file; - is standard output
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Datagrams at most; 20,000 for perfetto unless given
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    #[command(flatten)]
    select: SelectArgs,
    #[command(flatten)]
    damage: DamageArgs,
}

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A line per datagram
    Csv,
    /// The distributions as an HdrHistogram interval log
    Hlog,
    /// A waterfall per datagram, for ui.perfetto.dev
    Perfetto,
    /// A packet per datagram with synthesized headers, for Wireshark
    Pcapng,
}

/// Exports.
///
/// # Errors
///
/// What is wrong with the trace or the output.
pub(crate) fn run(args: &ExportArgs) -> Result<ExitCode, TraceFailure> {
    let trace = args.damage.open(&args.trace)?;
    let selection = args.select.selection();
    if args.format == Format::Hlog && !(selection.is_all() && args.limit.is_none()) {
        let why = "hlog has the whole trace's distributions: nothing can be selected from them".to_owned();
        return Err(TraceFailure::Usage(why));
    }
    let mut out: BufWriter<Box<dyn Write>> = if args.out.as_os_str() == "-" {
        BufWriter::new(Box::new(io::stdout().lock()))
    } else {
        let file = File::create_new(&args.out).map_err(|source| TraceError::Io {
            doing: "create",
            path: args.out.clone(),
            source,
        })?;
        BufWriter::new(Box::new(file))
    };
    let quiet = &mut |_| {};
    let limit = args.limit.unwrap_or(if args.format == Format::Perfetto { WATERFALL } else { u64::MAX });
    let done = match args.format {
        Format::Csv => export::csv::export(&trace, &selection, limit, &mut out, quiet),
        Format::Hlog => export::hlog::export(&trace, &mut out, quiet),
        Format::Perfetto => export::perfetto::export(&trace, &selection, limit, &mut out, quiet),
        Format::Pcapng => export::pcapng::export(&trace, &selection, limit, &mut out, quiet),
    };
    let done = match done.and_then(|done| out.flush().map(|()| done).map_err(ExportError::from)) {
        Ok(done) => done,
        Err(ExportError::Trace(e)) => return Err(e.into()),
        Err(ExportError::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
        Err(ExportError::Output(e)) => return Err(TraceFailure::Output(e)),
    };
    let what = if args.format == Format::Hlog { "histograms" } else { "datagrams" };
    let more = if done.more { "; there are more, see --limit" } else { "" };
    eprintln!("{} {what}{more}", count(done.written));
    Ok(ExitCode::SUCCESS)
}
