//! Everything is accounted for: sent = delivered + dropped + in flight +
//! unobserved, since the start.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::report::Counts;
use crate::tui::draw::{View, short, span, wrapped};
use crate::view::units::count;

/// Draws it, in the longest form that fits.
pub fn render(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let Some(counts) = view.state.counts() else { return };
    let room = usize::from(area.width) * usize::from(area.height);
    let forms = [long(&counts), brief(&counts), briefest(&counts)];
    let text = forms.iter().find(|t| t.chars().count() <= room).unwrap_or(&forms[2]).clone();
    // What does not add up, or has no end, is somebody's fault.
    let style = if counts.unaccounted != 0 && view.snapshot.total.kind == crate::report::Kind::Final {
        view.theme.alarm()
    } else if counts.unobserved > 0 {
        view.theme.warning()
    } else {
        ratatui::style::Style::new()
    };
    wrapped(frame, area, vec![Line::from(span(text, style))]);
}

/// The left side: what came. Of a restarted count that includes what was on
/// its way.
fn came(c: &Counts, n: impl Fn(u64) -> String) -> String {
    let mut text = c.sent.map_or_else(|| "sent —".to_owned(), |sent| format!("sent {}", n(sent)));
    if c.received_only > 0 {
        text += &format!(" + received only {}", n(c.received_only));
    }
    if c.in_flight_before > 0 {
        text += &format!(" + before {}", n(c.in_flight_before));
    }
    text
}

fn unaccounted(c: &Counts) -> String {
    match c.unaccounted {
        0 => String::new(),
        n => format!(" {} {} unaccounted", if n < 0 { '−' } else { '+' }, count(n.unsigned_abs())),
    }
}

fn long(c: &Counts) -> String {
    format!(
        "{} = delivered {} + dropped {} + in flight {} + unobserved {}{}",
        came(c, count),
        count(c.delivered),
        count(c.dropped_total()),
        count(c.in_flight),
        count(c.unobserved),
        unaccounted(c)
    )
}

fn brief(c: &Counts) -> String {
    format!(
        "{} = delivered {} + dropped {} + flying {} + lost sight {}{}",
        came(c, short),
        short(c.delivered),
        short(c.dropped_total()),
        short(c.in_flight),
        short(c.unobserved),
        unaccounted(c)
    )
}

fn briefest(c: &Counts) -> String {
    let came = c.sent.unwrap_or(0).saturating_add(c.received_only).saturating_add(c.in_flight_before);
    format!(
        "{}={} read+{} drop+{} fly+{} ?",
        short(came),
        short(c.delivered),
        short(c.dropped_total()),
        short(c.in_flight),
        short(c.unobserved)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_form_fits_the_smallest_screen() {
        let counts = Counts {
            sent: Some(123_456_789),
            delivered: 123_000_000,
            in_flight: 456,
            unobserved: 99_999,
            dropped: [("X".to_owned(), 456_000)].into(),
            ..Counts::default()
        };
        let text = briefest(&counts);
        assert!(text.chars().count() <= 41, "{text}");
        assert!(text.starts_with("123M=123M read+456k drop+456 fly+"), "{text}");
    }
}
