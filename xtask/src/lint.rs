//! `cargo xtask lint`: formatting, clippy, and the house rules of [`house`].
//!
//! All of them run even if one fails: one look shows everything there is to
//! mend.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::{house, run, workspace};

/// Runs all checks; failure if one of them finds something.
///
/// # Errors
///
/// If a check cannot be run.
pub(crate) fn run() -> Result<ExitCode> {
    let root = workspace::root();
    let cargo = |args: &[&str]| -> Result<bool> {
        let mut command = Command::new(workspace::cargo());
        command.current_dir(&root).args(args);
        eprintln!("lint: {}", run::shown(&command));
        Ok(run::status(&mut command)?.success())
    };
    let formatted = cargo(&["fmt", "--all", "--check"])?;
    let clean = cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])?;
    eprintln!("lint: the house rules");
    let findings = house::check(&root)?;
    for finding in &findings {
        eprintln!("{finding}");
    }
    let failed: Vec<&str> =
        [(formatted, "formatting"), (clean, "clippy"), (findings.is_empty(), "house rules")]
            .into_iter()
            .filter_map(|(ok, name)| (!ok).then_some(name))
            .collect();
    if failed.is_empty() {
        println!("lint: clean");
        Ok(ExitCode::SUCCESS)
    } else {
        println!("lint: failed ({})", failed.join(", "));
        Ok(ExitCode::FAILURE)
    }
}
