//! The slowest datagrams as waterfalls: where each spent its time, on one
//! scale, and the points of the selected one.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::Line;

use super::first_shown;
use crate::component::Component;
use crate::correlate::{self, Journey, sequence};
use crate::tui::draw::{View, cells, lines, ratio, row, span, titled, wrapped};
use crate::view::units::duration;

/// Rows of the selected journey's points.
const DETAILS: u16 = 6;
/// Columns left of the bars.
const LABEL: usize = 20;

/// Where the list's rows are.
pub fn list(body: Rect) -> Rect {
    let details = if body.height >= 2 * DETAILS + 2 { DETAILS } else { 0 };
    Rect { y: body.y + 1, height: body.height.saturating_sub(1 + details), ..body }
}

/// Draws it.
pub fn render(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let journeys = &view.snapshot.slowest;
    titled(frame, area, view.theme, "the slowest datagrams since the start, offer to read");
    let rows = list(area);
    if journeys.is_empty() {
        lines(frame, rows, vec![Line::from(span("no complete journey yet", view.theme.faint()))]);
        return;
    }
    let longest = journeys.iter().filter_map(|j| j.stages.total).max().unwrap_or(1);
    let selected = view.state.row();
    let first = first_shown(selected, usize::from(rows.height));
    for (i, (nth, journey)) in journeys.iter().enumerate().skip(first).enumerate() {
        let Some(row) = row(rows, i) else { break };
        frame.render_widget(waterfall(view, row.width, journey, longest, nth == selected), row);
    }
    if let Some(journey) = journeys.get(selected).filter(|_| rows.bottom() + DETAILS <= area.bottom()) {
        let area = Rect { y: rows.bottom(), height: DETAILS, ..area };
        points(frame, area, view, journey);
    }
}

fn waterfall(view: &View<'_>, width: u16, journey: &Journey, longest: u64, selected: bool) -> Line<'static> {
    let total = journey.stages.total.unwrap_or(0);
    let label = format!("{:>9} {:>8}  ", sequence(&journey.record), duration(total));
    let label = span(label, if selected { view.theme.selected() } else { view.theme.heading() });
    let room = usize::from(width).saturating_sub(LABEL);
    let length = cells(room, ratio(total, longest.max(1)));
    let mut spans = vec![label];
    let mut used = 0;
    let mut passed = 0_u64;
    for component in Component::ALL {
        passed = passed.saturating_add(journey.stages.component(component).unwrap_or(0));
        // By where it ends, so that roundings do not add up.
        let end = cells(length, ratio(passed, total.max(1))).max(used);
        let style = view.theme.component(component);
        let style = if selected { style.add_modifier(Modifier::BOLD) } else { style };
        spans.push(span(view.theme.fill(component).repeat(end - used), style));
        used = end;
    }
    Line::from(spans)
}

/// The points of a journey, each with the time since the offer.
fn points(frame: &mut Frame<'_>, area: Rect, view: &View<'_>, journey: &Journey) {
    let r = &journey.record;
    let stream = correlate::stream(r);
    let title = format!("run {:#010x}, stream {stream}, datagram {}", r.run, sequence(&journey.record));
    let area = titled(frame, area, view.theme, &title);
    let offer = r.offer_ns.unsigned_abs();
    let at = |name: &str, ns: u64| match ns {
        0 => format!("{name} not seen"),
        ns => format!("{name} +{}", duration(ns.saturating_sub(offer))),
    };
    let points = [
        at("syscall", r.syscall_ns),
        at("dev_queue", r.dev_queue_ns),
        at("dequeue", r.dequeue_ns),
        at("xmit", r.xmit_ns),
        at("rx", r.rx_ns),
        at("sock_enqueue", r.sock_enqueue_ns),
        at("app_dequeue", r.app_dequeue_ns),
    ];
    let parts = Component::ALL.map(|c| {
        let ns = journey.stages.component(c).map_or_else(|| "—".to_owned(), duration);
        format!("{} {ns}", c.title())
    });
    let text = vec![
        Line::raw(parts.join(", ")),
        Line::from(span(format!("offer, {}", points.join(", ")), view.theme.faint())),
        Line::raw(format!(
            "{} bytes, {} of its call, {} hops, slowest device {} ({}); sent by thread {}, read by {}",
            r.l2_bytes,
            ordinal(r.batch_pos),
            r.hops,
            r.slowest_ifindex,
            duration(r.slowest_hop_ns),
            r.tx_tid,
            r.rx_tid
        )),
    ];
    wrapped(frame, area, text);
}

fn ordinal(position: u16) -> String {
    format!("no. {}", u32::from(position) + 1)
}
