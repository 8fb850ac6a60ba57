//! Every screen at three sizes, and the main screen in every state.

use observer::surroundings::Update;
use observer::tui::screen;
use observer::tui::state::{Action, Line, Screen, State};
use observer::tui::theme::{Depth, Theme};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;

use crate::fixtures;

const SIZES: [(u16, u16); 3] = [(40, 12), (80, 24), (120, 40)];

/// The frame of a state.
pub(crate) fn frame(state: &State, theme: Theme) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(state.size.0, state.size.1)).unwrap();
    terminal.draw(|frame| screen::render(frame, state, theme)).unwrap();
    terminal.backend().buffer().clone()
}

/// As text, blanks at the ends of lines left out.
pub(crate) fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width);
    let lines: Vec<String> = buffer
        .content
        .chunks(width)
        .map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned())
        .collect();
    lines.join("\n")
}

fn with(update: Option<Update>, size: (u16, u16)) -> State {
    let mut state = State::new("shop-db-2", size);
    if let Some(update) = update {
        state.update(update);
    }
    state
}

fn check(name: &str, state: &State) {
    let (columns, rows) = state.size;
    insta::assert_snapshot!(format!("{name}-{columns}x{rows}"), text(&frame(state, Theme::FULL)));
}

#[test]
fn every_screen_at_every_size() {
    let busy = fixtures::shaper();
    for size in SIZES {
        for screen in Screen::ALL {
            let mut state = with(Some(busy.clone()), size);
            state.act(Action::Show(screen));
            check(&format!("screen-{}", screen.title()), &state);
        }
    }
}

#[test]
fn the_main_screen_in_every_state() {
    let overloaded = fixtures::overloaded();
    let states: [(&str, Option<Update>); 7] = [
        ("empty", None),
        ("nothing-seen", Some(fixtures::nothing())),
        ("quiet", Some(fixtures::quiet())),
        ("overloaded", Some(overloaded.clone())),
        ("all-dropped", Some(fixtures::all_dropped())),
        ("lossy-observer", Some(fixtures::lossy())),
        ("over", Some(fixtures::over())),
    ];
    for size in SIZES {
        for (name, update) in &states {
            check(&format!("state-{name}"), &with(update.clone(), size));
        }
        let mut frozen = with(Some(fixtures::quiet()), size);
        frozen.act(Action::Freeze);
        frozen.update(overloaded.clone());
        check("state-frozen", &frozen);
        let mut heat = with(Some(overloaded.clone()), size);
        heat.line = Line::Heat;
        check("state-heat", &heat);
    }
}

#[test]
fn component_screens_under_overload_and_with_nothing_known() {
    let overloaded = fixtures::overloaded();
    let bare = Update { surroundings: None, ..fixtures::nothing() };
    for (name, update) in [("overloaded", overloaded), ("bare", bare)] {
        for screen in [
            Screen::Sender,
            Screen::Shaper,
            Screen::Receiver,
            Screen::Flows,
            Screen::Journeys,
            Screen::Health,
        ] {
            let mut state = with(Some(update.clone()), (80, 24));
            state.act(Action::Show(screen));
            check(&format!("{name}-{}", screen.title()), &state);
        }
    }
}

#[test]
fn a_filter_while_it_is_typed() {
    let mut state = with(Some(fixtures::shaper()), (80, 24));
    state.act(Action::Filter);
    ":40003".chars().for_each(|c| drop(state.act(Action::Type(c))));
    check("flows-filter", &state);
}

#[test]
fn below_the_smallest_size_it_says_so() {
    for size in [(39, 12), (40, 11), (12, 3), (1, 1)] {
        let shown = text(&frame(&with(Some(fixtures::quiet()), size), Theme::FULL));
        assert!(
            "40 × 12 needed, ".starts_with(shown.lines().next().unwrap_or("").get(..1).unwrap_or("")),
            "{shown}"
        );
    }
}

#[test]
fn every_answer_is_on_the_smallest_screen() {
    let shown = text(&frame(&with(Some(fixtures::lossy()), (40, 12)), Theme::FULL));
    for what in ["RECEIVER", "p99", "dropped", "lossy", "read+"] {
        assert!(shown.contains(what), "{what} is not in\n{shown}");
    }
}

#[test]
fn without_unicode_every_frame_is_ascii_and_without_colour_none_has_any() {
    let plain = Theme { depth: Depth::Mono, light: false, unicode: false };
    for update in fixtures::all() {
        for screen in Screen::ALL {
            for line in [Line::P99, Line::Heat] {
                let mut state = with(Some(update.clone()), (100, 40));
                state.line = line;
                state.act(Action::Show(screen));
                let buffer = frame(&state, plain);
                for cell in &buffer.content {
                    assert!(cell.symbol().is_ascii(), "{} on {}", cell.symbol(), screen.title());
                    assert_eq!((cell.fg, cell.bg), Default::default(), "{}", screen.title());
                }
            }
        }
    }
}

#[test]
fn colours_are_there_in_every_other_depth_and_light_is_not_dark() {
    let state = with(Some(fixtures::overloaded()), (100, 40));
    for depth in [Depth::Ansi, Depth::Indexed, Depth::Rgb] {
        let [dark, light] = [false, true].map(|light| frame(&state, Theme { depth, light, unicode: true }));
        assert_eq!(text(&dark), text(&light));
        let colours = |b: &Buffer| b.content.iter().map(|c| c.fg).collect::<std::collections::HashSet<_>>();
        assert!(colours(&dark).len() >= 5, "{depth:?}");
        assert_eq!(colours(&dark) == colours(&light), depth == Depth::Ansi);
    }
}
