//! `ip` and `tc`, run inside a namespace.
//!
//! Each call is one process, started by a thread that has entered; what the
//! program prints on standard error becomes the error's text.

use std::io;
use std::process::{Command, Output, Stdio};

use super::{LabError, Namespace};

/// Where administration programs live when PATH does not say so, as in the
/// PATH that `su` and some containers give.
const SBIN: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Runs `ip ARGS` on `host`.
pub(super) fn ip(host: &Namespace, args: &[&str]) -> Result<(), LabError> {
    run(host, "ip", args).map(drop)
}

/// Runs `tc ARGS` on `host` and gives what it printed.
pub(super) fn tc(host: &Namespace, args: &[&str]) -> Result<String, LabError> {
    run(host, "tc", args)
}

/// Runs `tc ARGS` in the calling thread's own namespace.
pub(super) fn tc_here(args: &[&str]) -> Result<String, LabError> {
    said("this host", "tc", args, find_and_run("tc", args))
}

fn run(host: &Namespace, tool: &'static str, args: &[&str]) -> Result<String, LabError> {
    let output = host.enter(|| find_and_run(tool, args))?;
    said(host.label(), tool, args, output)
}

fn said(
    host: &str,
    tool: &'static str,
    args: &[&str],
    output: io::Result<Output>,
) -> Result<String, LabError> {
    let output = output.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => LabError::ToolMissing { tool },
        _ => LabError::ToolUnusable { tool, source },
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let mut stderr = said.split_whitespace().collect::<Vec<_>>().join(" ");
    if stderr.is_empty() {
        stderr = output.status.to_string();
    }
    Err(LabError::Tool { host: host.into(), command: typed(tool, args), stderr })
}

/// The command as one could type it.
pub(super) fn typed(tool: &str, args: &[&str]) -> String {
    format!("{tool} {}", args.join(" "))
}

fn find_and_run(tool: &str, args: &[&str]) -> io::Result<Output> {
    let run =
        |program: String| Command::new(program).args(args).env("LC_ALL", "C").stdin(Stdio::null()).output();
    let mut result = run(tool.into());
    for dir in SBIN {
        match &result {
            Err(e) if e.kind() == io::ErrorKind::NotFound => result = run(format!("{dir}/{tool}")),
            _ => break,
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::needs_root;

    #[test]
    fn a_missing_program_and_a_refused_command_are_told_apart() {
        needs_root!();
        let ns = Namespace::create("tools").unwrap();
        let e = run(&ns, "no-such-program-here", &[]).unwrap_err();
        assert!(matches!(e, LabError::ToolMissing { .. }), "{e}");
        let e = ip(&ns, &["link", "set", "dev", "nosuch", "up"]).unwrap_err();
        let LabError::Tool { command, stderr, .. } = &e else { panic!("{e}") };
        assert_eq!(command, "ip link set dev nosuch up");
        assert!(stderr.contains("nosuch"), "{e}");
    }
}
