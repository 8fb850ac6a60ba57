//! The diagnosis on real packets: limiters of known rate and bucket
//! ([`limiters`]), and ten set-ups with a known cause ([`set_ups`]), each
//! played once here.
//!
//! `cargo xtask bench limiter` and `cargo xtask bench diagnosis` play the long
//! series (the ignored tests) and write down how they went.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use load::{Buffer, Schedule, SendConfig};
use observer::lab::forward::stall::StallConfig;
use observer::lab::scenario::{self, Scenario};
use observer::lab::{LabConfig, Tbf};

#[path = "../support/mod.rs"]
mod support;

mod limiters;
mod set_ups;

fn load_of(schedule: Schedule, count: u64, size: usize) -> SendConfig {
    SendConfig {
        schedule,
        count: Some(count),
        size,
        sndbuf: Buffer::Bytes(256 << 20),
        ..SendConfig::new(scenario::target())
    }
}

fn constant(rate: f64, count: u64, size: usize) -> Scenario {
    Scenario::new(load_of(Schedule::Constant { rate }, count, size))
}

fn in_bursts(size: u64, every_ms: u64, count: u64, bytes: usize) -> Scenario {
    let every = Some(Duration::from_millis(every_ms));
    Scenario::new(load_of(Schedule::Bursts { size, dispatch: None, every, repeat: None }, count, bytes))
}

fn shaped(mbit: u64, kib: u64, scenario: Scenario) -> Scenario {
    let shaper = Tbf { rate_bit_per_s: mbit * 1_000_000, burst_bytes: kib << 10, limit_bytes: 256_000_000 };
    Scenario { lab: LabConfig { shaper: Some(shaper), ..LabConfig::default() }, ..scenario }
}

#[test]
fn sender_process() {
    support::descheduled::send_if_asked();
}

/// A fifth of the time off its CPU, 4,000 datagrams a second.
fn descheduled() -> std::sync::Arc<observer::snapshot::Snapshot> {
    let stalls = StallConfig { every: Duration::from_millis(125), lasts: Duration::from_millis(25) };
    support::descheduled::play("sender_process", 4_000, 10_000, stalls)
}
