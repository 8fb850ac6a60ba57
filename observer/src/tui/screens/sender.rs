//! The sending side: what the sender queue is made of, how fast it drains, how
//! datagrams are batched, its sockets, and the model beside the measurement.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::component::Component;
use crate::metrics::calls::STEPS;
use crate::report::Distribution;
use crate::surroundings::Side;
use crate::tui::draw::{View, Want, bar, divide, lines, ratio, row, short, span, stack, titled};
use crate::tui::panels::models::Says;
use crate::tui::panels::{models, parts, quantiles, sockets, strips};
use crate::view::units::{count, duration, rate};

/// Draws it.
pub fn render(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let says = Says::sender(view.snapshot.total.sender_queue.as_ref());
    let model_rows = says.rows(area.width);
    let batches = u16::try_from(batch_rows(view)).unwrap_or(0);
    let wants = [
        Want { least: 2, good: 7, most: parts::rows(Component::SenderQueue), rank: 0 },
        Want { least: 2, good: 3, most: 4, rank: 1 },
        Want { least: 0, good: model_rows.min(4), most: model_rows, rank: 2 },
        Want { least: 0, good: batches + 1, most: batches + 1, rank: 3 },
        Want { least: 0, good: 3, most: sockets::rows(view, Side::Sender), rank: 4 },
        Want { least: 0, good: 5, most: strips::most_rows(4), rank: 5 },
    ];
    let areas = stack(area, &divide(area.height, &wants));
    parts::render(frame, areas[0], view, Component::SenderQueue);
    pace(frame, areas[1], view);
    models::render(
        frame,
        areas[2],
        view,
        "model of the sender queue",
        &says,
        "none: it needs bursts that the sender cannot keep up with",
    );
    batch(frame, areas[3], view);
    sockets::render(frame, areas[4], view, Side::Sender, view.state.row());
    strips::of_component(frame, areas[5], view, Component::SenderQueue);
}

/// Rates, and what the threads waited for.
fn pace(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let area = titled(frame, area, view.theme, "pace");
    let Some(report) = view.state.spanned() else { return };
    let c = &report.counts;
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let per_second = |n: u64| rate(n as f64 / report.seconds().max(1e-3));
    let sent = c.sent.map_or_else(|| "—".to_owned(), per_second);
    let mean = view.snapshot.sending.mean().map_or_else(|| "—".to_owned(), |mean| format!("{mean:.1}"));
    let waits = &view.snapshot.total.waits;
    let waited = |w: &crate::report::WaitTotals| {
        if w.count == 0 {
            "never".to_owned()
        } else {
            format!("{} times, longest {}", count(w.count), duration(w.max_ns))
        }
    };
    lines(
        frame,
        area,
        vec![
            Line::raw(format!(
                "sent {sent}, {mean} datagrams a call, {} failed for want of buffers",
                count(c.send_errors)
            )),
            Line::raw(lag(view)),
            Line::from(span(
                format!(
                    "waited for send buffer {}; for a CPU {}",
                    waited(&waits.send_buffer),
                    waited(&waits.run_queue)
                ),
                view.theme.faint(),
            )),
        ],
    );
}

/// How late the application offered, by its own schedule.
fn lag(view: &View<'_>) -> String {
    let of = |value: fn(&Distribution) -> Option<u64>| {
        quantiles::cell(view.quoted(|r| value(&r.send_lag.as_ref()?.distribution))).trim().to_owned()
    };
    format!(
        "offered behind schedule by p50 {}, p99 {}, max {}",
        of(|d| d.p50_ns),
        of(|d| d.p99_ns),
        of(|d| d.max_ns)
    )
}

fn batch_rows(view: &View<'_>) -> usize {
    let calls = &view.snapshot.sending;
    (0..STEPS).filter(|step| calls.of_length(*step) > 0).count().max(1)
}

/// Datagrams per send call: how many calls of each length.
fn batch(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let area = titled(frame, area, view.theme, "datagrams per send call, since the start");
    let calls = &view.snapshot.sending;
    if calls.calls() == 0 {
        lines(frame, area, vec![Line::from(span("no send call seen yet", view.theme.faint()))]);
        return;
    }
    let width = usize::from(area.width).saturating_sub(24);
    let used = (0..STEPS).filter(|step| calls.of_length(*step) > 0);
    for (i, step) in used.enumerate() {
        let Some(row) = row(area, i) else { return };
        let (from, to) = (1_u32 << step, (1_u32 << (step + 1)) - 1);
        let label = match step {
            0 => "1".to_owned(),
            _ if step == STEPS - 1 => format!("{from} and more"),
            _ => format!("{from}–{to}"),
        };
        let n = calls.of_length(step);
        let share = ratio(n, calls.calls());
        let text = format!("{label:>13} {} {:>7}", bar(width, share), short(n));
        frame.render_widget(Line::from(span(text, view.theme.component(Component::SenderQueue))), row);
    }
}
