//! The `observer` command.

use std::process::ExitCode;

use clap::Parser;

mod cli;

use cli::{Cli, Command, exit};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Help and version are asked for, and no error.
            let code = if e.use_stderr() { ExitCode::from(exit::USAGE) } else { ExitCode::SUCCESS };
            // Nothing can be done if it cannot be printed.
            let _ = e.print();
            return code;
        }
    };
    match &cli.command {
        None => cli::observe::run(&cli.observe).unwrap_or_else(|e| fail(&e, e.exit_code())),
        Some(Command::Model(model)) => cli::model::run(model).unwrap_or_else(|e| fail(&e, e.exit_code())),
        Some(Command::Attach(args)) => cli::attach::run(args).unwrap_or_else(|e| fail(&e, e.exit_code())),
        Some(Command::Run(args)) => cli::run::run(args).unwrap_or_else(|e| fail(&e, e.exit_code())),
        Some(Command::Paths(args)) => cli::paths::run(args).unwrap_or_else(|e| fail(&e, e.exit_code())),
        Some(Command::Report(args)) => cli::report::run(args).unwrap_or_else(|e| fail(&e, e.exit_code())),
        Some(Command::Limiter(args)) => cli::limiter::run(args).unwrap_or_else(|e| fail(&e, e.exit_code())),
        Some(Command::Compare(args)) => cli::compare::run(args).unwrap_or_else(|e| fail(&e, e.exit_code())),
        Some(Command::Merge(args)) => cli::merge::run(args).unwrap_or_else(|e| fail(&e, e.exit_code())),
        Some(Command::Export(args)) => cli::export::run(args).unwrap_or_else(|e| fail(&e, e.exit_code())),
        Some(Command::Trigger(args)) => cli::trigger::run(args).unwrap_or_else(|e| fail(&e, e.exit_code())),
        Some(Command::Demo(args)) => cli::demo::run(args).unwrap_or_else(|e| fail(&e, exit::INVALID)),
    }
}

fn fail(error: &dyn std::error::Error, code: u8) -> ExitCode {
    eprintln!("observer: {error}");
    ExitCode::from(code)
}
