//! One screen to a file: which panels it shows, where, and which row a click
//! on it selects.

pub mod flows;
pub mod health;
pub mod help;
pub mod journeys;
pub mod main;
pub mod receiver;
pub mod sender;
pub mod shaper;

use ratatui::Frame;
use ratatui::layout::Rect;

use super::draw::View;
use super::state::{Screen, State};

/// Draws the screen that the state shows; help is drawn without a picture.
pub fn render(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    match view.state.screen {
        Screen::Main => main::render(frame, area, view),
        Screen::Sender => sender::render(frame, area, view),
        Screen::Shaper => shaper::render(frame, area, view),
        Screen::Receiver => receiver::render(frame, area, view),
        Screen::Flows => flows::render(frame, area, view),
        Screen::Journeys => journeys::render(frame, area, view),
        Screen::Health => health::render(frame, area, view),
        Screen::Help => help::render(frame, area, view.state, view.theme),
    }
}

/// The list's row at row `y` of the terminal, on screens that have a list.
pub fn row_at(state: &State, body: Rect, y: u16) -> Option<usize> {
    let (list, rows) = match state.screen {
        Screen::Flows => (flows::list(body), state.flows().len()),
        Screen::Journeys => (journeys::list(body), state.shown().map_or(0, |u| u.snapshot.slowest.len())),
        _ => return None,
    };
    if y < list.y || y >= list.bottom() {
        return None;
    }
    let row = usize::from(y - list.y) + first_shown(state.row(), usize::from(list.height));
    (row < rows).then_some(row)
}

/// The first row of a list that is shown, so that the selected one is.
pub fn first_shown(selected: usize, height: usize) -> usize {
    (selected + 1).saturating_sub(height.max(1))
}
