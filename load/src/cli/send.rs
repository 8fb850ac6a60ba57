//! `load send`.

use load::host::CpuTime;
use load::{Progress, Stop, Verdict, verdict};
use serde_json::json;

use super::args::{SendArgs, resolve};
use super::{Failure, print, print_json, text};
use load::display::Display;

/// Sends, prints the report, and gives its verdict.
pub(crate) fn run(args: &SendArgs, stop: &Stop) -> Result<Verdict, Failure> {
    let mut config = args.load.config(resolve(&args.target)?);
    config.bind = args.bind;
    let progress = Progress::new();
    let display = Display::start(&progress);
    let before = CpuTime::now();
    let report = load::send_with(&config, stop, &progress)?;
    drop(display);
    let host = before.zip(CpuTime::now()).map(|(a, b)| a.until(b));
    let findings = verdict::judge(&report, None, host.as_ref());
    let verdict = verdict::worst(&findings);
    if args.json {
        print_json(&json!({
            "schema": "load-send/1", "verdict": verdict, "findings": findings, "host": host, "send": report,
        }))?;
    } else {
        print(&format!("{}{}", text::send(&report), text::verdict(&findings)))?;
    }
    Ok(verdict)
}
