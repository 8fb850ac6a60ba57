//! One receiver, one sender: started in their namespaces, awaited, ended.
//!
//! In: a [`Plan`], two command lines and how the receiver ends. Out: what both
//! printed and how the sender exited. Every child is killed when its handle is
//! dropped, so that no way out leaves one; an interrupt ends the wait at once.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::Interrupted;
use super::lab::{Counters, Lab};

/// How often a wait looks again: rarely enough to cost the tools nothing.
const LOOK: Duration = Duration::from_millis(20);
/// A receiver that does not listen by then never will.
const READY: Duration = Duration::from_secs(5);
/// What a run may take beyond its own length.
const GRACE: Duration = Duration::from_secs(15);

/// Set by SIGINT and SIGTERM.
#[derive(Clone, Debug)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Takes both signals over.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub(super) fn install() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&flag)).context("cannot handle signals")?;
        }
        Ok(Self(flag))
    }

    /// [`Interrupted`] once a signal came.
    fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Interrupted.into()) } else { Ok(()) }
    }
}

/// Where a receiver that is ready listens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Listens {
    /// On this TCP port.
    Tcp(u16),
    /// On this UDP port.
    Udp(u16),
}

/// How a receiver comes to its end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ends {
    /// By itself, after its one sender.
    Itself,
    /// When it is interrupted.
    Interrupted,
}

/// A receiver and a sender to be.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The receiver's command line.
    pub(super) receiver: Vec<String>,
    /// The sender's.
    pub(super) sender: Vec<String>,
    /// When the sender may start.
    pub(super) listens: Listens,
    /// When the receiver is done.
    pub(super) ends: Ends,
    /// The receiver on one CPU, the sender on another.
    pub(super) pinned: bool,
    /// How long the sender sends.
    pub(super) lasts: Duration,
}

/// What a pair left behind.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// The receiver's standard output.
    pub(super) receiver: String,
    /// The sender's standard output.
    pub(super) sender: String,
    /// The sender's standard error.
    pub(super) complaints: String,
    /// The sender's exit code.
    pub(super) exit: Option<i32>,
    /// What the kernel counted.
    pub(super) kernel: Counters,
}

/// All that runs are made in.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    lab: &'a Lab,
    stop: &'a Stop,
    load: PathBuf,
    scratch: tempfile::TempDir,
}

impl<'a> Bench<'a> {
    /// `load` is the program under test.
    ///
    /// # Errors
    ///
    /// If there is no room for the tools' output.
    pub(super) fn new(lab: &'a Lab, stop: &'a Stop, load: &Path) -> Result<Self> {
        let scratch = tempfile::tempdir().context("cannot make a directory for the tools' output")?;
        Ok(Self { lab, stop, load: load.to_owned(), scratch })
    }

    /// A file that lives as long as this.
    pub(super) fn scratch(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Runs a pair to its end.
    ///
    /// # Errors
    ///
    /// [`Interrupted`]; or what did not start, listen or end. That the sender
    /// failed is not an error: see [`Outcome::exit`].
    pub(super) fn run(&self, plan: &Plan) -> Result<Outcome> {
        self.stop.check()?;
        let before = self.lab.counters()?;
        let mut receiver = self.start(self.lab.rx(), plan, &plan.receiver, "1", "receiver")?;
        self.until_listening(&mut receiver, plan)?;
        let mut sender = self.start(self.lab.tx(), plan, &plan.sender, "0", "sender")?;
        let exit = self.wait(&mut sender, plan.lasts + GRACE)?;
        if matches!(plan.ends, Ends::Interrupted) {
            // What is queued is still to be read.
            std::thread::sleep(Duration::from_millis(200));
            receiver.signal(Signal::INT);
        }
        self.wait(&mut receiver, GRACE)?;
        let kernel = self.lab.counters()?.since(before);
        let read = |name: &str| -> Result<String> {
            let bytes =
                std::fs::read(self.scratch(name)).with_context(|| format!("cannot read the {name}"))?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        Ok(Outcome {
            receiver: read("receiver.out")?,
            sender: read("sender.out")?,
            complaints: read("sender.err")?,
            exit: exit.code(),
            kernel,
        })
    }

    fn start(&self, host: &str, plan: &Plan, line: &[String], cpu: &str, who: &str) -> Result<Running> {
        let [program, args @ ..] = line else { bail!("no command for the {who}") };
        let mut command = Command::new("ip");
        // `ip` and `taskset` become the program: the child is the tool itself.
        command.args(["netns", "exec", host]);
        if plan.pinned {
            command.args(["taskset", "-c", cpu]);
        }
        if program == "load" {
            command.arg(&self.load)
        } else {
            command.arg(program)
        };
        let file = |end: &str| -> Result<File> {
            File::create(self.scratch(&format!("{who}.{end}"))).with_context(|| format!("the {who}'s output"))
        };
        let child = command
            .args(args)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(file("out")?)
            .stderr(file("err")?)
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        Ok(Running { child, shown: line.join(" ") })
    }

    fn until_listening(&self, receiver: &mut Running, plan: &Plan) -> Result<()> {
        let began = Instant::now();
        loop {
            self.stop.check()?;
            if receiver.is_listening(plan.listens) {
                return Ok(());
            }
            if let Some(status) = receiver.child.try_wait()? {
                let said = std::fs::read_to_string(self.scratch("receiver.err")).unwrap_or_default();
                bail!("`{}` ended before it listened ({status}): {}", receiver.shown, said.trim());
            }
            if began.elapsed() > READY {
                bail!("`{}` does not listen on {:?} after {READY:?}", receiver.shown, plan.listens);
            }
            std::thread::sleep(LOOK);
        }
    }

    fn wait(&self, running: &mut Running, most: Duration) -> Result<ExitStatus> {
        let began = Instant::now();
        loop {
            self.stop.check()?;
            if let Some(status) = running.child.try_wait()? {
                return Ok(status);
            }
            if began.elapsed() > most {
                bail!("`{}` does not end after {most:?}", running.shown);
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// A child. Dropping it ends it.
#[derive(Debug)]
struct Running {
    child: Child,
    shown: String,
}

impl Running {
    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // Gone already is as good.
            let _ = kill_process(pid, signal);
        }
    }

    /// Whether it has entered its namespace and something listens there.
    fn is_listening(&self, listens: Listens) -> bool {
        let pid = self.child.id();
        let own = std::fs::read_link("/proc/self/ns/net").ok();
        if own.is_none() || std::fs::read_link(format!("/proc/{pid}/ns/net")).ok() == own {
            return false;
        }
        // States of include/net/tcp_states.h: 0A is LISTEN, 07 an unconnected UDP socket.
        let (table, port, state) = match listens {
            Listens::Tcp(port) => ("tcp", port, "0A"),
            Listens::Udp(port) => ("udp", port, "07"),
        };
        [table.to_owned(), format!("{table}6")].iter().any(|table| {
            std::fs::read_to_string(format!("/proc/{pid}/net/{table}"))
                .is_ok_and(|sockets| has_socket(&sockets, port, state))
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Whether a table of /proc/net has a socket with this local port and state.
fn has_socket(table: &str, port: u16, state: &str) -> bool {
    let suffix = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next().is_some_and(|local| local.ends_with(&suffix)) && fields.nth(1) == Some(state)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_socket_is_told_from_a_connected_one() {
        let table = "  sl  local_address rem_address   st tx_queue\n\
                     \x20  0: 00000000:1451 00000000:0000 0A 00000000\n\
                     \x20  1: 0100007F:1388 0100007F:D431 01 00000000\n";
        assert!(has_socket(table, 5201, "0A"));
        assert!(!has_socket(table, 5000, "0A"), "established is not listening");
        assert!(!has_socket(table, 1451, "0A"), "ports are hexadecimal there");
        assert!(!has_socket("", 5201, "0A"));
    }
}
