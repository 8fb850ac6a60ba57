//! Drops by the kernel's reason: how many, how fast, since when.

use std::collections::BTreeMap;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::tui::draw::{View, lines, span, titled};
use crate::view::units::{count, duration, rate};

/// One reason.
struct Reason {
    name: String,
    count: u64,
    per_second: f64,
    since: Option<String>,
}

/// Rows it can use.
pub fn rows(view: &View<'_>) -> u16 {
    let reasons = view.state.whole().map_or(0, |r| r.counts.dropped.len());
    u16::try_from(reasons).unwrap_or(u16::MAX).saturating_add(1)
}

/// Draws it: in one row, or a row for each reason.
pub fn render(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let theme = view.theme;
    let reasons = reasons(view);
    if reasons.is_empty() {
        let text = "dropped  none";
        lines(frame, area, vec![Line::from(span(text, theme.good()))]);
        return;
    }
    let text = |r: &Reason| {
        let since = r.since.as_ref().map_or_else(String::new, |s| format!("  {s}"));
        format!("{} {}  {}{since}", r.name, count(r.count), rate(r.per_second))
    };
    if area.height == 1 {
        let all: Vec<String> = reasons.iter().map(text).collect();
        let line = format!("! dropped {}", all.join(", "));
        lines(frame, area, vec![Line::from(span(line, theme.alarm()))]);
        return;
    }
    let inner = titled(frame, area, theme, "dropped, by the kernel's reason");
    let rows = reasons.iter().map(|r| Line::from(span(format!("! {}", text(r)), theme.alarm()))).collect();
    lines(frame, inner, rows);
}

/// The reasons, most frequent first.
fn reasons(view: &View<'_>) -> Vec<Reason> {
    let Some(counts) = view.state.counts() else { return Vec::new() };
    let interval = &view.snapshot.interval;
    let mut reasons: Vec<Reason> = counts
        .dropped
        .iter()
        .map(|(name, n)| {
            let recent = interval.counts.dropped.get(name).copied().unwrap_or(0);
            #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
            let per_second = recent as f64 / interval.seconds().max(1e-3);
            Reason { name: name.clone(), count: *n, per_second, since: since(view, name) }
        })
        .collect();
    reasons.sort_by_key(|r| std::cmp::Reverse(r.count));
    reasons
}

/// When the first of the last minutes came, and the last; `None` where there
/// was none in them.
fn since(view: &View<'_>, name: &str) -> Option<String> {
    let has = |dropped: &BTreeMap<String, u64>| dropped.get(name).is_some_and(|n| *n > 0);
    let timeline = &view.snapshot.timeline;
    let after = view.state.since_ns();
    let mut with = timeline.iter().filter(|m| m.to_ns > after && has(&m.dropped));
    let first = with.next()?;
    let last = with.next_back().unwrap_or(first);
    let now = view.snapshot.total.to_ns;
    let ago = |at: u64| duration(now.saturating_sub(at));
    // What the time line has forgotten may have come before.
    let least =
        if timeline.first().is_some_and(|m| m.number == first.number && m.number > 0) { "≥" } else { "" };
    Some(if last.to_ns >= now {
        format!("for {least}{}", ago(first.from_ns))
    } else {
        format!("began {least}{} ago, last {} ago", ago(first.from_ns), ago(last.to_ns))
    })
}
