//! Starting other programs: their failures as one sentence, their
//! environment free of what cargo set for xtask itself.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Variables that cargo and rustup set for the programs they run, or that
/// change what a build produces. A child that brings its own toolchain must
/// inherit none of them.
const BUILD_VARIABLES: &[&str] = &[
    "CARGO",
    "CARGO_BUILD_",
    "CARGO_CRATE_NAME",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_INCREMENTAL",
    "CARGO_MANIFEST_",
    "CARGO_PKG_",
    "CARGO_PRIMARY_PACKAGE",
    "CARGO_PROFILE_",
    "CARGO_TARGET_",
    "LD_LIBRARY_PATH",
    "RUSTC",
    "RUSTDOC",
    "RUSTFLAGS",
    "RUSTUP_TOOLCHAIN",
    "RUST_RECURSION_COUNT",
];

/// Whether `name` is one of [`BUILD_VARIABLES`]; those that end in `_` stand
/// for everything that begins so, RUSTC for its wrappers too.
fn is_build_variable(name: &str) -> bool {
    BUILD_VARIABLES.iter().any(|v| name == *v || (v.ends_with('_') && name.starts_with(v)))
        || name.starts_with("RUSTC_")
        || name.starts_with("RUSTDOC")
}

/// A command that does not inherit cargo's environment.
pub(crate) fn outside_cargo(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_build_variable) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs `command` to its end, its output going where ours goes.
///
/// # Errors
///
/// If it cannot be started.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus> {
    command.status().with_context(|| format!("cannot start `{}`", shown(command)))
}

/// Like [`status`], where anything but success is an error.
///
/// # Errors
///
/// If it cannot be started or does not succeed.
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    if !status.success() {
        bail!("`{}` failed ({status})", shown(command));
    }
    Ok(())
}

/// Builds the programs of `packages` with optimization; the directory they are
/// in.
///
/// # Errors
///
/// If the build fails.
pub(crate) fn release(root: &Path, packages: &[&str]) -> Result<PathBuf> {
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    let mut build = Command::new(workspace::cargo());
    build.args(["build", "--release", "--locked", "--bins"]).args(packages).current_dir(root);
    succeed(&mut build)?;
    Ok(workspace::target_dir(root).join("release"))
}

/// Standard output of a command that succeeds; its standard error is
/// discarded, since this is used to ask whether and what something is.
///
/// # Errors
///
/// If it cannot be started or does not succeed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let out = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !out.status.success() {
        bail!("`{}` failed ({})", shown(command), out.status);
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Finds `program` on PATH, or in the directories for administration that
/// the PATH of ordinary users leaves out.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Whether this process may do what only root may.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The command as one could type it.
pub(crate) fn shown(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_variables_go_and_the_users_settings_stay() {
        for gone in ["CARGO", "CARGO_PKG_NAME", "RUSTC", "RUSTC_WRAPPER", "RUSTDOCFLAGS", "RUSTUP_TOOLCHAIN"]
        {
            assert!(is_build_variable(gone), "{gone} is kept");
        }
        for kept in ["CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_HTTP_PROXY", "PATH", "RUST_BACKTRACE"] {
            assert!(!is_build_variable(kept), "{kept} is removed");
        }
    }

    #[test]
    fn programs_are_found_by_name_only_where_they_can_be_run() {
        assert!(find("sh").is_some());
        assert_eq!(find("no-such-program-here"), None);
        assert!(!is_executable(Path::new("/etc/passwd")));
    }

    #[test]
    fn a_failure_names_the_command_and_how_it_ended() {
        let error = succeed(Command::new("sh").args(["-c", "exit 7"])).unwrap_err().to_string();
        assert!(error.contains("sh -c exit 7") && error.contains('7'), "{error}");
        assert!(output(Command::new("sh").args(["-c", "exit 1"])).is_err());
        assert_eq!(output(Command::new("sh").args(["-c", "echo yes; echo no >&2"])).unwrap(), "yes\n");
    }
}
