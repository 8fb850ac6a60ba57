//! What the panels have in common: the view they draw from, titles, columns,
//! bars, and dividing a height among panels.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::state::State;
use super::theme::Theme;
use crate::report::Report;
use crate::snapshot::Snapshot;
use crate::surroundings::Surroundings;

/// What a panel draws from.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The state.
    pub state: &'a State,
    /// The look.
    pub theme: Theme,
    /// The picture shown.
    pub snapshot: &'a Snapshot,
    /// What surrounded it, where somebody looked.
    pub surroundings: Option<&'a Surroundings>,
}

impl View<'_> {
    /// Of the interval where that can be quoted, else of the whole, which the
    /// flag then says; of the whole where the state says so.
    pub fn quoted<T>(&self, figure: impl Fn(&Report) -> Option<T>) -> Option<(T, bool)> {
        let spanned = self.state.spanned()?;
        let whole = self.state.whole()?;
        match figure(spanned) {
            Some(value) => Some((value, false)),
            None => figure(whole).map(|value| (value, !std::ptr::eq(spanned, whole))),
        }
    }

    /// The same in a word or two.
    pub fn span_name(&self) -> String {
        let Some(report) = self.state.spanned() else { return String::new() };
        match self.state.whole() {
            Some(whole) if !std::ptr::eq(whole, report) => {
                format!("last {}", crate::view::units::duration(report.to_ns.saturating_sub(report.from_ns)))
            }
            _ if self.state.is_reset() => "since reset".to_owned(),
            _ => "whole run".to_owned(),
        }
    }

    /// The time figures are of: `last 1.00 s`, `42.0 s since the start`.
    pub fn span_title(&self) -> String {
        let Some(report) = self.state.spanned() else { return String::new() };
        let time = crate::view::units::duration(report.to_ns.saturating_sub(report.from_ns));
        match self.state.whole() {
            Some(whole) if !std::ptr::eq(whole, report) => format!("last {time}"),
            _ if self.state.is_reset() => format!("{time} since the reset"),
            _ => format!("{time} since the start"),
        }
    }
}

/// A title over the first row of `area`; what is left of it.
pub fn titled(frame: &mut Frame<'_>, area: Rect, theme: Theme, title: &str) -> Rect {
    if area.height == 0 {
        return area;
    }
    let width = usize::from(area.width);
    let mut text = format!("── {title} ");
    let length = text.chars().count();
    text.extend(std::iter::repeat_n('─', width.saturating_sub(length)));
    text = text.chars().take(width).collect();
    let row = Rect { height: 1, ..area };
    frame.render_widget(Paragraph::new(Span::styled(text, theme.faint())), row);
    Rect { y: area.y + 1, height: area.height - 1, ..area }
}

/// Lines, cut at the right and at the bottom.
pub fn lines(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'_>>) {
    frame.render_widget(Paragraph::new(lines), area);
}

/// Text, broken at spaces.
pub fn wrapped(frame: &mut Frame<'_>, area: Rect, text: Vec<Line<'_>>) {
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
}

/// One row out of `area`, or nothing where it has no such row.
pub fn row(area: Rect, nth: usize) -> Option<Rect> {
    let nth = u16::try_from(nth).ok().filter(|nth| *nth < area.height)?;
    Some(Rect { y: area.y + nth, height: 1, ..area })
}

/// A bar of `width` cells, `share` of it filled.
pub fn bar(width: usize, share: f64) -> String {
    let filled = cells(width, share);
    let mut text = "█".repeat(filled);
    text.extend(std::iter::repeat_n('·', width - filled));
    text
}

/// `share` of `width`, in cells; something is never nothing.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a terminal's width; the share is between 0 and 1"
)]
pub fn cells(width: usize, share: f64) -> usize {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let filled = (share * width as f64).round() as usize;
    if share > 0.0 { filled.max(1).min(width) } else { 0 }
}

/// n/d, 0 where there is nothing to divide by.
#[expect(clippy::cast_precision_loss, reason = "a ratio for a screen")]
pub fn ratio(n: u64, d: u64) -> f64 {
    if d == 0 { 0.0 } else { n as f64 / d as f64 }
}

/// A count in at most five characters: `999`, `12.3k`, `4.5M`.
pub fn short(n: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let value = n as f64;
    match n {
        0..1_000 => n.to_string(),
        1_000..100_000 => format!("{:.1}k", value / 1e3),
        100_000..1_000_000 => format!("{:.0}k", value / 1e3),
        1_000_000..100_000_000 => format!("{:.1}M", value / 1e6),
        100_000_000..1_000_000_000 => format!("{:.0}M", value / 1e6),
        _ => format!("{:.1}G", value / 1e9),
    }
}

/// Left text and right text on one row; the left one gives way.
pub fn two_ends<'a>(width: u16, left: Vec<Span<'a>>, right: Vec<Span<'a>>) -> Line<'a> {
    let of = |spans: &[Span<'_>]| spans.iter().map(Span::width).sum::<usize>();
    let gap = usize::from(width).saturating_sub(of(&left) + of(&right));
    let mut spans = left;
    if gap > 0 {
        spans.push(Span::raw(" ".repeat(gap)));
        spans.extend(right);
    }
    Line::from(spans)
}

/// A styled piece of text.
pub fn span(text: impl Into<String>, style: Style) -> Span<'static> {
    Span::styled(text.into(), style)
}

/// How much of a height a panel needs.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// Below this it is not drawn at all; 0 for one that is dispensable.
    pub least: u16,
    /// With this it is as it should be.
    pub good: u16,
    /// More than this is of no use to it.
    pub most: u16,
    /// Who is served first, lowest first.
    pub rank: u8,
}

/// Divides `height`: the least to everybody by rank, then what is good, then
/// the rest. A panel that could not get its least gets nothing.
pub fn divide(height: u16, wants: &[Want]) -> Vec<u16> {
    let mut given = vec![0_u16; wants.len()];
    let mut left = height;
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by_key(|i| wants[*i].rank);
    for &i in &order {
        if wants[i].least <= left {
            given[i] = wants[i].least;
            left -= wants[i].least;
        }
    }
    for &i in &order {
        let more = wants[i].good.saturating_sub(given[i]);
        // One that is dispensable is good, or not at all.
        if (given[i] > 0 || wants[i].least == 0) && (more <= left || wants[i].least > 0) {
            let more = more.min(left);
            given[i] += more;
            left -= more;
        }
    }
    for &i in &order {
        if given[i] > 0 {
            let more = wants[i].most.saturating_sub(given[i]).min(left);
            given[i] += more;
            left -= more;
        }
    }
    given
}

/// `area` from top to bottom in pieces of these heights.
pub fn stack(area: Rect, heights: &[u16]) -> Vec<Rect> {
    let mut y = area.y;
    heights
        .iter()
        .map(|height| {
            let height = (*height).min(area.bottom().saturating_sub(y));
            let piece = Rect { y, height, ..area };
            y += height;
            piece
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_are_five_characters() {
        for n in [0, 999, 1_000, 99_940, 99_999, 999_499, 99_940_000, 123_000_000_000] {
            assert!(short(n).chars().count() <= 6, "{}", short(n));
        }
        assert_eq!(["0", "12.3k", "4.5M"], [0, 12_345, 4_500_000].map(short)[..]);
    }

    #[test]
    fn something_is_never_nothing() {
        assert_eq!([0.0, 1e-9, 0.5, 1.0, 7.0, f64::NAN].map(|s| cells(10, s)), [0, 1, 5, 10, 10, 0]);
        assert_eq!(bar(4, 0.5), "██··");
    }

    proptest! {
        #[test]
        fn no_more_is_given_than_there_is(
            height in 0_u16..80,
            wants in proptest::collection::vec((0_u16..8, 0_u16..8, 0_u16..20, any::<u8>()), 0..9),
        ) {
            let wants: Vec<Want> = wants
                .into_iter()
                .map(|(least, more, most, rank)| Want { least, good: least + more, most: least + more + most, rank })
                .collect();
            let given = divide(height, &wants);
            prop_assert!(given.iter().sum::<u16>() <= height);
            for (given, want) in given.iter().zip(&wants) {
                prop_assert!(*given == 0 || (want.least..=want.most).contains(given));
            }
            let area = Rect::new(0, 0, 10, height);
            prop_assert!(stack(area, &given).iter().all(|r| r.bottom() <= area.bottom()));
        }
    }
}
