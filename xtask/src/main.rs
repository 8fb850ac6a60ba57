//! `cargo xtask`: builds, tests and demonstrates observer.
//!
//! One subcommand per module. Each sets up what it needs first (see [`apt`]),
//! so that a machine with stable Rust and apt, and nothing else, can run it.
//! Nothing here is needed to *use* observer: the BPF object is checked in.
//!
//! Exit codes: 0 passed, 1 failed, 2 nothing was tested or a comparison could
//! not be made, 3 bad usage, 4 no permission to set up what is missing. `demo` passes on observer's own.

mod apt;
mod bench;
mod counts;
mod demo;
mod duckdb;
mod ebpf;
mod house;
mod lint;
mod picture;
mod run;
mod test;
mod workspace;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Exit code for bad usage; clap's own would be 2.
const USAGE: u8 = 3;
/// Exit code for a missing permission.
const NO_PERMISSION: u8 = 4;

/// Builds, tests and demonstrates observer.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

/// What can be asked for.
#[derive(Subcommand)]
enum Task {
    /// Show four load tests, each with its tail in another place (needs root, or sudo)
    #[command(disable_help_flag = true)]
    Demo {
        /// Passed on to `observer demo`, `--help` included
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Run every test of the workspace and count them
    Test {
        /// Passed on to `cargo test`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Build the BPF object from observer-ebpf and put it into the observer crate
    Ebpf {
        /// Compare with the object that is checked in, and change nothing
        #[arg(long, conflicts_with = "setup_only")]
        check: bool,
        /// Only set up the toolchain
        #[arg(long)]
        setup_only: bool,
    },
    /// Compare with other people's tools, and write down how it went
    Bench {
        #[command(subcommand)]
        what: bench::Bench,
    },
    /// Draw docs/tui.svg, the picture in the README, from a real run (needs root)
    Picture,
    /// Formatting, clippy and the house rules
    Lint,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are errors to clap, but not to its user.
            let code = if error.use_stderr() { USAGE } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let done = match cli.task {
        Task::Demo { args } => demo::run(&args),
        Task::Test { args } => test::run(&args),
        Task::Ebpf { check: true, .. } => ebpf::check(),
        Task::Ebpf { setup_only: true, .. } => ebpf::set_up(),
        Task::Ebpf { .. } => ebpf::build(),
        Task::Bench { what } => bench::run(&what),
        Task::Picture => picture::run(),
        Task::Lint => lint::run(),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        let no_permission =
            error.is::<apt::Error>() || error.is::<demo::NotRoot>() || error.is::<bench::NotRoot>();
        if no_permission { ExitCode::from(NO_PERMISSION) } else { ExitCode::FAILURE }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn arguments_of_the_demo_are_not_ours_to_read() {
        let cli = Cli::try_parse_from(["xtask", "demo", "--json", "--help", "--seconds", "3"]).unwrap();
        let Task::Demo { args } = cli.task else { panic!("not the demo") };
        assert_eq!(args, ["--json", "--help", "--seconds", "3"]);
    }
}
