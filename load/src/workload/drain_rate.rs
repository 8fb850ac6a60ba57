//! What the recipe `kind = "drain-rate"` delivers: one row per size and idle
//! strategy, D and what stands beside it.
//!
//! In: a case of the recipe and what its watcher saw of it
//! ([`Drained`]). Out: a [`DrainRate`], a row of the report's table.

use serde::Serialize;

use super::Workload;
use crate::engine::{Engine, Idle};
use crate::num::duration_ns;
use crate::schedule::Schedule;
use crate::units::show_ns;
use crate::verdict::Verdict;
use crate::watch::Drained;

/// Least datagrams in a burst: below, a span says nothing about a rate.
pub const LEAST_BURST: u64 = 100;
/// Least bursts: fewer have no median with an interval.
pub const LEAST_BURSTS: u64 = 10;

/// A row of the table.
#[derive(Clone, Debug, Serialize)]
pub struct DrainRate {
    /// The recipe's name in the file.
    pub recipe: String,
    /// The name of its case.
    pub workload: String,
    /// Payload, bytes.
    pub size_bytes: usize,
    /// What the Sender does when its ring is empty: `yield`, `sleep 1.00 ms`.
    pub idle: String,
    /// Most messages in one call.
    pub batch: usize,
    /// N.
    pub burst: u64,
    /// The case's verdict; nothing of an invalid one may be quoted.
    pub verdict: Verdict,
    /// What was measured; null if that was nothing.
    pub measured: Option<Drained>,
}

impl DrainRate {
    /// The row of `w`, if it is a case of a recipe.
    pub(super) fn of(w: &Workload, verdict: Verdict, measured: Option<Drained>) -> Option<Self> {
        Some(Self {
            recipe: w.drain_rate.clone()?,
            workload: w.name.clone(),
            size_bytes: w.size,
            idle: show_idle(w.engine),
            batch: w.engine.batch(),
            burst: match w.schedule {
                Schedule::Bursts { size, .. } => size,
                _ => 0,
            },
            verdict,
            measured,
        })
    }

    /// What may be quoted.
    pub fn quotable(&self) -> Option<&Drained> {
        self.measured.as_ref().filter(|_| self.verdict != Verdict::Invalid)
    }
}

/// The Sender's idle strategy in words.
pub(super) fn show_idle(engine: Engine) -> String {
    match engine {
        Engine::Direct { .. } => "—".to_owned(),
        Engine::Driver { idle: Idle::BusySpin, .. } => "busy-spin".to_owned(),
        Engine::Driver { idle: Idle::Yield, .. } => "yield".to_owned(),
        Engine::Driver { idle: Idle::Sleep(d), .. } => format!("sleep {}", show_ns(duration_ns(d))),
    }
}
