//! A report as Markdown and as a page: what one attaches to a ticket.

use std::fmt::Write;

use super::plot::{Curve, decades, escape, plot, quantile_ticks, second_ticks};
use super::units::{count, duration, duration_or_dash, percent};
use crate::component::Component;
use crate::culprit::quantile_name;
use crate::report::{ComponentReport, Distribution, Report};

/// Of all pages.
pub const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
color:#1c1c1c;background:#fff}table{border-collapse:collapse;width:100%}th,td{padding:.3rem .6rem;text-align:right;\
border-bottom:1px solid #ddd}th:first-child,td:first-child{text-align:left}svg{max-width:100%;height:auto}\
svg text{font-size:12px;fill:#444}.invalid,.worse{color:#a00000;font-weight:600}.failed,.warning{color:#a04000;\
font-weight:600}.passed,.better{color:#1d6b1d}dt{font-weight:600;margin-top:.6rem}\
@media(prefers-color-scheme:dark){body{background:#161616;color:#e6e6e6}th,td{border-color:#444}\
svg text{fill:#bbb}.invalid,.worse{color:#ff8080}.failed,.warning{color:#ffb060}.passed,.better{color:#80d080}}";

/// What a page shows beside the report's own figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plots {
    /// Latency by quantile.
    pub by_quantile: Vec<Curve>,
    /// Latency by time, seconds since the start.
    pub by_time: Vec<Curve>,
}

impl Plots {
    /// From a report's own quantiles, where there is nothing finer.
    pub fn of(report: &Report) -> Self {
        let rows = rows(report);
        let by_quantile = rows.into_iter().map(|(name, c)| Curve {
            name: name.to_owned(),
            points: quantiles(&c.distribution)
                .into_iter()
                .filter_map(|(q, ns)| Some((decades(q), float(ns?))))
                .collect(),
            dashed: false,
        });
        Self { by_quantile: by_quantile.filter(|c| c.points.len() > 1).collect(), by_time: Vec::new() }
    }
}

fn quantiles(d: &Distribution) -> [(f64, Option<u64>); 4] {
    [(0.5, d.p50_ns), (0.9, d.p90_ns), (0.99, d.p99_ns), (0.999, d.p99_9_ns)]
}

#[expect(clippy::cast_precision_loss, reason = "a plot needs three digits")]
fn float(ns: u64) -> f64 {
    ns as f64
}

fn rows(report: &Report) -> Vec<(&'static str, &ComponentReport)> {
    let c = &report.components;
    Component::ALL.into_iter().map(|k| (k.title(), c.get(k))).chain([("total", &c.total)]).collect()
}

const HEADINGS: [&str; 7] = ["", "datagrams", "p50", "p90", "p99", "p99.9", "max"];

fn cells(name: &str, d: &Distribution) -> [String; 7] {
    [
        name.to_owned(),
        count(d.count),
        duration_or_dash(d.p50_ns),
        duration_or_dash(d.p90_ns),
        duration_or_dash(d.p99_ns),
        duration_or_dash(d.p99_9_ns),
        duration_or_dash(d.max_ns),
    ]
}

fn balance(report: &Report) -> String {
    let c = &report.counts;
    let sent = c.sent.map_or_else(|| "—".to_owned(), count);
    let mut said = format!(
        "{sent} sent, {} delivered, {} dropped, {} in flight, {} unobserved in {:.1} s",
        count(c.delivered),
        count(c.dropped_total()),
        count(c.in_flight),
        count(c.unobserved),
        report.seconds()
    );
    for (reason, n) in &c.dropped {
        let _ = write!(said, "; {reason} {}", count(*n));
    }
    said
}

/// Where the tail hides, in a sentence or two.
fn culprit(report: &Report) -> String {
    match &report.culprit {
        None => "too few datagrams to say where the tail is".to_owned(),
        Some(c) => format!("{}: {}", c.component.name(), c.cause),
    }
}

/// Who makes up each tail.
fn tails(report: &Report) -> Vec<String> {
    report
        .tail
        .iter()
        .map(|t| {
            let shares: Vec<String> =
                Component::ALL.into_iter().map(|c| format!("{c} {}", percent(t.share.get(c)))).collect();
            format!(
                "above {} ({}): {}",
                quantile_name(t.quantile),
                duration(t.threshold_ns),
                shares.join(", ")
            )
        })
        .collect()
}

/// The report as Markdown.
pub fn markdown(report: &Report, title: &str) -> String {
    let plain = |text: &str| text.replace('|', "\\|").replace('<', "&lt;");
    let mut out = format!(
        "# {}: {}\n\n{}\n\n{}\n\n",
        plain(title),
        report.verdict.name(),
        balance(report),
        plain(&culprit(report))
    );
    let _ = writeln!(out, "| {} |\n|---|---:|---:|---:|---:|---:|---:|", HEADINGS.join(" | "));
    for (name, c) in rows(report) {
        let _ = writeln!(out, "| {} |", cells(name, &c.distribution).join(" | "));
        for (part, d) in &c.parts {
            let _ = writeln!(out, "| {} |", cells(&format!("· {part}"), d).join(" | "));
        }
    }
    out.push('\n');
    for tail in tails(report) {
        let _ = writeln!(out, "- {tail}");
    }
    out.push_str("\n| check | level | observed | means |\n|---|---|---|---|\n");
    for f in &report.findings {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} |",
            f.check,
            f.level.name(),
            plain(&f.observed),
            plain(&f.means)
        );
    }
    out
}

/// The report as a page that stands alone.
pub fn html(report: &Report, title: &str, plots: &Plots) -> String {
    let verdict = report.verdict.name();
    let mut out = head(title);
    let _ = write!(
        out,
        "<h1>{}: <span class=\"{verdict}\">{verdict}</span></h1>\n<p>{}</p>\n<p><strong>{}</strong></p>\n",
        escape(title),
        escape(&balance(report)),
        escape(&culprit(report))
    );
    out.push_str("<table><thead><tr>");
    for h in HEADINGS {
        let _ = write!(out, "<th>{h}</th>");
    }
    out.push_str("</tr></thead><tbody>\n");
    for (name, c) in rows(report) {
        row(&mut out, &cells(name, &c.distribution));
        for (part, d) in &c.parts {
            row(&mut out, &cells(&format!("· {part}"), d));
        }
    }
    out.push_str("</tbody></table>\n");
    if !report.tail.is_empty() {
        out.push_str("<ul>");
        for tail in tails(report) {
            let _ = write!(out, "<li>{}</li>", escape(&tail));
        }
        out.push_str("</ul>\n");
    }
    if !plots.by_quantile.is_empty() {
        let _ = write!(
            out,
            "<h2>Latency by quantile</h2>\n{}",
            plot(&plots.by_quantile, &quantile_ticks(), "quantile")
        );
    }
    if !plots.by_time.is_empty() {
        let end = plots.by_time.iter().flat_map(|c| &c.points).map(|p| p.0).fold(0.0, f64::max);
        let _ = write!(
            out,
            "<h2>Latency by time</h2>\n{}",
            plot(&plots.by_time, &second_ticks(end), "seconds since the start")
        );
    }
    out.push_str("<h2>Findings</h2>\n<dl>\n");
    for f in &report.findings {
        let level = f.level.name();
        let _ = writeln!(
            out,
            "<dt class=\"{level}\">{level} {}</dt><dd>{}.<br>{}.<br><small>{}</small></dd>",
            escape(&f.check),
            escape(&f.observed),
            escape(&f.means),
            escape(&f.detail)
        );
    }
    out.push_str("</dl>\n</body></html>\n");
    out
}

/// The beginning of a page.
pub fn head(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\n",
        escape(title)
    )
}

/// A row of a table.
pub fn row(out: &mut String, cells: &[String]) {
    out.push_str("<tr>");
    for cell in cells {
        let _ = write!(out, "<td>{}</td>", escape(cell));
    }
    out.push_str("</tr>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Pipeline;
    use crate::source::synthetic::{Plan, Spread, Synthetic};

    #[test]
    fn a_page_has_everything_and_is_well_formed() {
        let plan = Plan { shaper: Spread::Exponential(3_000_000), drop_every: 100, ..Plan::default() };
        let report = Pipeline::run(&mut Synthetic::new(plan)).unwrap().total.clone();
        let html = html(&report, "a & b", &Plots::of(&report));
        for tag in ["table", "tbody", "dl", "ul", "body", "html", "svg", "h1"] {
            let (open, close) =
                (html.matches(&format!("<{tag}")).count(), html.matches(&format!("</{tag}>")).count());
            assert_eq!(open, close, "{tag}");
            assert!(open > 0, "{tag}");
        }
        assert!(html.contains("a &amp; b") && html.contains("shaper") && html.contains("SOCKET_RCVBUFF"));
        let markdown = markdown(&report, "t1");
        insta::assert_snapshot!(markdown);
    }
}
