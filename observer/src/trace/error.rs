//! What can go wrong with a trace, in words that say what to do.

use std::io;
use std::path::{Path, PathBuf};

/// Why a trace cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A file or directory of the trace.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// `create`, `read`, …
        doing: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Recording would overwrite something.
    #[error("{} exists and is not empty: nothing is overwritten; give a new directory, or remove it", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// Not a trace at all.
    #[error("{} is no trace: {why}; a trace is a directory with meta.json, made by `observer --record DIR`", path.display())]
    NoTrace {
        /// The directory.
        path: PathBuf,
        /// What is missing.
        why: String,
    },
    /// Written by another version.
    #[error("{} has the schema {found:?} and this observer reads {reads:?}: use the observer that recorded it or a newer one", path.display())]
    Version {
        /// meta.json or a segment.
        path: PathBuf,
        /// What it says.
        found: String,
        /// What would be understood.
        reads: &'static str,
    },
    /// A file is not what the recorder wrote.
    #[error("{} is damaged: {why}; --skip-damaged leaves its segment out", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A question that this trace cannot answer.
    #[error("{0}")]
    Refused(String),
}

impl TraceError {
    /// For `map_err` on an operation with a file.
    pub fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source }
    }

    /// A damaged file.
    pub fn damaged(path: &Path, why: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), why: why.into() }
    }
}
