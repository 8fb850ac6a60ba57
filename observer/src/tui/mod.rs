//! The terminal UI: where the tail hides, in five seconds of looking.
//!
//! ```text
//! terminal events ─▶ keys ──▶ Action ─┐
//! feed ────────────▶ Update ──────────┴─▶ state ─▶ screen ─▶ screens, panels ─▶ frame
//!                                          └─▶ Effect ─▶ run (files, leaving, starting over)
//! ```
//!
//! - [`state`] is a function of actions and updates alone;
//! - a panel ([`panels`]) draws a snapshot into an area, and keeps nothing;
//! - [`run`](run()) is the only place with a clock, [`terminal`] the only one
//!   that touches the terminal;
//! - [`feed`] is whatever yields snapshots: a session, a daemon, a trace.

pub mod args;
pub mod draw;
pub mod feed;
pub mod flows;
pub mod keys;
pub mod panels;
pub mod played;
pub mod run;
pub mod screen;
pub mod screens;
pub mod standing;
pub mod state;
pub mod svg;
pub mod terminal;
pub mod theme;

pub use feed::{Fed, Feed};
pub use run::{Left, Options, run};
pub use terminal::TerminalError;
pub use theme::Theme;
