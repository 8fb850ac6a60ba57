//! A UDP load generator whose results can be trusted: every datagram carries
//! a [stamp](observer_ebpf::stamp) with the time the schedule wanted it and
//! the time the application handed it over, and the report says how far the
//! load that was offered is from the load that was asked for.
//!
//! ```text
//! Schedule ─▶ Pacer ─▶ publisher ─▶ direct: batch ─▶ sendmmsg
//!  (grid)   (catch-up)  (stamps)   └▶ driver: ring ─▶ Sender ─▶ sendmmsg
//!
//! recvmmsg ─▶ stamp ─▶ Tracker (lost, duplicated, reordered) + histograms
//! ```
//!
//! [`send`] and [`Receiver`] are the two ends; both work on the calling
//! thread's network namespace, need no privilege, and end by a [`Stop`].

pub mod batch;
pub mod clock;
pub mod confidence;
pub mod control;
pub mod display;
mod engine;
mod errno;
pub mod hist;
pub mod host;
mod num;
pub mod pace;
pub mod pair;
mod progress;
pub mod recv;
pub mod report;
pub mod schedule;
pub mod slope;
pub mod socket;
mod stop;
pub mod thread;
pub mod track;
pub mod units;
pub mod verdict;
pub mod watch;
pub mod workload;

pub use batch::{ReadCall, SendCall};
pub use engine::{
    DrainMark, Engine, Idle, RingReport, SendConfig, SendError, SendReport, StreamReport, send, send_with,
};
pub use hist::{LatencyHistogram, Summary};
pub use pace::CatchUp;
pub use progress::Progress;
pub use recv::{Delivery, NoLatency, Receiver, RecvConfig, RecvError, RecvReport};
pub use schedule::{Schedule, Step};
pub use socket::Buffer;
pub use stop::Stop;
pub use verdict::{Finding, Verdict};

/// A random run id, never 0.
pub fn new_run() -> u32 {
    fastrand::u32(1..)
}
