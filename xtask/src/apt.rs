//! Installing what is missing, with apt and by name.
//!
//! In: what a task needs and why. Out: it is there, or one [`Error`] that
//! says what to install by hand. Nothing is ever removed or downgraded for
//! it, and nothing outside the distribution's own packages is fetched.

use std::process::{Command, Stdio};
use std::sync::Once;

use crate::run;

/// A program a task runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// Its name on PATH.
    pub(crate) program: &'static str,
    /// The package that brings it, as Debian and its descendants name it.
    pub(crate) package: &'static str,
    /// What it is for, to follow the word "for".
    pub(crate) purpose: &'static str,
}

/// iproute2: what the demo and the live tests build their networks with.
pub(crate) const NETWORK: &[Need] = &[
    Need { program: "ip", package: "iproute2", purpose: "network namespaces to test in" },
    Need { program: "tc", package: "iproute2", purpose: "traffic shapers to test with" },
];

/// tmux: the terminal emulator in which the terminal UI is tested.
pub(crate) const TERMINAL: &[Need] =
    &[Need { program: "tmux", package: "tmux", purpose: "a terminal to test the terminal UI in" }];

/// Why something that is needed could not be installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// This is not a machine with apt.
    #[error("{packages} is needed for {purpose}, and there is no apt-get here: install it by hand")]
    NoApt {
        /// Names of the packages.
        packages: String,
        /// What for.
        purpose: String,
    },
    /// Neither root nor sudo.
    #[error("{packages} is needed for {purpose}: run `apt-get install {packages}` as root")]
    NoPermission {
        /// Names of the packages.
        packages: String,
        /// What for.
        purpose: String,
    },
    /// apt-get ran and did not manage.
    #[error(
        "apt-get could not install {packages}, needed for {purpose} ({how}): see its messages above, and \
         install by hand what this distribution has in its place"
    )]
    Failed {
        /// Names of the packages.
        packages: String,
        /// What for.
        purpose: String,
        /// How apt-get ended.
        how: String,
    },
}

/// Sees to it that every program of `needs` is there.
///
/// # Errors
///
/// If one is missing and cannot be installed.
pub(crate) fn ensure(needs: &[Need]) -> Result<(), Error> {
    let mut packages: Vec<&str> = Vec::new();
    let mut purposes: Vec<&str> = Vec::new();
    for need in needs.iter().filter(|need| run::find(need.program).is_none()) {
        if !packages.contains(&need.package) {
            packages.push(need.package);
        }
        purposes.push(need.purpose);
    }
    if packages.is_empty() { Ok(()) } else { install(&packages, &purposes.join(" and ")) }
}

/// Installs `packages` for `purpose`.
///
/// # Errors
///
/// If apt, the permission to use it, or a package is missing.
pub(crate) fn install(packages: &[&str], purpose: &str) -> Result<(), Error> {
    static LISTS: Once = Once::new();
    let names = packages.join(" ");
    let purpose = purpose.to_owned();
    if run::find("apt-get").is_none() {
        return Err(Error::NoApt { packages: names, purpose });
    }
    if !run::is_root() && run::find("sudo").is_none() {
        return Err(Error::NoPermission { packages: names, purpose });
    }
    eprintln!("installing {names} with apt-get, for {purpose}");
    LISTS.call_once(|| {
        // A third party's list that cannot be had need not matter: if ours is
        // missing too, the next step says so.
        let _ = apt_get(&["update", "--quiet=2"]);
    });
    let mut args = vec!["install", "--yes", "--quiet=2", "--no-install-recommends", "--no-remove"];
    args.extend(packages);
    match apt_get(&args) {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Error::Failed { packages: names, purpose, how: status.to_string() }),
        Err(error) => Err(Error::Failed { packages: names, purpose, how: error.to_string() }),
    }
}

fn apt_get(args: &[&str]) -> std::io::Result<std::process::ExitStatus> {
    let mut command = if run::is_root() {
        Command::new("env")
    } else {
        let mut sudo = Command::new("sudo");
        sudo.arg("env");
        sudo
    };
    command
        .args(["DEBIAN_FRONTEND=noninteractive", "apt-get"])
        // Wait for an unattended upgrade rather than fail beside it.
        .args(["-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0"])
        .args(args)
        .stdin(Stdio::null())
        // Standard output belongs to the task.
        .stdout(std::io::stderr())
        .status()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_done_where_nothing_is_missing() {
        ensure(&[Need { program: "sh", package: "no-such-package", purpose: "nothing" }]).unwrap();
    }

    #[test]
    fn an_error_names_the_package_the_purpose_and_the_way_out() {
        let error = Error::NoPermission { packages: "iproute2".into(), purpose: "the network".into() };
        assert_eq!(
            error.to_string(),
            "iproute2 is needed for the network: run `apt-get install iproute2` as root"
        );
    }
}
