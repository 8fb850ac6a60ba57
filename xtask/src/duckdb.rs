//! A Python with DuckDB for the tests of the documented queries, in
//! target/duckdb.
//!
//! Best effort: where Python, its venv module or the package index cannot be
//! had, the tests skip themselves and say so, and fail where CI is to have it.

use std::process::{Command, Stdio};

use crate::workspace;

/// The version the queries were written for.
const DUCKDB: &str = "duckdb>=1.1,<3";

/// Makes it, unless it is there.
pub(crate) fn set_up() {
    let venv = workspace::root().join("target/duckdb");
    let python = venv.join("bin/python");
    let has = || quiet(Command::new(&python).args(["-c", "import duckdb"]));
    if has() {
        return;
    }
    eprintln!("setting up DuckDB in target/duckdb, to test the documented queries with");
    let made = quiet(Command::new("python3").args(["-m", "venv"]).arg(&venv));
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", DUCKDB];
    if !made || !quiet(Command::new(&python).args(install)) || !has() {
        eprintln!(
            "DuckDB could not be set up (python3 with venv and pip, and the package index, are needed)"
        );
    }
}

fn quiet(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}
