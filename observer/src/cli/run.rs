//! `observer run FILE`: arguments, signals, what is printed and written.

use std::{
    io::{self, IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use load::{
    Stop,
    display::Display,
    report::{self, Report, ReportOptions},
    workload::{self, run::RunError, suite},
};
use observer::{
    kernel::attach::AttachOptions,
    run::{self, live::Live},
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

use super::exit;

/// Options of `observer run`, those of `load run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Workload file (TOML), as for `load run`; objectives on components
    /// (shaper_p99 = "< 5ms") are judged too
    file: PathBuf,
    /// Write a trace of each run into a directory of its own in this one:
    /// DIR/001-NAME and so on
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    #[command(flatten)]
    report: ReportOptions,
}

/// What ends a run without a verdict.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunFailure {
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] workload::ReadError),
    /// An objective cannot be judged.
    #[error(transparent)]
    Objective(#[from] run::Unanswerable),
    /// A workload could not be run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A report file cannot be written.
    #[error(transparent)]
    Write(#[from] report::WriteError),
    /// Signals cannot be caught.
    #[error("cannot catch signals: {0}")]
    Signal(io::Error),
    /// Nobody can read what is printed. A closed pipe is not an error.
    #[error("cannot write the report: {0}")]
    Output(io::Error),
}

impl RunFailure {
    /// The process's exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::File(_) | Self::Objective(_) => exit::USAGE,
            Self::Run(RunError::Watch(e)) => e.exit_code,
            Self::Run(e) if e.is_usage() => exit::USAGE,
            Self::Run(_) | Self::Write(_) => exit::NO_TARGET,
            Self::Signal(_) | Self::Output(_) => exit::INVALID,
        }
    }
}

/// Runs every workload of the file under the observer and reports. A signal
/// ends the running workload; the report is still written.
///
/// # Errors
///
/// What kept a workload from being run: the report of those before it is
/// printed and written all the same.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, RunFailure> {
    let workloads = workload::read(&args.file)?;
    run::check(&args.file.display().to_string(), &workloads)?;
    args.report.prepare()?;
    let stop = stop_on_signals().map_err(RunFailure::Signal)?;
    let mut live = Live::new(AttachOptions::default(), exit::of_error);
    if let Some(dir) = &args.record {
        live.record_into(dir.clone());
    }
    let many = workloads.len() > 1 || workloads.iter().any(|w| w.ramp.is_some());
    let played = suite::play(&workloads, Some(&mut live), &stop, |w, progress| {
        if many && io::stderr().is_terminal() {
            eprintln!("running {} ...", w.name);
        }
        Display::start(progress)
    });
    if played.is_worth_reporting() {
        // The files first: a stdout that is full must not cost them.
        let written = args.report.write(&played.report);
        print(&args.report, &played.report)?;
        written?;
    }
    let unrecorded = live.unrecorded();
    for what in &unrecorded {
        eprintln!("observer: {what}");
    }
    match played.failure {
        Some(e) => Err(e.into()),
        None => Ok(exit::coded(played.report.verdict.exit_code(), unrecorded.is_empty())),
    }
}

fn print(options: &ReportOptions, report: &Report) -> Result<(), RunFailure> {
    let text = options.printed(report).map_err(|e| RunFailure::Output(e.into()))?;
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(RunFailure::Output(e)),
        _ => Ok(()),
    }
}

/// A stop flag that Ctrl-C, SIGTERM and SIGHUP set; a second one of them ends
/// the process at once, and with it everything attached.
fn stop_on_signals() -> io::Result<Stop> {
    let stop = Stop::new();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the first signal finds the flag unset, the second set.
        flag::register_conditional_shutdown(signal, exit::INVALID.into(), stop.flag())?;
        flag::register(signal, stop.flag())?;
    }
    Ok(stop)
}
