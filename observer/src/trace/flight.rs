//! The flight recorder: a bounded window of segments, and copies of it that
//! are kept.
//!
//! Old segments are deleted. Preserving links the window's files into a
//! directory of its own, which is a trace like any other and costs no space
//! until the window has moved on.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use super::TraceError;
use super::files::{self, WHAT};
use super::meta::{End, Meta};
use super::segment::Segment;

/// Deletes and preserves segments.
#[derive(Debug)]
pub struct Flight {
    dir: PathBuf,
    window_ns: u64,
    kept: VecDeque<Kept>,
    preserved: u32,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    number: u64,
    to_ns: u64,
    packets: u64,
    bytes: u64,
}

impl Flight {
    /// For the trace in `dir`.
    pub fn new(dir: &Path, window_ns: u64) -> Self {
        Self { dir: dir.to_owned(), window_ns, kept: VecDeque::new(), preserved: 0 }
    }

    /// Takes note of a segment, and deletes what has left the window.
    pub fn closed(&mut self, segment: &Segment) {
        let f = segment.files;
        self.kept.push_back(Kept {
            number: segment.number,
            to_ns: segment.to_ns,
            packets: f.packets.map_or(0, |f| f.rows),
            bytes: f.bytes(),
        });
        let horizon = segment.to_ns.saturating_sub(self.window_ns);
        while self.kept.len() > 1 && self.kept.front().is_some_and(|k| k.to_ns < horizon) {
            let Some(old) = self.kept.pop_front() else { break };
            for what in WHAT {
                // The first one, segment-*.json, makes the others nothing. One
                // that is not there needs no deleting.
                let _ = fs::remove_file(files::of_segment(&self.dir, what, old.number));
            }
        }
    }

    /// Keeps the window as it is now; where.
    ///
    /// # Errors
    ///
    /// [`TraceError::Io`].
    pub fn preserve(&mut self, meta: &Meta, why: &str) -> Result<PathBuf, TraceError> {
        let to = loop {
            self.preserved += 1;
            let to = self.dir.join(format!("preserved-{:03}", self.preserved));
            if !to.exists() {
                break to;
            }
        };
        fs::create_dir(&to).map_err(TraceError::io("create", &to))?;
        let mut end = End::default();
        for kept in &self.kept {
            // Last what makes the others count.
            for what in WHAT.iter().rev() {
                let from = files::of_segment(&self.dir, what, kept.number);
                if from.exists() {
                    link(&from, &files::of_segment(&to, what, kept.number))?;
                }
            }
            end.at_ns = kept.to_ns;
            end.segments += 1;
            end.last = Some(kept.number);
            end.packets += kept.packets;
            end.bytes += kept.bytes;
        }
        let meta = Meta { end: Some(end), preserved: Some(why.to_owned()), ..meta.clone() };
        files::write_json(&files::meta(&to), &meta)?;
        Ok(to)
    }
}

/// Links where the file system can, else copies.
fn link(from: &Path, to: &Path) -> Result<(), TraceError> {
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to).map_err(TraceError::io("copy", from))?;
    }
    Ok(())
}
