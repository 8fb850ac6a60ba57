//! `cargo xtask demo`: builds observer as it is shipped and shows it at work.
//!
//! The checked-in BPF object is used, so no bpf toolchain is needed. This
//! process then *becomes* `observer demo`: Ctrl-C reaches it directly, and
//! its exit code is the task's.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::{apt, run, workspace};

/// Neither root nor a way to become it.
#[derive(Debug, thiserror::Error)]
#[error(
    "the demo makes network namespaces and loads BPF programs: run it as root, or install sudo (`apt-get \
     install sudo` as root)"
)]
pub(crate) struct NotRoot;

/// Builds and runs the demo; returns only if it could not be started.
///
/// # Errors
///
/// If something needed is missing, or the build fails.
pub(crate) fn run(args: &[OsString]) -> Result<ExitCode> {
    // Who only asks for help needs neither root nor a network.
    let as_we_are = run::is_root() || args.iter().any(|arg| arg == "--help" || arg == "-h");
    if !as_we_are && run::find("sudo").is_none() {
        return Err(NotRoot.into());
    }
    if run::is_root() || !as_we_are {
        apt::ensure(apt::NETWORK)?;
    }
    let root = workspace::root();
    let programs = run::release(&root, &["observer"])?;
    let observer = programs.join("observer");
    let mut command = if as_we_are {
        run::outside_cargo(&observer)
    } else {
        eprintln!("running the demo through sudo: it makes network namespaces and loads BPF programs");
        let mut sudo = run::outside_cargo("sudo");
        sudo.arg("--").arg(&observer);
        sudo
    };
    command.arg("demo").args(args);
    let error = command.exec();
    Err(error).with_context(|| format!("cannot start `{}`", run::shown(&command)))
}
