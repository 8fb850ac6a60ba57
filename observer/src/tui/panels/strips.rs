//! The time line as strips, one above the other on one logarithmic scale: each
//! is read by its height, without colours. A column without a datagram, or
//! with too few for the quantile, is empty.

use std::sync::Arc;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::component::Component;
use crate::timeline::{Marks, Moment, TOTAL};
use crate::tui::draw::{View, row, short, span, titled};
use crate::tui::state::{self, ZOOM};
use crate::view::units::{duration, duration_or_dash};

/// Columns for the name on the left.
const LABEL: usize = 13;
/// Columns for the newest value on the right.
const VALUE: usize = 9;
/// Bottom of the scale, ns.
const FLOOR_NS: f64 = 1_000.0;
/// Heights within a row.
const LEVELS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// What is drawn of a moment, ns.
type Value<'a> = Box<dyn Fn(&Moment) -> Option<u64> + 'a>;

/// One strip: its name, how it looks, and its value at a moment.
pub struct Strip<'a> {
    /// On the left.
    pub name: String,
    /// Its colour.
    pub style: Style,
    /// The value to draw, ns.
    pub value: Value<'a>,
}

/// The mark that the state asks for.
pub fn mark(line: state::Line, marks: &Marks) -> Option<u64> {
    match line {
        state::Line::P50 => marks.p50,
        state::Line::P99 | state::Line::Heat => marks.p99,
        state::Line::P999 => marks.p99_9,
        state::Line::Max => marks.max,
    }
}

/// All components and the total, with the drops where there is room for them.
pub fn all(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let line = view.state.line;
    let strip = |index: usize, name: &str, style| Strip {
        name: name.to_owned(),
        style,
        value: Box::new(move |m: &Moment| m.marks.get(index).and_then(|marks| mark(line, marks))),
    };
    let mut strips: Vec<Strip<'_>> =
        Component::ALL.iter().map(|c| strip(*c as usize, c.title(), view.theme.component(*c))).collect();
    strips.push(strip(TOTAL, "total", Style::new()));
    render(frame, area, view, line.name(), &strips, true);
}

/// One component: its median, p99, p99.9 and largest.
pub fn of_component(frame: &mut Frame<'_>, area: Rect, view: &View<'_>, component: Component) {
    let strips: Vec<Strip<'_>> = [state::Line::P50, state::Line::P99, state::Line::P999, state::Line::Max]
        .into_iter()
        .map(|line| Strip {
            name: line.name().to_owned(),
            style: view.theme.component(component),
            value: Box::new(move |m: &Moment| mark(line, &m.marks[component as usize])),
        })
        .collect();
    render(frame, area, view, component.title(), &strips, false);
}

/// The moments in `columns`, oldest first, each column all that fall into it.
pub fn columns<'a>(view: &'a View<'_>, width: usize) -> Vec<&'a [Arc<Moment>]> {
    let since = view.state.since_ns();
    let all = &view.snapshot.timeline;
    let first = all.partition_point(|m| m.to_ns <= since);
    let per_column = ZOOM[view.state.zoom.min(ZOOM.len() - 1)];
    // Columns are counted from a fixed moment, so that they keep what they
    // have while the line moves on.
    let mut columns: Vec<&[Arc<Moment>]> =
        all[first..].chunk_by(|a, b| column(a, per_column) == column(b, per_column)).collect();
    columns.drain(..columns.len().saturating_sub(width));
    columns
}

fn column(moment: &Moment, per_column: usize) -> u64 {
    moment.number / u64::try_from(per_column.max(1)).unwrap_or(1)
}

/// The time that these columns cover, for a title.
pub fn covered(columns: &[&[Arc<Moment>]]) -> String {
    let ends = columns.first().and_then(|c| c.first()).zip(columns.last().and_then(|c| c.last()));
    ends.map_or_else(
        || "nothing yet".to_owned(),
        |(from, to)| format!("last {}", duration(to.to_ns.saturating_sub(from.from_ns))),
    )
}

fn render(
    frame: &mut Frame<'_>,
    area: Rect,
    view: &View<'_>,
    what: &str,
    strips: &[Strip<'_>],
    with_drops: bool,
) {
    let width = usize::from(area.width).saturating_sub(LABEL + VALUE);
    let columns = columns(view, width);
    // The largest of a column: what is worst is what is looked for.
    let worst =
        |strip: &Strip<'_>, column: &[Arc<Moment>]| column.iter().filter_map(|m| (strip.value)(m)).max();
    let highest =
        strips.iter().flat_map(|s| columns.iter().filter_map(|c| worst(s, c))).max().unwrap_or(1_000_000);
    let top = top(highest);
    let title = format!("time line: {what}, {}, 1 µs to {}, log", covered(&columns), duration(top));
    // More than four rows a strip tell no more.
    let area = Rect { height: area.height.min(most_rows(strips.len())), ..area };
    let inner = titled(frame, area, view.theme, &title);
    let drops = with_drops && usize::from(inner.height) > strips.len();
    let each = usize::from(inner.height).saturating_sub(usize::from(drops)) / strips.len().max(1);
    let mut at = 0;
    for strip in strips {
        let values: Vec<Option<u64>> = columns.iter().map(|c| worst(strip, c)).collect();
        let heights: Vec<usize> =
            values.iter().map(|v| v.map_or(0, |ns| height(ns, top, each * 8))).collect();
        // Of the newest interval that has one, not of the column.
        let newest = view.snapshot.timeline.last().and_then(|m| (strip.value)(m));
        paint(frame, inner, at, each, strip, &heights, &duration_or_dash(newest));
        at += each;
    }
    if drops {
        let dropped = |column: &[Arc<Moment>]| column.iter().flat_map(|m| m.dropped.values()).sum::<u64>();
        let counts: Vec<u64> = columns.iter().map(|c| dropped(c)).collect();
        let most = counts.iter().copied().max().unwrap_or(0);
        let heights: Vec<usize> =
            counts.iter().map(|n| if *n == 0 { 0 } else { share(*n, most, 8) }).collect();
        let style = if most > 0 { view.theme.alarm() } else { view.theme.faint() };
        let name = if most > 0 { "! dropped" } else { "dropped" };
        let strip = Strip { name: name.to_owned(), style, value: Box::new(|_| None) };
        paint(frame, inner, at, 1, &strip, &heights, &format!("max {}", short(most)));
    }
}

/// Draws one strip of `rows` rows from row `at` of `area` on.
fn paint(
    frame: &mut Frame<'_>,
    area: Rect,
    at: usize,
    rows: usize,
    strip: &Strip<'_>,
    heights: &[usize],
    value: &str,
) {
    let width = usize::from(area.width).saturating_sub(LABEL + VALUE);
    for r in 0..rows {
        let Some(row) = row(area, at + r) else { return };
        let below = (rows - 1 - r) * 8;
        let mut text = " ".repeat(width.saturating_sub(heights.len()));
        text.extend(heights.iter().map(|h| LEVELS[h.saturating_sub(below).min(8)]));
        let bottom = r == rows - 1;
        let (name, value) = if bottom { (strip.name.as_str(), value) } else { ("", "") };
        let name: String = name.chars().take(LABEL).collect();
        let line = Line::from(vec![
            span(format!("{name:<LABEL$}"), strip.style),
            Span::styled(text, strip.style),
            span(format!("{value:>VALUE$}"), strip.style),
        ]);
        frame.render_widget(line, row);
    }
}

/// Rows that so many strips can use, a title and the drops included.
pub fn most_rows(strips: usize) -> u16 {
    u16::try_from(strips * 4 + 2).unwrap_or(u16::MAX)
}

/// The next power of ten: the top of the scale.
fn top(highest: u64) -> u64 {
    let mut top = 10_000_u64;
    while top < highest {
        top = top.saturating_mul(10);
        if top == u64::MAX {
            break;
        }
    }
    top
}

/// Eighths of a row for a value on a logarithmic scale from 1 µs to `top`, of
/// `most` eighths; what is known is at least one.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a height on a screen: between 0 and some hundreds"
)]
fn height(ns: u64, top: u64, most: usize) -> usize {
    let decades = (top as f64 / FLOOR_NS).log10();
    let at = (ns as f64 / FLOOR_NS).max(1.0).log10() / decades.max(1.0);
    ((at * most as f64).round() as usize).clamp(1, most.max(1))
}

fn share(n: u64, most: u64, levels: usize) -> usize {
    crate::tui::draw::cells(levels, crate::tui::draw::ratio(n, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_are_logarithmic_and_what_is_known_is_seen() {
        let of = |ns| height(ns, 1_000_000, 24);
        assert_eq!([0, 1_000, 10_000, 100_000, 1_000_000, u64::MAX].map(of), [1, 1, 8, 16, 24, 24]);
    }

    #[test]
    fn the_scale_ends_at_a_power_of_ten() {
        assert_eq!([0, 10_001, 1_000_000].map(top), [10_000, 100_000, 1_000_000]);
        assert!(top(u64::MAX) == u64::MAX);
    }
}
