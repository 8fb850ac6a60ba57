//! `cargo xtask bench tui`: what the terminal UI's thread takes of a CPU,
//! beside a real load.
//!
//! In: a rate and a length. `load` sends over the loopback, observer shows it
//! in a tmux at ten frames and ten intervals a second, screen after screen;
//! the CPU time of its UI thread is read from /proc. Out: a line for each
//! screen, and failure where one takes more than [`ALLOWED`].

use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use super::{INVALID, NotRoot};
use crate::{apt, run, workspace};

/// Share of a core that the thread may take.
const ALLOWED: f64 = 0.05;
/// Frames, and intervals, a second.
const HZ: u32 = 10;
/// Where the load goes.
const TARGET: &str = "127.0.0.1:9079";
/// Kernel ticks a second in /proc/<pid>/stat, on every Linux.
const TICKS: f64 = 100.0;

/// Options of `bench tui`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TuiOptions {
    /// Datagrams a second
    #[arg(long, default_value = "100k", value_name = "RATE")]
    rate: String,
    /// Time on each screen, seconds
    #[arg(long, default_value_t = 5, value_name = "S", value_parser = clap::value_parser!(u32).range(2..=60))]
    seconds: u32,
}

/// A child that does not outlast this.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A tmux of its own, gone at the end.
struct Tmux(String);

impl Tmux {
    fn run(&self, args: &[&str]) -> Result<String> {
        run::output(Command::new("tmux").args(["-u", "-L", &self.0]).args(args).env("LC_ALL", "C.UTF-8"))
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.run(&["kill-server"]);
    }
}

/// Measures, screen by screen.
///
/// # Errors
///
/// If something needed is missing, or does not start.
pub(super) fn measure(options: &TuiOptions) -> Result<ExitCode> {
    if !run::is_root() {
        return Err(NotRoot.into());
    }
    apt::ensure(apt::TERMINAL)?;
    let root = workspace::root();
    let programs = run::release(&root, &["observer", "load"])?;
    let screens = ["main", "sender", "shaper", "receiver", "flows", "journeys", "health", "help"];
    let lasts = options.seconds * (u32::try_from(screens.len()).unwrap_or(8) + 3) + 10;
    let load = |args: &[&str]| -> Result<Killed> {
        let mut command = run::outside_cargo(programs.join("load"));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Killed(command.spawn().context("cannot start load")?))
    };
    let _receiver = load(&["recv", TARGET])?;
    let duration = format!("{lasts}s");
    let _sender = load(&["send", TARGET, "--rate", &options.rate, "--duration", &duration])?;

    let tmux = Tmux(format!("observer-bench-{}", std::process::id()));
    let observer = programs.join("observer");
    let command = format!("exec {} --tui --interval 100ms --refresh {HZ}", observer.display());
    tmux.run(&["-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40", &command])?;
    let pid = tmux.run(&["display", "-p", "#{pane_pid}"])?.trim().to_owned();
    let end = Instant::now() + Duration::from_secs(30);
    while !tmux.run(&["capture-pane", "-p"])?.contains("tail:") {
        ensure!(Instant::now() < end, "observer shows nothing:\n{}", tmux.run(&["capture-pane", "-p"])?);
        sleep(Duration::from_millis(100));
    }
    let mut worst: f64 = 0.0;
    for (i, screen) in screens.iter().enumerate() {
        tmux.run(&["send-keys", &(i + 1).to_string()])?;
        sleep(Duration::from_millis(500));
        let (before, since) = (cpu_seconds(&pid)?, Instant::now());
        sleep(Duration::from_secs(options.seconds.into()));
        let share = (cpu_seconds(&pid)? - before) / since.elapsed().as_secs_f64();
        worst = worst.max(share);
        println!("{screen:>9}  {:.2} % of a core at {HZ} frames a second", share * 100.0);
    }
    tmux.run(&["send-keys", "1"])?;
    sleep(Duration::from_millis(500));
    let shown = tmux.run(&["capture-pane", "-p"])?;
    println!("{shown}");
    if !shown.contains("live") {
        println!("it was not live to the end: nothing can be said");
        return Ok(ExitCode::from(INVALID));
    }
    println!("at most {:.2} % of a core, {:.0} % allowed", worst * 100.0, ALLOWED * 100.0);
    Ok(if worst < ALLOWED { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// CPU time of the process's first thread, which is the UI's, in seconds.
fn cpu_seconds(pid: &str) -> Result<f64> {
    let path = Path::new("/proc").join(pid).join("task").join(pid).join("stat");
    let stat = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    // The name may have spaces: what counts is behind its parenthesis.
    let Some((_, rest)) = stat.rsplit_once(") ") else { bail!("{} is not understood", path.display()) };
    let mut fields = rest.split(' ').skip(11).map(str::parse::<f64>);
    match (fields.next(), fields.next()) {
        (Some(Ok(user)), Some(Ok(system))) => Ok((user + system) / TICKS),
        _ => bail!("{} is not understood", path.display()),
    }
}
