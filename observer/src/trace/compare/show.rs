//! A comparison as text.

use std::fmt::Write;

use super::{Comparison, Row, Verdict};
use crate::view::units::{count, duration};

/// A figure with its unit.
pub fn value(v: f64, unit: &str) -> String {
    match unit {
        "ns" => duration(whole(v)),
        "ratio" => format!("{:.3} %", v * 100.0),
        _ => format!("{}/s", count(whole(v))),
    }
}

/// A difference with sign and unit.
pub fn signed(v: f64, unit: &str) -> String {
    let sign = if v < 0.0 { '−' } else { '+' };
    format!("{sign}{}", value(v.abs(), unit))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures are not negative here, and far below 2^64"
)]
fn whole(v: f64) -> u64 {
    v.max(0.0).round() as u64
}

/// The table's rows: metric, before, after, difference, interval, verdict.
pub fn cells(c: &Comparison) -> Vec<[String; 6]> {
    let dash = || "—".to_owned();
    let mut table = Vec::with_capacity(c.rows.len());
    for r in &c.rows {
        let difference = match (r.difference, r.ratio) {
            (Some(d), Some(ratio)) if r.unit != "ratio" => {
                format!("{} {:+.1} %", signed(d, &r.unit), ratio * 100.0)
            }
            (Some(d), _) => signed(d, &r.unit),
            _ => dash(),
        };
        let interval = r
            .interval
            .map_or_else(dash, |[low, high]| format!("{} … {}", signed(low, &r.unit), signed(high, &r.unit)));
        table.push([
            r.metric.clone(),
            r.a.map_or_else(dash, |v| value(v, &r.unit)),
            r.b.map_or_else(dash, |v| value(v, &r.unit)),
            difference,
            interval,
            verdict(r),
        ]);
    }
    table
}

/// The whole comparison, for a terminal of 80 columns or more.
pub fn text(c: &Comparison) -> String {
    let mut out = format!("{} against {}\n\n  {}\n\n", c.b, c.a, c.sentence);
    let head = ["", "before", "after", "difference", "95 % interval", "verdict"].map(str::to_owned);
    let mut table = vec![head];
    table.extend(cells(c));
    let widths: Vec<usize> =
        (0..6).map(|i| table.iter().map(|row| row[i].chars().count()).max().unwrap_or(0)).collect();
    for row in &table {
        let mut line = String::from(" ");
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(width - cell.chars().count());
            // Figures to the right, words to the left.
            let _ =
                if i == 0 || i == 5 { write!(line, " {cell}{pad}") } else { write!(line, "  {pad}{cell}") };
            if i == 4 {
                line.push(' ');
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    let _ = write!(
        out,
        "\n  {} comparisons, corrected together (Holm, 5 %); worth naming: {} % and {}\n",
        c.comparisons,
        c.smallest.ratio * 100.0,
        duration(whole(c.smallest.ns))
    );
    for note in &c.notes {
        let _ = writeln!(out, "  note: {note}");
    }
    out
}

fn verdict(r: &Row) -> String {
    match r.verdict {
        Verdict::NotComparable => String::new(),
        Verdict::NotKnown => "not known".to_owned(),
        other => other.words().to_owned(),
    }
}
