//! 100,000 random keys, clicks, turns of the wheel and sizes, over pictures
//! that change: nothing panics, and every state is one of the documented ones.

use observer::tui::state::State;
use observer::tui::{Theme, keys, screen};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use crate::fixtures;

const EVENTS: usize = 100_000;
/// A frame is drawn after so many events, and after one new size in so many:
/// without optimization a frame takes some milliseconds.
const FRAME: usize = 240;
const SIZES: u32 = 16;

fn key(rng: &mut fastrand::Rng) -> KeyEvent {
    const SPECIAL: [KeyCode; 16] = [
        KeyCode::Tab,
        KeyCode::BackTab,
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::Left,
        KeyCode::Right,
        KeyCode::Home,
        KeyCode::End,
        KeyCode::PageUp,
        KeyCode::PageDown,
        KeyCode::Esc,
        KeyCode::Enter,
        KeyCode::Backspace,
        KeyCode::Delete,
        KeyCode::F(1),
        KeyCode::Null,
    ];
    let code = match rng.u8(0..10) {
        0..4 => KeyCode::Char(rng.char('!'..='~')),
        4..6 => *rng
            .choice(b"123456789 riepsGgjkhl/?+-")
            .map(|b| KeyCode::Char(char::from(*b)))
            .as_ref()
            .unwrap_or(&KeyCode::Null),
        6 => KeyCode::Char(rng.char(..)),
        _ => *rng.choice(&SPECIAL).unwrap(),
    };
    let modifiers = if rng.u8(0..20) == 0 { KeyModifiers::CONTROL } else { KeyModifiers::NONE };
    KeyEvent::new(code, modifiers)
}

fn event(rng: &mut fastrand::Rng) -> Event {
    match rng.u8(0..20) {
        0 => Event::Resize(rng.u16(0..180), rng.u16(0..60)),
        1..5 => {
            let kinds = [
                MouseEventKind::Down(MouseButton::Left),
                MouseEventKind::Down(MouseButton::Right),
                MouseEventKind::ScrollDown,
                MouseEventKind::ScrollUp,
                MouseEventKind::Moved,
            ];
            Event::Mouse(MouseEvent {
                kind: *rng.choice(&kinds).unwrap(),
                column: rng.u16(0..200),
                row: rng.u16(0..70),
                modifiers: KeyModifiers::NONE,
            })
        }
        5 => Event::FocusLost,
        6 => Event::Paste("pasted".to_owned()),
        _ => Event::Key(key(rng)),
    }
}

#[test]
fn no_sequence_of_events_leaves_the_documented_states() {
    let seed = std::env::var("FUZZ_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x0b5e);
    let mut rng = fastrand::Rng::with_seed(seed);
    let pictures = fixtures::all();
    let mut state = State::new("fuzz", (80, 24));
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let (mut acted, mut frames, mut resized) = (0, 0, 0);
    for n in 0..EVENTS {
        match rng.u16(0..1000) {
            0 => state.begin_scene("another".to_owned()),
            1 => state.end("it broke".to_owned()),
            2..30 => state.update(rng.choice(&pictures).unwrap().clone()),
            _ => {}
        }
        let event = event(&mut rng);
        if let Some(action) = keys::action(&event, &state) {
            acted += 1;
            // Leaving is for the loop to do; here it goes on.
            state.act(action);
        }
        if let Err(what) = state.check() {
            panic!("after event {n} of seed {seed}, {event:?}: {what}");
        }
        resized += u32::from(matches!(event, Event::Resize(..)));
        if n % FRAME == 0 || resized >= SIZES {
            resized = 0;
            let (columns, rows) = (state.size.0.max(1), state.size.1.max(1));
            terminal.backend_mut().resize(columns, rows);
            terminal.draw(|frame| screen::render(frame, &state, Theme::FULL)).unwrap();
            frames += 1;
        }
    }
    assert!(acted > EVENTS / 3, "most of the events were meant: {acted}");
    assert!(frames > 450, "{frames} frames were drawn");
}
