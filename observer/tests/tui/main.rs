//! The terminal UI without a terminal: its frames at every size and in every
//! state, its state machine under random keys, and what a frame costs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cost;
mod fixtures;
mod frames;
mod fuzz;
mod states;
