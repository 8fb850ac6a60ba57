//! A [`Record`] as a page of Markdown.

use std::fmt::Write;

use super::absurd::{self, Answer};
use super::lag;
use super::record::{Record, Setting, shown_ratios};
use super::stats::{self, grouped, micros};
use super::throughput::LOSS_BUDGET;
use super::tool::Tool;

/// The page.
pub(super) fn markdown(record: &Record) -> String {
    let mut page = String::from("# load beside iperf3, sockperf and nuttcp\n\n");
    page.push_str(&conditions(&record.setting));
    page.push_str("## Result\n\n| | found | |\n|---|---|---|\n");
    for claim in &record.claims {
        let mark = match claim.holds {
            Some(true) => "holds",
            Some(false) => "**fails**",
            None => "unknown",
        };
        line(&mut page, &format!("| {} | {} | {mark} |", claim.what, claim.found));
    }
    page.push_str(&throughput(record));
    page.push_str(&lags(record));
    page.push_str(&absurd(record));
    page
}

fn line(page: &mut String, text: &str) {
    page.push_str(text);
    page.push('\n');
}

fn conditions(s: &Setting) -> String {
    let cores = match s.cpus {
        1 => "one shared core".into(),
        2 => "two shared cores".into(),
        n => format!("{n} shared cores"),
    };
    format!(
        "Written by `cargo xtask bench load --rounds {} --seconds {}`, with every run in [load.json](load.json); \
         not edited.\n\n\
         Machine: {cores}, kernel {}; {:.0} % of the CPUs' time was in use the second before. Two network \
         namespaces and a plain veth pair, {} B of payload, socket buffers of {} B for every tool (what the kernel \
         grants all of them without a change of its settings). {}.\n\n",
        s.rounds,
        s.seconds,
        s.kernel,
        s.busy_before * 100.0,
        s.size,
        grouped(s.buffer as f64),
        s.versions.join("; ")
    )
}

fn throughput(record: &Record) -> String {
    let mut page = format!(
        "\n## Delivered per second\n\n\
         Each tool at its highest rate with loss under {} %: unlimited, or stepped down until the receiver kept \
         up. Every tool ran in the way that did best in tries before the rounds (pinned: the sender on CPU 0, the \
         receiver on CPU 1, by taskset). Delivered is the receiver's \
         count, checked against the kernel's; the ratio is to the best peer of the same round, as median and \
         range.\n\n\
         | tool | way | median | range | ratio |\n|---|---|---:|---:|---:|\n",
        LOSS_BUDGET * 100.0
    );
    for series in &record.throughput {
        let rates = || series.rounds.iter().filter_map(|r| r.delivered_per_s);
        let range =
            stats::range(rates()).map_or("—".into(), |(a, b)| format!("{}–{}", grouped(a), grouped(b)));
        let ratio = if Tool::PEERS.contains(&series.tool) {
            String::new()
        } else {
            shown_ratios(&record.ratios(series.tool))
        };
        line(
            &mut page,
            &format!(
                "| {} | {} | {} | {range} | {ratio} |",
                series.tool.name(),
                series.variant.shown(),
                or_dash(series.median_per_s.map(grouped))
            ),
        );
    }
    page.push_str("\nRounds (a dash: no rate without loss):\n\n| round |");
    record.throughput.iter().for_each(|s| page.push_str(&format!(" {} |", s.tool.name())));
    page.push_str("\n|---|");
    record.throughput.iter().for_each(|_| page.push_str("---:|"));
    page.push('\n');
    for round in 0..record.throughput.iter().map(|s| s.rounds.len()).max().unwrap_or(0) {
        let cells = record.throughput.iter().map(|s| or_dash(s.round(round).map(grouped)));
        line(&mut page, &format!("| {} | {} |", round + 1, cells.collect::<Vec<_>>().join(" | ")));
    }
    page.push_str("\nCommands, without a rate limit:\n\n```\n");
    for series in &record.throughput {
        series.commands.iter().for_each(|c| line(&mut page, c));
    }
    page.push_str("```\n");
    page
}

fn lags(record: &Record) -> String {
    let mut page = String::from(
        "\n## Send lag\n\n\
         How late datagrams left. `load` has the lag of every one against its schedule. sockperf under-load keeps \
         the send times of one message in 97 in its full log (a prime, so that the samples do not keep step with the timer tick); its schedule is put back as the best grid below them, \
         which is kind to it: a delay that all share vanishes. Medians of the rounds.\n\n\
         | rate | tool | way | datagrams a round | p50 | p99 | largest |\n|---:|---|---|---:|---:|---:|---:|\n",
    );
    for s in &record.lag {
        let over = |value: fn(&lag::Lag) -> Option<f64>| {
            or_dash(stats::median(s.rounds.iter().filter_map(value)).map(micros))
        };
        let counts = s.rounds.iter().map(|l| l.count as f64);
        line(
            &mut page,
            &format!(
                "| {}/s | {} | {} | {} | {} | {} | {} |",
                grouped(f64::from(s.rate_per_s)),
                s.tool.name(),
                s.variant.shown(),
                or_dash(stats::median(counts).map(grouped)),
                over(|l| l.p50_ns),
                over(|l| l.p99_ns),
                over(|l| l.max_ns)
            ),
        );
    }
    page.push_str("\np99 by round:\n\n| rate | tool | rounds |\n|---:|---|---|\n");
    for s in &record.lag {
        let rounds: Vec<String> = s.rounds.iter().map(|l| or_dash(l.p99_ns.map(micros))).collect();
        line(
            &mut page,
            &format!(
                "| {}/s | {} | {} |",
                grouped(f64::from(s.rate_per_s)),
                s.tool.name(),
                rounds.join(", ")
            ),
        );
    }
    page.push_str("\nCommands:\n\n```\n");
    for s in &record.lag {
        s.commands.iter().for_each(|c| line(&mut page, c));
    }
    page.push_str("```\n");
    page
}

fn absurd(record: &Record) -> String {
    let mut page = format!(
        "\n## Asked for {}/s\n\nMore than the machine can do. What each tool printed, whole, and its exit code.\n\n\
         | tool | left the sender | exit |\n|---|---:|---:|\n",
        grouped(absurd::ASKED)
    );
    for a in &record.absurd.answers {
        line(&mut page, &format!("| {} | {}/s | {} |", a.tool.name(), grouped(a.sent_per_s), code(a)));
    }
    for a in &record.absurd.answers {
        let _ = write!(page, "\n{}, exit {}:\n\n```\n$ {}\n", a.tool.name(), code(a), a.command);
        a.said.iter().for_each(|said| line(&mut page, said));
        page.push_str("```\n");
    }
    page
}

fn code(answer: &Answer) -> String {
    or_dash(answer.exit.map(|code| code.to_string()))
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "—".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::record::tests::good;

    #[test]
    fn the_page_has_every_claim_every_round_and_every_answer() {
        let record = good();
        let page = markdown(&record);
        for claim in &record.claims {
            assert!(page.contains(&claim.what) && page.contains(&claim.found), "{page}");
        }
        assert!(page.contains("| 3 | 140 | 110 | 60 | 70 | 400 |"), "{page}");
        assert!(page.contains("iperf3, exit 0:") && page.contains("iperf Done."), "{page}");
        assert!(page.contains("two shared cores, kernel 6.18.1"), "{page}");
        assert!(
            page.contains("| 20,000/s | sockperf | plain | 5,000 | 1.0 µs | 2,000 µs | 1,000 µs |"),
            "{page}"
        );
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let mut record = good();
        record.throughput[1].rounds[2].delivered_per_s = None;
        record.lag[1].rounds[0].p99_ns = None;
        record.absurd.answers[0].exit = None;
        let page = markdown(&record);
        assert!(page.contains("| 3 | 140 | — | 60 |"), "{page}");
        assert!(page.contains("| 20,000/s | sockperf | — |"), "{page}");
        assert!(page.contains("load, exit —:"), "{page}");
    }
}
