//! `load run FILE`.

use std::io::{Read, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use load::report::{self, Format, Report};
use load::workload::{self, run::RunError};
use load::{Progress, Stop, Verdict, verdict};

use super::progress::Display;
use super::{Failure, print, print_json};

/// Largest workload file read, bytes.
const LARGEST: u64 = 4 << 20;

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
    format: Vec<FormatArg>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatArg {
    Md,
    Json,
    Html,
    Hlog,
}

impl From<FormatArg> for Format {
    fn from(a: FormatArg) -> Self {
        match a {
            FormatArg::Md => Self::Markdown,
            FormatArg::Json => Self::Json,
            FormatArg::Html => Self::Html,
            FormatArg::Hlog => Self::Hlog,
        }
    }
}

impl From<RunError> for Failure {
    fn from(e: RunError) -> Self {
        if e.is_usage() { Self::Usage(e.to_string()) } else { Self::System(e.to_string()) }
    }
}

/// Runs every workload of the file, writes the reports and gives the worst
/// verdict. A stop ends the running workload; the report is still written.
pub(crate) fn run(args: &RunArgs, stop: &Stop) -> Result<Verdict, Failure> {
    let name = args.file.display().to_string();
    let unreadable = |e: std::io::Error| Failure::Usage(format!("cannot read {name}: {e}"));
    let mut text = String::new();
    let file = std::fs::File::open(&args.file).map_err(unreadable)?;
    let read = file.take(LARGEST + 1).read_to_string(&mut text).map_err(unreadable)?;
    if u64::try_from(read).unwrap_or(u64::MAX) > LARGEST {
        return Err(Failure::Usage(format!("{name} is larger than {LARGEST} B, which no workload file is")));
    }
    let workloads = workload::parse(&name, &text).map_err(|e| Failure::Usage(e.to_string()))?;
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
        let mut out = report::table(&report);
        for w in report.workloads.iter().filter(|w| !w.findings.is_empty()) {
            out.push_str(&format!("\n{}:{}", w.name, verdict::show(&w.findings)));
        }
        out.push_str(&format!("\n  result: {}\n", report.verdict.name()));
        print(&out)?;
    }
    if let Some(dir) = &args.report {
        let formats: Vec<Format> = args.format.iter().copied().map(Format::from).collect();
        report::write(&report, dir, &formats).map_err(|e| Failure::System(e.to_string()))?;
    }
    Ok(report.verdict)
}
