//! `observer compare`: what is different between runs.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use observer::trace::compare::fail_if::{FailIf, Gate};
use observer::trace::compare::{self, Smallest, Verdict, show};
use observer::trace::{TraceError, curves};

use super::exit;
use super::report::{Bar, DamageArgs, TraceFailure, printed};

/// Options of `observer compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The trace that the others are held against, and the others
    #[arg(value_name = "TRACE", num_args = 2.., required = true)]
    traces: Vec<PathBuf>,
    /// One JSON comparison (`observer-compare/1`) per line
    #[arg(long)]
    json: bool,
    /// Fail (exit code 1) when a difference is so, as in 'total_p99 > +10%';
    /// may be given several times
    #[arg(long = "fail-if", value_name = "EXPR")]
    fail_if: Vec<FailIf>,
    /// The smallest difference of a latency worth naming, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = percent)]
    smallest_percent: f64,
    /// And as a time; both must be exceeded
    #[arg(long, value_name = "TIME", default_value = "5us", value_parser = super::duration)]
    smallest: Duration,
    /// Write a page with the runs' curves over one another
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    damage: DamageArgs,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(p) if (0.0..1_000.0).contains(&p) => Ok(p),
        _ => Err("must be a number from 0 to 1000".to_owned()),
    }
}

/// Compares.
///
/// # Errors
///
/// What is wrong with a trace or the output.
pub(crate) fn run(args: &CompareArgs) -> Result<ExitCode, TraceFailure> {
    let smallest = Smallest {
        ratio: args.smallest_percent / 100.0,
        ns: args.smallest.as_secs_f64() * 1e9,
        ..Smallest::default()
    };
    let mut bar = Bar::new("reading");
    let mut read = |dir| {
        let trace = args.damage.open(dir)?;
        compare::read(&trace, &mut |done, all| bar.show(done, all))
    };
    let mut runs = Vec::with_capacity(args.traces.len());
    for dir in &args.traces {
        runs.push(read(dir)?);
    }
    let mut comparisons = Vec::with_capacity(runs.len());
    bar.clear();
    let Some((first, others)) = runs.split_first() else { return Ok(ExitCode::from(exit::USAGE)) };
    let (mut failed, mut unknown) = (false, false);
    let mut out = io::stdout().lock();
    for other in others {
        let comparison = compare::compare(first, other, smallest);
        unknown |= comparison.verdict == Verdict::NotComparable;
        let text = if args.json {
            serde_json::to_string(&comparison).map_err(|e| TraceFailure::Output(e.into()))? + "\n"
        } else {
            show::text(&comparison)
        };
        printed(out.write_all(text.as_bytes()))?;
        comparisons.push(comparison.clone());
        for gate in &args.fail_if {
            match gate.judge(&comparison) {
                Gate::Passed => {}
                Gate::Failed(why) => {
                    failed = true;
                    eprintln!("failed: {why}");
                }
                Gate::Unknown(why) => {
                    unknown = true;
                    eprintln!("not judged: {why}");
                }
            }
        }
    }
    printed(out.flush())?;
    if let Some(path) = &args.html {
        let mut plots = Vec::with_capacity(args.traces.len());
        for dir in &args.traces {
            plots.push(curves::plots(&args.damage.open(dir)?)?);
        }
        if let Some((first, others)) = plots.split_first() {
            let page = compare::page::html(&comparisons, first, others);
            load::report::replace(path, &page).map_err(TraceError::io("write", path))?;
        }
    }
    Ok(match (failed, unknown) {
        (true, _) => ExitCode::from(exit::FAILED),
        (_, true) => ExitCode::from(exit::INVALID),
        _ => ExitCode::SUCCESS,
    })
}
