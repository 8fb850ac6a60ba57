//! `observer limiter`: what holds the datagrams of a trace back.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use observer::diagnose::limiter::Limiter;
use observer::model::two_sided::Kind;
use observer::trace::{Selection, answer};
use observer::view;

use super::report::{Bar, DamageArgs, TraceFailure, printed, since};

/// Options of `observer limiter`.
#[derive(Debug, Args)]
pub(crate) struct LimiterArgs {
    /// The trace's directory
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// One line of JSON: the report's `limiter`
    #[arg(long)]
    json: bool,
    /// Only datagrams offered this long after the start of the observation, or
    /// later
    #[arg(long, value_name = "TIME", value_parser = since)]
    from: Option<Duration>,
    /// Only datagrams offered before this time after the start
    #[arg(long, value_name = "TIME", value_parser = since)]
    to: Option<Duration>,
    #[command(flatten)]
    damage: DamageArgs,
}

/// Diagnoses, and says.
///
/// # Errors
///
/// What is wrong with the trace or the output.
pub(crate) fn run(args: &LimiterArgs) -> Result<ExitCode, TraceFailure> {
    let trace = args.damage.open(&args.trace)?;
    let selection = Selection { from: args.from, to: args.to, ..Selection::default() };
    let mut bar = Bar::new("reading");
    let answer = answer::report(&trace, &selection, &mut |done, all| bar.show(done, all))?;
    bar.clear();
    let nothing = Limiter::of_nothing();
    let found = answer.snapshot.total.limiter.as_ref().unwrap_or(&nothing);
    let mut out = io::stdout().lock();
    let written = if args.json {
        serde_json::to_string(found).map_err(io::Error::other).and_then(|line| writeln!(out, "{line}"))
    } else {
        out.write_all(view::text::limiter(found).as_bytes())
    };
    printed(written.and_then(|()| out.flush()))?;
    // Too little to tell judges nothing.
    let told = found.kind != Kind::NotEnoughEvidence;
    Ok(if told { ExitCode::SUCCESS } else { ExitCode::from(super::exit::INVALID) })
}
