//! The queues between: each qdisc on the way with what it is configured to and
//! what it holds, the slowest hop, and the rate limiter found beside it.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

use crate::component::Component;
use crate::surroundings::Queue;
use crate::tui::draw::{View, Want, divide, lines, short, span, stack, titled};
use crate::tui::panels::models::Says;
use crate::tui::panels::{models, parts, strips};
use crate::view::units::duration;

/// Draws it.
pub fn render(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let says = Says::limiter(view.snapshot.total.limiter.as_ref());
    let model_rows = says.rows(area.width);
    let queues = view.surroundings.and_then(|s| s.queues.as_ref());
    let queue_rows = queues.map_or(2, |q| u16::try_from(q.len().max(1) + 2).unwrap_or(u16::MAX));
    let wants = [
        Want { least: 2, good: 5, most: parts::rows(Component::Shaper), rank: 0 },
        Want { least: 2, good: queue_rows.min(8), most: queue_rows, rank: 1 },
        Want { least: 2, good: 2, most: 2, rank: 2 },
        Want { least: 0, good: model_rows.min(4), most: model_rows, rank: 3 },
        Want { least: 0, good: 5, most: strips::most_rows(4), rank: 4 },
    ];
    let areas = stack(area, &divide(area.height, &wants));
    parts::render(frame, areas[0], view, Component::Shaper);
    qdiscs(frame, areas[1], view, queues.map(Vec::as_slice));
    slowest_hop(frame, areas[2], view, queues.map(Vec::as_slice));
    models::render(frame, areas[3], view, "rate limiter found", &says, "none found");
    strips::of_component(frame, areas[4], view, Component::Shaper);
}

fn qdiscs(frame: &mut Frame<'_>, area: Rect, view: &View<'_>, queues: Option<&[Queue]>) {
    let theme = view.theme;
    let area = titled(frame, area, theme, "queueing disciplines (rate in bit/s, sizes in bytes)");
    let Some(queues) = queues else {
        let text = "not known here: the qdiscs' settings and counters were not read";
        lines(frame, area, vec![Line::from(span(text, theme.faint()))]);
        return;
    };
    if queues.is_empty() {
        lines(frame, area, vec![Line::from(span("none", theme.faint()))]);
        return;
    }
    let head = format!(
        "{:<16}{:<10}{:>7}{:>7}{:>7}{:>8}{:>7}{:>8}{:>7}",
        "device", "kind", "rate", "burst", "limit", "backlog", "pkts", "drops", "over"
    );
    let mut text = vec![Line::from(span(head, theme.faint()))];
    text.extend(queues.iter().skip(view.state.row()).map(|queue| {
        let (q, c) = (&queue.qdisc, &queue.qdisc.counters);
        let style = match () {
            () if c.drops > 0 => theme.alarm(),
            () if q.is_limiter() => theme.heading(),
            () => Style::new(),
        };
        let name: String = format!("{} {}", q.device, q.handle).chars().take(15).collect();
        let limit = match (q.config.limit_bytes, q.config.limit_packets) {
            (Some(bytes), _) => short(bytes),
            (None, Some(packets)) => format!("{}p", short(packets)),
            (None, None) => "—".to_owned(),
        };
        Line::from(span(
            format!(
                "{name:<16}{:<10}{:>7}{:>7}{limit:>7}{:>8}{:>7}{:>8}{:>7}",
                q.kind,
                q.config.rate_bit_s.map_or_else(|| "—".to_owned(), bits),
                q.config.burst_bytes.map_or_else(|| "—".to_owned(), short),
                short(c.backlog_bytes),
                short(c.backlog_packets),
                short(c.drops),
                short(c.overlimits)
            ),
            style,
        ))
    }));
    lines(frame, area, text);
}

/// A rate in bit/s: `100M`.
fn bits(per_second: u64) -> String {
    match per_second {
        n if n >= 1_000_000_000 => {
            format!("{:.3}", crate::tui::draw::ratio(n, 1_000_000_000))
                .trim_end_matches('0')
                .trim_end_matches('.')
                .to_owned()
                + "G"
        }
        n if n >= 1_000_000 && n.is_multiple_of(1_000_000) => format!("{}M", n / 1_000_000),
        n => short(n),
    }
}

fn slowest_hop(frame: &mut Frame<'_>, area: Rect, view: &View<'_>, queues: Option<&[Queue]>) {
    let area = titled(frame, area, view.theme, "slowest hop since the start");
    let text = match view.state.whole().and_then(|r| r.components.shaper.slowest_hop) {
        None => "no hop seen".to_owned(),
        Some(hop) => {
            let device = queues
                .into_iter()
                .flatten()
                .find(|q| q.qdisc.ifindex == hop.ifindex)
                .map_or_else(|| format!("device {}", hop.ifindex), |q| q.qdisc.device.clone());
            let qdisc = hop.qdisc_ns.map_or_else(
                || "no qdisc seen there".to_owned(),
                |ns| format!("{} of it in the qdisc", duration(ns)),
            );
            format!("{} on {device}, {qdisc}", duration(hop.span_ns))
        }
    };
    lines(frame, area, vec![Line::raw(text)]);
}
