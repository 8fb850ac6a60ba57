//! Reports of a workload file: one JSON document, and what is written from
//! the same figures for people and for other tools.

mod components;
mod hlog;
mod html;
mod markdown;
mod options;

pub use options::ReportOptions;

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde::Serialize;

use crate::num::{round_u64, signed};
use crate::units::{show_count, show_ns};
use crate::verdict::{self, Verdict};
use crate::workload::run::Outcome;

pub use markdown::markdown;

/// The JSON document, schema `load-report/1` (docs/load-report.schema.json).
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `load-report/1`.
    pub schema: &'static str,
    /// The worst of the workloads.
    pub verdict: Verdict,
    /// Workloads of the file that were not run, because of a stop.
    pub not_run: Vec<String>,
    /// One per workload that was run, in the file's order.
    pub workloads: Vec<Outcome>,
}

impl Report {
    /// The report of what was run and what was not.
    pub fn new(workloads: Vec<Outcome>, not_run: Vec<String>) -> Self {
        let worst = workloads.iter().map(|w| w.verdict).max().unwrap_or_default();
        // An unfinished suite did not measure what it was asked to.
        let verdict = if not_run.is_empty() { worst } else { Verdict::Invalid };
        Self { schema: "load-report/1", verdict, not_run, workloads }
    }
}

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table and the findings, Markdown.
    #[value(name = "md")]
    Markdown,
    /// The JSON document.
    Json,
    /// A page that stands alone, with plots.
    Html,
    /// An HdrHistogram interval log, one interval per workload.
    Hlog,
}

impl Format {
    /// The extension of its file.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Markdown => "md",
            Self::Json => "json",
            Self::Html => "html",
            Self::Hlog => "hlog",
        }
    }
}

/// Report files that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}; check the directory, its permissions and its disk", .0.join(", nor "))]
pub struct WriteError(Vec<String>);

impl WriteError {
    fn one(path: &Path, why: impl std::fmt::Display) -> Self {
        Self(vec![format!("{}: {why}", path.display())])
    }
}

/// Makes `dir` where it is missing and sees that a file can be written there.
///
/// # Errors
/// [`WriteError`] with the directory and the reason.
pub fn prepare(dir: &Path) -> Result<(), WriteError> {
    std::fs::create_dir_all(dir)
        .and_then(|()| tempfile::NamedTempFile::new_in(dir))
        .map(drop)
        .map_err(|e| WriteError::one(dir, e))
}

/// Writes `report.<extension>` into `dir`, which is made where it is missing.
/// Each file is either whole or not there, and one that cannot be written does
/// not keep the others from it.
///
/// # Errors
/// [`WriteError`] with every file that is missing, and the reasons.
pub fn write(report: &Report, dir: &Path, formats: &[Format]) -> Result<(), WriteError> {
    prepare(dir)?;
    let mut failed = Vec::new();
    for format in formats {
        let path = dir.join(format!("report.{}", format.extension()));
        let text = match format {
            Format::Markdown => Ok(markdown(report)),
            Format::Json => serde_json::to_string_pretty(report).map(|t| t + "\n").map_err(|e| e.to_string()),
            Format::Html => Ok(html::html(report)),
            Format::Hlog => hlog::hlog(report),
        };
        if let Err(why) = text.and_then(|text| replace(&path, &text).map_err(|e| e.to_string())) {
            failed.extend(WriteError::one(&path, why).0);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(WriteError(failed)) }
}

/// Puts `text` in the place of the file at once: whoever looks finds the old
/// one or the new one, whole. What is no regular file (a pipe, a device) is
/// written to.
///
/// # Errors
/// The kernel's.
pub fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    if path.metadata().is_ok_and(|m| !m.is_file()) {
        return std::fs::write(path, text);
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The kernel's word alone: the name of the file in between says nothing.
    let plain = |e: std::io::Error| e.raw_os_error().map_or(e, std::io::Error::from_raw_os_error);
    let mut file = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(dir)
        .map_err(plain)?;
    file.as_file_mut().write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).map(drop).map_err(|e| plain(e.error))
}

/// A row of the table: workload, result, offered, sent, delivered, p50, p99,
/// loss, reason. What an invalid run measured is not quoted.
fn row(w: &Outcome) -> [String; 9] {
    const NONE: &str = "—";
    let rate = |r: Option<f64>| r.map_or(NONE.into(), |r| format!("{}/s", show_count(round_u64(r))));
    let sound = w.verdict != Verdict::Invalid;
    let latency = w.latency.filter(|_| sound && !w.send.unthrottled);
    let ns = |v: Option<u64>, interval: Option<[u64; 2]>| {
        let half =
            v.zip(interval).map(|(v, [_, high])| format!(" ± {}", show_ns(signed(high.saturating_sub(v)))));
        v.map_or(NONE.into(), |v| show_ns(signed(v)) + half.as_deref().unwrap_or(""))
    };
    let ci95 = latency.and_then(|l| l.ci95);
    let reason =
        w.findings.first().filter(|f| f.level == w.verdict).map_or(NONE.into(), |f| f.check.to_owned());
    [
        w.name.clone(),
        w.verdict.name().to_owned(),
        rate(w.offered_per_s),
        rate(w.sent_per_s),
        rate(w.delivered_per_s),
        ns(latency.and_then(|l| l.p50_ns), ci95.and_then(|i| i.p50_ns)),
        ns(latency.and_then(|l| l.p99_ns), ci95.and_then(|i| i.p99_ns)),
        w.loss.map_or(NONE.into(), |l| format!("{:.3} %", l * 100.0)),
        reason,
    ]
}

const HEADINGS: [&str; 9] =
    ["workload", "result", "offered", "sent", "delivered", "p50", "p99", "loss", "reason"];

/// The table for a terminal.
pub fn table(report: &Report) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(report.workloads.iter().map(row));
    let widths: Vec<usize> =
        (0..HEADINGS.len()).map(|c| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0)).collect();
    let mut out = String::new();
    for r in &rows {
        for (cell, width) in r.iter().zip(&widths) {
            out.push_str("  ");
            out.push_str(cell);
            out.extend(std::iter::repeat_n(' ', width - cell.chars().count()));
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

/// The report for a terminal: the table, then what there is to say about each
/// workload.
pub fn text(report: &Report) -> String {
    let mut out = table(report);
    for w in &report.workloads {
        let components = components::text(w);
        if w.findings.is_empty() && components.is_empty() {
            continue;
        }
        out.push_str(&format!("\n{}:{}{components}", w.name, verdict::show(&w.findings)));
    }
    out.push_str(&format!("\n  result: {}\n", report.verdict.name()));
    out
}

#[cfg(test)]
mod tests;
