//! Workload files: what to offer, what to expect of it, and how to walk a
//! rate upwards, as TOML.
//!
//! ```toml
//! [target]                  # where to, and how
//! address = "loopback"      # or "10.0.0.2:9000"
//! size = 160
//!
//! [schedule]                # when
//! rate = "20k/s"
//! duration = "30s"
//! warmup = "2s"
//!
//! [expect]                  # objectives
//! total_p99 = "< 5ms"
//! loss = "< 0.1%"
//!
//! [[workload]]              # one of a suite; inherits what it does not say
//! name = "rate-40k"
//! schedule.rate = "40k/s"
//! ```
//!
//! A file is refused as a whole, with the line and what would be right, when
//! anything in it is unknown, lacks its unit or contradicts the rest: a typo
//! must not become a default.

mod arrivals;
pub mod expect;
mod file;
mod parse;
pub mod ramp;
pub mod run;
pub mod suite;
mod value;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use expect::{Expectation, Metric};
pub use file::{ReadError, read};
pub use parse::{FileError, parse};

use crate::engine::{Engine, SendConfig};
use crate::pace::CatchUp;
use crate::schedule::Schedule;
use crate::socket::Buffer;

/// Where a workload goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A receiver in this process, bound to this address (port 0: any).
    Local(SocketAddr),
    /// A host and port, as in `10.0.0.2:9000`.
    Remote(String),
}

/// One load, and what is expected of it.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name in reports.
    pub name: String,
    /// Where to.
    pub target: Target,
    /// Payload, bytes.
    pub size: usize,
    /// Publisher threads.
    pub streams: u16,
    /// How datagrams get to the kernel.
    pub engine: Engine,
    /// Datagrams in one message (UDP GSO).
    pub segments: usize,
    /// Send buffer.
    pub sndbuf: Buffer,
    /// Receive buffer.
    pub rcvbuf: Buffer,
    /// The receiver's [`poll`](crate::RecvConfig::poll).
    pub poll: Duration,
    /// CPUs for the sending threads.
    pub pin: Vec<usize>,
    /// Real-time priority for them.
    pub realtime: bool,
    /// The control connection of a remote target: its address, and the file
    /// with the token.
    pub control: Option<(String, PathBuf)>,
    /// When.
    pub schedule: Schedule,
    /// What to do with late slots.
    pub catch_up: CatchUp,
    /// Most datagrams.
    pub count: Option<u64>,
    /// How long, warm-up included.
    pub duration: Option<Duration>,
    /// Left out of the figures.
    pub warmup: Duration,
    /// Objectives.
    pub expect: Vec<Expectation>,
    /// Walk the rate upwards instead of holding it.
    pub ramp: Option<Ramp>,
}

/// How to look for the highest rate that holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ramp {
    /// First rate, per second.
    pub start: f64,
    /// What is added at each step, per second.
    pub step: f64,
    /// How long a step lasts, warm-up not included.
    pub step_for: Duration,
    /// Bisections between the last good and the first bad step.
    pub refine: u32,
    /// Highest rate tried, per second.
    pub max: f64,
}

impl Workload {
    /// The load to send to `target`.
    pub fn config(&self, target: SocketAddr) -> SendConfig {
        let mut c = SendConfig::new(target);
        c.size = self.size;
        c.streams = self.streams;
        c.engine = self.engine;
        c.segments = self.segments;
        c.sndbuf = self.sndbuf;
        c.pin.clone_from(&self.pin);
        c.realtime = self.realtime;
        if self.realtime {
            c.spin_ns = crate::clock::REALTIME_SPIN_NS;
        }
        c.schedule = self.schedule.clone();
        c.catch_up = self.catch_up;
        c.count = self.count;
        c.duration = self.duration;
        c.warmup = self.warmup;
        c
    }

    /// The same workload at another constant rate, for one step of a ramp.
    #[must_use]
    pub fn at_rate(&self, rate: f64, step_for: Duration) -> Self {
        Self {
            schedule: Schedule::Constant { rate },
            duration: Some(self.warmup.saturating_add(step_for)),
            count: None,
            ramp: None,
            ..self.clone()
        }
    }
}
