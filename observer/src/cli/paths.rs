//! `observer paths`: watch the trains that arrive, or take them from a trace,
//! and say how fast the paths are that they took.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use clap::Args;
use load::report::{WriteError, replace};
use observer::{
    filter::{Filter, FilterError},
    kernel::attach::AttachOptions,
    paths::{Gatherer, Report, html, text},
    session::{Session, SessionError},
    source::Batch,
    trace::{Trace, TraceError, reader::Event},
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

use super::report::{Bar, DamageArgs};
use super::{duration, exit};

/// How often the end is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Options of `observer paths`.
#[derive(Debug, Args)]
pub(crate) struct PathsArgs {
    /// Take the trains from this trace instead of watching
    #[arg(value_name = "TRACE", conflicts_with_all = ["port", "netns", "duration"])]
    trace: Option<PathBuf>,
    #[command(flatten)]
    damage: DamageArgs,
    /// Only datagrams of sockets with this UDP port
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Only sockets in this network namespace: a name, a path, or a process id
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,
    /// Watch for this long, or until Ctrl-C
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    duration: Duration,
    /// Print the report as one line of JSON (`observer-paths/1`)
    #[arg(long)]
    json: bool,
    /// Write the report with its histograms to this file as well
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// What ends it without a report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PathsError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Something named does not exist.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The kernel side failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Signals cannot be caught.
    #[error("cannot catch signals: {0}")]
    Signal(io::Error),
    /// Nobody can read what is printed. A closed pipe is not an error.
    #[error("cannot write the report: {0}")]
    Output(io::Error),
    /// The page will not be written.
    #[error(transparent)]
    Place(#[from] WriteError),
    /// The page cannot be written.
    #[error("cannot write {}: {source}; give a path that can be written to", path.display())]
    Page {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl PathsError {
    /// The process's exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Trace(e) => super::report::code_of(e),
            Self::Filter(_) => exit::NO_TARGET,
            Self::Session(e) => exit::of_error(e),
            Self::Place(_) | Self::Page { .. } => exit::NO_TARGET,
            Self::Signal(_) | Self::Output(_) => exit::INVALID,
        }
    }
}

/// Watches, reports; invalid if there was nothing to measure by.
///
/// # Errors
///
/// What kept it from watching or from reporting.
pub(crate) fn run(args: &PathsArgs) -> Result<ExitCode, PathsError> {
    if let Some(dir) = args.html.as_ref().and_then(|path| path.parent()) {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        load::report::prepare(dir)?;
    }
    let report = match &args.trace {
        Some(dir) => recorded(&args.damage.open(dir)?)?,
        None => watch(args)?,
    };
    let written = args.html.as_ref().map_or(Ok(()), |path| {
        replace(path, &html::page(&report)).map_err(|source| PathsError::Page { path: path.clone(), source })
    });
    print(args, &report).map_err(PathsError::Output)?;
    written?;
    Ok(if report.is_empty() { ExitCode::from(exit::INVALID) } else { ExitCode::SUCCESS })
}

/// What a trace tells.
fn recorded(trace: &Trace) -> Result<Report, TraceError> {
    let mut gatherer = Gatherer::default();
    let (mut replay, mut batch) = (trace.replay(), Batch::default());
    let (mut bar, mut done) = (Bar::new("reading"), 0);
    while let Some(event) = replay.next(&mut batch)? {
        gatherer.batch(&batch);
        if let Event::Close(_) = event {
            done += 1;
            bar.show(done, trace.numbers().len());
        }
    }
    bar.clear();
    Ok(gatherer.finish())
}

fn watch(args: &PathsArgs) -> Result<Report, PathsError> {
    let mut options = AttachOptions::default();
    let filter = Filter { port: args.port, netns: args.netns.clone(), ..Filter::default() };
    filter.apply(&mut options.settings)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register(signal, Arc::clone(&stop)).map_err(PathsError::Signal)?;
    }
    let gatherer = Arc::new(Mutex::new(Gatherer::default()));
    let tapped = Arc::clone(&gatherer);
    let tap = move |batch: &_| tapped.lock().unwrap_or_else(PoisonError::into_inner).batch(batch);
    let session = Session::start_tapped(&options, Duration::from_secs(1), Box::new(tap))?;
    eprintln!("watching");
    let end = Instant::now() + args.duration;
    while !stop.load(Ordering::Relaxed) && Instant::now() < end {
        std::thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
    }
    // What is still on its way arrives first.
    session.finish()?;
    let gathered = std::mem::take(&mut *gatherer.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(gathered.finish())
}

fn print(args: &PathsArgs, report: &Report) -> io::Result<()> {
    let text = if args.json { serde_json::to_string(report)? + "\n" } else { text::report(report) };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
