//! The components of a workload's latency, where the observer watched: the
//! same rows as text, Markdown and HTML. What an invalid run measured is not
//! quoted.

use super::{Outcome, Verdict, markdown, show_count, show_ns, signed};
use crate::watch::{Seen, Watched};
use crate::workload::expect::Component;

const HEADINGS: [&str; 7] = ["component", "count", "p50", "p90", "p99", "p99.9", "max"];

/// The watcher's figures, if they may be quoted.
fn quotable(w: &Outcome) -> Option<&Watched> {
    w.watched.as_ref().filter(|seen| w.verdict != Verdict::Invalid && !seen.seen.is_empty())
}

fn title(component: Component) -> &'static str {
    match component {
        Component::SenderQueue => "sender queue",
        Component::Shaper => "shaper",
        Component::Wire => "wire",
        Component::Receiver => "receiver",
        Component::Total => "total",
        Component::Intended => "intended",
        Component::SendLag => "send lag",
    }
}

fn row(seen: &Seen) -> [String; 7] {
    let ns = |v: Option<u64>| v.map_or("—".into(), |v| show_ns(signed(v)));
    let [p50, p90, p99, p99_9] = seen.quantiles.map(ns);
    [title(seen.component).into(), show_count(seen.count), p50, p90, p99, p99_9, ns(seen.max_ns)]
}

/// As lines for a terminal; empty without a watcher.
pub(super) fn text(w: &Outcome) -> String {
    let Some(watched) = quotable(w) else { return String::new() };
    let mut out = String::from("\n");
    for cells in std::iter::once(HEADINGS.map(str::to_owned)).chain(watched.seen.iter().map(row)) {
        let [name, figures @ ..] = cells;
        out.push_str(&format!("  {name:<14}"));
        figures.iter().for_each(|f| out.push_str(&format!("{f:>11}")));
        out.push('\n');
    }
    if let Some(culprit) = &watched.culprit {
        out.push_str(&format!("  culprit: {culprit}\n"));
    }
    out
}

/// As a Markdown table; empty without a watcher.
pub(super) fn md(w: &Outcome) -> String {
    let Some(watched) = quotable(w) else { return String::new() };
    let line = |cells: [String; 7]| format!("| {} |\n", cells.join(" | "));
    let mut out = line(HEADINGS.map(str::to_owned)) + &line(HEADINGS.map(|_| "---".to_owned()));
    watched.seen.iter().for_each(|s| out.push_str(&line(row(s))));
    out.push('\n');
    if let Some(culprit) = &watched.culprit {
        out.push_str(&format!("Culprit: {}.\n\n", markdown::escape(culprit)));
    }
    out
}

/// As an HTML table; empty without a watcher.
pub(super) fn html(w: &Outcome) -> String {
    let Some(watched) = quotable(w) else { return String::new() };
    let cells = |tag: &str, cells: [String; 7]| {
        let cells: Vec<_> = cells.iter().map(|c| format!("<{tag}>{c}</{tag}>")).collect();
        format!("<tr>{}</tr>\n", cells.concat())
    };
    let mut out = format!(
        "<table class=\"components\"><thead>{}</thead><tbody>\n",
        cells("th", HEADINGS.map(str::to_owned))
    );
    watched.seen.iter().for_each(|s| out.push_str(&cells("td", row(s))));
    out.push_str("</tbody></table>\n");
    if let Some(culprit) = &watched.culprit {
        out.push_str(&format!("<p>Culprit: {}.</p>\n", super::html::escape(culprit)));
    }
    out
}
