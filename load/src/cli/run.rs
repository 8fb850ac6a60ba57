//! `load run FILE`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use load::display::Display;
use load::report::ReportOptions;
use load::workload::suite::{self, Played};
use load::workload::{self, run::RunError};
use load::{Stop, Verdict};

use super::{Failure, print};

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Workload file (TOML)
    file: PathBuf,
    #[command(flatten)]
    report: ReportOptions,
}

impl From<RunError> for Failure {
    fn from(e: RunError) -> Self {
        if e.is_usage() { Self::Usage(e.to_string()) } else { Self::System(e.to_string()) }
    }
}

/// Runs every workload of the file, writes the reports and gives the worst
/// verdict. A stop ends the running workload, and one that cannot be run ends
/// the suite; the report of what was run is still written.
pub(crate) fn run(args: &RunArgs, stop: &Stop) -> Result<Verdict, Failure> {
    let workloads = workload::read(&args.file).map_err(|e| Failure::Usage(e.to_string()))?;
    let unwritable = |e: load::report::WriteError| Failure::System(e.to_string());
    args.report.prepare().map_err(unwritable)?;
    let many = workloads.len() > 1 || workloads.iter().any(|w| w.ramp.is_some());
    let played = suite::play(&workloads, None, stop, |w, progress| {
        if many {
            let _ = writeln!(std::io::stderr(), "running {} ...", w.name);
        }
        Display::start(progress)
    });
    if played.is_worth_reporting() {
        let unprintable = |e| Failure::System(format!("cannot write the report: {e}"));
        // The files first: a stdout that is full must not cost them.
        let written = args.report.write(&played.report).map_err(unwritable);
        print(&args.report.printed(&played.report).map_err(unprintable)?)?;
        written?;
    }
    let Played { report, failure } = played;
    failure.map_or(Ok(report.verdict), |e| Err(e.into()))
}
