//! A page that stands alone: the table, latency by quantile, and for a ladder
//! the delivered rate against latency, as inline SVG without scripts.

use super::{HEADINGS, Report, components, row};
use crate::hist::LatencyHistogram;
use crate::num::signed;
use crate::units::show_ns;
use crate::verdict::Verdict;
use crate::workload::run::Outcome;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 320.0;
/// Room for the axes' figures: left, right, top, bottom.
const MARGIN: [f64; 4] = [80.0, 170.0, 14.0, 40.0];
const COLOURS: [&str; 8] =
    ["#0b62a4", "#d1495b", "#3c8d2f", "#8f5db7", "#c77700", "#007f7f", "#6b6b6b", "#a03a00"];
const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
color:#1c1c1c;background:#fff}table{border-collapse:collapse;width:100%}th,td{padding:.3rem .6rem;text-align:right;\
border-bottom:1px solid #ddd}th:nth-child(-n+2),td:nth-child(-n+2),td:last-child,th:last-child{text-align:left}\
.INVALID{color:#a00000;font-weight:600}.FAILED{color:#a04000;font-weight:600}.PASSED{color:#1d6b1d}\
svg{max-width:100%;height:auto}svg text{font-size:12px;fill:#444}dt{font-weight:600;margin-top:.6rem}\
@media(prefers-color-scheme:dark){body{background:#161616;color:#e6e6e6}th,td{border-color:#444}\
svg text{fill:#bbb}.INVALID{color:#ff8080}.FAILED{color:#ffb060}.PASSED{color:#80d080}}";

/// The report as HTML.
pub(super) fn html(report: &Report) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Load report: {0}</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\n\
         <h1>Load report: <span class=\"{0}\">{0}</span></h1>\n<table><thead><tr>",
        report.verdict.name()
    );
    for h in HEADINGS {
        out.push_str(&format!("<th>{h}</th>"));
    }
    out.push_str("</tr></thead><tbody>\n");
    for w in &report.workloads {
        out.push_str(&format!("<tr class=\"{}\">", w.verdict.name()));
        for cell in row(w) {
            out.push_str(&format!("<td>{}</td>", escape(&cell)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table>\n<p>Latency runs from the intended time to the application's read.</p>\n");
    let curves: Vec<Curve> = report.workloads.iter().filter_map(by_quantile).collect();
    if !curves.is_empty() {
        out.push_str("<h2>Latency by quantile</h2>\n");
        out.push_str(&plot(&curves, &quantile_ticks(&curves), "quantile"));
    }
    let ladder = by_rate(&report.workloads);
    if ladder.points.len() > 1 {
        out.push_str("<h2>Delivered rate against p99 latency</h2>\n");
        let ticks = ladder.points.iter().map(|(x, _)| (*x, format!("{x:.0}/s"))).collect::<Vec<_>>();
        out.push_str(&plot(&[ladder], &ticks, "delivered"));
    }
    for w in &report.workloads {
        let parts = components::html(w);
        if w.findings.is_empty() && parts.is_empty() {
            continue;
        }
        out.push_str(&format!("<h2>{}</h2>\n{parts}<dl>\n", escape(&w.name)));
        for f in &w.findings {
            out.push_str(&format!(
                "<dt class=\"{0}\">{0} {1}</dt><dd>{2}.<br>{3}.<br><small>{4}</small></dd>\n",
                f.level.name(),
                f.check,
                escape(&f.observed),
                escape(&f.means),
                escape(&f.detail)
            ));
        }
        out.push_str("</dl>\n");
    }
    out.push_str("</body></html>\n");
    out
}

struct Curve {
    name: String,
    /// Position along the axis, and ns.
    points: Vec<(f64, f64)>,
}

/// Position of a quantile: its distance from 1, in decades.
fn decades(q: f64) -> f64 {
    -(1.0 - q).log10()
}

fn by_quantile(w: &Outcome) -> Option<Curve> {
    let h: &LatencyHistogram =
        w.recv.as_ref()?.from_intended.as_ref().filter(|_| w.verdict != Verdict::Invalid)?;
    let points: Vec<(f64, f64)> = (0..=100)
        .map(|i| f64::from(i) / 20.0)
        .map_while(|d| {
            let q = 1.0 - 10_f64.powf(-d);
            // Only as far as there are samples for.
            h.quantile(q.max(0.001)).map(|v| (d, v as f64))
        })
        .collect();
    (points.len() > 1).then(|| Curve { name: w.name.clone(), points })
}

fn quantile_ticks(curves: &[Curve]) -> Vec<(f64, String)> {
    let end = curves.iter().flat_map(|c| &c.points).map(|p| p.0).fold(0.0, f64::max);
    [(0.5, "0.5"), (0.9, "0.9"), (0.99, "0.99"), (0.999, "0.999"), (0.9999, "0.9999"), (0.99999, "0.99999")]
        .into_iter()
        .map(|(q, t)| (decades(q), t.to_owned()))
        .filter(|(d, _)| *d <= end + 1e-9)
        .collect()
}

fn by_rate(workloads: &[Outcome]) -> Curve {
    let mut points: Vec<(f64, f64)> = workloads
        .iter()
        .filter(|w| w.verdict != Verdict::Invalid && !w.send.unthrottled)
        .filter_map(|w| Some((w.delivered_per_s?, w.latency?.p99_ns? as f64)))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    Curve { name: "p99".into(), points }
}

fn plot(curves: &[Curve], ticks: &[(f64, String)], axis: &str) -> String {
    let all = || curves.iter().flat_map(|c| &c.points);
    let (x0, x1) = all().fold((f64::MAX, f64::MIN), |(a, b), p| (a.min(p.0), b.max(p.0)));
    let (low, high) = all().fold((f64::MAX, 1.0_f64), |(a, b), p| (a.min(p.1.max(1.0)), b.max(p.1)));
    let (y0, y1) = (low.log10().floor(), high.log10().ceil().max(low.log10().floor() + 1.0));
    let [left, right, top, bottom] = MARGIN;
    let x = |v: f64| left + (v - x0) / (x1 - x0).max(1e-9) * (WIDTH - left - right);
    let y = |v: f64| HEIGHT - bottom - (v.max(1.0).log10() - y0) / (y1 - y0) * (HEIGHT - top - bottom);
    let mut out =
        format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"latency by {axis}\">\n");
    let mut decade = y0;
    while decade <= y1 {
        let (at, label) =
            (y(10_f64.powf(decade)), show_ns(signed(crate::num::round_u64(10_f64.powf(decade)))));
        out.push_str(&format!(
            "<line x1=\"{left}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#8884\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>\n",
            WIDTH - right,
            left - 8.0,
            at + 4.0
        ));
        decade += 1.0;
    }
    for (at, label) in ticks {
        out.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>\n",
            x(*at),
            HEIGHT - bottom + 18.0
        ));
    }
    for (i, (curve, colour)) in curves.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let path: Vec<String> =
            curve.points.iter().map(|(a, b)| format!("{:.1},{:.1}", x(*a), y(*b))).collect();
        out.push_str(&format!(
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>\n",
            path.join(" ")
        ));
        let line = top + 14.0 + 18.0 * f64::from(u32::try_from(i).unwrap_or(0));
        out.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{line:.1}\" style=\"fill:{colour}\">{}</text>\n",
            WIDTH - right + 10.0,
            escape(&curve.name)
        ));
    }
    out.push_str("</svg>\n");
    out
}

/// Names come from a file: they must not become markup.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
