//! `ip` and `tc`, run inside a namespace.
//!
//! Each call is one process, started by a thread that has entered; what the
//! program prints on standard error becomes the error's text.

use std::io;
use std::net::Ipv6Addr;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{LabError, Namespace};

/// Where administration programs live when PATH does not say so, as in the
/// PATH that `su` and some containers give.
const SBIN: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Runs `ip ARGS` on `host`.
pub(super) fn ip(host: &Namespace, args: &[&str]) -> Result<(), LabError> {
    run(host, "ip", args).map(drop)
}

/// How long the kernel may take for what it does later, in a work item: up to
/// a second for a carrier, and on a busy machine any of it.
const SETTLES_WITHIN: Duration = Duration::from_secs(5);

/// Waits until `device` carries packets. Before that, its queueing discipline
/// is one that drops all of them without a word.
pub(super) fn wait_until_up(host: &Namespace, device: &str) -> Result<(), LabError> {
    wait(host, &["-o", "link", "show", "dev", device], |shown| {
        // A tunnel's state is UNKNOWN, the others' is UP.
        let up = ["state UP", "state UNKNOWN"].iter().any(|s| shown.contains(s));
        up && shown.contains("LOWER_UP") && !shown.contains("qdisc noop ")
    })
}

/// Waits until packets to `address` are this host's. An IPv6 address that was
/// added gets its local route later, even one that needs no detection of
/// duplicates; before that they are dropped (`Ip6InAddrErrors`).
pub(super) fn wait_until_local(host: &Namespace, address: Ipv6Addr) -> Result<(), LabError> {
    let local = format!("local {address} ");
    wait(host, &["-6", "route", "show", "table", "local"], |shown| shown.contains(&local))
}

/// Waits until what `ip ARGS` shows is `settled`.
fn wait(host: &Namespace, args: &[&str], settled: impl Fn(&str) -> bool) -> Result<(), LabError> {
    let began = Instant::now();
    loop {
        let shown = run(host, "ip", args)?;
        if settled(&shown) {
            return Ok(());
        }
        if began.elapsed() > SETTLES_WITHIN {
            let (command, shown) = (typed("ip", args), shown.trim());
            let what = format!("{} does not settle; `{command}` shows {shown:?}", host.label());
            return Err(LabError::Config { what });
        }
        thread::sleep(Duration::from_millis(10));
    }
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
