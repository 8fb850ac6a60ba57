//! The flows' sockets on one side: how full their buffers are, and what they
//! refused.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::surroundings::{Side, Socket};
use crate::tui::draw::{View, bar, lines, ratio, short, span, titled};

/// A buffer above this is about to overflow.
const FULL: f64 = 0.8;

/// Sockets of `side` on the view, fullest first.
fn sockets<'a>(view: &View<'a>, side: Side) -> Option<Vec<&'a Socket>> {
    let mut sockets: Vec<&Socket> =
        view.surroundings?.sockets.as_ref()?.iter().filter(|s| s.side == side).collect();
    sockets.sort_by_key(|s| (std::cmp::Reverse((s.peak_bytes, s.drops)), s.inode));
    Some(sockets)
}

/// Rows it can use.
pub fn rows(view: &View<'_>, side: Side) -> u16 {
    let n = sockets(view, side).map_or(1, |s| s.len().max(1));
    u16::try_from(n).unwrap_or(u16::MAX).saturating_add(2)
}

/// Draws them, scrolled to `from`.
pub fn render(frame: &mut Frame<'_>, area: Rect, view: &View<'_>, side: Side, from: usize) {
    let theme = view.theme;
    let title = match side {
        Side::Sender => "sending sockets: send buffer",
        Side::Receiver => "receiving sockets: receive buffer",
    };
    let area = titled(frame, area, theme, title);
    let Some(sockets) = sockets(view, side) else {
        lines(frame, area, vec![Line::from(span("not known: nobody looks at sockets here", theme.faint()))]);
        return;
    };
    if sockets.is_empty() {
        lines(frame, area, vec![Line::from(span("none on this host", theme.faint()))]);
        return;
    }
    let wide = area.width >= 76;
    let width = if wide { 20 } else { 8 };
    let mut text = vec![Line::from(span(
        format!(
            "{:<22}{:<w$}{:>7}{:>7}{:>8}{:>8}",
            "socket",
            "fill, peak",
            "now",
            "peak",
            "of",
            "drops",
            w = width + 1
        ),
        theme.faint(),
    ))];
    text.extend(sockets.iter().skip(from).map(|s| {
        let fill = ratio(s.peak_bytes, s.buffer_bytes);
        let who = s.pid.map_or_else(String::new, |pid| format!(" {}[{pid}]", s.comm));
        let style = if fill >= FULL || s.drops > 0 { theme.alarm() } else { ratatui::style::Style::new() };
        span(
            format!(
                "{:<22}{} {:>7}{:>7}{:>8}{:>8}{who}",
                s.local.chars().take(21).collect::<String>(),
                bar(width, fill),
                short(s.queued_bytes),
                short(s.peak_bytes),
                short(s.buffer_bytes),
                short(s.drops)
            ),
            style,
        )
        .into()
    }));
    lines(frame, area, text);
}
