//! `observer merge`: two hosts' halves, joined.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use observer::trace::merge::{Merged, merge};
use observer::view;
use observer::view::units::{count, duration};

use super::exit;
use super::report::{Bar, DamageArgs, TraceFailure, printed};

/// Options of `observer merge`.
#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// The sending host's trace: times will be on its clock
    #[arg(long, value_name = "TRACE")]
    tx: PathBuf,
    /// The receiving host's trace
    #[arg(long, value_name = "TRACE")]
    rx: PathBuf,
    /// Where the merged trace goes, a new or empty directory
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// What came of it and the report, as two lines of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    damage: DamageArgs,
}

/// Merges, and reports on the merged trace.
///
/// # Errors
///
/// What is wrong with a trace or the output.
pub(crate) fn run(args: &MergeArgs) -> Result<ExitCode, TraceFailure> {
    let (tx, rx) = (args.damage.open(&args.tx)?, args.damage.open(&args.rx)?);
    let mut bar = Bar::new("merging");
    let (merged, snapshot) = merge(&tx, &rx, &args.out, &mut |done, all| bar.show(done, all))?;
    bar.clear();
    let mut out = io::stdout().lock();
    let text = if args.json {
        serde_json::to_string(&merged).map_err(|e| TraceFailure::Output(e.into()))? + "\n"
    } else {
        text(&merged)
    };
    printed(out.write_all(text.as_bytes()))?;
    printed(if args.json {
        view::json::line(&snapshot.total, &mut out)
    } else {
        out.write_all(view::text::report(&snapshot.total, false).as_bytes())
    })?;
    printed(out.flush())?;
    Ok(exit::of_verdict(snapshot.total.verdict))
}

fn text(m: &Merged) -> String {
    let sign = if m.offset_ns < 0 { "behind" } else { "ahead" };
    let offset = duration(m.offset_ns.unsigned_abs());
    let within = match m.within_ns {
        Some(ns) => format!("within {}", duration(ns)),
        None => {
            "unknown by how much: nothing came back, and wire times are relative to the shortest".to_owned()
        }
    };
    let bent = if m.bent_ns > 0 {
        format!("; {} of that because the clocks did not drift evenly", duration(m.bent_ns))
    } else {
        String::new()
    };
    format!(
        "{} journeys joined ({} forth, {} back), {} on one host\n\
         the receiving host's clock is {offset} {sign}, drifting by {:.2} ppm, {within}{bent}\n\
         {} halves sent and {} received found no other; {} wire times below 0\n\n",
        count(m.forth + m.back),
        count(m.forth),
        count(m.back),
        count(m.local),
        m.drift_ppm,
        count(m.unmatched_sent),
        count(m.unmatched_received),
        count(m.negative_wire),
    )
}
