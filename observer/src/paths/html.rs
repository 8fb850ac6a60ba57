//! A [`Report`] as one page of HTML: the figures of the text, and the
//! histograms as pictures. Nothing is fetched from anywhere.

use std::fmt::Write;

use super::dispersion::Method;
use super::text::{bits, flow};
use super::{PathReport, Ratio, Report};
use crate::view::units::{count, percent};

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;color:#1c2230}\
h1{font-size:1.4rem}h2{font-size:1.05rem;margin-top:2.2rem}\
table{border-collapse:collapse}td{padding:.15rem 1.2rem .15rem 0;vertical-align:top}td:first-child{color:#667}\
svg{display:block;margin:.8rem 0;max-width:100%}rect{fill:#3b6ea5}text{font-size:11px;fill:#556}";

/// Size of a picture, and its margins: left, and below.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 170.0;
const LEFT: f64 = 40.0;
const BELOW: f64 = 28.0;

/// The page.
pub fn page(report: &Report) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Paths</title>\
         <style>{STYLE}</style></head><body>\n<h1>Paths</h1>\n"
    );
    for path in &report.paths {
        of_path(&mut out, path);
    }
    for ratio in &report.ratios {
        of_ratio(&mut out, ratio);
    }
    let c = &report.cost;
    let _ = writeln!(
        out,
        "<h2>Cost</h2>\n<p>{} datagrams, {} bytes on the wire; {} of the bytes arrived in trains.</p>",
        count(c.datagrams),
        count(c.bytes),
        percent(if c.bytes == 0 { 0.0 } else { c.probe_bytes as f64 / c.bytes as f64 })
    );
    out.push_str("</body></html>\n");
    out
}

fn of_path(out: &mut String, path: &PathReport) {
    let _ = writeln!(out, "<h2>{}</h2>", escape(&flow(&path.flow)));
    let second = path.peak_second_bit_s.map_or_else(|| "—".to_owned(), bits);
    let Some(c) = &path.capacity else {
        table(out, &[("capacity", "— (fewer than 20 pairs)".to_owned()), ("best second, payload", second)]);
        return;
    };
    let interval = c.interval_bit_s.map(|(l, h)| format!(" ({} – {})", bits(l), bits(h))).unwrap_or_default();
    let from = match c.method {
        Method::Train => format!("{} long trains", count(c.long_trains)),
        Method::Mode => format!("mode of {} pairs", count(c.pairs)),
    };
    table(
        out,
        &[
            ("capacity", format!("{}{interval}, {from}", bits(c.rate_bit_s))),
            ("long trains", c.train_bit_s.map_or_else(|| "—".to_owned(), bits)),
            ("best second, payload", second),
        ],
    );
    // On the scale on which the bins are equally wide.
    let bars = c.histogram.iter().map(|b| (b.from_bit_s.ln(), b.to_bit_s.ln(), b.pairs));
    picture(out, "pairs of neighbours by their rate", bars.collect(), |x| bits(x.exp()));
}

fn of_ratio(out: &mut String, r: &Ratio) {
    let title = format!("{} against {}", flow(&r.fast), flow(&r.slow));
    let _ = writeln!(out, "<h2>{}</h2>", escape(&title));
    let (low, high) = r.interval;
    table(
        out,
        &[
            (
                "capacities",
                format!("{:.2} : 1 ({low:.2} – {high:.2}), {} rounds", r.capacity_ratio, r.rounds),
            ),
            ("mean ASND", format!("{:.2}: {:.2} datagrams to one", r.mean_asnd, r.mean_asnd - 1.0)),
            ("peak", format!("{} (the reference reads it as {} : 1)", r.peak_asnd, r.peak_asnd)),
        ],
    );
    let bars = r.histogram.iter().map(|s| (s.asnd as f64 - 0.4, s.asnd as f64 + 0.4, s.count));
    picture(out, "arrival sequence number differences of the slow path", bars.collect(), |x| {
        format!("{x:.0}")
    });
}

fn table(out: &mut String, rows: &[(&str, String)]) {
    out.push_str("<table>");
    for (name, value) in rows {
        let _ = write!(out, "<tr><td>{name}</td><td>{}</td></tr>", escape(value));
    }
    out.push_str("</table>\n");
}

/// Bars from x to x, with a count each; three labels on the x axis.
fn picture(out: &mut String, what: &str, bars: Vec<(f64, f64, u64)>, label: impl Fn(f64) -> String) {
    let (Some(from), Some(to), Some(most)) = (
        bars.iter().map(|b| b.0).reduce(f64::min),
        bars.iter().map(|b| b.1).reduce(f64::max),
        bars.iter().map(|b| b.2).max().filter(|n| *n > 0),
    ) else {
        return;
    };
    let scale = (WIDTH - LEFT) / (to - from).max(f64::MIN_POSITIVE);
    let room = HEIGHT - BELOW;
    let _ = write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" role=\"img\" aria-label=\"{what}\">\
         <title>{what}</title><text x=\"{:.0}\" y=\"12\" text-anchor=\"end\">{}</text>",
        LEFT - 6.0,
        count(most)
    );
    for (a, b, n) in bars {
        let height = (room - 4.0) * n as f64 / most as f64;
        let _ = write!(
            out,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\"/>",
            LEFT + (a - from) * scale,
            room - height,
            ((b - a) * scale - 1.0).max(1.0),
        );
    }
    for (at, anchor) in [(from, "start"), (f64::midpoint(from, to), "middle"), (to, "end")] {
        let x = LEFT + (at - from) * scale;
        let text = label(at);
        let _ = write!(
            out,
            "<text x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"{anchor}\">{text}</text>",
            HEIGHT - 8.0
        );
    }
    out.push_str("</svg>\n");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
