//! The main screen: which component, how bad, since when, is anything
//! dropped, can it be trusted; from top to bottom and at every size.

use ratatui::Frame;
use ratatui::layout::Rect;

use crate::tui::draw::{View, Want, divide, stack};
use crate::tui::panels::{conservation, drops, heat, quantiles, split, strips, trust, verdict};
use crate::tui::state::Line;

/// Draws it.
pub fn render(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    // The verdict with its reason, as far as others have room beside it.
    let verdict_rows = verdict::rows(view, area.width).clamp(2, 5);
    let findings = view
        .state
        .whole()
        .map_or(0, |r| r.findings.iter().filter(|f| f.level > crate::report::Level::Passed).count());
    let trust_rows = u16::try_from(findings).unwrap_or(9).saturating_mul(2).saturating_add(1);
    let wants = [
        Want { least: 2, good: verdict_rows, most: verdict_rows, rank: 0 },
        Want { least: 3, good: 4, most: 4, rank: 3 },
        Want { least: 0, good: 6, most: strips::most_rows(5), rank: 6 },
        Want { least: 1, good: 6, most: 6, rank: 4 },
        Want { least: 1, good: 1, most: drops::rows(view).max(1), rank: 1 },
        Want { least: 1, good: 1, most: 1, rank: 5 },
        Want { least: 1, good: 1, most: trust_rows.min(6), rank: 2 },
    ];
    let heights = divide(area.height, &wants);
    let areas = stack(area, &heights);
    verdict::render(frame, areas[0], view);
    split::render(frame, areas[1], view);
    match view.state.line {
        Line::Heat => heat::render(frame, areas[2], view),
        _ => strips::all(frame, areas[2], view),
    }
    quantiles::render(frame, areas[3], view);
    drops::render(frame, areas[4], view);
    conservation::render(frame, areas[5], view);
    trust::render(frame, areas[6], view);
}
