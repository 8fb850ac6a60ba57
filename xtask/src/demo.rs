//! `cargo xtask demo`: builds observer as it is shipped and shows it at work.
//!
//! The checked-in BPF object is used, so no bpf toolchain is needed. This
//! process then *becomes* `observer demo`: Ctrl-C reaches it directly, and
//! its exit code is the task's.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::{apt, run, workspace};

/// Builds and runs the demo; returns only if it could not be started.
///
/// # Errors
///
/// If something needed is missing, or the build fails.
pub(crate) fn run(args: &[OsString]) -> Result<ExitCode> {
    let asks_only = args.iter().any(|a| a == "--help" || a == "-h");
    if !asks_only {
        apt::ensure(apt::NETWORK)?;
    }
    let root = workspace::root();
    run::succeed(
        Command::new(workspace::cargo())
            .args(["build", "--release", "--locked", "--package", "observer", "--bin", "observer"])
            .current_dir(&root),
    )?;
    let observer = target_dir(&root).join("release/observer");
    let mut command = if run::is_root() || asks_only {
        run::outside_cargo(&observer)
    } else {
        if run::find("sudo").is_none() {
            return Err(apt::Error::NoPermission { packages: "sudo".into(), purpose: PURPOSE.into() }.into());
        }
        eprintln!("running the demo through sudo, for {PURPOSE}");
        let mut sudo = run::outside_cargo("sudo");
        sudo.arg("--").arg(&observer);
        sudo
    };
    command.arg("demo").args(args);
    let error = command.exec();
    Err(error).with_context(|| format!("cannot start `{}`", run::shown(&command)))
}

/// Why the demo wants root.
const PURPOSE: &str = "making network namespaces and loading the BPF programs";

/// Where this workspace's build results go.
fn target_dir(root: &std::path::Path) -> std::path::PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}
