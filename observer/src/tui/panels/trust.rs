//! Can the figures be trusted: the observer's own losses, what they mean, and
//! what it costs. In the colour of an alarm when not clean.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::report::{Finding, Level, Report};
use crate::tui::draw::{View, span, wrapped};
use crate::view::units::{count, duration};

/// Draws it: the state of things first, then what was found.
pub fn render(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let Some(report) = view.state.whole() else { return };
    let theme = view.theme;
    let findings: Vec<&Finding> = report.findings.iter().filter(|f| f.level > Level::Passed).collect();
    let worst = findings.first();
    let mut text = vec![match report.findings.iter().find(|f| f.check == "observer-complete") {
        Some(f) if f.level > Level::Passed => {
            let lost = losses(report);
            Line::from(span(format!("! lossy: {}{lost}; {}", f.observed, cost(report)), theme.alarm()))
        }
        _ => match worst {
            Some(f) if area.height == 1 => {
                let text = format!("! {}: {} ({})", f.check, f.means, f.observed);
                Line::from(span(text, theme.level(f.level)))
            }
            _ => Line::from(span(format!("trust: complete, {}", cost(report)), theme.good())),
        },
    }];
    text.extend(findings.iter().map(|f| {
        let detail = if f.detail.is_empty() { String::new() } else { format!("; {}", f.detail) };
        let text = format!("! {} {}: {} ({}{detail})", f.level.name(), f.check, f.means, f.observed);
        Line::from(span(text, theme.level(f.level)))
    }));
    wrapped(frame, area, text);
}

fn losses(report: &Report) -> String {
    let mut lost: Vec<_> = report.counts.lost_events.iter().collect();
    lost.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    let listed: Vec<String> =
        lost.iter().take(3).map(|(cause, n)| format!("{cause} {}", count(**n))).collect();
    if listed.is_empty() { String::new() } else { format!(" ({})", listed.join(", ")) }
}

/// What observing costs each datagram, where the kernel was asked.
pub fn cost(report: &Report) -> String {
    match per_datagram(report) {
        Some(ns) => format!("costs {} a datagram", duration(ns)),
        None => "cost not measured (--cost)".to_owned(),
    }
}

/// Time of all programs over the datagrams followed, ns; `None` where it was
/// not measured.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a mean of positive times, shown with three digits"
)]
fn per_datagram(report: &Report) -> Option<u64> {
    let c = &report.counts;
    let datagrams = c.sent.unwrap_or(0).max(c.delivered).saturating_add(c.received_only);
    let mut measured = report.hooks.iter().filter_map(|h| Some(h.ns_per_call? * h.calls? as f64)).peekable();
    measured.peek()?;
    (datagrams > 0).then(|| (measured.sum::<f64>() / datagrams as f64) as u64)
}
