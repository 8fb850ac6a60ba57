//! `cargo xtask bench load`: `load` beside iperf3, sockperf and nuttcp, in
//! one run and one pair of network namespaces.
//!
//! In: options. Out: a [`record::Record`] of every run made, as `load.json`,
//! and the report drawn from it, as `load.md`. Neither is ever edited by
//! hand. The parts:
//!
//! | module | what it does |
//! |---|---|
//! | [`lab`] | two namespaces and a plain veth pair, gone on every way out |
//! | [`pair`] | one receiver and one sender, started, awaited, ended |
//! | [`tool`] | each tool's options, and its own figures from what it prints |
//! | [`throughput`] | the highest rate without loss, in interleaved rounds |
//! | [`lag`], [`lateness`] | how late datagrams leave at a rate both can do |
//! | [`absurd`] | what each says when asked for what it cannot do |
//! | [`stats`] | medians, and quantiles with enough samples only |
//! | [`report`] | Markdown |
//! | [`series`] | `bench limiter` and `bench diagnosis`: series of live tests |

mod absurd;
mod lab;
mod lag;
mod lateness;
mod pair;
mod record;
mod report;
mod screen;
mod series;
mod stats;
mod throughput;
mod tool;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use crate::{apt, run, workspace};
use record::{Record, Setting};

/// Exit code of a comparison that could not be made.
const INVALID: u8 = 2;

/// Part of the CPUs' time that others may use before it is worth a warning.
const QUIET: f64 = 0.05;

/// What can be compared.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// `load` beside iperf3, sockperf and nuttcp (needs root; a quarter of an hour)
    Load(LoadOptions),
    /// Limiters of known rate and bucket, measured (needs root; some five minutes)
    Limiter(series::SeriesOptions),
    /// Set-ups with a known cause, diagnosed again and again (needs root; ten minutes)
    Diagnosis(series::SeriesOptions),
    /// What the terminal UI's thread takes of a CPU beside a load (needs root; a minute)
    Tui(screen::TuiOptions),
}

/// Options of `bench load`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LoadOptions {
    /// Interleaved rounds; the medians are over these
    #[arg(long, default_value_t = 9, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Length of each run, seconds
    #[arg(long, default_value_t = 2, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Where load.md and load.json go, from the top of the checkout
    #[arg(long, default_value = "docs/bench", value_name = "DIR")]
    out: PathBuf,
}

/// The peers and what places them on CPUs.
const PEERS: &[apt::Need] = &[
    apt::Need { program: "iperf3", package: "iperf3", purpose: "the comparison" },
    apt::Need { program: "sockperf", package: "sockperf", purpose: "the comparison" },
    apt::Need { program: "nuttcp", package: "nuttcp", purpose: "the comparison" },
    apt::Need { program: "taskset", package: "util-linux", purpose: "placing processes on CPUs" },
];

/// Not root.
#[derive(Debug, thiserror::Error)]
#[error("it makes network namespaces, or loads BPF programs: run `cargo xtask bench` as root")]
pub(crate) struct NotRoot;

/// Ctrl-C or SIGTERM came.
#[derive(Debug, thiserror::Error)]
#[error("interrupted: nothing was written, and the namespaces are gone")]
pub(crate) struct Interrupted;

/// Runs a comparison.
///
/// # Errors
///
/// If something needed is missing, a tool does not work, or it is interrupted.
pub(crate) fn run(bench: &Bench) -> Result<ExitCode> {
    let done = match bench {
        Bench::Load(options) => load(options),
        Bench::Limiter(options) => series::play("series_of_limiters", "limiter", options),
        Bench::Diagnosis(options) => series::play("series_of_set_ups", "diagnosis", options),
        Bench::Tui(options) => screen::measure(options),
    };
    match done {
        Err(error) if error.is::<Interrupted>() => {
            eprintln!("{error}");
            Ok(ExitCode::from(INVALID))
        }
        done => done,
    }
}

fn load(options: &LoadOptions) -> Result<ExitCode> {
    if !run::is_root() {
        return Err(NotRoot.into());
    }
    apt::ensure(&apt::NETWORK[..1])?;
    apt::ensure(PEERS)?;
    let root = workspace::root();
    let programs = run::release(&root, &["load"])?;
    let stop = pair::Stop::install()?;
    let lab = lab::Lab::build()?;
    let bench = pair::Bench::new(&lab, &stop, &programs.join("load"))?;

    let setting = Setting::of_this_machine(options.rounds, options.seconds)?;
    eprintln!(
        "{} rounds of {} s per run, {} B datagrams, buffers of {} B for all; {:.0} % of the CPUs were busy before",
        setting.rounds,
        setting.seconds,
        tool::SIZE,
        setting.buffer,
        setting.busy_before * 100.0
    );
    if setting.busy_before > QUIET {
        eprintln!("warning: the machine is busy; what is measured now is mostly that");
    }
    let throughput = throughput::measure(&bench, &setting)?;
    let lags = lag::measure(&bench, &setting)?;
    let absurd = absurd::measure(&bench, &setting)?;
    let record = Record::new(setting, throughput, lags, absurd);
    drop(bench);
    drop(lab);

    write(&root.join(&options.out), &record)?;
    for claim in &record.claims {
        println!("{claim}");
    }
    Ok(match record.verdict() {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::FAILURE,
        None => ExitCode::from(INVALID),
    })
}

/// Writes both files.
fn write(dir: &Path, record: &Record) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let mut json = serde_json::to_string_pretty(record).context("cannot write the record as JSON")?;
    json.push('\n');
    for (name, content) in [("load.json", json), ("load.md", report::markdown(record))] {
        let file = dir.join(name);
        std::fs::write(&file, content).with_context(|| format!("cannot write {}", file.display()))?;
        eprintln!("wrote {}", file.display());
    }
    Ok(())
}
