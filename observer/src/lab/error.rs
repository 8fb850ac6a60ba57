//! What can go wrong while a lab is built, measured or described, and what
//! to do about it.

use std::io;
use std::path::PathBuf;

use super::scenario::ScenarioError;

/// Why a lab could not be built, entered or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The kernel refused a network namespace to this user.
    #[error("{doing} was refused: run as root, or grant CAP_SYS_ADMIN and CAP_NET_ADMIN")]
    Permission {
        /// What was being done.
        doing: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A system call on a network namespace failed for another reason.
    #[error("{doing} failed: {source}")]
    Namespace {
        /// What was being done.
        doing: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// No thread could be started to enter a namespace.
    #[error(
        "no thread could be started to enter host {host}: {source}; raise the limit on processes (ulimit -u)"
    )]
    Thread {
        /// The host to be entered.
        host: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// `ip` or `tc` is not installed.
    #[error("`{tool}` was found neither in PATH nor in /usr/sbin and /sbin: install iproute2")]
    ToolMissing {
        /// The program's name.
        tool: &'static str,
    },
    /// `ip` or `tc` could not be run.
    #[error("`{tool}` could not be run: {source}")]
    ToolUnusable {
        /// The program's name.
        tool: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// `ip` or `tc` refused a command.
    #[error("on lab host {host}, `{command}` failed: {stderr}{}", hint(stderr))]
    Tool {
        /// The host it ran on.
        host: String,
        /// The command as one could type it.
        command: String,
        /// What it printed, in one line.
        stderr: String,
    },
    /// `tc` printed something that is not what its JSON mode promises.
    #[error(
        "`{command}` printed what this version does not understand ({source}); iproute2 4.17 or newer is needed"
    )]
    ToolOutput {
        /// The command as one could type it.
        command: String,
        /// Where the reading failed.
        source: serde_json::Error,
    },
    /// A device whose other end is a forwarder could not be made.
    #[error("TAP device {device} could not be made: {source}; needs /dev/net/tun (module tun) and root")]
    Tap {
        /// The device.
        device: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A forwarder could not be started, or one of its devices failed.
    #[error("the lab's forwarder failed: {0}")]
    Forwarder(io::Error),
    /// A process to be stopped and continued by turns is not there any more,
    /// or belongs to somebody else.
    #[error("process {pid} cannot be {doing}: {source}")]
    Deschedule {
        /// The process.
        pid: u32,
        /// `stopped` or `continued`.
        doing: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A counter file of the kernel could not be read.
    #[error("{} could not be read: {source}", path.display())]
    Counters {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A counter file of the kernel has another form than expected.
    #[error("{} has no usable line {line:?}", path.display())]
    CountersForm {
        /// The file.
        path: PathBuf,
        /// The line looked for.
        line: &'static str,
    },
    /// A configuration that no lab can be built from.
    #[error("{what}")]
    Config {
        /// What is wrong and what would be right.
        what: String,
    },
    /// The load on a lab failed.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

impl LabError {
    /// Whether privileges are what is missing (exit code 4).
    pub fn is_permission(&self) -> bool {
        match self {
            Self::Permission { .. } => true,
            Self::Tool { stderr, .. } => stderr.contains("Operation not permitted"),
            _ => false,
        }
    }

    pub(super) fn namespace(doing: &'static str, errno: rustix::io::Errno) -> Self {
        let source = io::Error::from(errno);
        match errno {
            rustix::io::Errno::PERM | rustix::io::Errno::ACCESS => Self::Permission { doing, source },
            _ => Self::Namespace { doing, source },
        }
    }
}

/// What a refusal of `ip` or `tc` usually means.
fn hint(stderr: &str) -> &'static str {
    if stderr.contains("qdisc kind is unknown") {
        " (the kernel has no tbf: load or build sch_tbf)"
    } else if stderr.contains("Unknown device type") || stderr.contains("Operation not supported") {
        " (the kernel lacks that device type: load or build veth and bridge)"
    } else if stderr.contains("Operation not permitted") {
        " (run as root, or grant CAP_SYS_ADMIN and CAP_NET_ADMIN)"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_to_do() {
        let e = LabError::namespace("creating a network namespace", rustix::io::Errno::PERM);
        assert!(e.is_permission());
        assert!(e.to_string().contains("run as root"), "{e}");
        let e = LabError::namespace("creating a network namespace", rustix::io::Errno::NOSPC);
        assert!(!e.is_permission());
        let e = LabError::Tool {
            host: "a".into(),
            command: "tc qdisc add".into(),
            stderr: "Error: Specified qdisc kind is unknown.".into(),
        };
        assert!(e.to_string().contains("sch_tbf"), "{e}");
    }
}
