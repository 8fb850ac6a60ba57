//! The table of quantiles: components and the total, with their counts. A
//! dash is a quantile for which there are too few datagrams.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

use crate::component::Component;
use crate::report::{Distribution, Report};
use crate::tui::draw::{View, lines, short, span};
use crate::view::units::{count, duration, percent};

/// A column: its title and the value in it.
pub type Column = (&'static str, fn(&Distribution) -> Option<u64>);

/// From the one to be given up first on a narrow terminal to the one that
/// stays.
const GIVEN_UP: [&str; 3] = ["p90", "p50", "max"];

/// All columns of quantiles.
pub const COLUMNS: [Column; 5] = [
    ("p50", |d| d.p50_ns),
    ("p90", |d| d.p90_ns),
    ("p99", |d| d.p99_ns),
    ("p99.9", |d| d.p99_9_ns),
    ("max", |d| d.max_ns),
];

/// Columns of the name.
const NAME: usize = 14;
/// Columns of the count.
const COUNT: usize = 12;
/// Columns of the shares behind them, on a wide screen.
const SHARES: usize = 29;
/// Columns of a value: `99.9 µs*`.
pub const VALUE: usize = 9;

/// The columns that fit beside `used` others.
pub fn fitting(width: u16, used: usize) -> Vec<Column> {
    let room = usize::from(width).saturating_sub(used) / VALUE;
    let mut columns = COLUMNS.to_vec();
    for name in GIVEN_UP {
        if columns.len() > room {
            columns.retain(|c| c.0 != name);
        }
    }
    columns
}

/// Draws it: the total alone where there is one row, else all.
pub fn render(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    if area.height < 6 {
        lines(frame, area, vec![total(view)]);
        return;
    }
    let wide = usize::from(area.width) >= NAME + COUNT + COLUMNS.len() * VALUE + SHARES;
    let columns = fitting(area.width, NAME + COUNT);
    let mut rows = vec![head(&columns, view, wide)];
    for component in Component::ALL {
        let name = format!("{} {}", view.theme.fill(component), component.title());
        let style = view.theme.component(component);
        let mut row = line(view, &columns, &name, style, |r| &r.components.get(component).distribution);
        if wide {
            row.push_span(span(shares(view, component), Style::new()));
        }
        rows.push(row);
    }
    rows.push(line(view, &columns, "  total", view.theme.heading(), |r| &r.components.total.distribution));
    lines(frame, area, rows);
}

fn head(columns: &[Column], view: &View<'_>, wide: bool) -> Line<'static> {
    let title = format!("── {}", view.span_name());
    let mut text = format!("{title:<w$}datagrams", w = NAME + COUNT - 9);
    for (name, _) in columns {
        text += &format!("{name:>8} ");
    }
    if wide {
        text += &format!("{:>8} {:>8} {:>10}", ">p99", ">p99.9", "not known");
    }
    Line::from(span(text, view.theme.faint()))
}

fn line(
    view: &View<'_>,
    columns: &[Column],
    name: &str,
    style: Style,
    of: impl Fn(&Report) -> &Distribution,
) -> Line<'static> {
    let known = view.state.spanned().map_or(0, |r| of(r).count);
    let mut text = format!("{:>COUNT$}", count(known));
    for (_, value) in columns {
        text += &cell(view.quoted(|r| value(of(r))));
    }
    Line::from(vec![span(format!("{name:<NAME$}"), style), span(text, Style::new())])
}

/// A value, with a star where it is of the whole; or a dash.
pub fn cell(quoted: Option<(u64, bool)>) -> String {
    match quoted {
        None => format!("{:>VALUE$}", "— "),
        Some((ns, whole)) => format!("{:>8}{}", duration(ns), if whole { '*' } else { ' ' }),
    }
}

/// What part of the time of the datagrams above p99 and p99.9 is this
/// component's, and for how many datagrams it is not known.
fn shares(view: &View<'_>, component: Component) -> String {
    let of = |quantile: f64| {
        let share = view.quoted(|r| {
            let tail = r.tail.iter().find(|t| (t.quantile - quantile).abs() < 1e-9)?;
            Some(tail.share.get(component))
        });
        share.map_or_else(|| "— ".to_owned(), |(s, whole)| percent(s) + if whole { "*" } else { " " })
    };
    let partial = view.state.spanned().map_or(0, |r| r.components.get(component).partial);
    format!("{:>9}{:>9}{:>10}", of(0.99), of(0.999), short(partial))
}

/// The total in a row.
fn total(view: &View<'_>) -> Line<'static> {
    let of = |value: fn(&Distribution) -> Option<u64>| {
        let quoted = view.quoted(|r| value(&r.components.total.distribution));
        quoted.map_or_else(|| "—".to_owned(), |(ns, whole)| duration(ns) + if whole { "*" } else { "" })
    };
    let n = view.state.spanned().map_or(0, |r| r.components.total.distribution.count);
    let text = format!("total {} p50 {} p99 {}", short(n), of(|d| d.p50_ns), of(|d| d.p99_ns));
    Line::from(span(text, Style::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_table_keeps_the_tail() {
        let names = |width| fitting(width, NAME + COUNT).iter().map(|c| c.0).collect::<Vec<_>>();
        assert_eq!(names(80), ["p50", "p90", "p99", "p99.9", "max"]);
        assert_eq!(names(62), ["p50", "p99", "p99.9", "max"]);
        assert_eq!(names(40), ["p99", "p99.9"]);
    }
}
