//! The terminal: taken over at the start, given back on every way out.
//!
//! [`Guard`] gives it back when it is dropped, so after an error, a signal
//! and an unwinding panic; a panic hook does so before the panic's message is
//! printed, so that it is readable, and also where the panic aborts. SIGKILL
//! leaves a raw terminal, as it does for every program: `reset` mends that.

use std::io::{self, IsTerminal, Stdout, Write};
use std::os::fd::AsFd;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rustix::event::{PollFd, PollFlags, poll};

/// Exit code after a second signal: interrupted, nothing judged.
const SECOND: i32 = 2;

/// Set while the terminal is taken over, so that it is given back once.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Why the terminal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TerminalError {
    /// Input or output is not one.
    #[error(
        "--tui needs a terminal, and {0} is none; without --tui observer prints text, or JSON with --json"
    )]
    NotATerminal(&'static str),
    /// It does not do what it is told.
    #[error("cannot use the terminal: {0}")]
    Io(#[from] io::Error),
}

/// A terminal that was taken over; dropping it gives it back.
pub struct Guard {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

/// Whether there is a terminal to take over.
///
/// # Errors
///
/// [`TerminalError::NotATerminal`] if there is none.
pub fn check() -> Result<(), TerminalError> {
    if !io::stdin().is_terminal() {
        return Err(TerminalError::NotATerminal("standard input"));
    }
    if !io::stdout().is_terminal() {
        return Err(TerminalError::NotATerminal("standard output"));
    }
    Ok(())
}

impl Guard {
    /// Takes over this process's terminal: raw mode, alternate screen, mouse.
    ///
    /// # Errors
    ///
    /// [`TerminalError`], with the terminal as it was.
    pub fn take() -> Result<Self, TerminalError> {
        check()?;
        give_back_in_a_panic();
        // First: from here on there is something to give back, also if the
        // next step fails.
        TAKEN.store(true, Ordering::SeqCst);
        let taken = enable_raw_mode()
            .and_then(|()| execute!(io::stdout(), EnterAlternateScreen, EnableMouseCapture, Hide))
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match taken {
            Ok(terminal) => Ok(Self { terminal }),
            Err(e) => {
                give_back();
                Err(e.into())
            }
        }
    }

    /// The terminal itself.
    pub fn terminal(&mut self) -> &mut Terminal<CrosstermBackend<Stdout>> {
        &mut self.terminal
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        give_back();
    }
}

/// Gives the terminal back if it is taken. What a closed terminal says to it
/// does not matter.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let mut out = io::stdout();
        let _ = execute!(out, DisableMouseCapture, LeaveAlternateScreen, Show);
        let _ = out.flush();
        let _ = disable_raw_mode();
    }
}

fn give_back_in_a_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            before(info);
        }));
    });
}

/// What waiting for the terminal came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// There is something to read.
    Input,
    /// The time is over, or a signal came (another size, perhaps).
    Nothing,
    /// The terminal is gone: its window was closed, its connection lost.
    HungUp,
}

/// Waits for input, at most this long. crossterm must not be asked once the
/// terminal is gone: it then reads the end of its input again and again.
pub fn wait(longest: Duration) -> Waited {
    let stdin = io::stdin();
    let fd = stdin.as_fd();
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let timeout = rustix::event::Timespec {
        tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: longest.subsec_nanos().into(),
    };
    if poll(&mut fds, Some(&timeout)).is_err() {
        return Waited::Nothing;
    }
    let seen = fds[0].revents();
    match () {
        () if seen.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) => Waited::HungUp,
        () if seen.contains(PollFlags::IN) => Waited::Input,
        () => Waited::Nothing,
    }
}

/// Whether the terminal is gone.
pub fn hung_up() -> bool {
    wait(Duration::ZERO) == Waited::HungUp
}

/// How long the event loop may take to notice that it is to end.
const GRACE: Duration = Duration::from_secs(3);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// Ends the process where its event loop cannot: it hangs in a write to a
/// terminal that takes nothing, or in a read from one that is gone. Dropping
/// it calls it off.
pub struct Watchdog {
    over: Arc<AtomicBool>,
}

impl Watchdog {
    /// Watches for `stop` and for the end of the terminal.
    ///
    /// # Errors
    ///
    /// If there can be no thread for it.
    pub fn start(stop: Arc<AtomicBool>) -> io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let called_off = Arc::clone(&over);
        std::thread::Builder::new().name("observer-watchdog".to_owned()).spawn(move || {
            let mut since = None;
            while !called_off.load(Ordering::Relaxed) {
                if stop.load(Ordering::Relaxed) || hung_up() {
                    let since: &mut Instant = since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= GRACE && !called_off.load(Ordering::Relaxed) {
                        // Its settings alone: writing would hang here too.
                        // What is attached goes with the process.
                        let _ = disable_raw_mode();
                        std::process::exit(SECOND);
                    }
                }
                std::thread::sleep(LOOK);
            }
        })?;
        Ok(Self { over })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// SIGINT, SIGTERM and SIGHUP set the flag; a second one of them ends the
/// process at once, for the case that it hangs in a write to a terminal that
/// takes nothing any more. To be called once for a flag.
///
/// # Errors
///
/// If they cannot be caught.
pub fn catch_signals(flag: &Arc<AtomicBool>) -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the first signal finds the flag unset, the second set.
        signal_hook::flag::register_conditional_shutdown(signal, SECOND, Arc::clone(flag))?;
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}
