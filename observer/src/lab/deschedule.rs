//! A process that is off its CPU by turns, as everything in a virtual machine
//! is when the hypervisor runs another one: SIGSTOP, SIGCONT, on a schedule.
//!
//! What the process would have sent meanwhile is sent late, so entry *and*
//! exit of any shaper behind it show the gap, and the one-way delay stays
//! flat. The process is continued however this ends but by SIGKILL of the
//! process that stops it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::forward::stall::{Stall, StallConfig};
use super::{LabError, priority};
use crate::host::monotonic_ns;

/// How often the end is looked for while there is nothing to do.
const LOOK: Duration = Duration::from_millis(5);

/// A process being stopped and continued. Dropping it lets the process run.
#[derive(Debug)]
pub struct Deschedule {
    stop: Arc<AtomicU64>,
    thread: Option<JoinHandle<io::Result<u64>>>,
    pid: u32,
}

impl Deschedule {
    /// Begins with process `pid` running.
    ///
    /// # Errors
    ///
    /// [`LabError::Deschedule`] if there is no such process or it may not be
    /// signalled.
    pub fn start(pid: u32, config: StallConfig) -> Result<Self, LabError> {
        let failed = |source| LabError::Deschedule { pid, doing: "stopped", source };
        let target = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let target = target.ok_or_else(|| failed(io::Error::other("that is no process id")))?;
        // Changes nothing, and says whether it may be done.
        kill_process(target, Signal::CONT).map_err(|e| failed(e.into()))?;
        let stop = Arc::new(AtomicU64::new(0));
        let stopped = Arc::clone(&stop);
        let turns = move || {
            priority::raise(priority::Role::Observer);
            by_turns(target, config, &stopped)
        };
        let thread = std::thread::Builder::new().name("lab-stall".into()).spawn(turns).map_err(failed)?;
        Ok(Self { stop, thread: Some(thread), pid })
    }

    /// Lets the process run from now on; how often it was stopped.
    ///
    /// # Errors
    ///
    /// [`LabError::Deschedule`] if the process ended before.
    pub fn finish(mut self) -> Result<u64, LabError> {
        let pid = self.pid;
        self.end().map_err(|source| LabError::Deschedule { pid, doing: "continued", source })
    }

    fn end(&mut self) -> io::Result<u64> {
        self.stop.store(1, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(0),
        }
    }
}

impl Drop for Deschedule {
    fn drop(&mut self) {
        // The process may be gone, which is fine here.
        let _ = self.end();
    }
}

fn by_turns(target: Pid, config: StallConfig, stop: &AtomicU64) -> io::Result<u64> {
    let stall = Stall::new(config, monotonic_ns());
    let mut stalls = 0;
    loop {
        let Some(begins) = stall.next(monotonic_ns()) else { return Ok(stalls) };
        if !sleep_until(begins, stop) {
            return Ok(stalls);
        }
        kill_process(target, Signal::STOP)?;
        stalls += 1;
        let ends = stall.until(monotonic_ns()).unwrap_or(begins);
        let go_on = sleep_until(ends, stop);
        kill_process(target, Signal::CONT)?;
        if !go_on {
            return Ok(stalls);
        }
    }
}

/// False if it was told to stop before.
fn sleep_until(at_ns: u64, stop: &AtomicU64) -> bool {
    let deadline = Instant::now() + Duration::from_nanos(at_ns.saturating_sub(monotonic_ns()));
    loop {
        if stop.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(LOOK));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn state(pid: u32) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next().unwrap()
    }

    #[test]
    fn a_process_stands_still_by_turns_and_runs_in_the_end() {
        let mut child = Command::new("sleep").arg("30").spawn().unwrap();
        let config = StallConfig { every: Duration::from_millis(60), lasts: Duration::from_millis(40) };
        let stall = Deschedule::start(child.id(), config).unwrap();
        let (mut stopped, mut running) = (0, 0);
        let until = Instant::now() + Duration::from_secs(20);
        while (stopped < 5 || running < 5) && Instant::now() < until {
            *if state(child.id()) == 'T' { &mut stopped } else { &mut running } += 1;
            std::thread::sleep(Duration::from_millis(7));
        }
        assert!(stopped >= 5 && running >= 5, "{stopped} {running}");
        assert!(stall.finish().unwrap() > 0);
        assert_ne!(state(child.id()), 'T');
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_is_not_there_is_refused() {
        let config = StallConfig { every: Duration::from_millis(60), lasts: Duration::from_millis(40) };
        let e = Deschedule::start(u32::MAX, config).unwrap_err();
        assert!(e.to_string().contains("4294967295"), "{e}");
    }
}
