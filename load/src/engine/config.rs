//! What to send, how, and until when; and the combinations that make no sense.

use std::net::SocketAddr;
use std::time::Duration;

use observer_ebpf::stamp::{SEQ_MAX, STAMP_LEN};
use serde::Serialize;

use crate::batch::{MAX_BATCH, SendCall};
use crate::clock;
use crate::num::duration_ns;
use crate::pace::CatchUp;
use crate::schedule::{Schedule, ScheduleError};
use crate::socket::{Buffer, SocketError};
use crate::thread::{PinError, RealtimeError};
use crate::units::show_count;

/// The longest that a thread of a run may sleep or spin at a time.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// What a thread does while there is nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Idle {
    /// Look again at once.
    BusySpin,
    /// Let other threads run, then look again.
    #[default]
    Yield,
    /// Sleep this long, then look again.
    Sleep(Duration),
}

/// How datagrams get from the application to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Engine {
    /// The application thread calls the kernel, with what is due by then.
    Direct {
        /// Most messages in one call.
        batch: usize,
    },
    /// Application threads offer into a bounded ring; one Sender thread
    /// drains it.
    Driver {
        /// Datagrams the ring holds.
        ring: usize,
        /// Most messages in one call.
        batch: usize,
        /// What the Sender does when the ring is empty.
        idle: Idle,
    },
}

impl Engine {
    /// `direct`, 64 messages per call.
    pub const DIRECT: Self = Self::Direct { batch: 64 };
    /// `driver`, room for 131,072 datagrams, 64 messages per call, yielding.
    pub const DRIVER: Self = Self::Driver { ring: 1 << 17, batch: 64, idle: Idle::Yield };

    /// Most messages in one call.
    pub fn batch(self) -> usize {
        match self {
            Self::Direct { batch } | Self::Driver { batch, .. } => batch,
        }
    }
}

/// A load to offer.
#[derive(Clone, Debug)]
pub struct SendConfig {
    /// Where to.
    pub target: SocketAddr,
    /// Local address; `None`: the kernel chooses.
    pub bind: Option<SocketAddr>,
    /// Connect the socket.
    pub connect: bool,
    /// Run id in every stamp, not 0.
    pub run: u32,
    /// Publisher threads, one stream each.
    pub streams: u16,
    /// Payload, bytes.
    pub size: usize,
    /// How datagrams get to the kernel.
    pub engine: Engine,
    /// The system call used.
    pub call: SendCall,
    /// Datagrams in one message (UDP GSO); 1 for none.
    pub segments: usize,
    /// When datagrams are wanted.
    pub schedule: Schedule,
    /// What to do with late slots.
    pub catch_up: CatchUp,
    /// Most datagrams, over all streams.
    pub count: Option<u64>,
    /// Nothing is offered after this long.
    pub duration: Option<Duration>,
    /// Time at the start that figures leave out.
    pub warmup: Duration,
    /// When the schedule starts, ns of CLOCK_MONOTONIC; `None`: at once.
    pub start_at_ns: Option<i64>,
    /// Send buffer.
    pub sndbuf: Buffer,
    /// How long before its time a publisher starts to spin, ns.
    pub spin_ns: i64,
    /// Real-time priority for the threads; needs a privilege. One that spins
    /// without end keeps all others off its CPU but for the kernel's reserve
    /// (50 ms of each second): with `spin_ns` below the interval it sleeps.
    pub realtime: bool,
    /// CPUs for the threads, used in turn: the Sender's first, then the
    /// publishers'. Empty: none is pinned.
    pub pin: Vec<usize>,
}

impl SendConfig {
    /// One stream of 160 B at 1,000/s with the direct engine, a new run id,
    /// without bound.
    pub fn new(target: SocketAddr) -> Self {
        Self {
            target,
            bind: None,
            connect: true,
            run: crate::new_run(),
            streams: 1,
            size: 160,
            engine: Engine::DIRECT,
            call: SendCall::default(),
            segments: 1,
            schedule: Schedule::Constant { rate: 1000.0 },
            catch_up: CatchUp::default(),
            count: None,
            duration: None,
            warmup: Duration::ZERO,
            start_at_ns: None,
            sndbuf: Buffer::Large,
            spin_ns: clock::SPIN_NS,
            realtime: false,
            pin: Vec::new(),
        }
    }

    /// Checks that the figures fit together.
    ///
    /// # Errors
    /// Names the first that does not.
    pub fn check(&self) -> Result<(), SendError> {
        /// Payload of the largest UDP datagram, and of the largest GSO packet.
        const MOST: usize = 65_507;
        /// Segments of one GSO packet on every kernel that has it.
        const MOST_SEGMENTS: usize = 64;
        let refuse = |what: String| Err(SendError::Config(what));
        self.schedule.check()?;
        if self.run == 0 {
            return refuse("run id 0 is reserved; choose another".into());
        }
        if self.target.port() == 0 {
            return refuse(format!("target {} has no port", self.target));
        }
        if self.streams == 0 {
            return refuse("0 streams; at least 1 is needed".into());
        }
        if self.size < STAMP_LEN {
            return refuse(format!(
                "a payload of {} B is too small: the stamp alone is {STAMP_LEN} B",
                self.size
            ));
        }
        if !(1..=MAX_BATCH).contains(&self.engine.batch()) {
            return refuse(format!("a batch of {}; 1 to {MAX_BATCH} are possible", self.engine.batch()));
        }
        if let Engine::Driver { ring, .. } = self.engine
            && !(1..=1 << 26).contains(&ring)
        {
            return refuse(format!("a ring of {ring} datagrams; 1 to {} are possible", 1 << 26));
        }
        if let Engine::Driver { idle: Idle::Sleep(d), .. } = self.engine
            && d > LONGEST_SLEEP
        {
            return refuse(format!(
                "a Sender that sleeps {d:?} when idle; at most {LONGEST_SLEEP:?} is possible"
            ));
        }
        if self.spin_ns > duration_ns(LONGEST_SLEEP) {
            return refuse(format!("a spin of {} ns; at most {LONGEST_SLEEP:?} is possible", self.spin_ns));
        }
        if self.call == SendCall::Write && !self.connect {
            return refuse("`write` carries no address: it needs a connected socket".into());
        }
        if !(1..=MOST_SEGMENTS).contains(&self.segments)
            || (self.segments > 1 && self.segments * self.size > MOST)
        {
            return refuse(format!(
                "{} segments of {} B; 1 to {MOST_SEGMENTS} are possible, {MOST} B together",
                self.segments, self.size
            ));
        }
        if self.count == Some(0) || self.duration.is_some_and(|d| d.is_zero()) {
            return refuse("nothing to send: the count or duration is 0".into());
        }
        if self.duration.is_some_and(|d| d <= self.warmup) {
            return refuse(format!("a warm-up of {:?} leaves nothing of the run to measure", self.warmup));
        }
        self.check_length()
    }

    /// There must be more than a first datagram, where a rate is asked for,
    /// and no more than the stamps can number.
    fn check_length(&self) -> Result<(), SendError> {
        let mean = match self.schedule {
            Schedule::Constant { .. } | Schedule::Poisson { .. } => self.schedule.interval_ns(),
            _ => None,
        };
        let length = self.duration.filter(|_| self.count.is_none());
        if let Some((interval, length)) = mean.zip(length)
            && interval > duration_ns(length) as f64
        {
            return Err(SendError::Config(format!(
                "only the first datagram falls into the duration of {length:?}: at this rate one leaves every \
                 {:.3} s; run for longer, or ask for a higher rate",
                interval / 1e9
            )));
        }
        let planned = self.schedule.planned(self.duration).into_iter().chain(self.count).min();
        match planned.map(|n| n / u64::from(self.streams)).filter(|n| *n > SEQ_MAX) {
            Some(n) => Err(SendError::Config(format!(
                "{} datagrams in a stream, whose sequence numbers end at {}; ask for less",
                show_count(n),
                show_count(SEQ_MAX)
            ))),
            None => Ok(()),
        }
    }

    /// Gives the calling thread, the run's `index`-th, what it is to have:
    /// its CPU, its priority, timers that fire on time.
    pub(crate) fn settle_thread(&self, index: usize) -> Result<(), SendError> {
        if let Some(cpu) = self.pin.get(index % self.pin.len().max(1)) {
            crate::thread::pin(*cpu)?;
        }
        if self.realtime {
            crate::thread::realtime()?;
        }
        crate::thread::exact_timers();
        Ok(())
    }

    /// Messages one call of the configured kind is given.
    pub(crate) fn messages_per_call(&self) -> usize {
        if self.call.is_batched() { self.engine.batch() } else { 1 }
    }
}

/// A load that cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Figures that make no sense.
    #[error("{0}")]
    Config(String),
    /// A schedule that makes no sense.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// No socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// No such CPU.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// No real-time priority.
    #[error(transparent)]
    Realtime(#[from] RealtimeError),
    /// No thread.
    #[error("cannot start a thread: {0}; check `ulimit -u`, or ask for fewer streams")]
    Thread(#[source] std::io::Error),
}

impl SendError {
    /// True if the request itself is wrong, false if the system refused it.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Config(_) | Self::Schedule(_) | Self::Pin(_) => true,
            Self::Socket(e) => matches!(e, SocketError::TooLarge { .. } | SocketError::Family { .. }),
            Self::Realtime(_) | Self::Thread(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_do_not_fit_together_are_refused() {
        let good = SendConfig::new("127.0.0.1:9".parse().unwrap());
        assert!(good.check().is_ok());
        let change = |f: &dyn Fn(&mut SendConfig)| {
            let mut c = good.clone();
            f(&mut c);
            c.check().unwrap_err().to_string()
        };
        assert!(change(&|c| c.size = 31).contains("32 B"));
        assert!(change(&|c| c.run = 0).contains("reserved"));
        assert!(change(&|c| c.streams = 0).contains("streams"));
        assert!(change(&|c| c.target.set_port(0)).contains("port"));
        assert!(change(&|c| c.engine = Engine::Direct { batch: 1025 }).contains("1024"));
        assert!(change(&|c| c.count = Some(0)).contains("nothing to send"));
        assert!(change(&|c| c.segments = 65).contains("64"));
        assert!(change(&|c| (c.segments, c.size) = (50, 1400)).contains("65507"));
        assert!(change(&|c| (c.call, c.connect) = (SendCall::Write, false)).contains("connected"));
        assert!(
            change(&|c| (c.duration, c.warmup) = (Some(Duration::from_secs(1)), Duration::from_secs(1)))
                .contains("warm-up")
        );
        assert!(change(&|c| c.schedule = Schedule::Constant { rate: -1.0 }).contains("rate"));
        let hours = |n: u64| Some(Duration::from_secs(3600 * n));
        assert!(change(&|c| c.spin_ns = i64::MAX).contains("at most 1s"));
        assert!(
            change(&|c| {
                let idle = Idle::Sleep(Duration::from_secs(2));
                c.engine = Engine::Driver { ring: 1, batch: 1, idle };
            })
            .contains("at most 1s")
        );
        assert!(
            change(&|c| (c.schedule, c.duration) = (Schedule::Constant { rate: 1e9 }, hours(1000)))
                .contains("sequence numbers")
        );
        assert!(
            change(&|c| {
                c.schedule = Schedule::Constant { rate: 0.01 };
                c.duration = Some(Duration::from_secs(10));
            })
            .contains("only the first datagram")
        );
    }
}
