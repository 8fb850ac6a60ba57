//! A comparison as a page, with the runs' curves over one another.

use std::fmt::Write;

use super::{Comparison, Verdict, show};
use crate::view::page::{Plots, head, row};
use crate::view::plot::{Curve, escape, plot, quantile_ticks};

/// The comparisons of one run with others; `plots` of the first run and of
/// each of the others, in the same order.
pub fn html(comparisons: &[Comparison], first: &Plots, others: &[Plots]) -> String {
    let mut out = head("Comparison");
    out.push_str("<h1>Comparison</h1>\n");
    for (c, plots) in comparisons.iter().zip(others) {
        let class = match c.verdict {
            Verdict::Worse => "worse",
            Verdict::Better => "better",
            _ => "",
        };
        let _ = write!(
            out,
            "<h2>{} against {}</h2>\n<p class=\"{class}\"><strong>{}</strong></p>\n<table><thead>",
            escape(&c.b),
            escape(&c.a),
            escape(&c.sentence)
        );
        out.push_str("<tr><th></th><th>before</th><th>after</th><th>difference</th><th>95 % interval</th><th>verdict</th></tr></thead><tbody>\n");
        for cells in show::cells(c) {
            row(&mut out, &cells);
        }
        out.push_str("</tbody></table>\n");
        for curve in &plots.by_quantile {
            let Some(before) = first.by_quantile.iter().find(|b| b.name == curve.name) else { continue };
            let curves = [
                Curve { name: "after".to_owned(), ..curve.clone() },
                Curve { name: "before".to_owned(), dashed: true, ..before.clone() },
            ];
            let _ = write!(
                out,
                "<h3>{}</h3>\n{}",
                escape(&curve.name),
                plot(&curves, &quantile_ticks(), "quantile")
            );
        }
        if !c.notes.is_empty() {
            out.push_str("<ul>");
            for note in &c.notes {
                let _ = write!(out, "<li>{}</li>", escape(note));
            }
            out.push_str("</ul>\n");
        }
    }
    out.push_str("</body></html>\n");
    out
}
