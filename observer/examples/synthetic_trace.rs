//! Records a synthetic run of any size, to measure readers with:
//!
//!     cargo run --release -p observer --example synthetic_trace -- DIR 100000000
//!
//! A million datagrams per second of its own time, in segments of a second.

use std::path::PathBuf;
use std::process::ExitCode;

use observer::source::synthetic::{Plan, Spread, Synthetic};
use observer::trace::drive;
use observer::trace::record::{RecordOptions, Recorder};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (Some(dir), Some(datagrams)) = (args.next(), args.next().and_then(|n| n.parse().ok())) else {
        eprintln!("usage: synthetic_trace DIR DATAGRAMS");
        return ExitCode::from(3);
    };
    let plan = Plan {
        streams: 4,
        datagrams,
        gap_ns: 1_000,
        sender_queue: Spread::Uniform(1_500, 40_000),
        shaper: Spread::Exponential(90_000),
        receiver: Spread::Exponential(60_000),
        drop_every: 10_000,
        ..Plan::default()
    };
    let recorder =
        match Recorder::create(RecordOptions { dir: PathBuf::from(dir), ..RecordOptions::default() }) {
            Ok(recorder) => recorder,
            Err(e) => {
                eprintln!("{e}");
                return ExitCode::from(3);
            }
        };
    let status = recorder.status();
    if let Err(e) = drive::record(&mut Synthetic::new(plan), recorder, 1_000_000_000) {
        eprintln!("{e}");
        return ExitCode::FAILURE;
    }
    match status.failed() {
        None => ExitCode::SUCCESS,
        Some(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
