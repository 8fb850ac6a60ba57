//! The keys, and how to read what is on the screens.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Wrap};

use crate::component::Component;
use crate::tui::draw::{span, titled};
use crate::tui::keys;
use crate::tui::state::State;
use crate::tui::theme::Theme;

/// Columns of the keys.
const KEY: usize = 16;

/// How to read it.
const READING: &[&str] = &[
    "tail: the component that the slowest datagrams of the last 5 s lost most time in, by how much they \
     exceed the median; its share of that excess; since when it is so.",
    "where the time goes: the datagrams above the quantile, all their time taken together; at p50 the \
     components' own medians.",
    "—: too few datagrams; a quantile q needs 10/(1 − q). *: of the whole time, since the interval has too few.",
    "Sent = delivered + dropped + in flight + unobserved. Dropped is the network's fault, lost events are \
     the observer's.",
];

/// Draws it, scrolled.
pub fn render(frame: &mut Frame<'_>, area: Rect, state: &State, theme: Theme) {
    let area = titled(frame, area, theme, "keys");
    let mut text: Vec<Line<'_>> = keys::HELP
        .iter()
        .map(|(key, does)| {
            Line::from(vec![span(format!("{key:<KEY$}"), theme.heading()), span(*does, Style::new())])
        })
        .collect();
    text.push(Line::raw(""));
    let mut legend = Vec::new();
    for c in Component::ALL {
        legend.push(span(format!("{} {}  ", theme.fill(c).repeat(2), c.title()), theme.component(c)));
    }
    text.push(Line::from(legend));
    text.extend(READING.iter().map(|t| Line::from(span(*t, theme.faint()))));
    let scroll = u16::try_from(state.row().min(text.len().saturating_sub(1))).unwrap_or(0);
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }).scroll((scroll, 0)), area);
}
