//! Workload files on disk.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{FileError, Workload, parse};

/// Largest workload file read, bytes.
const LARGEST: u64 = 4 << 20;

/// A workload file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error("cannot read {file}: {source}")]
    Unreadable {
        /// Its name.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is too large to be one.
    #[error("{file} is larger than {LARGEST} B, which no workload file is")]
    TooLarge {
        /// Its name.
        file: String,
    },
    /// What is in it is refused.
    #[error(transparent)]
    Refused(#[from] FileError),
}

/// Reads and understands a workload file.
///
/// # Errors
/// [`ReadError`] with the file, the line where there is one, and the reason.
pub fn read(path: &Path) -> Result<Vec<Workload>, ReadError> {
    let file = path.display().to_string();
    let mut text = String::new();
    let read = File::open(path).and_then(|f| f.take(LARGEST + 1).read_to_string(&mut text));
    match read {
        Err(source) => Err(ReadError::Unreadable { file, source }),
        Ok(n) if u64::try_from(n).unwrap_or(u64::MAX) > LARGEST => Err(ReadError::TooLarge { file }),
        Ok(_) => Ok(parse(&file, &text)?),
    }
}
