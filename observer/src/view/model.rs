//! The answer to a question about a burst, as text: the figures, the table of
//! targets, the advice.

use super::text::paint::{Paint, wrap};
use super::units::{count, rate};
use crate::model::question::{Gate, Reply, Row, time};
use crate::model::sender_queue::{round_down, round_up};

/// Columns of the labels on the left.
const LABEL: usize = 17;

/// The reply to `observer model sender-queue`.
pub fn reply(reply: &Reply, colour: bool) -> String {
    let paint = Paint { colour };
    let a = &reply.answer;
    let at = reply.dispatch_per_s.map_or_else(|| "at once".to_owned(), |p| format!("at {}", rate(p)));
    let mut out = format!(
        "{}  {} datagrams {at}, drained at {}\n\n",
        paint.heading("sender queue"),
        count(reply.burst),
        rate(reply.drain_per_s)
    );
    let mut line = |label: &str, text: String| out += &format!("{label:<LABEL$}{}\n", wrap(LABEL, &text));
    line("longest wait", format!("{} (median {})", time(a.max_wait_s), time(a.p50_wait_s)));
    line("peak backlog", format!("{} datagrams", count(crate::model::whole(a.peak_backlog.round()))));
    line("waits for", gate(reply.gate).to_owned());
    if let Some(stable) = a.stable {
        line(
            "repeated",
            if stable { "drained before the next" } else { "not drained before the next" }.to_owned(),
        );
    }
    for note in &reply.notes {
        line("note", note.clone());
    }
    out.push('\n');
    out += &format!(
        "{}\n",
        paint.faint(format!(
            "{:<10}{:>16}{:>16}{:>16}",
            "target", "burst at once", "else pace to", "or spread over"
        ))
    );
    for row in &reply.table {
        out += &table_row(row);
    }
    out.push('\n');
    out += &format!("{:<LABEL$}{}\n", "advice", wrap(LABEL, &reply.advice));
    out
}

fn gate(gate: Gate) -> &'static str {
    match gate {
        Gate::None => "nothing: the dispatch is no faster than the drain",
        Gate::Sender => "the Sender's thread",
        Gate::Link => "the link",
        Gate::Bucket => "the token bucket behind the Sender",
        Gate::Window => "the application's own window",
    }
}

fn table_row(row: &Row) -> String {
    let (pace, spread) = match (row.p_max_per_s, row.spread_s) {
        (_, None) => ("not possible".to_owned(), "—".to_owned()),
        (None, _) => ("any".to_owned(), "—".to_owned()),
        (Some(p), Some(s)) => (rate(round_down(p, 3)), time(round_up(s, 2))),
    };
    format!("{:<10}{:>16}{pace:>16}{spread:>16}\n", time(row.target_s), count(row.burst_within_target))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::question::Question;
    use crate::model::sender_queue::Burst;

    #[test]
    fn the_reference_burst() {
        let burst =
            Burst { dispatch_per_s: Some(2e6), repeats_per_s: Some(2.0), ..Burst::new(1.6e6, 90_000) };
        let question = Question { burst, target_s: 1e-3, link: None, window: Some(4_096), per_datagram: 1 };
        insta::assert_snapshot!(reply(&question.reply().unwrap(), false), @r"
        sender queue  90,000 datagrams at 2.00 M/s, drained at 1.60 M/s

        longest wait     11.2 ms (median 5.62 ms)
        peak backlog     18,000 datagrams
        waits for        the application's own window
        repeated         drained before the next
        note             the window of 4,096 datagrams is smaller than the backlog: the
                         Sender's queue ends at 2.56 ms, the rest waits in the publisher
                         as back-pressure

        target       burst at once    else pace to  or spread over
        500 µs                 800        1.61 M/s           56 ms
        1 ms                 1,600        1.62 M/s           56 ms
        5 ms                 8,000        1.75 M/s           52 ms
        10 ms               16,000        1.94 M/s           47 ms
        25 ms               40,000        2.88 M/s           32 ms
        50 ms               80,000        14.4 M/s          6.3 ms

        advice           pace bursts of 90,000 to 1.62 M/s or spread them over 56 ms to
                         stay under 1 ms
        ");
    }
}
