//! `cargo xtask picture`: docs/tui.svg, the README's picture, from a real run:
//! observer beside the demo's pausing reader.
//!
//! Nothing in it is drawn by hand: run it again after a change of the main
//! screen, and the picture is what users see.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::demo::NotRoot;
use crate::{apt, run, workspace};

/// Where the picture is, from the top of the checkout.
const PICTURE: &str = "docs/tui.svg";
/// Long enough for a time line to show something.
const SECONDS: &str = "20";

/// Builds observer, plays the scenario and writes the picture.
///
/// # Errors
///
/// If something needed is missing, the build or the demo fails.
pub(crate) fn run() -> Result<ExitCode> {
    if !run::is_root() {
        return Err(NotRoot.into());
    }
    apt::ensure(apt::NETWORK)?;
    let root = workspace::root();
    let programs = run::release(&root, &["observer"])?;
    run::succeed(
        Command::new(programs.join("observer"))
            .args(["demo", "--scenario", "receiver", "--seconds", SECONDS, "--svg"])
            .arg(root.join(PICTURE)),
    )?;
    println!("wrote {PICTURE}");
    Ok(ExitCode::SUCCESS)
}
