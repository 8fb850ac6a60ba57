//! What the figures stand on: findings, the observer's losses, the hook behind
//! each point with its cost, and the host.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Wrap};

use crate::report::{Level, Report};
use crate::tui::draw::{View, span, titled};
use crate::tui::panels::trust;
use crate::view::units::{count, percent};

/// Draws it, scrolled to the selected line.
pub fn render(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let Some(report) = view.state.whole() else { return };
    let title = format!("health: {}, {}", report.verdict.name(), trust::cost(report));
    let area = titled(frame, area, view.theme, &title);
    let text = text(view, report, area.width);
    let scroll = u16::try_from(view.state.row().min(text.len().saturating_sub(1))).unwrap_or(0);
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }).scroll((scroll, 0)), area);
}

fn text(view: &View<'_>, report: &Report, width: u16) -> Vec<Line<'static>> {
    let theme = view.theme;
    let mut text = Vec::new();
    for f in report.findings.iter().filter(|f| f.level > Level::Passed) {
        text.push(Line::from(vec![
            span(format!("! {} ", f.level.name()), theme.level(f.level)),
            span(format!("{}: ", f.check), theme.heading()),
            span(format!("{} ({})", f.means, f.observed), ratatui::style::Style::new()),
        ]));
        if !f.detail.is_empty() {
            text.push(Line::from(span(format!("  {}", f.detail), theme.faint())));
        }
    }
    let passed: Vec<&str> =
        report.findings.iter().filter(|f| f.level == Level::Passed).map(|f| f.check.as_str()).collect();
    if !passed.is_empty() {
        text.push(Line::from(span(format!("passed: {}", passed.join(", ")), theme.good())));
    }
    let c = &report.counts;
    if c.lost_events.is_empty() {
        text.push(Line::from(span("lost events: none", theme.good())));
    } else {
        let lost: Vec<String> = c.lost_events.iter().map(|(k, n)| format!("{k} {}", count(*n))).collect();
        text.push(Line::from(span(format!("! lost events: {}", lost.join(", ")), theme.alarm())));
    }
    let aside = [
        ("partial", c.partial),
        ("duplicated", c.duplicated),
        ("foreign", c.foreign),
        ("unstamped", c.unstamped_sent.saturating_add(c.unstamped_received)),
        ("send errors", c.send_errors),
    ];
    let aside: Vec<String> =
        aside.iter().filter(|(_, n)| *n > 0).map(|(k, n)| format!("{k} {}", count(*n))).collect();
    if !aside.is_empty() {
        text.push(Line::raw(format!("aside: {}", aside.join(", "))));
    }
    let h = &report.host;
    let ratio = |r: Option<f64>| r.map_or_else(|| "—".to_owned(), percent);
    text.push(Line::raw(format!(
        "host: {}, kernel {}, {} CPUs, {} busy, {} stolen, {}",
        h.name,
        h.kernel,
        h.cpus.map_or_else(|| "—".to_owned(), |n| n.to_string()),
        ratio(h.busy_ratio),
        ratio(h.steal_ratio),
        h.clock
    )));
    text.push(Line::raw(""));
    text.extend(hooks(view, report, width));
    text
}

fn hooks(view: &View<'_>, report: &Report, width: u16) -> Vec<Line<'static>> {
    let wide = width >= 70;
    let name = if wide { 33 } else { usize::from(width).saturating_sub(14 + 7) };
    let head = if wide {
        format!("{:<13}{:<33}{:<11}{:>7}{:>7}{:>7}", "point", "hook", "kind", "ns/call", "calls", "missed")
    } else {
        format!("{:<14}{:<name$}{:>7}", "point", "hook", "ns")
    };
    let mut text = vec![Line::from(span(head, view.theme.faint()))];
    text.extend(report.hooks.iter().map(|h| {
        let cost = h.ns_per_call.map_or_else(|| "—".to_owned(), |ns| format!("{ns:.0}"));
        let hook: String = h.hook.chars().take(name.saturating_sub(1)).collect();
        let style = if h.missed > 0 { view.theme.alarm() } else { ratatui::style::Style::new() };
        let line = if wide {
            let calls = h.calls.map_or_else(|| "—".to_owned(), crate::tui::draw::short);
            format!(
                "{:<13}{hook:<33}{:<11}{cost:>7}{calls:>7}{:>7}",
                h.point,
                h.kind,
                crate::tui::draw::short(h.missed)
            )
        } else {
            format!("{:<14}{hook:<name$}{cost:>7}", h.point)
        };
        Line::from(span(line, style))
    }));
    text
}
