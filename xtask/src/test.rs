//! `cargo xtask test`: every test of the workspace, and one line that counts
//! them, the last: `N passed, N failed, N skipped`.
//!
//! Tests that need root, or a kernel that allows what they try, skip
//! themselves elsewhere; they are named with their reasons before that line.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::counts::{Counts, Tally};
use crate::{apt, duckdb, run, workspace};

/// Exit code when no test ran.
const NOTHING_TESTED: u8 = 2;

/// Sets up what the tests run, runs them, and counts.
///
/// # Errors
///
/// If something needed is missing, or cargo cannot be started.
pub(crate) fn run(args: &[OsString]) -> Result<ExitCode> {
    let started = Instant::now();
    let outcome = execute(args, &[])?;
    println!("cargo test took {:.0} s", started.elapsed().as_secs_f64());
    println!("{}", outcome.counts);
    Ok(match (outcome.success, outcome.counts.ran()) {
        (false, _) => ExitCode::FAILURE,
        (true, 0) => ExitCode::from(NOTHING_TESTED),
        (true, _) => ExitCode::SUCCESS,
    })
}

/// How a run of tests ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Whether cargo test succeeded.
    pub(crate) success: bool,
    /// How many tests ended how.
    pub(crate) counts: Counts,
}

/// Runs cargo test with `args` and, in its environment, `variables`; prints
/// its output and which tests skipped themselves.
///
/// # Errors
///
/// If something needed is missing, or cargo cannot be started.
pub(crate) fn execute(args: &[OsString], variables: &[(&str, &OsStr)]) -> Result<Outcome> {
    apt::ensure(apt::NETWORK)?;
    apt::ensure(apt::TERMINAL)?;
    duckdb::set_up();
    if !run::is_root() {
        eprintln!("not root: tests that load BPF programs or make network namespaces will be skipped");
    }
    let mut command = Command::new(workspace::cargo());
    command.current_dir(workspace::root()).args(arguments(args)).stdout(Stdio::piped());
    command.envs(variables.iter().copied());
    let mut child = command.spawn().with_context(|| format!("cannot start `{}`", run::shown(&command)))?;
    let mut tally = Tally::default();
    if let Some(output) = child.stdout.take() {
        let mut terminal = std::io::stdout().lock();
        for line in BufReader::new(output).split(b'\n') {
            let line = line.context("cannot read the output of cargo test")?;
            if tally.line(String::from_utf8_lossy(&line).trim_end_matches('\r')) {
                terminal.write_all(&line).and_then(|()| terminal.write_all(b"\n"))?;
            }
        }
    }
    let status = child.wait().context("cannot wait for cargo test")?;
    for skipped in tally.skipped() {
        println!("skipped {}: {}", skipped.test, skipped.reason);
    }
    let counts = tally.counts();
    if !status.success() && counts.failed == 0 {
        println!(
            "cargo test failed ({status}) without a failing test: it did not compile, or a test crashed"
        );
    }
    Ok(Outcome { success: status.success(), counts })
}

/// The arguments of cargo, from those given here: the whole workspace unless
/// a package is named, all binaries even if one fails, and the tests' output
/// shown to the counter.
fn arguments(given: &[OsString]) -> Vec<OsString> {
    let (for_cargo, for_tests) = match given.iter().position(|arg| arg == "--") {
        Some(at) => (&given[..at], &given[at + 1..]),
        None => (given, &[] as &[OsString]),
    };
    let mut all: Vec<OsString> = ["test", "--locked", "--no-fail-fast"].map(OsString::from).to_vec();
    if !for_cargo.iter().any(|arg| names_package(arg)) {
        all.push("--workspace".into());
    }
    all.extend_from_slice(for_cargo);
    all.extend(["--", "--show-output"].map(OsString::from));
    all.extend_from_slice(for_tests);
    all
}

fn names_package(arg: &OsStr) -> bool {
    let arg = arg.to_string_lossy();
    arg == "--package" || arg.starts_with("--package=") || (arg.starts_with("-p") && !arg.starts_with("--"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(given: &[&str]) -> String {
        let given: Vec<OsString> = given.iter().map(OsString::from).collect();
        arguments(&given).join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn the_whole_workspace_is_tested_unless_a_package_is_named() {
        assert_eq!(of(&[]), "test --locked --no-fail-fast --workspace -- --show-output");
        assert_eq!(of(&["-p", "load"]), "test --locked --no-fail-fast -p load -- --show-output");
        assert_eq!(
            of(&["--package=load", "--", "--ignored", "name"]),
            "test --locked --no-fail-fast --package=load -- --show-output --ignored name"
        );
        assert!(of(&["--profile", "ci"]).contains("--workspace"));
    }
}
