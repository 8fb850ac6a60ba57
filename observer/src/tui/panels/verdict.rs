//! The answer: who, how much of the tail, since when, and why.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use crate::report::Blame;
use crate::tui::draw::{View, lines, row, span, wrapped};
use crate::tui::standing::{self, Standing};
use crate::view::units::{count, duration, percent};

/// A silence this long is worth telling.
const SILENT_NS: u64 = 1_500_000_000;

/// Rows it can use at this width.
pub fn rows(view: &View<'_>, width: u16) -> u16 {
    let length = standing::judge(view.snapshot, view.state.since_ns())
        .map_or(100, |s| s.culprit.cause.chars().count() + when(&s).chars().count());
    // Lines break at words: some of each is lost.
    let room = usize::from(width).saturating_sub(8).max(1);
    u16::try_from(length.div_ceil(room) + 1).unwrap_or(u16::MAX)
}

/// Draws it; two rows at least.
pub fn render(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let Some(first) = row(area, 0) else { return };
    let rest = Rect { y: area.y + 1, height: area.height - 1, ..area };
    match standing::judge(view.snapshot, view.state.since_ns()) {
        Some(standing) => {
            lines(frame, first, vec![headline(view, &standing)]);
            let text = format!("{}{}", standing.culprit.cause, when(&standing));
            wrapped(frame, rest, vec![Line::raw(text)]);
        }
        None => nothing_yet(frame, first, rest, view),
    }
}

fn headline(view: &View<'_>, standing: &Standing) -> Line<'static> {
    let theme = view.theme;
    let style = theme.blame(standing.blame).add_modifier(Modifier::REVERSED);
    let mut spans = vec![Span::raw("tail: "), span(format!(" {} ", name(standing.blame)), style)];
    if let Some(share) = standing.culprit.share {
        spans.push(span(format!(" {}", percent(share)), theme.heading()));
    }
    if let Some(time) = standing.for_ns {
        spans.push(span(format!("  for {}", duration(time)), theme.heading()));
    }
    let total = |d: fn(&crate::report::Distribution) -> Option<u64>| {
        let quoted = view.quoted(|r| d(&r.components.total.distribution));
        quoted.map_or_else(|| "—".to_owned(), |(ns, whole)| duration(ns) + if whole { "*" } else { "" })
    };
    let text = format!(
        "  p99 {}  p99.9 {}  max {}",
        total(|d| d.p99_ns),
        total(|d| d.p99_9_ns),
        total(|d| d.max_ns)
    );
    spans.push(span(text, theme.faint()));
    Line::from(spans)
}

/// The name, in capitals: it is read from across the room.
pub fn name(blame: Blame) -> &'static str {
    match blame {
        Blame::SenderQueue => "SENDER QUEUE",
        Blame::Shaper => "SHAPER",
        Blame::Wire => "WIRE",
        Blame::Receiver => "RECEIVER",
        Blame::HostNoise => "HOST NOISE",
        Blame::None => "NO TAIL",
    }
}

fn when(standing: &Standing) -> String {
    let Some(ago) = standing.ago_ns else { return " (the whole run)".to_owned() };
    let (named, of) = standing.named;
    match (standing.blame, ago >= SILENT_NS) {
        (Blame::None, _) => String::new(),
        (_, true) => format!(" (last {} ago; {named} of {of} intervals)", duration(ago)),
        (_, false) => format!(" ({named} of {of} intervals)"),
    }
}

/// Too few datagrams; where none was followed, what was seen instead.
fn nothing_yet(frame: &mut Frame<'_>, first: Rect, rest: Rect, view: &View<'_>) {
    let counts = &view.snapshot.total.counts;
    let followed = counts.sent.unwrap_or(0).saturating_add(counts.received_only);
    let unstamped = counts.unstamped_sent.saturating_add(counts.unstamped_received);
    let (title, text) = if followed > 0 {
        (
            "too few datagrams to say",
            format!("{} followed; a p99 needs 1,000 delivered in an interval or in all", count(followed)),
        )
    } else if counts.foreign > 0 || unstamped > 0 {
        (
            "nothing followed yet",
            format!(
                "seen: {} unstamped, {} of foreign runs; does the sender stamp, do the filters match one end?",
                count(unstamped),
                count(counts.foreign)
            ),
        )
    } else {
        ("nothing seen yet", "no UDP datagram has passed: is the load running on this host?".to_owned())
    };
    lines(frame, first, vec![Line::from(vec![Span::raw("tail: "), span(title, view.theme.heading())])]);
    wrapped(frame, rest, vec![Line::from(span(text, view.theme.faint()))]);
}
