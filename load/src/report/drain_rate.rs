//! The table of the recipe `drain-rate`: how fast the Sender drains, by size
//! and idle strategy. The same rows as text, Markdown and HTML; what an
//! invalid case measured is not quoted.

use super::{Report, aligned, markdown, show_count, show_ns, signed};
use crate::num::round_u64;
use crate::workload::drain_rate::DrainRate;

const NONE: &str = "—";
const HEADINGS: [&str; 9] =
    ["size", "idle", "bursts", "D typical", "D conservative", "N/max", "P", "longest wait", "by the model"];

/// What the columns are.
const LEGEND: &str = "D typical: the median over the bursts, by the span of their send times, with its 95 % interval. \
     D conservative: what held in nearly every moment; plan with it. N/max, the usual estimate, is biased by \
     1/(1 − D/P): in brackets, how far it is off.";

/// The rows of each recipe, with its title.
fn tables(report: &Report) -> Vec<(String, Vec<[String; 9]>)> {
    let mut found: Vec<(String, Vec<[String; 9]>)> = Vec::new();
    for case in &report.drain_rates {
        let title = format!("{}: bursts of {}", case.recipe, show_count(case.burst));
        match found.last_mut().filter(|(last, _)| *last == title) {
            Some((_, rows)) => rows.push(row(case)),
            None => found.push((title, vec![row(case)])),
        }
    }
    found
}

fn row(case: &DrainRate) -> [String; 9] {
    let per_s = |r: f64| show_count(round_u64(r));
    let wait = |s: f64| show_ns(signed(round_u64(s * 1e9)));
    let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
    let d = case.quotable();
    let typical = d.map(|d| {
        let interval = d.typical_interval.map(|[a, b]| format!(" ({}–{})", per_s(a), per_s(b)));
        format!("{}/s{}", per_s(d.typical_per_s), interval.unwrap_or_default())
    });
    let biased = d.and_then(|d| {
        let n_over_max = d.n_over_max_per_s?;
        let off = (n_over_max / d.typical_per_s - 1.0) * 100.0;
        Some(format!("{}/s ({off:+.0} %)", per_s(n_over_max)))
    });
    [
        format!("{} B", case.size_bytes),
        case.idle.clone(),
        or_none(d.map(|d| show_count(d.bursts))),
        or_none(typical),
        or_none(d.map(|d| format!("{}/s", per_s(d.conservative_per_s)))),
        or_none(biased),
        or_none(d.and_then(|d| d.dispatch_per_s).map(|p| format!("{}/s", per_s(p)))),
        or_none(d.map(|d| wait(d.max_wait_s))),
        or_none(d.and_then(|d| d.model_wait_s).map(wait)),
    ]
}

/// As lines for a terminal; empty without a recipe.
pub(super) fn text(report: &Report) -> String {
    let mut out = String::new();
    for (title, rows) in tables(report) {
        let rows: Vec<_> = std::iter::once(HEADINGS.map(str::to_owned)).chain(rows).collect();
        out.push_str(&format!("\nDrain rate, {title}\n\n{}", aligned(&rows)));
    }
    if !out.is_empty() {
        out.push('\n');
        wrapped(&mut out, LEGEND);
    }
    out
}

/// `text` in lines of some 100 characters, indented as a table is.
fn wrapped(out: &mut String, text: &str) {
    const WIDTH: usize = 100;
    let mut used = WIDTH;
    for word in text.split_whitespace() {
        let length = word.chars().count() + 1;
        if used + length > WIDTH {
            out.push_str(if used == WIDTH { " " } else { "\n " });
            used = 0;
        }
        out.push(' ');
        out.push_str(word);
        used += length;
    }
    out.push('\n');
}

/// As Markdown tables; empty without a recipe.
pub(super) fn md(report: &Report) -> String {
    let line = |cells: [String; 9]| format!("| {} |\n", cells.map(|c| markdown::escape(&c)).join(" | "));
    let mut out = String::new();
    for (title, rows) in tables(report) {
        out.push_str(&format!("\n## Drain rate, {}\n\n", markdown::escape(&title)));
        out.push_str(&line(HEADINGS.map(str::to_owned)));
        out.push_str("|---|---|---:|---:|---:|---:|---:|---:|---:|\n");
        rows.into_iter().for_each(|cells| out.push_str(&line(cells)));
    }
    if !out.is_empty() {
        out.push_str(&format!("\n{LEGEND}\n"));
    }
    out
}

/// As HTML tables; empty without a recipe.
pub(super) fn html(report: &Report) -> String {
    let cells = |tag: &str, cells: [String; 9]| {
        let cells = cells.map(|c| format!("<{tag}>{}</{tag}>", super::html::escape(&c)));
        format!("<tr>{}</tr>\n", cells.concat())
    };
    let mut out = String::new();
    for (title, rows) in tables(report) {
        out.push_str(&format!("<h2>Drain rate, {}</h2>\n", super::html::escape(&title)));
        let head = cells("th", HEADINGS.map(str::to_owned));
        out.push_str(&format!("<table class=\"drain\"><thead>{head}</thead><tbody>\n"));
        rows.into_iter().for_each(|row| out.push_str(&cells("td", row)));
        out.push_str("</tbody></table>\n");
    }
    if !out.is_empty() {
        out.push_str(&format!("<p>{LEGEND}</p>\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;
    use crate::watch::Drained;

    fn case(recipe: &str, idle: &str, verdict: Verdict) -> DrainRate {
        let measured = Drained {
            bursts: 12,
            typical_per_s: 200_000.4,
            typical_interval: Some([198_000.0, 203_000.0]),
            theil_sen_per_s: Some(201_000.0),
            conservative_per_s: 150_000.0,
            n_over_max_per_s: Some(300_000.0),
            dispatch_per_s: Some(600_000.0),
            max_wait_s: 0.0533,
            model_wait_s: Some(0.0532),
            ..Drained::default()
        };
        DrainRate {
            recipe: recipe.into(),
            workload: format!("{recipe}: 160 B, {idle}"),
            size_bytes: 160,
            idle: idle.into(),
            batch: 64,
            burst: 16_000,
            verdict,
            measured: Some(measured),
        }
    }

    fn report() -> Report {
        let drain_rates = vec![
            case("a|b", "yield", Verdict::Warning),
            case("a|b", "busy-spin", Verdict::Invalid),
            case("<c>", "yield", Verdict::Passed),
        ];
        Report { drain_rates, ..Report::new(vec![], vec![]) }
    }

    #[test]
    fn a_recipe_is_a_table_and_an_invalid_case_quotes_nothing() {
        let md = md(&report());
        assert_eq!(md.matches("| size | idle |").count(), 2, "{md}");
        assert!(
            md.contains(
                "| 160 B | yield | 12 | 200,000/s (198,000–203,000) | 150,000/s | 300,000/s (+50 %) | 600,000/s | \
                 53.3 ms | 53.2 ms |"
            ),
            "{md}"
        );
        assert!(md.contains("| 160 B | busy-spin | — | — | — | — | — | — | — |"), "{md}");
        assert!(md.contains("a\\|b: bursts of 16,000") && md.contains("&lt;c&gt;"), "{md}");
        let page = html(&report());
        assert_eq!(page.matches("<table").count(), 2);
        assert!(page.contains("<td>300,000/s (+50 %)</td>") && !page.contains("<c>"), "{page}");
    }

    #[test]
    fn a_terminal_gets_columns_and_nothing_without_a_recipe() {
        let shown = text(&report());
        let at = |line: &str, what: &str| line.find(what).map(|i| line[..i].chars().count());
        let lines: Vec<&str> = shown.lines().collect();
        let head = lines.iter().find(|l| l.contains("D typical")).unwrap();
        let first = lines.iter().find(|l| l.contains("198,000")).unwrap();
        assert_eq!(at(head, "D typical"), at(first, "200,000"), "{shown}");
        assert!(lines.iter().all(|l| l.chars().count() < 160 && !l.ends_with(' ')), "{shown}");
        let without = Report::new(vec![], vec![]);
        assert!(text(&without).is_empty() && md(&without).is_empty() && html(&without).is_empty());
    }

    #[test]
    fn the_document_keeps_to_its_schema() {
        let schema = serde_json::from_str(include_str!("../../../docs/load-report.schema.json")).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let mut document = serde_json::to_value(report()).unwrap();
        assert!(validator.is_valid(&document), "{:?}", validator.iter_errors(&document).next());
        assert_eq!(document["drain_rates"][0]["measured"]["typical_per_s"], 200_000.4);
        document["drain_rates"][0]["measured"]["d"] = 1.into();
        assert!(!validator.is_valid(&document));
        let without = serde_json::to_value(Report::new(vec![], vec![])).unwrap();
        assert!(without.get("drain_rates").is_none() && validator.is_valid(&without));
    }
}
