//! Names of a trace's files, and how they are written: aside, then renamed,
//! so that a file under its own name is whole.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::TraceError;
use super::meta::{LARGEST_JSON, SCHEMA};

/// What the files of a segment begin with; first the one that makes the others
/// count.
pub(super) const WHAT: [&str; 6] = ["segment", "packets", "waits", "earlier", "unfinished", "histograms"];

/// meta.json.
pub(super) fn meta(dir: &Path) -> PathBuf {
    dir.join("meta.json")
}

/// The file that says how far the open segment has come.
pub(super) fn open_mark(dir: &Path) -> PathBuf {
    dir.join("open.json")
}

/// A file of segment `number`: `packets-000007.parquet`.
pub(super) fn of_segment(dir: &Path, what: &str, number: u64) -> PathBuf {
    let ending = if what == "segment" { "json" } else { "parquet" };
    dir.join(format!("{what}-{number:06}.{ending}"))
}

/// The name a file has while it is written.
pub(super) fn aside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".part");
    path.with_file_name(name)
}

/// Writes `value` aside and renames.
///
/// # Errors
///
/// [`TraceError::Io`].
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> Result<u64, TraceError> {
    let mut text = serde_json::to_vec(value).map_err(|e| TraceError::Io {
        doing: "write",
        path: path.to_owned(),
        source: e.into(),
    })?;
    text.push(b'\n');
    let aside = aside(path);
    fs::write(&aside, &text).map_err(TraceError::io("write", &aside))?;
    fs::rename(&aside, path).map_err(TraceError::io("rename", &aside))?;
    Ok(text.len() as u64)
}

/// Reads a JSON file whose `schema` must be [`SCHEMA`].
///
/// # Errors
///
/// [`TraceError::Version`] for another schema, [`TraceError::Damaged`] for
/// what is not JSON, or is longer than any that was written.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, TraceError> {
    #[derive(serde::Deserialize)]
    struct Versioned {
        schema: String,
    }
    let text = read_bounded(path, LARGEST_JSON)?;
    let damaged = |e: serde_json::Error| TraceError::damaged(path, e.to_string());
    let found = serde_json::from_slice::<Versioned>(&text).map_err(damaged)?.schema;
    if found != SCHEMA {
        return Err(TraceError::Version { path: path.to_owned(), found, reads: SCHEMA });
    }
    serde_json::from_slice(&text).map_err(damaged)
}

/// Reads a file that must not be longer than `most` bytes.
///
/// # Errors
///
/// [`TraceError::Io`], or [`TraceError::Damaged`] if it is longer.
pub(super) fn read_bounded(path: &Path, most: u64) -> Result<Vec<u8>, TraceError> {
    let file = File::open(path).map_err(TraceError::io("open", path))?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(TraceError::io("read", path))?;
    if bytes.len() as u64 > most {
        return Err(TraceError::damaged(path, format!("it is longer than {most} bytes")));
    }
    Ok(bytes)
}
