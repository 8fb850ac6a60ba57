//! What the latency is made of, at the median and in the tail: three stacked
//! bars. The median's are the components' own medians, the tails' their share
//! of all the time of the datagrams above the quantile, which is exact.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::component::Component;
use crate::report::Report;
use crate::tui::draw::{View, cells, row, span, titled};
use crate::view::units::{duration, percent};

/// Columns left of the bar: quantile and time.
const LABEL: usize = 16;

/// A bar's value and the shares of it.
type Bar = (u64, [f64; Component::COUNT]);

/// A bar's name, and where it comes from.
type Row = (&'static str, fn(&Report) -> Option<Bar>);

/// Draws it: three rows, and a title where there is a fourth.
pub fn render(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let rows: [Row; 3] = [("p50", median), (">p99", |r| tail(r, 0.99)), (">p99.9", |r| tail(r, 0.999))];
    let bars = rows.map(|(name, figure)| (name, view.quoted(figure)));
    let area = if area.height > 3 {
        let aside = bars.iter().any(|(_, bar)| bar.is_some_and(|(_, whole)| whole));
        let aside = if aside { "; * since the start" } else { "" };
        titled(frame, area, view.theme, &format!("where the time goes, {}{aside}", view.span_title()))
    } else {
        area
    };
    for (i, (name, bar)) in bars.iter().enumerate() {
        if let Some(row) = row(area, i) {
            frame.render_widget(line(view, row.width, name, bar.as_ref()), row);
        }
    }
}

fn median(report: &Report) -> Option<Bar> {
    let of = |c: Component| report.components.get(c).distribution.p50_ns;
    let medians = Component::ALL.map(of);
    let total = report.components.total.distribution.p50_ns?;
    // Where a component is not known there is nothing to split.
    let sum: u64 = medians.iter().copied().sum::<Option<u64>>()?;
    Some((total, medians.map(|m| crate::tui::draw::ratio(m.unwrap_or(0), sum))))
}

fn tail(report: &Report, quantile: f64) -> Option<Bar> {
    let tail = report.tail.iter().find(|t| (t.quantile - quantile).abs() < 1e-9)?;
    Some((tail.mean_ns, Component::ALL.map(|c| tail.share.get(c))))
}

fn line(view: &View<'_>, width: u16, name: &str, bar: Option<&(Bar, bool)>) -> Line<'static> {
    let theme = view.theme;
    let Some(((value, shares), whole)) = bar else {
        let text = format!("{name:<7}{:>8} too few datagrams", "—");
        return Line::from(span(text, theme.faint()));
    };
    let mark = if *whole { '*' } else { ' ' };
    let mut spans = vec![span(format!("{name:<7}{:>8}{mark}", duration(*value)), theme.heading())];
    let width = usize::from(width).saturating_sub(LABEL);
    spans.extend(segments(view, width, shares));
    Line::from(spans)
}

/// The bar: each component a stretch of its fill, its name and share where
/// they fit.
fn segments(view: &View<'_>, width: usize, shares: &[f64; Component::COUNT]) -> Vec<Span<'static>> {
    let widths = apportion(width, shares);
    Component::ALL
        .iter()
        .zip(widths)
        .zip(shares)
        .filter(|((_, width), _)| *width > 0)
        .map(|((component, width), share)| {
            let fill = view.theme.fill(*component);
            let texts =
                [format!(" {} {} ", component.title(), percent(*share)), format!(" {} ", percent(*share))];
            let text = texts.into_iter().find(|t| t.chars().count() + 2 <= width).unwrap_or_default();
            let left = (width - text.chars().count()) / 2;
            let right = width - text.chars().count() - left;
            span(
                format!("{}{text}{}", fill.repeat(left), fill.repeat(right)),
                view.theme.component(*component),
            )
        })
        .collect()
}

/// Cells for each share, all of `width` together: what is there is seen, and
/// rounding is made up for by the largest.
fn apportion(width: usize, shares: &[f64; Component::COUNT]) -> [usize; Component::COUNT] {
    let mut given = shares.map(|s| if s >= 0.005 { cells(width, s) } else { 0 });
    let largest = (0..given.len()).max_by(|a, b| shares[*a].total_cmp(&shares[*b])).unwrap_or(0);
    let others: usize = given.iter().enumerate().filter(|(i, _)| *i != largest).map(|(_, n)| n).sum();
    given[largest] = width.saturating_sub(others);
    // Only where shares do not add up to 1 could the others be too many.
    let mut over = given.iter().sum::<usize>().saturating_sub(width);
    for n in &mut given {
        let less = over.min(*n);
        *n -= less;
        over -= less;
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_shares_are_seen_and_the_largest_makes_up_for_them() {
        assert_eq!(apportion(50, &[0.01, 0.92, 0.06, 0.01]), [1, 45, 3, 1]);
        assert_eq!(apportion(50, &[0.0, 1.0, 0.0, 0.001]), [0, 50, 0, 0]);
    }

    proptest! {
        #[test]
        fn a_bar_is_as_wide_as_it_is_to_be(width in 0_usize..300, shares: [f64; 4]) {
            prop_assert_eq!(apportion(width, &shares).iter().sum::<usize>(), width);
        }
    }
}
