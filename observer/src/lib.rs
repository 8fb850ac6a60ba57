//! observer: where the tail latency of UDP datagrams hides.
//!
//! Data flows one way, and everything behind the source is the same for a
//! live kernel, a trace and a synthetic plan:
//!
//! ```text
//! kernel (probes) → source → decode → correlate → metrics → snapshot → view
//! ```
//!
//! [`session`] ties the live ends together; `main.rs` is the command line.

pub mod attach;
pub mod component;
pub mod correlate;
pub mod culprit;
pub mod decode;
pub mod demo;
pub mod diagnose;
pub mod filter;
pub mod host;
pub mod kernel;
pub mod lab;
pub mod metrics;
pub mod model;
pub mod paths;
pub mod pipeline;
pub mod report;
pub mod run;
pub mod session;
pub mod snapshot;
pub mod source;
pub mod surroundings;
pub mod timeline;
pub mod trace;
pub mod tui;
pub mod view;
