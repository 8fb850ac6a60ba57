//! Latency against something, as inline SVG: no scripts, nothing fetched, so
//! that a page opens anywhere and can be mailed.

use std::fmt::Write;

use super::units::duration;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 320.0;
/// Room for the axes' figures: left, right, top, bottom.
const MARGIN: [f64; 4] = [80.0, 200.0, 14.0, 40.0];
const COLOURS: [&str; 8] =
    ["#0b62a4", "#d1495b", "#3c8d2f", "#8f5db7", "#c77700", "#007f7f", "#6b6b6b", "#a03a00"];

/// A line in a plot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// Position along the axis, and ns.
    pub points: Vec<(f64, f64)>,
    /// Drawn dashed: what the others are held against.
    pub dashed: bool,
}

/// A plot of `curves`, latency up on a logarithmic scale, `axis` along with
/// figures at `ticks`. Empty if there is nothing to draw.
pub fn plot(curves: &[Curve], ticks: &[(f64, String)], axis: &str) -> String {
    let all = || curves.iter().flat_map(|c| &c.points).filter(|p| p.0.is_finite() && p.1.is_finite());
    if all().count() < 2 {
        return String::new();
    }
    let (x0, x1) = all().fold((f64::MAX, f64::MIN), |(a, b), p| (a.min(p.0), b.max(p.0)));
    let (low, high) = all().fold((f64::MAX, 1.0_f64), |(a, b), p| (a.min(p.1.max(1.0)), b.max(p.1)));
    let (y0, y1) = (low.log10().floor(), high.log10().ceil().max(low.log10().floor() + 1.0));
    let [left, right, top, bottom] = MARGIN;
    let x = |v: f64| left + (v - x0) / (x1 - x0).max(1e-9) * (WIDTH - left - right);
    let y = |v: f64| HEIGHT - bottom - (v.max(1.0).log10() - y0) / (y1 - y0) * (HEIGHT - top - bottom);
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"latency by {}\">\n",
        escape(axis)
    );
    let mut decade = y0;
    while decade <= y1 {
        let at = y(10_f64.powf(decade));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a power of ten from 1 to an hour"
        )]
        let label = duration(10_f64.powf(decade).max(1.0) as u64);
        let _ = writeln!(
            out,
            "<line x1=\"{left}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#8884\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            WIDTH - right,
            left - 8.0,
            at + 4.0
        );
        decade += 1.0;
    }
    for (at, label) in ticks.iter().filter(|(at, _)| (x0..=x1).contains(at)) {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(*at),
            HEIGHT - bottom + 18.0,
            escape(label)
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        left + (WIDTH - left - right) / 2.0,
        HEIGHT - 4.0,
        escape(axis)
    );
    let mut line = top + 14.0;
    for (curve, colour) in curves.iter().zip(COLOURS.iter().cycle()) {
        let path: Vec<String> =
            curve.points.iter().map(|(a, b)| format!("{:.1},{:.1}", x(*a), y(*b))).collect();
        let dash = if curve.dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        let _ = writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash} points=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{line:.1}\" style=\"fill:{colour}\">{}</text>",
            path.join(" "),
            WIDTH - right + 10.0,
            escape(&curve.name)
        );
        line += 18.0;
    }
    out.push_str("</svg>\n");
    out
}

/// Position of a quantile along an axis: its distance from 1, in decades.
pub fn decades(q: f64) -> f64 {
    -(1.0 - q).log10()
}

/// Figures along an axis of quantiles.
pub fn quantile_ticks() -> Vec<(f64, String)> {
    [(0.5, "0.5"), (0.9, "0.9"), (0.99, "0.99"), (0.999, "0.999"), (0.9999, "0.9999"), (0.99999, "0.99999")]
        .into_iter()
        .map(|(q, t)| (decades(q), t.to_owned()))
        .collect()
}

/// Figures along an axis of seconds from 0 to `end`: some five, at round
/// numbers.
pub fn second_ticks(end: f64) -> Vec<(f64, String)> {
    let rough = (end / 5.0).max(1e-3);
    let decade = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * decade).find(|s| *s >= rough).unwrap_or(rough);
    let mut ticks = Vec::new();
    let mut at = 0.0;
    while at <= end && ticks.len() < 12 {
        ticks.push((at, format!("{at}")));
        at = ((at + step) * 1e6).round() / 1e6;
    }
    ticks
}

/// Text from outside must not become markup.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() && c != '\n' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_its_curves_and_no_foreign_markup() {
        let curve = |name: &str, dashed| Curve {
            name: name.to_owned(),
            points: vec![(decades(0.5), 1_000.0), (decades(0.99), 2e6)],
            dashed,
        };
        let svg = plot(&[curve("a<script>", false), curve("b", true)], &quantile_ticks(), "quantile");
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("stroke-dasharray").count(), 1);
        assert!(svg.contains("a&lt;script&gt;") && !svg.contains("<script>"));
        assert!(svg.contains(">0.9<") && !svg.contains(">0.999<"));
        assert_eq!(plot(&[], &[], "quantile"), "");
    }

    #[test]
    fn seconds_have_round_ticks() {
        let labels: Vec<_> = second_ticks(30.0).into_iter().map(|t| t.1).collect();
        assert_eq!(labels, ["0", "10", "20", "30"]);
        assert!(second_ticks(0.0).len() == 1 && second_ticks(1e9).len() <= 12);
    }
}
