//! The table of a suite, and the findings behind it.

use super::{HEADINGS, Report, components, row};

/// The report as Markdown.
pub fn markdown(report: &Report) -> String {
    let mut out = format!("# Load report: {}\n\n", report.verdict.name());
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    out.push_str(&line(HEADINGS.map(str::to_owned).into()));
    out.push_str(&line(HEADINGS.map(|_| "---".to_owned()).into()));
    for w in &report.workloads {
        out.push_str(&line(row(w).map(|c| escape(&c)).into()));
    }
    out.push_str(
        "\np50 and p99 run from the intended time to the application's read; ± is half of the 95 % \
         confidence interval. — : not known, too few samples, or \
         from a run that did not measure what it was asked to.\n",
    );
    if !report.not_run.is_empty() {
        out.push_str(&format!(
            "\nNot run, because the suite was stopped: {}.\n",
            escape(&report.not_run.join(", "))
        ));
    }
    for w in &report.workloads {
        let parts = components::md(w);
        if w.findings.is_empty() && parts.is_empty() {
            continue;
        }
        out.push_str(&format!("\n## {}\n\n{parts}", escape(&w.name)));
        for f in &w.findings {
            out.push_str(&format!(
                "- **{} {}**: {}. {}. ({})\n",
                f.level.name(),
                f.check,
                escape(&f.observed),
                escape(&f.means),
                escape(&f.detail)
            ));
        }
    }
    out
}

/// Names come from a file: they must not end a cell or begin markup.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '#' => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
