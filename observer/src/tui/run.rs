//! The event loop: keys, pictures, frames; and the files that `e` writes.
//!
//! Frames are bounded: one for new pictures at most each [`Options::refresh`],
//! one for keys at most each [`INPUT_GAP`], and none while nothing changes.
//! A terminal that takes its time (ssh over a slow line) slows this loop and
//! nothing else; only what differs between two frames is sent.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ratatui::Terminal;
use ratatui::backend::Backend;
use ratatui::crossterm::event::{self, Event};

use super::feed::{Fed, Feed};
use super::state::{Effect, State};
use super::terminal::{Guard, TerminalError, Waited, Watchdog, hung_up, wait};
use super::theme::Theme;
use super::{keys, screen};
use crate::report::Report;

/// Shortest time between two frames because of keys: a held key repeats 30
/// times a second, and nobody sees more than 20 frames.
const INPUT_GAP: Duration = Duration::from_millis(50);
/// Longest time without a look at signals and pictures.
const LOOK: Duration = Duration::from_millis(100);
/// Events taken between two frames; the rest waits in the terminal.
const EVENTS: usize = 256;

/// How it is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is watched, for the header.
    pub scene: String,
    /// The look.
    pub theme: Theme,
    /// Shortest time between two frames because of new pictures.
    pub refresh: Duration,
    /// Leave after this long; `None`: when asked.
    pub duration: Option<Duration>,
    /// Leaves when it is set; [`catch_signals`](super::terminal::catch_signals)
    /// has SIGINT, SIGTERM and SIGHUP set it.
    pub stop: Arc<AtomicBool>,
}

/// How it was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// With `q`.
    Asked,
    /// By a signal, or the stop flag.
    Signal,
    /// After [`Options::duration`].
    Duration,
    /// The terminal was closed.
    HungUp,
}

/// Shows the pictures of `feed` on this process's terminal until somebody
/// leaves it.
///
/// # Errors
///
/// [`TerminalError`] if there is no terminal, or it fails. The terminal is
/// given back in any case.
pub fn run(options: &Options, feed: &mut dyn Feed) -> Result<Left, TerminalError> {
    let mut guard = Guard::take()?;
    let _watchdog = Watchdog::start(Arc::clone(&options.stop))?;
    let size = guard.terminal().size()?;
    let mut state = State::new(options.scene.clone(), (size.width, size.height));
    match turn(options, feed, &mut state, guard.terminal()) {
        // A terminal that was closed may say so by an error.
        Err(_) if hung_up() => Ok(Left::HungUp),
        left => left.map_err(Into::into),
    }
}

fn turn<B: Backend<Error = io::Error>>(
    options: &Options,
    feed: &mut dyn Feed,
    state: &mut State,
    terminal: &mut Terminal<B>,
) -> io::Result<Left> {
    let started = Instant::now();
    let mut pace = Pace::new(options.refresh);
    loop {
        if options.stop.load(Ordering::Relaxed) {
            return Ok(Left::Signal);
        }
        if options.duration.is_some_and(|d| started.elapsed() >= d) {
            return Ok(Left::Duration);
        }
        if take(feed, state) {
            pace.picture();
        }
        if pace.due(Instant::now()) {
            terminal.draw(|frame| screen::render(frame, state, options.theme))?;
            pace.drawn(Instant::now());
        }
        if wait(pace.wait(Instant::now())) == Waited::HungUp {
            return Ok(Left::HungUp);
        }
        // Also without input: a new size is not in it.
        for _ in 0..EVENTS {
            if !event::poll(Duration::ZERO)? {
                break;
            }
            if handle(&event::read()?, state, feed) {
                return Ok(Left::Asked);
            }
            pace.input();
        }
    }
}

/// Takes in what the feed has; whether there was anything.
pub(super) fn take(feed: &mut dyn Feed, state: &mut State) -> bool {
    if state.ended.is_some() {
        return false;
    }
    let mut any = false;
    loop {
        match feed.next() {
            Fed::Nothing => return any,
            Fed::Update(update) => state.update(update),
            Fed::Scene(scene) => state.begin_scene(scene),
            Fed::Ended(why) => {
                state.end(why);
                return true;
            }
        }
        // A feed that always has more is heard again after the next frame.
        if any {
            return true;
        }
        any = true;
    }
}

/// Does what an event asks for; true to leave.
pub(super) fn handle(event: &Event, state: &mut State, feed: &mut dyn Feed) -> bool {
    let Some(action) = keys::action(event, state) else { return false };
    match state.act(action) {
        None => false,
        Some(Effect::Quit) => true,
        Some(Effect::Mark) => {
            if feed.mark() {
                state.source_resets();
            }
            false
        }
        Some(Effect::Export(report)) => {
            state.message = Some(match export(&report) {
                Ok(path) => format!("wrote {}", path.display()),
                Err(e) => format!("cannot write the report: {e}"),
            });
            false
        }
    }
}

/// Writes `report` as JSON into a new file of the working directory, named by
/// the time (UTC seconds since 1970).
fn export(report: &Report) -> io::Result<PathBuf> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    for nth in 0..100_u32 {
        let more = if nth == 0 { String::new() } else { format!("-{nth}") };
        let path = PathBuf::from(format!("observer-report-{seconds}{more}.json"));
        // Never over a file, nor through a link, that is there already: this
        // may be root in somebody's directory.
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                crate::view::json::line(report, &mut file)?;
                file.flush()?;
                return Ok(path);
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// When the next frame is due.
#[derive(Debug)]
struct Pace {
    refresh: Duration,
    drawn: Option<Instant>,
    picture: bool,
    input: bool,
}

impl Pace {
    fn new(refresh: Duration) -> Self {
        Self { refresh, drawn: None, picture: true, input: false }
    }

    fn picture(&mut self) {
        self.picture = true;
    }

    fn input(&mut self) {
        self.input = true;
    }

    fn drawn(&mut self, now: Instant) {
        (self.drawn, self.picture, self.input) = (Some(now), false, false);
    }

    /// The time until a frame is due; `None` if nothing changed.
    fn until(&self, now: Instant) -> Option<Duration> {
        let gap = match (self.input, self.picture) {
            (true, _) => INPUT_GAP.min(self.refresh),
            (false, true) => self.refresh,
            (false, false) => return None,
        };
        let drawn = self.drawn.map_or(Duration::MAX, |at| now.saturating_duration_since(at));
        Some(gap.saturating_sub(drawn))
    }

    fn due(&self, now: Instant) -> bool {
        self.until(now).is_some_and(|d| d.is_zero())
    }

    fn wait(&self, now: Instant) -> Duration {
        self.until(now).map_or(LOOK, |d| d.min(LOOK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_bounded_by_the_refresh_and_for_keys_by_their_own() {
        let start = Instant::now();
        let mut pace = Pace::new(Duration::from_millis(250));
        assert!(pace.due(start), "the first frame at once");
        pace.drawn(start);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(pace.wait(at(1)), LOOK);
        assert!(!pace.due(at(10_000)), "nothing changed");
        pace.picture();
        assert!(!pace.due(at(249)) && pace.due(at(250)));
        pace.input();
        assert!(!pace.due(at(49)) && pace.due(at(50)));
        assert_eq!(pace.wait(at(40)), Duration::from_millis(10));
    }
}
