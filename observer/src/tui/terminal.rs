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

/// Whether the terminal is gone: its window was closed, its connection lost.
pub fn hung_up() -> bool {
    let stdin = io::stdin();
    let fd = stdin.as_fd();
    let mut fds = [PollFd::new(&fd, PollFlags::empty())];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut fds, Some(&now)) {
        Ok(_) => fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL),
        Err(_) => false,
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
