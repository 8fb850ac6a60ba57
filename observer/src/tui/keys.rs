//! Keys, mouse and resizes → actions.

use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEventKind,
};

use super::screen;
use super::state::{Action, Mode, Screen, State};

/// Rows that a page key moves.
const PAGE: i32 = 10;
/// Rows that a turn of the wheel moves.
const WHEEL: i32 = 3;

/// What an event means in this state; `None` if nothing.
pub fn action(event: &Event, state: &State) -> Option<Action> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => on_key(*key, state),
        Event::Resize(columns, rows) => Some(Action::Resize(*columns, *rows)),
        Event::Mouse(mouse) => match mouse.kind {
            MouseEventKind::Down(MouseButton::Left) => screen::hit(state, mouse.column, mouse.row),
            MouseEventKind::ScrollDown => Some(Action::Move(WHEEL)),
            MouseEventKind::ScrollUp => Some(Action::Move(-WHEEL)),
            _ => None,
        },
        _ => None,
    }
}

fn on_key(key: KeyEvent, state: &State) -> Option<Action> {
    // The terminal is in raw mode: Ctrl-C comes as a key, and must end it in
    // every mode.
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c' | 'd' | 'q') => Some(Action::Quit),
            KeyCode::Char('f') => Some(Action::Move(PAGE)),
            KeyCode::Char('b') => Some(Action::Move(-PAGE)),
            _ => None,
        };
    }
    match state.mode {
        Mode::Editing => editing(key.code),
        Mode::Normal => normal(key.code),
    }
}

fn editing(code: KeyCode) -> Option<Action> {
    Some(match code {
        KeyCode::Enter => Action::Accept,
        KeyCode::Esc => Action::Cancel,
        KeyCode::Backspace => Action::Erase,
        KeyCode::Up => Action::Move(-1),
        KeyCode::Down => Action::Move(1),
        KeyCode::Char(letter) => Action::Type(letter),
        _ => return None,
    })
}

fn normal(code: KeyCode) -> Option<Action> {
    Some(match code {
        KeyCode::Char('q') => Action::Quit,
        KeyCode::Char('?') | KeyCode::F(1) => Action::Help,
        KeyCode::Char(' ') => Action::Freeze,
        KeyCode::Char('r') => Action::Reset,
        KeyCode::Char('e') => Action::Export,
        KeyCode::Char('s') => Action::NextSort,
        KeyCode::Char('/') => Action::Filter,
        KeyCode::Char('i') => Action::SwitchSpan,
        KeyCode::Char('p') => Action::NextLine,
        KeyCode::Char('+' | '=') => Action::Zoom { closer: true },
        KeyCode::Char('-') => Action::Zoom { closer: false },
        KeyCode::Char(digit @ '1'..='9') => {
            let at = digit.to_digit(10).and_then(|d| usize::try_from(d).ok())?;
            Action::Show(*Screen::ALL.get(at - 1)?)
        }
        KeyCode::Tab | KeyCode::Right | KeyCode::Char('l') => Action::Turn { back: false },
        KeyCode::BackTab | KeyCode::Left | KeyCode::Char('h') => Action::Turn { back: true },
        KeyCode::Down | KeyCode::Char('j') => Action::Move(1),
        KeyCode::Up | KeyCode::Char('k') => Action::Move(-1),
        KeyCode::PageDown => Action::Move(PAGE),
        KeyCode::PageUp => Action::Move(-PAGE),
        KeyCode::Home | KeyCode::Char('g') => Action::Edge { last: false },
        KeyCode::End | KeyCode::Char('G') => Action::Edge { last: true },
        KeyCode::Esc | KeyCode::Backspace => Action::Cancel,
        _ => return None,
    })
}

/// Every key and what it does, for the help screen.
pub const HELP: &[(&str, &str)] = &[
    ("1 … 8", "a screen by its number"),
    ("tab  ← →  h l", "the next screen, the one before"),
    ("↑ ↓  j k", "select, scroll; g G for the ends"),
    ("space", "freeze the picture; collecting goes on behind it"),
    ("i", "figures of the last interval, or of the whole"),
    ("p", "time line of p50, p99, p99.9, max, or a heat map"),
    ("+ −", "less, or more time on the time line"),
    ("s", "sort flows by something else"),
    ("/", "show only flows that contain …; esc takes it back"),
    ("r", "reset: start over from now"),
    ("e", "write the report as JSON into this directory"),
    ("?", "this help, and back"),
    ("esc", "one step back"),
    ("q  ctrl-c", "leave; observer prints its report"),
    ("mouse", "tabs, rows and the wheel"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn press(code: KeyCode, state: &State) -> Option<Action> {
        action(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)), state)
    }

    #[test]
    fn letters_are_commands_or_text_and_ctrl_c_always_ends_it() {
        let mut state = State::new("", (80, 24));
        assert_eq!(press(KeyCode::Char('q'), &state), Some(Action::Quit));
        state.act(Action::Filter);
        assert_eq!(press(KeyCode::Char('q'), &state), Some(Action::Type('q')));
        let ctrl_c = Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert_eq!(action(&ctrl_c, &state), Some(Action::Quit));
    }

    #[test]
    fn digits_are_screens_and_nine_is_none() {
        let state = State::new("", (80, 24));
        assert_eq!(press(KeyCode::Char('3'), &state), Some(Action::Show(Screen::Shaper)));
        assert_eq!(press(KeyCode::Char('8'), &state), Some(Action::Show(Screen::Help)));
        assert_eq!(press(KeyCode::Char('9'), &state), None);
    }

    #[test]
    fn a_released_key_does_nothing() {
        let key =
            KeyEvent { kind: KeyEventKind::Release, ..KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE) };
        assert_eq!(action(&Event::Key(key), &State::new("", (80, 24))), None);
    }
}
