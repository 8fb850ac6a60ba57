//! Single flows since the start: a list to be sorted and filtered, and the
//! selected one in full.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

use super::first_shown;
use crate::component::Component;
use crate::report::{Distribution, Endpoint, FlowReport};
use crate::tui::draw::{View, lines, short, span, titled};
use crate::tui::state::Mode;
use crate::view::units::{count, duration_or_dash};

/// Rows of the selected flow's details.
const DETAILS: u16 = 7;

/// Where the list's rows are: behind a title and a heading, above the details
/// where there is room for both.
pub fn list(body: Rect) -> Rect {
    let details = if body.height >= 3 * DETAILS - 3 { DETAILS } else { 0 };
    Rect { y: body.y + 2, height: body.height.saturating_sub(2 + details), ..body }
}

/// Draws it.
pub fn render(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let (state, theme) = (view.state, view.theme);
    let all = view.snapshot.total.flows.len();
    let listed = state.flows();
    let filter = match (state.filter.is_empty(), state.mode) {
        (true, Mode::Normal) => String::new(),
        _ => format!(", containing “{}”", state.filter),
    };
    let title = format!("flows by {}: {} of {all}{filter}, since the start", state.sort.name(), listed.len());
    titled(frame, area, theme, &title);
    let rows = list(area);
    let wide = area.width >= 100;
    let head = Rect { y: area.y + 1, height: 1.min(area.height.saturating_sub(1)), ..area };
    lines(frame, head, vec![Line::from(span(heading(area.width, wide), theme.faint()))]);
    if listed.is_empty() {
        let text = if all == 0 { "no flow yet" } else { "no flow matches; esc drops the filter" };
        lines(frame, rows, vec![Line::from(span(text, theme.faint()))]);
    }
    let selected = state.row();
    let first = first_shown(selected, usize::from(rows.height));
    let text = listed.iter().enumerate().skip(first).take(usize::from(rows.height)).map(|(i, flow)| {
        let style = if i == selected {
            theme.selected()
        } else if flow.counts.dropped > 0 {
            theme.alarm()
        } else {
            Style::new()
        };
        Line::from(span(line(flow, area.width, wide), style))
    });
    lines(frame, rows, text.collect());
    if let Some(flow) = listed.get(selected).filter(|_| rows.bottom() + DETAILS <= area.bottom()) {
        let area = Rect { y: rows.bottom(), height: DETAILS, ..area };
        details(frame, area, view, flow);
    }
}

/// Columns of the name.
fn name_width(width: u16, wide: bool) -> usize {
    usize::from(width).saturating_sub(if wide { 9 * 6 + 14 } else { 9 * 2 + 7 })
}

fn heading(width: u16, wide: bool) -> String {
    let name = format!("{:<w$}", "flow", w = name_width(width, wide));
    if wide {
        format!(
            "{name}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>14}",
            "p50", "p99", "p99.9", "max", "read", "dropped", "worst"
        )
    } else {
        format!("{name}{:>9}{:>9}{:>7}", "p99", "max", "drops")
    }
}

fn line(flow: &FlowReport, width: u16, wide: bool) -> String {
    let w = name_width(width, wide);
    let name: String = name(flow, wide).chars().take(w.saturating_sub(1)).collect();
    let total = &flow.components.total;
    let ns = |ns: Option<u64>| format!("{:>9}", duration_or_dash(ns));
    if wide {
        format!(
            "{name:<w$}{}{}{}{}{:>9}{:>9}{:>14}",
            ns(total.p50_ns),
            ns(total.p99_ns),
            ns(total.p99_9_ns),
            ns(total.max_ns),
            short(flow.counts.delivered),
            short(flow.counts.dropped),
            worst(flow).map_or("—", Component::title)
        )
    } else {
        format!("{name:<w$}{}{}{:>7}", ns(total.p99_ns), ns(total.max_ns), short(flow.counts.dropped))
    }
}

/// The component with the longest tail of its own.
fn worst(flow: &FlowReport) -> Option<Component> {
    let of = |c: Component| -> &Distribution {
        match c {
            Component::SenderQueue => &flow.components.sender_queue,
            Component::Shaper => &flow.components.shaper,
            Component::Wire => &flow.components.wire,
            Component::Receiver => &flow.components.receiver,
        }
    };
    Component::ALL
        .into_iter()
        .filter_map(|c| Some((crate::tui::flows::tail(of(c))?, c)))
        .max_by_key(|(ns, _)| *ns)
        .map(|(_, c)| c)
}

fn name(flow: &FlowReport, wide: bool) -> String {
    let address = |a: &Option<String>| a.clone().unwrap_or_else(|| "?".to_owned());
    let (from, to) = (address(&flow.key.source), address(&flow.key.destination));
    if wide {
        format!("{:#x}.{} {from} → {to}", flow.key.run, flow.key.stream)
    } else {
        format!("{from} → {to}")
    }
}

fn details(frame: &mut Frame<'_>, area: Rect, view: &View<'_>, flow: &FlowReport) {
    let key = &flow.key;
    let area = titled(frame, area, view.theme, &format!("run {:#010x}, stream {}", key.run, key.stream));
    let end = |end: &Option<Endpoint>| match end {
        None => "elsewhere".to_owned(),
        Some(e) => format!(
            "{}[{}], netns {}, buffer {}",
            e.comm,
            e.pid.map_or_else(|| "?".to_owned(), |p| p.to_string()),
            e.netns,
            short(e.buffer_bytes.into())
        ),
    };
    let b = &flow.counts;
    let sent = b.sent.map_or_else(|| "—".to_owned(), count);
    let mut text = vec![
        Line::raw(format!("{}  from {}", name(flow, false), end(&key.sender))),
        Line::raw(format!("to {}", end(&key.receiver))),
        Line::raw(format!(
            "sent {sent} = delivered {} + dropped {} + in flight {} + unobserved {}",
            count(b.delivered),
            count(b.dropped),
            count(b.in_flight),
            count(b.unobserved)
        )),
    ];
    let c = &flow.components;
    let of = |name: &str, d: &Distribution| {
        format!("{name} {} / {}", duration_or_dash(d.p50_ns), duration_or_dash(crate::tui::flows::tail(d)))
    };
    text.push(Line::from(span(
        format!(
            "p50 / tail: {}, {}, {}, {}",
            of("sender queue", &c.sender_queue),
            of("shaper", &c.shaper),
            of("wire", &c.wire),
            of("receiver", &c.receiver)
        ),
        view.theme.faint(),
    )));
    crate::tui::draw::wrapped(frame, area, text);
}
