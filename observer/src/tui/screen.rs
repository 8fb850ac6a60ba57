//! The layout: a header with the tabs, a screen, a footer; and what a click on
//! it means. Which screen is drawn where is decided here, what is in it in
//! [`screens`].

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::draw::{View, lines, span, two_ends, wrapped};
use super::screens;
use super::state::{Action, Mode, Screen, State};
use super::theme::{Theme, to_ascii};
use crate::report::Kind;
use crate::view::units::{duration, rate};

/// Smallest size that is drawn.
pub const SMALLEST: (u16, u16) = (40, 12);

/// Draws everything.
pub fn render(frame: &mut Frame<'_>, state: &State, theme: Theme) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        too_small(frame, area);
    } else {
        let [head, body, foot] = parts(area);
        header(frame, head, state, theme);
        if state.screen == Screen::Help {
            screens::help::render(frame, body, state, theme);
        } else {
            match state.shown() {
                Some(update) => {
                    let view = View {
                        state,
                        theme,
                        snapshot: &update.snapshot,
                        surroundings: update.surroundings.as_deref(),
                    };
                    screens::render(frame, body, &view);
                }
                None => waiting(frame, body, state, theme),
            }
        }
        footer(frame, foot, state, theme);
    }
    if !theme.unicode {
        to_ascii(frame.buffer_mut());
    }
}

/// Header, body, footer.
fn parts(area: Rect) -> [Rect; 3] {
    let head = Rect { height: 1, ..area };
    let foot = Rect { y: area.bottom() - 1, height: 1, ..area };
    [head, Rect { y: area.y + 1, height: area.height - 2, ..area }, foot]
}

fn too_small(frame: &mut Frame<'_>, area: Rect) {
    let (columns, rows) = SMALLEST;
    let text = format!("{columns} × {rows} needed, {} × {} here", area.width, area.height);
    frame.render_widget(Paragraph::new(text), area);
}

fn waiting(frame: &mut Frame<'_>, area: Rect, state: &State, theme: Theme) {
    let text = match &state.ended {
        Some(why) => why.clone(),
        None => "waiting for the first interval".to_owned(),
    };
    wrapped(frame, area, vec![Line::raw(""), Line::from(span(text, theme.faint()))]);
}

/// The tabs that fit into `width`, and where: the shown one by name, the
/// others by name or by digit.
fn tabs(width: u16, shown: Screen) -> Vec<(u16, String, Screen)> {
    let label = |screen: Screen, long: bool| {
        let digit = screen as usize + 1;
        if long || screen == shown { format!(" {digit} {} ", screen.title()) } else { format!(" {digit} ") }
    };
    let of = |long: bool| -> Vec<String> { Screen::ALL.iter().map(|s| label(*s, long)).collect() };
    let length = |labels: &[String]| labels.iter().map(|l| l.chars().count()).sum::<usize>();
    // The figures beside the tabs come first on a narrow terminal.
    let all = of(true);
    let labels = if usize::from(width) >= length(&all) + 40 { all } else { of(false) };
    let mut at = 0;
    labels
        .into_iter()
        .zip(Screen::ALL)
        .map(|(label, screen)| {
            let x = at;
            at += u16::try_from(label.chars().count()).unwrap_or(0);
            (x, label, screen)
        })
        .collect()
}

fn header(frame: &mut Frame<'_>, area: Rect, state: &State, theme: Theme) {
    let left: Vec<Span<'_>> = tabs(area.width, state.screen)
        .into_iter()
        .map(|(_, label, screen)| {
            span(label, if screen == state.screen { theme.selected() } else { theme.faint() })
        })
        .collect();
    let used: usize = left.iter().map(Span::width).sum();
    let room = usize::from(area.width).saturating_sub(used + 1);
    lines(frame, area, vec![two_ends(area.width, left, status(state, theme, room))]);
}

/// What is watched, how long, and whether it goes on; as much as fits.
fn status(state: &State, theme: Theme, room: usize) -> Vec<Span<'static>> {
    let mut pieces: Vec<Span<'static>> = Vec::new();
    let mut add = |text: String, style| {
        pieces.push(span(text, style));
    };
    if let Some(update) = state.shown() {
        let total = &update.snapshot.total;
        let time = duration(total.to_ns.saturating_sub(total.from_ns));
        if state.frozen.is_some() {
            let behind =
                state.newest.as_ref().map_or(0, |n| n.snapshot.total.to_ns.saturating_sub(total.to_ns));
            add(format!(" FROZEN {} ago ", duration(behind)), theme.selected());
        } else if state.ended.is_some() || total.kind == Kind::Final {
            add(" ENDED ".to_owned(), theme.selected());
        } else {
            add("live".to_owned(), theme.good());
        }
        add(format!(" {time}"), theme.heading());
        let interval = &update.snapshot.interval;
        if total.kind == Kind::Interval {
            #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
            let per_second = |n: u64| rate(n as f64 / interval.seconds().max(1e-3));
            let sent = interval.counts.sent.map_or_else(|| "—".to_owned(), per_second);
            add(format!("  {sent} sent"), theme.heading());
        }
    }
    if !state.scene.is_empty() {
        add(format!("  {}", state.scene), theme.faint());
    }
    while pieces.iter().map(Span::width).sum::<usize>() > room && pieces.pop().is_some() {}
    pieces
}

fn footer(frame: &mut Frame<'_>, area: Rect, state: &State, theme: Theme) {
    if state.mode == Mode::Editing {
        let text = format!("/{}▏  enter keeps it, esc takes it back", state.filter);
        lines(frame, area, vec![Line::from(span(text, theme.heading()))]);
        return;
    }
    if let Some(message) = &state.message {
        lines(frame, area, vec![Line::from(span(message.clone(), theme.warning()))]);
        return;
    }
    if let (Some(why), true) = (&state.ended, state.newest.is_some()) {
        lines(frame, area, vec![Line::from(span(format!("{why}; q leaves"), theme.warning()))]);
        return;
    }
    let keys: &[(&str, &str)] = match state.screen {
        Screen::Flows => &[("/", "filter"), ("s", "sort"), ("↑↓", "select")],
        Screen::Journeys => &[("↑↓", "select")],
        Screen::Help => &[("?", "back")],
        _ => &[("p", "quantile"), ("i", "span"), ("+−", "time")],
    };
    let always = [("?", "help"), ("space", "freeze"), ("r", "reset"), ("e", "export"), ("q", "quit")];
    let mut spans = Vec::new();
    for (key, does) in keys.iter().chain(&always) {
        spans.push(span(format!(" {key}"), theme.heading()));
        spans.push(span(format!(" {does} "), theme.faint()));
    }
    lines(frame, area, vec![Line::from(spans)]);
}

/// What a click at this place asks for.
pub fn hit(state: &State, column: u16, row: u16) -> Option<Action> {
    let area = Rect::new(0, 0, state.size.0, state.size.1);
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 || !area.contains((column, row).into()) {
        return None;
    }
    let [head, body, _] = parts(area);
    if head.contains((column, row).into()) {
        let hit = |(x, label, _): &&(u16, String, Screen)| {
            let width = u16::try_from(label.chars().count()).unwrap_or(0);
            (*x..x + width).contains(&column)
        };
        return tabs(area.width, state.screen).iter().find(hit).map(|(_, _, screen)| Action::Show(*screen));
    }
    if body.contains((column, row).into()) {
        return screens::row_at(state, body, row).map(Action::Select);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_click_on_a_tab_shows_it_at_every_width() {
        for width in [40, 80, 120, 200] {
            for shown in Screen::ALL {
                let mut state = State::new("", (width, 24));
                state.screen = shown;
                for (x, label, screen) in tabs(width, shown) {
                    let end = x + u16::try_from(label.chars().count()).unwrap();
                    assert!(end <= width, "{label} ends at {end} of {width}");
                    for at in [x, end - 1] {
                        assert_eq!(hit(&state, at, 0), Some(Action::Show(screen)));
                    }
                }
                assert_eq!(hit(&state, width - 1, 23), None, "the footer");
                assert_eq!(hit(&state, 500, 500), None, "outside");
            }
        }
    }
}
