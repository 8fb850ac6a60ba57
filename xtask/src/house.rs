//! The house rules that no compiler checks.
//!
//! In: the files git tracks, or would. Out: [`Finding`]s, one line each, with
//! file and line.
//!
//! - Nothing names a machine: no home directory, no registry's host, no path
//!   of this checkout. Cargo.lock knows crates.io only.
//! - A Rust file has one idea: at most [`MODULE_LINES`] lines.
//! - Unfinished work is an issue, not a note in the code.
//! - The checked-in BPF object is the recorded one, and the record's sources
//!   are those in the tree.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::ebpf::record::{self, Record};
use crate::{run, workspace};

/// Longest Rust file, in lines.
const MODULE_LINES: usize = 700;

/// Words that are not to be in the tree, and what they are. Written in two
/// halves, since this file is in the tree.
const FORBIDDEN: &[(&str, &str, &str)] = &[
    ("/ho", "me/", "a home directory"),
    ("/Us", "ers/", "a home directory"),
    ("/ro", "ot/", "a home directory"),
    ("index.", "crates.io", "a registry's host"),
    ("static.", "crates.io", "a registry's host"),
    ("deb.", "debian.org", "a registry's host"),
    ("arti", "factory", "a registry's host"),
    ("TO", "DO", "a note of unfinished work"),
    ("FIX", "ME", "a note of unfinished work"),
    ("XX", "X:", "a note of unfinished work"),
];

/// The one registry of Cargo.lock.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// One thing to mend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The file, from the top of the checkout.
    file: String,
    /// The line, from 1; 0 if it is about the file.
    line: usize,
    /// What is wrong.
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.what),
            line => write!(f, "{}:{line}: {}", self.file, self.what),
        }
    }
}

/// Checks the whole tree.
///
/// # Errors
///
/// If git cannot list the files, or one cannot be read.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>> {
    let listed = run::output(
        Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root),
    )
    .context("the house rules need git and a checkout")?;
    let here = root.to_string_lossy();
    // A checkout near the top of the tree has a name too common to look for.
    let here = (root.components().count() > 2).then_some(here.as_ref());
    let mut findings = Vec::new();
    for file in listed.split('\0').filter(|file| !file.is_empty()) {
        let path = root.join(file);
        // Listed, but removed and not yet committed; or a link.
        if !path.is_file() || path.is_symlink() {
            continue;
        }
        let content = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        findings.extend(check_file(file, &content, here));
    }
    findings.extend(check_object(root)?);
    Ok(findings)
}

/// Checks one file. Binary files are searched for the same words; their
/// "lines" mean nothing, and are not told.
fn check_file(file: &str, content: &[u8], here: Option<&str>) -> Vec<Finding> {
    let binary = content.contains(&0);
    let text = String::from_utf8_lossy(content);
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut found = |what: String| {
            findings.push(Finding { file: file.to_owned(), line: if binary { 0 } else { index + 1 }, what });
        };
        for (first, second, meaning) in FORBIDDEN {
            let word = [*first, *second].concat();
            if line.contains(&word) {
                found(format!("names {word}: {meaning}"));
            }
        }
        if let Some(here) = here.filter(|here| line.contains(here)) {
            found(format!("names {here}: a path of this machine"));
        }
        if file == "Cargo.lock" && line.starts_with("source = ") && !line.contains(REGISTRY) {
            found(format!("{line}: not crates.io"));
        }
    }
    let lines = text.lines().count();
    if file.ends_with(".rs") && lines > MODULE_LINES {
        let what = format!("{lines} lines, {MODULE_LINES} at most: it has more than one idea");
        findings.push(Finding { file: file.to_owned(), line: 0, what });
    }
    findings
}

/// Checks the object and its record, without a toolchain.
fn check_object(root: &Path) -> Result<Vec<Finding>> {
    let finding = |file: &str, what: &str| Finding { file: file.to_owned(), line: 0, what: what.to_owned() };
    let path = root.join(workspace::OBJECT);
    let Ok(object) = std::fs::read(&path) else {
        return Ok(vec![finding(workspace::OBJECT, "missing: run `cargo xtask ebpf`")]);
    };
    let record = Record::read(root)?;
    let mut findings = Vec::new();
    if record::digest(&object) != record.object_sha256 {
        findings
            .push(finding(workspace::OBJECT, "not the object its record tells of: run `cargo xtask ebpf`"));
    }
    if record::sources_digest(root)? != record.sources_sha256 {
        findings.push(finding(workspace::OBJECT, "older than its sources: run `cargo xtask ebpf`"));
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(file: &str, content: &str) -> Vec<String> {
        check_file(file, content.as_bytes(), Some("/some/where")).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_clean_file_has_no_findings() {
        assert_eq!(shown("a.rs", "//! A module.\n"), [""; 0]);
        assert_eq!(shown("Cargo.lock", &format!("source = \"{REGISTRY}\"\n")), [""; 0]);
    }

    #[test]
    fn every_forbidden_word_is_found_with_its_line() {
        for (first, second, meaning) in FORBIDDEN {
            let word = [*first, *second].concat();
            let findings = shown("docs/a.md", &format!("fine\nsee {word}x\n"));
            assert_eq!(findings, [format!("docs/a.md:2: names {word}: {meaning}")]);
        }
        assert_eq!(shown("x.o", "\0\n/some/where/a.rs\0").len(), 1);
    }

    #[test]
    fn other_registries_and_long_modules_are_found() {
        assert_eq!(shown("Cargo.lock", "source = \"git+https://example.org/x\"\n").len(), 1);
        assert_eq!(shown("a.rs", &"//\n".repeat(MODULE_LINES)), [""; 0]);
        assert_eq!(shown("a.rs", &"//\n".repeat(MODULE_LINES + 1)).len(), 1);
        assert_eq!(shown("a.md", &"long\n".repeat(MODULE_LINES + 1)), [""; 0]);
    }
}
