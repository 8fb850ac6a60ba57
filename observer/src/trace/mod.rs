//! Traces: an observation on disk, to be looked at again, compared, merged
//! with another host's and exported.
//!
//! A trace is a directory of Parquet and JSON files in segments of a second or
//! so; `docs/trace.md` documents every file and column. What the pipeline was
//! given is kept, in order, so that replaying it comes to the same report to
//! the last digit; and what it measured is kept too, segment by segment, so
//! that most questions need no replay.
//!
//! | module | what it does |
//! |---|---|
//! | [`record`] | the recording thread beside an observation |
//! | [`segment`], [`table`], [`packets`], [`histograms`], [`state`], [`meta`] | the files, written and read |
//! | [`flight`], [`trigger`] | a bounded window, and what makes it be kept |
//! | [`reader`] | a trace as segments, batches and journeys |
//! | [`select`] | which datagrams a question is about |
//! | [`answer`] | the report of a trace |
//! | `lookback` | which records it needs for its diagnosis |
//! | [`compare`] | what is different between runs, and whether that is chance |
//! | [`curves`] | what there is to draw |
//! | [`merge`] | two hosts' halves, joined |
//! | [`export`] | other tools' formats |
//! | [`drive`] | records a source that is not live |

pub mod answer;
pub mod compare;
pub mod curves;
pub mod drive;
mod error;
pub mod export;
mod files;
pub mod flight;
pub mod histograms;
mod lookback;
pub mod merge;
pub mod meta;
pub mod packets;
pub mod reader;
pub mod record;
pub mod segment;
pub mod select;
pub mod state;
pub mod table;
pub mod trigger;

pub use error::TraceError;
pub use meta::Meta;
pub use reader::{Missing, Trace};
pub use select::Selection;

use std::path::PathBuf;

/// Where a file of a segment is.
fn path_of(trace: &Trace, what: &str, number: u64) -> PathBuf {
    files::of_segment(trace.dir(), what, number)
}
