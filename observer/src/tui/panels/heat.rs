//! The time line as a heat map: totals by size, log-spaced, against time. It
//! shows what quantiles hide: two modes, a band that splits, a slow minority.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::strips::{columns, covered};
use crate::timeline::{HEAT_ROWS, heat_row_from_ns};
use crate::tui::draw::{View, row, span, titled};
use crate::view::units::{count, duration};

/// Columns for the border of a row on the left.
const LABEL: usize = 9;

/// Draws it.
pub fn render(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let width = usize::from(area.width).saturating_sub(LABEL);
    let columns = columns(view, width);
    let map: Vec<[u64; HEAT_ROWS]> = columns
        .iter()
        .map(|column| {
            let mut sums = [0_u64; HEAT_ROWS];
            for moment in *column {
                for (sum, n) in sums.iter_mut().zip(&moment.heat) {
                    *sum = sum.saturating_add(u64::from(*n));
                }
            }
            sums
        })
        .collect();
    let most = map.iter().flatten().copied().max().unwrap_or(0);
    let used = |r: &usize| map.iter().any(|column| column[*r] > 0);
    let (low, high) = ((0..HEAT_ROWS).find(used).unwrap_or(0), (0..HEAT_ROWS).rev().find(used).unwrap_or(0));
    let title = format!("time line: totals, {}, darkest {} datagrams", covered(&columns), count(most));
    let inner = titled(frame, area, view.theme, &title);
    let rows = usize::from(inner.height);
    // Where there are more sizes than rows, neighbours share one.
    let per_row = (high - low + 1).div_ceil(rows.max(1)).max(1);
    for r in 0..rows {
        let Some(row) = row(inner, rows - 1 - r) else { continue };
        let from = low + r * per_row;
        if from > high {
            continue;
        }
        let to = (from + per_row).min(HEAT_ROWS);
        let label = if from == 0 { "<1 µs".to_owned() } else { duration(heat_row_from_ns(from)) };
        let mut spans = vec![span(format!("{label:>8} "), view.theme.faint())];
        spans.push(span(" ".repeat(width.saturating_sub(map.len())), view.theme.faint()));
        for column in &map {
            let n = column[from..to].iter().fold(0_u64, |sum, n| sum.saturating_add(*n));
            let (glyph, style) = view.theme.heat(level(n, most));
            spans.push(span(glyph, style));
        }
        frame.render_widget(Line::from(spans), row);
    }
}

/// 0 for nothing, then 1 to 4 by the logarithm: one datagram is seen beside a
/// million.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a shade, from 0 to 4"
)]
fn level(n: u64, most: u64) -> usize {
    if n == 0 {
        return 0;
    }
    let share = ((n + 1) as f64).ln() / ((most.max(1) + 1) as f64).ln().max(1e-9);
    (share * 4.0).ceil().clamp(1.0, 4.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_seen_beside_a_million() {
        assert_eq!([0, 1, 1_000, 1_000_000].map(|n| level(n, 1_000_000)), [0, 1, 3, 4]);
        assert_eq!(level(1, 1), 4);
        assert_eq!(level(u64::MAX - 1, u64::MAX - 1), 4);
    }
}
