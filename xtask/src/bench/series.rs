//! `cargo xtask bench limiter`, `bench diagnosis` and `bench drain`: the long
//! live series of the diagnosis, which are ignored tests of the observer, run
//! once and written down.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Args;

use super::NotRoot;
use crate::{apt, run, workspace};

/// Options of a series.
#[derive(Clone, Debug, Args)]
pub(crate) struct SeriesOptions {
    /// Times each set-up of `bench diagnosis` is played
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Play only set-ups with one of these in their names; the rows of the others stay
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    only: Vec<String>,
    /// Where the table goes, from the top of the checkout
    #[arg(long, default_value = "docs/bench", value_name = "DIR")]
    out: PathBuf,
}

/// Plays the series that the ignored test `test` of the test program `of` is,
/// and writes its table as `name`.md.
///
/// # Errors
///
/// If something needed is missing or the test cannot be run.
pub(super) fn play(of: &str, test: &str, name: &str, options: &SeriesOptions) -> Result<ExitCode> {
    if !run::is_root() {
        return Err(NotRoot.into());
    }
    apt::ensure(apt::NETWORK)?;
    let root = workspace::root();
    let out = root.join(&options.out);
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    run::succeed(&mut command(&root, (of, test), &out.join(name).with_extension("md"), options))?;
    Ok(ExitCode::SUCCESS)
}

fn command(root: &Path, (of, test): (&str, &str), table: &Path, options: &SeriesOptions) -> Command {
    let mut command = Command::new(workspace::cargo());
    command
        .args(["test", "--release", "--locked", "--package", "observer", "--test", of, "--"])
        .args(["--ignored", "--exact", test, "--nocapture"])
        .env("CI", "true")
        .env("SERIES_OUT", table)
        .env("SERIES_ROUNDS", options.rounds.to_string())
        .env("SERIES_ONLY", options.only.join(","))
        .current_dir(root);
    command
}
