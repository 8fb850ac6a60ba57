//! `observer trigger`: makes a flight recorder keep its window.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use observer::trace::trigger;

use super::report::{TraceFailure, printed};

/// How long the recorder may take: it looks once per segment.
const PATIENCE: Duration = Duration::from_secs(10);

/// Options of `observer trigger`.
#[derive(Debug, Args)]
pub(crate) struct TriggerArgs {
    /// The directory it records into
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Why, for the preserved trace's meta.json
    #[arg(long, value_name = "TEXT", default_value = "asked for")]
    why: String,
}

/// Asks, and prints where the window is kept.
///
/// # Errors
///
/// If nobody records there.
pub(crate) fn run(args: &TriggerArgs) -> Result<ExitCode, TraceFailure> {
    let kept = trigger::ask(&args.dir, &args.why, PATIENCE)?;
    use std::io::Write;
    printed(writeln!(std::io::stdout().lock(), "{}", kept.display()))?;
    Ok(ExitCode::SUCCESS)
}
