//! `load run FILE`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use load::report::{self, Format, Report};
use load::workload::{self, run::RunError};
use load::{Progress, Stop, Verdict};

use super::{Failure, print, print_json};
use load::display::Display;

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Workload file (TOML).
    file: PathBuf,
    /// Print the report as one line of JSON.
    #[arg(long)]
    json: bool,
    /// Write report files into this directory.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Which report files to write.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "md,json", requires = "report")]
    format: Vec<Format>,
}

impl From<RunError> for Failure {
    fn from(e: RunError) -> Self {
        if e.is_usage() { Self::Usage(e.to_string()) } else { Self::System(e.to_string()) }
    }
}

/// Runs every workload of the file, writes the reports and gives the worst
/// verdict. A stop ends the running workload; the report is still written.
pub(crate) fn run(args: &RunArgs, stop: &Stop) -> Result<Verdict, Failure> {
    let workloads = workload::read(&args.file).map_err(|e| Failure::Usage(e.to_string()))?;
    let mut outcomes = Vec::with_capacity(workloads.len());
    let mut rest = workloads.iter();
    while !stop.is_set()
        && let Some(w) = rest.next()
    {
        if workloads.len() > 1 || w.ramp.is_some() {
            let _ = writeln!(std::io::stderr(), "running {} ...", w.name);
        }
        let progress = Progress::new();
        let display = Display::start(&progress);
        let outcome = workload::run::run(w, stop, &progress)?;
        drop(display);
        outcomes.push(outcome);
    }
    let report = Report::new(outcomes, rest.map(|w| w.name.clone()).collect());
    if args.json {
        print_json(&report)?;
    } else {
        print(&report::text(&report))?;
    }
    if let Some(dir) = &args.report {
        report::write(&report, dir, &args.format).map_err(|e| Failure::System(e.to_string()))?;
    }
    Ok(report.verdict)
}
