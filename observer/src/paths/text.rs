//! A [`Report`] as text for a terminal, histograms as bars.

use std::fmt::Write;

use super::dispersion::{Bin, Capacity, Method};
use super::{PathReport, Ratio, Report};
use crate::report::FlowKey;
use crate::view::units::{count, percent};

/// Columns of the longest bar.
const BAR: u64 = 40;
/// Lines of a histogram.
const LINES: usize = 16;

/// The whole report.
pub fn report(report: &Report) -> String {
    let mut out = String::new();
    for path in &report.paths {
        of_path(&mut out, path);
    }
    for ratio in &report.ratios {
        of_ratio(&mut out, ratio);
    }
    if report.is_empty() {
        line(&mut out, NOTHING);
    }
    let c = &report.cost;
    let share = if c.bytes == 0 { 0.0 } else { c.probe_bytes as f64 / c.bytes as f64 };
    line(
        &mut out,
        &format!(
            "cost: {} datagrams, {} on the wire; {} of them in trains",
            count(c.datagrams),
            bytes(c.bytes),
            percent(share)
        ),
    );
    if c.left_out > 0 {
        line(&mut out, &format!("{} arrivals beyond what is kept were left out", count(c.left_out)));
    }
    out
}

const NOTHING: &str = "No trains to measure by: 20 datagrams or more that were offered in groups, as\n\
    `load send --pattern trains` does. For a ratio, two senders at the same time.";

fn of_path(out: &mut String, path: &PathReport) {
    line(out, &flow(&path.flow));
    match &path.capacity {
        Some(c) => {
            line(out, &format!("  capacity     {}", capacity(c)));
            for mode in &c.modes {
                let (rate, pairs) = (bits(mode.rate_bit_s), count(mode.pairs));
                line(out, &format!("  mode         {rate}, {pairs} pairs, {} wide", percent(mode.width)));
            }
        }
        None => line(out, "  capacity     —  (fewer than 20 pairs of neighbours)"),
    }
    let second = path.peak_second_bit_s.map_or_else(|| "—  (less than a second)".to_owned(), bits);
    line(out, &format!("  best second  {second}, payload"));
    if let Some(c) = &path.capacity {
        let rows = merged(&c.histogram);
        let label = |b: &Bin| format!("{:>12} – {:<12}", bits(b.from_bit_s), bits(b.to_bit_s));
        bars(out, rows.iter().map(|b| (label(b), b.pairs)));
    }
    out.push('\n');
}

fn capacity(c: &Capacity) -> String {
    let from = match c.method {
        Method::Train => format!("the rate of {} long trains", c.long_trains),
        Method::Mode => format!("the mode of {} pairs", count(c.pairs)),
    };
    let interval = c.interval_bit_s.map(|(low, high)| format!(" ({} – {})", bits(low), bits(high)));
    format!("{}{}, {from}", bits(c.rate_bit_s), interval.unwrap_or_default())
}

fn of_ratio(out: &mut String, r: &Ratio) {
    line(out, &format!("{}\n  against {}", flow(&r.fast), flow(&r.slow)));
    let (low, high) = r.interval;
    line(
        out,
        &format!("  capacities   {:.2} : 1  ({low:.2} – {high:.2}), {} rounds", r.capacity_ratio, r.rounds),
    );
    line(
        out,
        &format!(
            "  ASND         mean {:.2}, so 1 + {:.2} datagrams to one; peak {} (read by itself: {} : 1)",
            r.mean_asnd,
            r.mean_asnd - 1.0,
            r.peak_asnd,
            r.peak_asnd
        ),
    );
    let tail = r.histogram.len().saturating_sub(LINES);
    bars(out, r.histogram.iter().take(LINES).map(|s| (format!("{:>27}", s.asnd), s.count)));
    if tail > 0 {
        let more: u64 = r.histogram.iter().skip(LINES).map(|s| s.count).sum();
        line(out, &format!("  {:>27} {}", "above", count(more)));
    }
    out.push('\n');
}

fn bars(out: &mut String, rows: impl Iterator<Item = (String, u64)> + Clone) {
    let most = rows.clone().map(|(_, n)| n).max().unwrap_or(0).max(1);
    for (label, n) in rows {
        let length = usize::try_from((n * BAR).div_ceil(most)).unwrap_or(0);
        line(out, &format!("  {label} {:<40} {}", "█".repeat(length), count(n)));
    }
}

/// Neighbouring bins put together until there are few enough.
pub(super) fn merged(bins: &[Bin]) -> Vec<Bin> {
    let of = bins.len().div_ceil(LINES).max(1);
    bins.chunks(of)
        .filter_map(|chunk| {
            let (first, last) = (chunk.first()?, chunk.last()?);
            let pairs = chunk.iter().map(|b| b.pairs).sum();
            Some(Bin { from_bit_s: first.from_bit_s, to_bit_s: last.to_bit_s, pairs })
        })
        .collect()
}

/// Who a flow is, in one line.
pub(super) fn flow(key: &FlowKey) -> String {
    let mut out = format!("run {:08x} stream {}", key.run, key.stream);
    if let (Some(from), Some(to)) = (&key.source, &key.destination) {
        let _ = write!(out, "  {from} → {to}");
    }
    out
}

/// A rate in bits per second: `9.98 Mbit/s`.
pub(super) fn bits(bit_s: f64) -> String {
    let (value, unit) = match bit_s {
        b if b >= 999.5e6 => (b / 1e9, "Gbit/s"),
        b if b >= 999.5e3 => (b / 1e6, "Mbit/s"),
        b if b >= 999.5 => (b / 1e3, "kbit/s"),
        b => (b, "bit/s"),
    };
    let decimals = if value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.decimals$} {unit}")
}

fn bytes(n: u64) -> String {
    match n as f64 {
        b if b >= 999.5e3 => format!("{:.2} MB", b / 1e6),
        b if b >= 999.5 => format!("{:.1} kB", b / 1e3),
        b => format!("{b:.0} B"),
    }
}

fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::super::simulate::{Path, probe};
    use super::super::{analyse, html};
    use super::*;
    use crate::correlate::flows::run_and_stream;

    fn two_paths() -> Report {
        let fast = Path { jitter_ns: 20_000.0, ..Path::new(0, 2.4e7) };
        let slow = Path { jitter_ns: 20_000.0, ..Path::new(1, 1e7) };
        analyse(probe(fast, 4, 1).into_iter().chain(probe(slow, 4, 1)), |id| {
            let (run, stream) = run_and_stream(id);
            FlowKey {
                run,
                stream,
                source: Some(format!("10.78.{stream}.1:4000")),
                destination: Some(format!("10.78.{stream}.2:9077")),
                ..FlowKey::default()
            }
        })
    }

    #[test]
    fn two_paths_as_text() {
        insta::assert_snapshot!(report(&two_paths()));
    }

    #[test]
    fn nothing_found_says_what_would_help() {
        insta::assert_snapshot!(report(&analyse([], |_| FlowKey::default())));
    }

    #[test]
    fn a_page_is_whole_and_harmless() {
        let mut r = two_paths();
        r.paths[0].flow.source = Some("<script>&\"".to_owned());
        let page = html::page(&r);
        assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
        assert!(page.contains("&lt;script&gt;&amp;&quot;") && !page.contains("<script"));
        assert!(!page.contains("http"), "nothing is fetched");
        // A bar for every bin and every ASND.
        let bars = r.paths.iter().map(|p| p.capacity.as_ref().unwrap().histogram.len()).sum::<usize>()
            + r.ratios.iter().map(|x| x.histogram.len()).sum::<usize>();
        assert_eq!(page.matches("<rect").count(), bars);
    }

    #[test]
    fn rates_have_three_digits() {
        for (rate, text) in
            [(812.0, "812 bit/s"), (9_984.0, "9.98 kbit/s"), (1e7, "10.0 Mbit/s"), (999.6e6, "1.00 Gbit/s")]
        {
            assert_eq!(bits(rate), text);
        }
    }
}
