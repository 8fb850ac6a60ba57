//! The four scenarios and who is to blame in each.
//!
//! What makes them come out the same on an idle and on a busy machine:
//!
//! - The queue that is to be found holds datagrams for some 80 to 400 ms.
//!   The scheduler of a busy two-core machine makes a thread wait some 4 ms;
//!   scenarios whose tail is a few milliseconds would be decided by it.
//! - The waits are spread evenly from nothing to the longest, or are rare, so
//!   that the tail lies far above the median: the culprit is found by the
//!   excess over it.
//! - Only one queue can fill. Every other buffer is larger than what could
//!   ever be in it.

use std::time::Duration;

use clap::ValueEnum;
use load::{Buffer, CatchUp, Engine, Idle, Schedule, SendConfig};
use serde::Serialize;

use crate::lab::scenario::{self, Pauses, Scenario};
use crate::lab::{LabConfig, Tbf};
use crate::report::Blame;

/// Rate of [`Known::Quiet`], datagrams per second: well below what one core
/// sends and receives.
const QUIET_RATE: f64 = 20_000.0;

/// N of [`Known::SenderQueue`]. At 150,000 to 500,000 datagrams per second
/// over veth, under observation, the last one waits 80 to 270 ms.
const BURST: u64 = 40_000;

/// Holds three bursts.
const RING: usize = 1 << 17;

/// What the Sender does while its ring is empty: it does not spin, and is
/// back before a hundredth of a burst has waited.
const IDLE: Idle = Idle::Sleep(Duration::from_micros(100));

/// N of [`Known::Shaper`]: at [`SHAPED`], 1,242 bytes each with headers, the
/// last one waits (N·L − b)/r = 376 ms.
const SHAPED_BURST: u64 = 4_000;
/// Payload of [`Known::Shaper`], bytes: large, so that the time the sender
/// itself takes is small beside the wait.
const SHAPED_SIZE: usize = 1_200;
/// The bucket lasts 21 ms, longer than any timer is late; the queue holds
/// three bursts.
const SHAPED: Tbf = Tbf { rate_bit_per_s: 100_000_000, burst_bytes: 256 << 10, limit_bytes: 16 << 20 };
/// Holds a whole burst with the kernel's overhead (2.3 kB each): with less,
/// the sender would block and the qdisc never fill.
const SHAPED_SNDBUF: usize = 16 << 20;

/// Rate of [`Known::Receiver`], datagrams per second.
const READ_RATE: f64 = 5_000.0;
/// Twice this is granted: some 340 datagrams of 160 bytes with the kernel's
/// overhead. A pause lets 1,500 arrive; the first 340 wait for the rest of it.
const SMALL_RCVBUF: usize = 128 << 10;
/// A pause each second, so that one datagram in eleven of those that survive
/// waits 230 to 300 ms.
const PAUSES: Pauses = Pauses { every: Duration::from_secs(1), lasts: Duration::from_millis(300) };

/// From one burst to the next.
const EVERY: Duration = Duration::from_secs(1);

/// A scenario whose culprit is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Known {
    /// A steady load over a plain link: nobody is to blame.
    Quiet,
    /// Bursts that the one thread that sends cannot keep up with.
    SenderQueue,
    /// Bursts through a token bucket.
    Shaper,
    /// A reader that pauses, with a small receive buffer.
    Receiver,
}

impl Known {
    /// All, in the order in which they are played.
    pub const ALL: [Self; 4] = [Self::Quiet, Self::SenderQueue, Self::Shaper, Self::Receiver];

    /// As on the command line and in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::SenderQueue => "sender-queue",
            Self::Shaper => "shaper",
            Self::Receiver => "receiver",
        }
    }

    /// What happens, in one line.
    pub fn about(self) -> &'static str {
        match self {
            Self::Quiet => "20,000 datagrams/s over a plain link",
            Self::SenderQueue => "bursts of 40,000 into the ring of one sending thread, over a plain link",
            Self::Shaper => "bursts of 4,000 through a token bucket of 100 Mbit/s",
            Self::Receiver => {
                "5,000 datagrams/s to a reader that pauses 300 ms each second, with a small buffer"
            }
        }
    }

    /// The culprit to be found.
    pub fn expected(self) -> Blame {
        match self {
            Self::Quiet => Blame::None,
            Self::SenderQueue => Blame::SenderQueue,
            Self::Shaper => Blame::Shaper,
            Self::Receiver => Blame::Receiver,
        }
    }

    /// Whether `found` is right. A quiet load on a busy machine has a tail,
    /// and the machine is what it is to be put down to.
    pub fn accepts(self, found: Blame) -> bool {
        found == self.expected() || (self == Self::Quiet && found == Blame::HostNoise)
    }

    /// The scenario, some `seconds` long (at least one second), the last
    /// datagrams' way through the queues included where there are bursts.
    pub fn scenario(self, seconds: u16) -> Scenario {
        let seconds = seconds.max(1);
        let lasts = Duration::from_secs(seconds.into());
        let bursts = |size| Schedule::Bursts {
            size,
            dispatch: None,
            every: Some(EVERY),
            repeat: Some(u64::from(seconds.saturating_sub(1).max(1))),
        };
        let steady = |rate| SendConfig {
            schedule: Schedule::Constant { rate },
            duration: Some(lasts),
            catch_up: CatchUp::Burst,
            ..SendConfig::new(scenario::target())
        };
        match self {
            Self::Quiet => Scenario::new(steady(QUIET_RATE)),
            Self::SenderQueue => Scenario::new(SendConfig {
                schedule: bursts(BURST),
                engine: Engine::Driver { ring: RING, batch: 64, idle: IDLE },
                duration: None,
                ..steady(1.0)
            }),
            Self::Shaper => Scenario {
                lab: LabConfig { shaper: Some(SHAPED), ..LabConfig::default() },
                ..Scenario::new(SendConfig {
                    schedule: bursts(SHAPED_BURST),
                    size: SHAPED_SIZE,
                    sndbuf: Buffer::Bytes(SHAPED_SNDBUF),
                    duration: None,
                    ..steady(1.0)
                })
            },
            Self::Receiver => {
                let mut scenario = Scenario { pauses: Some(PAUSES), ..Scenario::new(steady(READ_RATE)) };
                scenario.reader.rcvbuf = Buffer::Bytes(SMALL_RCVBUF);
                scenario
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_is_bounded_and_possible() {
        for known in Known::ALL {
            for seconds in [0, 1, 4, 60] {
                let scenario = known.scenario(seconds);
                scenario.load.check().unwrap();
                let bounded = match scenario.load.schedule {
                    Schedule::Bursts { repeat, .. } => repeat.is_some_and(|n| n <= 60),
                    _ => scenario.load.duration.is_some_and(|d| d <= Duration::from_secs(60)),
                };
                assert!(bounded, "{known:?}");
            }
        }
    }

    #[test]
    fn only_quiet_may_be_put_down_to_the_host() {
        for known in Known::ALL {
            assert!(known.accepts(known.expected()));
            assert!(!known.accepts(Blame::Wire));
            assert_eq!(known.accepts(Blame::HostNoise), known == Known::Quiet);
        }
        assert!(!Known::Shaper.accepts(Blame::None));
    }

    #[test]
    fn names_are_those_of_the_command_line_and_the_report() {
        for known in Known::ALL {
            assert_eq!(known.to_possible_value().unwrap().get_name(), known.name());
            assert_eq!(serde_json::to_value(known).unwrap(), known.name());
        }
    }

    /// The closed forms of docs: the tail of each is at least 100 ms, and
    /// nothing but the queue meant can fill.
    #[test]
    fn the_queues_hold_what_they_are_to_hold() {
        let tbf = Known::Shaper.scenario(4);
        let bytes = SHAPED_BURST * (SHAPED_SIZE as u64 + 42);
        let waits = (bytes - SHAPED.burst_bytes) as f64 / (SHAPED.rate_bit_per_s as f64 / 8.0);
        assert!((0.3..EVERY.as_secs_f64() / 2.0).contains(&waits), "{waits}");
        assert!(SHAPED.limit_bytes > 2 * bytes);
        assert!(matches!(tbf.load.sndbuf, Buffer::Bytes(b) if b as u64 > SHAPED_BURST * 2_304));
        assert!(RING as u64 > 3 * BURST);
        // 768 bytes is what the kernel charges for 160 bytes of payload.
        let fits = 2.0 * SMALL_RCVBUF as f64 / 768.0;
        assert!(READ_RATE * PAUSES.lasts.as_secs_f64() > 3.0 * fits, "drops occur");
        assert!(fits > 0.03 * READ_RATE, "more than one in a hundred survivors wait");
    }
}
