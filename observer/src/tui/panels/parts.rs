//! One component and what it is made of, as a table.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

use super::quantiles::{cell, fitting};
use crate::component::{Component, Part};
use crate::tui::draw::{View, lines, short, span, titled};

/// Columns of the name.
const NAME: usize = 19;
/// Columns of the count.
const COUNT: usize = 7;

/// What a part is, in words.
const fn about(part: Part) -> &'static str {
    match part {
        Part::BeforeSyscall => "before the call",
        Part::InCall => "in the call",
        Part::SndbufBlocked => "of that, SO_SNDBUF",
        Part::SenderRunQueue | Part::WireRunQueue | Part::ReceiverRunQueue => "of that, no CPU",
        Part::SlowestHop => "slowest hop",
        Part::SlowestQdisc => "in its qdisc",
        Part::Softirq => "softirq",
        Part::SocketQueue => "socket queue",
    }
}

/// Rows it needs: a title, a heading, the component and its parts.
pub fn rows(component: Component) -> u16 {
    let parts = Part::ALL.iter().filter(|p| p.component() == component).count();
    u16::try_from(parts).unwrap_or(0) + 3
}

/// Draws it.
pub fn render(frame: &mut Frame<'_>, area: Rect, view: &View<'_>, component: Component) {
    let title = format!("{}, {}", component.title(), view.span_title());
    let area = titled(frame, area, view.theme, &title);
    let columns = fitting(area.width, NAME + COUNT);
    let mut head = format!("{:<NAME$}{:>COUNT$}", "", "count");
    for (name, _) in &columns {
        head += &format!("{name:>8} ");
    }
    let mut text = vec![Line::from(span(head, view.theme.faint()))];
    let whole = |r: &crate::report::Report| r.components.get(component).distribution.clone();
    let mut row =
        |name: String,
         style: Style,
         of: &dyn Fn(&crate::report::Report) -> Option<crate::report::Distribution>| {
            let n = view.state.spanned().and_then(of).map_or(0, |d| d.count);
            let mut figures = format!("{:>COUNT$}", short(n));
            for (_, value) in &columns {
                figures += &cell(view.quoted(|r| of(r).as_ref().and_then(value)));
            }
            text.push(Line::from(vec![span(format!("{name:<NAME$}"), style), span(figures, Style::new())]));
        };
    let name = format!("{} {}", view.theme.fill(component), component.title());
    row(name, view.theme.component(component), &|r| Some(whole(r)));
    for part in Part::ALL.into_iter().filter(|p| p.component() == component) {
        row(format!("  {}", about(part)), Style::new(), &|r| {
            r.components.get(component).parts.get(part.name()).cloned()
        });
    }
    lines(frame, area, text);
}
