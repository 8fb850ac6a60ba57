//! What the terminal UI costs its thread: taking in a busy picture and drawing
//! it, as bytes for a terminal. At 10 frames a second, 5 % of a core are 5 ms
//! a frame.

use std::time::Duration;

use observer::tui::screen;
use observer::tui::state::{Action, Screen, State};
use observer::tui::theme::Theme;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use rustix::time::{ClockId, clock_gettime};

use crate::fixtures;

fn cpu_time() -> Duration {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap())
}

#[test]
fn a_frame_of_a_busy_observer_takes_less_than_a_twentieth_of_a_tenth_of_a_second() {
    // Without optimization, and on a busy machine: ten times as much.
    let allowed = Duration::from_millis(if cfg!(debug_assertions) { 50 } else { 5 });
    let pictures = [fixtures::overloaded(), fixtures::shaper()];
    let mut out = Vec::new();
    for screen in Screen::ALL {
        let viewport = Viewport::Fixed(Rect::new(0, 0, 120, 40));
        let mut terminal =
            Terminal::with_options(CrosstermBackend::new(&mut out), TerminalOptions { viewport }).unwrap();
        let mut state = State::new("busy", (120, 40));
        state.act(Action::Show(screen));
        const FRAMES: u32 = 20;
        let before = cpu_time();
        for n in 0..FRAMES {
            state.update(pictures[usize::from(n % 2 == 0)].clone());
            terminal.draw(|frame| screen::render(frame, &state, Theme::FULL)).unwrap();
        }
        let each = (cpu_time() - before) / FRAMES;
        println!(
            "{:>9}: {each:?} a frame, {:.2} % of a core at 10 a second",
            screen.title(),
            each.as_secs_f64() * 1e3
        );
        assert!(each < allowed, "{}: {each:?} a frame", screen.title());
    }
    drop(out);
}
