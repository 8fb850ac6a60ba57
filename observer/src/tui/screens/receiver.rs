//! The receiving side: softirq against socket queue, each socket's buffer, and
//! what was refused.

use ratatui::Frame;
use ratatui::layout::Rect;

use crate::component::Component;
use crate::surroundings::Side;
use crate::tui::draw::{View, Want, divide, stack};
use crate::tui::panels::{drops, parts, sockets, strips};

/// Draws it.
pub fn render(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let wants = [
        Want { least: 2, good: 6, most: parts::rows(Component::Receiver), rank: 0 },
        Want { least: 2, good: 3, most: sockets::rows(view, Side::Receiver), rank: 1 },
        Want { least: 1, good: 1, most: drops::rows(view), rank: 2 },
        Want { least: 0, good: 5, most: strips::most_rows(4), rank: 3 },
    ];
    let areas = stack(area, &divide(area.height, &wants));
    parts::render(frame, areas[0], view, Component::Receiver);
    sockets::render(frame, areas[1], view, Side::Receiver, view.state.row());
    drops::render(frame, areas[2], view);
    strips::of_component(frame, areas[3], view, Component::Receiver);
}
