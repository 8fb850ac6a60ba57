//! What queues do, as arithmetic: closed forms, simulations of the same
//! things to hold them against, and estimators that go the other way, from
//! times that were seen to the figures behind them.
//!
//! Nothing here reads a clock, a file or a kernel. In go slices of times and
//! sizes, out come figures with their intervals; what feeds them with
//! journeys is [`crate::diagnose`].
//!
//! | module | question |
//! |---|---|
//! | [`sender_queue`] | how long does a burst wait, and how is it to be paced |
//! | [`drain`] | how fast does a Sender drain, from one burst or many |
//! | [`busy`] | when did a queue hold anything, and how did it empty |
//! | [`two_sided`] | which limiter stands between an entry and an exit |
//! | [`one_sided`] | the same from afar, from send and receive times alone |
//! | [`level_shift`] | when did a rate fall for good |
//! | [`question`] | the same as a person asks it, with the other gates |
//! | [`simulate`] | what a FIFO, a token bucket and a credit limiter do |
//! | [`theil_sen`], [`stats`] | a slope and a spread that outliers do not set |
//!
//! Units are in the names: `_s` seconds, `_ns` nanoseconds, `per_s` per
//! second. Rates of datagrams are per second, rates of links bits per second.

pub mod busy;
pub mod drain;
pub mod level_shift;
pub mod one_sided;
pub mod question;
pub mod sender_queue;
pub mod simulate;
pub mod stats;
pub mod theil_sen;
pub mod two_sided;

/// A time in seconds from nanoseconds.
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Nanoseconds from a time in seconds; 0 below 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and what is below 0 becomes 0"
)]
pub fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// The largest whole number that is not above `x`, 0 below 0. A product that
/// misses a whole number by rounding alone (1.6e6 · 1e-3) counts as it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and what is below 0 becomes 0"
)]
pub(crate) fn whole(x: f64) -> u64 {
    (x * (1.0 + 1e-12)).floor() as u64
}
