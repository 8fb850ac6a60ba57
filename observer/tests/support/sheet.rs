//! The table of a long series, written row by row: a series that is cut off,
//! or played in parts, leaves what it measured.
//!
//! `SERIES_OUT` is the file. `SERIES_ONLY` names parts of set-ups, separated by
//! commas: only set-ups with one of them are played, and the rows of the
//! others stay as the file has them.

use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf};

/// A title and tables.
pub(crate) struct Sheet {
    title: String,
    path: Option<PathBuf>,
    only: Vec<String>,
    before: String,
    tables: Vec<Table>,
}

struct Table {
    /// What stands above, with the headings; the first column is the set-up,
    /// the last says whether it holds.
    head: String,
    keys: Vec<String>,
    rows: BTreeMap<String, String>,
}

impl Sheet {
    /// As the environment says.
    pub(crate) fn new(title: &str) -> Self {
        let path: Option<PathBuf> = std::env::var_os("SERIES_OUT").map(Into::into);
        let only = std::env::var("SERIES_ONLY").unwrap_or_default();
        Self {
            title: title.to_owned(),
            before: path.as_ref().and_then(|p| std::fs::read_to_string(p).ok()).unwrap_or_default(),
            path,
            only: only.split(',').map(|s| s.trim().to_owned()).filter(|s| !s.is_empty()).collect(),
            tables: Vec::new(),
        }
    }

    /// Adds a table with a row for each of `keys`, in that order.
    pub(crate) fn table(&mut self, head: &str, keys: impl IntoIterator<Item = String>) {
        let keys: Vec<String> = keys.into_iter().collect();
        let kept = keys.iter().filter_map(|key| {
            let row = self.before.lines().find(|line| line.starts_with(&format!("| {key} |")))?;
            Some((key.clone(), row.to_owned()))
        });
        let rows = kept.collect();
        self.tables.push(Table { head: head.to_owned(), keys, rows });
    }

    /// Whether `key` is to be played.
    pub(crate) fn wants(&self, key: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| key.contains(part.as_str()))
    }

    /// Puts down a row, its first cell the key, and writes the file.
    pub(crate) fn put(&mut self, key: &str, cells: &[String], holds: bool) {
        let row = format!("| {key} | {} | {} |", cells.join(" | "), if holds { "yes" } else { "no" });
        eprintln!("{row}");
        for table in self.tables.iter_mut().filter(|t| t.keys.iter().any(|k| k == key)) {
            table.rows.insert(key.to_owned(), row.clone());
        }
        if let Some(path) = &self.path {
            std::fs::write(path, self.text()).unwrap();
        }
    }

    /// The whole.
    pub(crate) fn text(&self) -> String {
        // The version; what a builder appends is his.
        let uname = rustix::system::uname();
        let release = uname.release().to_string_lossy();
        let kernel: Vec<_> = release.split(['.', '-']).take(2).collect();
        let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let mut out = format!("# {}\n\nLinux {}, {cpus} CPUs.\n", self.title, kernel.join("."));
        for table in self.tables.iter().filter(|t| !t.rows.is_empty()) {
            let _ = writeln!(out, "\n{}", table.head.trim_end());
            let rows = || table.keys.iter().filter_map(|key| table.rows.get(key));
            rows().for_each(|row| out.push_str(&format!("{row}\n")));
            let held = rows().filter(|row| row.ends_with("| yes |")).count();
            let _ = writeln!(out, "\nHolds in {held} of {}.", rows().count());
        }
        out
    }
}
