//! The table of components: a row each, parts below theirs.

use std::fmt::Write;

use super::paint::Paint;
use crate::component::{Component, Part};
use crate::report::{Components, Distribution};
use crate::view::units::{count, duration_or_dash};

/// The table over a span of time that `span` names, if it is not the whole;
/// with `parts`, the parts that took any time follow theirs.
pub fn components(c: &Components, span: &str, parts: bool, paint: Paint) -> String {
    let mut out = String::new();
    let head =
        format!("{:<18}{:>12}{:>9}{:>9}{:>9}{:>9}{:>9}", span, "count", "p50", "p90", "p99", "p99.9", "max");
    line(&mut out, &paint.faint(head));
    for component in Component::ALL {
        let of = c.get(component);
        line(&mut out, &row(component.title(), &of.distribution));
        if parts {
            let of_it = Part::ALL.into_iter().filter(|p| p.component() == component);
            for (part, d) in of_it.filter_map(|p| of.parts.get(p.name()).map(|d| (p, d))) {
                // Nobody waited: not worth a row.
                if d.max_ns > Some(0) {
                    let name = format!("  {}", part.name().replace('_', " "));
                    line(&mut out, &paint.faint(row(&name, d)));
                }
            }
        }
    }
    line(&mut out, &paint.heading(row("total", &c.total.distribution)));
    out
}

/// One row, 75 columns.
pub fn row(name: &str, d: &Distribution) -> String {
    let mut out = format!("{name:<18}{:>12}", count(d.count));
    for ns in [d.p50_ns, d.p90_ns, d.p99_ns, d.p99_9_ns, d.max_ns] {
        // Writing to a String cannot fail.
        let _ = write!(out, "{:>9}", duration_or_dash(ns));
    }
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}
