//! Receiving: reads stamped datagrams, takes the time right after each read,
//! and keeps what arrived and how late, in bounded memory.
//!
//! Latency is taken from the offer and from the intended time. The second is
//! the one a user of a fixed-rate service sees: a stall shows for every
//! datagram scheduled in it, not only for the one that hit it. Both need the
//! sender's clock to be this host's; where the differences say it is not
//! (negative, or beyond ten minutes, for more than 1 %) the report leaves
//! them out and says so.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use observer_ebpf::stamp::{STAMP_LEN, Stamp};
use rustix::io::Errno;
use serde::Serialize;

use crate::batch::{ReadCall, RecvBatch};
use crate::clock;
use crate::hist::LatencyHistogram;
use crate::num::{count, duration_ns};
use crate::progress::Progress;
use crate::socket::{self, Buffer, RxSocket, SocketError};
use crate::stop::Stop;
use crate::thread::PinError;
use crate::track::{Arrival, Counts, Tracker};

/// Streams followed at once; datagrams of further ones are counted only.
pub const MAX_FLOWS: usize = 1024;

/// Polling ends this long after the last datagram, ns.
const POLLED_NS: i64 = 100_000_000;

/// A receiver to be.
#[derive(Clone, Debug)]
pub struct RecvConfig {
    /// Local address.
    pub bind: SocketAddr,
    /// Hear only this sender.
    pub connect: Option<SocketAddr>,
    /// Receive buffer.
    pub rcvbuf: Buffer,
    /// The system call used.
    pub call: ReadCall,
    /// Most messages in one call.
    pub batch: usize,
    /// Bytes of a datagram that are kept; the rest is only counted.
    pub keep: usize,
    /// Take several datagrams of one flow as one message (UDP GRO).
    pub gro: bool,
    /// After the last datagram, look again without sleeping for this long.
    pub spin: Duration,
    /// Where the queue is empty, sleep this long and look again, instead of
    /// waiting in the kernel. Adds up to so much to the latency and spares
    /// the sender waking the reader for each datagram: on two cores, twice
    /// the rate. 0: wait in the kernel.
    pub poll: Duration,
    /// Pause after every read call: a slow receiver.
    pub read_delay: Duration,
    /// Stand still once: after this long from the first datagram, for this long.
    pub stall: Option<(Duration, Duration)>,
    /// Follow only this run; others are foreign.
    pub run: Option<u32>,
    /// Finish after this many different datagrams.
    pub count: Option<u64>,
    /// Finish after this long.
    pub duration: Option<Duration>,
    /// Finish when nothing came for this long, once something has.
    pub idle: Option<Duration>,
    /// Latency is kept of datagrams offered in this span, ns of the sender's
    /// CLOCK_MONOTONIC.
    pub window: Option<(i64, i64)>,
    /// CPU for the reading thread.
    pub pin: Option<usize>,
}

impl RecvConfig {
    /// Everything from anyone at `bind`, by recvmmsg, until stopped.
    pub fn new(bind: SocketAddr) -> Self {
        Self {
            bind,
            connect: None,
            rcvbuf: Buffer::Large,
            call: ReadCall::default(),
            batch: 64,
            keep: 2048,
            gro: false,
            spin: Duration::ZERO,
            poll: Duration::ZERO,
            read_delay: Duration::ZERO,
            stall: None,
            run: None,
            count: None,
            duration: None,
            idle: None,
            window: None,
            pin: None,
        }
    }
}

/// A receiver that cannot work.
#[derive(Debug, thiserror::Error)]
pub enum RecvError {
    /// Figures that make no sense.
    #[error("{0}")]
    Config(String),
    /// No socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// No such CPU.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// The socket cannot be read.
    #[error("cannot read from {local}: {source}; the socket is not usable any more")]
    Read {
        /// Its address.
        local: SocketAddr,
        /// The kernel's answer.
        source: Errno,
    },
}

impl RecvError {
    /// True if the request itself is wrong, false if the system refused it.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Config(_) | Self::Pin(_))
    }
}

/// One stamped datagram as the application had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// What it said.
    pub stamp: Stamp,
    /// This thread's clock right after the read call returned, ns.
    pub received_ns: i64,
    /// Payload bytes.
    pub len: usize,
    /// What it was in its stream.
    pub arrival: Arrival,
}

/// Arrivals of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FlowReport {
    /// Run id.
    pub run: u32,
    /// Stream.
    pub stream: u16,
    /// Its counts.
    #[serde(flatten)]
    pub counts: Counts,
}

/// The report of a run's receiving side. Times are ns of CLOCK_MONOTONIC.
#[derive(Clone, Debug, Serialize)]
pub struct RecvReport {
    /// Local address.
    pub local: SocketAddr,
    /// Stopped before its bound.
    pub interrupted: bool,
    /// All streams together.
    pub total: Counts,
    /// Payload bytes of stamped datagrams.
    pub bytes: u64,
    /// Datagrams without a stamp.
    pub unstamped: u64,
    /// Stamped datagrams of runs not followed, or beyond [`MAX_FLOWS`].
    pub foreign: u64,
    /// Datagrams this socket dropped: its receive buffer was full. Null where
    /// the kernel does not say.
    pub socket_drops: Option<u32>,
    /// Read calls that returned data.
    pub reads: u64,
    /// First datagram read.
    pub first_ns: Option<i64>,
    /// Last datagram read.
    pub last_ns: Option<i64>,
    /// Different datagrams of the measured window.
    pub measured: u64,
    /// From the first read of those to the last, ns.
    pub measured_span_ns: i64,
    /// Datagrams per second between the first and the last.
    pub received_per_s: Option<f64>,
    /// Receive time − offer time; null where the clocks do not match.
    pub from_offer: Option<LatencyHistogram>,
    /// Receive time − intended time; null where the clocks do not match.
    pub from_intended: Option<LatencyHistogram>,
    /// Why there are no latencies.
    pub no_latency: Option<&'static str>,
    /// Streams, by run and number.
    pub flows: Vec<FlowReport>,
    /// Receive buffer granted, bytes as the kernel counts them (twice the usable).
    pub rcvbuf: usize,
}

/// A bound receiver; datagrams queue from here on.
#[derive(Debug)]
pub struct Receiver {
    config: RecvConfig,
    socket: RxSocket,
}

impl Receiver {
    /// Binds the socket on the calling thread, in its network namespace.
    ///
    /// # Errors
    /// [`RecvError`] for an address that cannot be had.
    pub fn bind(config: &RecvConfig) -> Result<Self, RecvError> {
        if config.batch == 0 || config.batch > crate::batch::MAX_BATCH {
            return Err(RecvError::Config(format!(
                "a batch of {}; 1 to {} are possible",
                config.batch,
                crate::batch::MAX_BATCH
            )));
        }
        if config.gro && matches!(config.call, ReadCall::Recvfrom | ReadCall::Read) {
            return Err(RecvError::Config(
                "GRO needs recvmmsg or recvmsg: the others do not tell where a datagram ends".into(),
            ));
        }
        let socket = socket::receiver(config.bind, config.rcvbuf, config.gro)?;
        if let Some(from) = config.connect {
            socket::connect(&socket.fd, from)?;
        }
        Ok(Self { config: config.clone(), socket })
    }

    /// The address bound, with its port.
    pub fn local_addr(&self) -> SocketAddr {
        self.socket.local
    }

    /// Receive buffer granted, bytes as the kernel counts them.
    pub fn rcvbuf(&self) -> usize {
        self.socket.rcvbuf
    }

    /// The same socket, following `run` only and measuring what it offers from
    /// `from_ns` on (the sender's CLOCK_MONOTONIC).
    #[must_use]
    pub fn measuring(mut self, run: u32, from_ns: i64) -> Self {
        self.config.run = Some(run);
        self.config.window = Some((from_ns, i64::MAX));
        self
    }

    /// Reads on the calling thread until a bound is met or `stop` is set.
    ///
    /// # Errors
    /// [`RecvError::Read`] if the socket fails.
    pub fn run(self, stop: &Stop) -> Result<RecvReport, RecvError> {
        self.run_with(stop, &Progress::new(), |_| {})
    }

    /// As [`run`](Self::run), showing its counts in `progress` and each
    /// stamped datagram to `log`.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with(
        self,
        stop: &Stop,
        progress: &Progress,
        mut log: impl FnMut(&Delivery),
    ) -> Result<RecvReport, RecvError> {
        let Self { config, socket } = self;
        if let Some(cpu) = config.pin {
            crate::thread::pin(cpu)?;
        }
        crate::thread::exact_timers();
        let messages = if config.call == ReadCall::Recvmmsg { config.batch } else { 1 };
        let mut batch = RecvBatch::new(messages, config.keep, config.gro);
        let mut state = State::new(&config);
        let begin = clock::now_ns();
        let mut stall = config.stall.map(|(at, lasts)| (duration_ns(at), duration_ns(lasts)));
        let spin = duration_ns(config.spin);
        // `read` has no flag that keeps it from waiting.
        let poll = !config.poll.is_zero() && config.call != ReadCall::Read;
        let mut last_data = begin;
        let finished = loop {
            let now = clock::now_ns();
            if stop.is_set() {
                break false;
            }
            if config.duration.is_some_and(|d| now - begin >= duration_ns(d))
                || (state.first.is_some() && config.idle.is_some_and(|d| now - last_data >= duration_ns(d)))
                || config.count.is_some_and(|n| state.unique >= n)
            {
                break true;
            }
            // Without traffic there is nothing to spare: wait in the kernel.
            let polling = poll && now - last_data < POLLED_NS;
            let wait = !polling && (spin == 0 || now - last_data >= spin);
            match batch.read(&socket.fd, config.call, wait) {
                Ok(read) => {
                    let received_ns = clock::now_ns();
                    last_data = received_ns;
                    state.take(&batch, received_ns, progress, &mut log);
                    if polling && read < messages {
                        std::thread::sleep(config.poll);
                    }
                    if !config.read_delay.is_zero() {
                        std::thread::sleep(config.read_delay);
                    }
                    if let Some((at, lasts)) = stall
                        && received_ns - state.first.unwrap_or(received_ns) >= at
                    {
                        stall = None;
                        clock::wait_until(received_ns + lasts, clock::SPIN_NS, stop);
                    }
                }
                // Nothing in time, or an ICMP answer on a connected socket.
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNREFUSED) => {
                    if polling {
                        std::thread::sleep(config.poll);
                    }
                }
                Err(source) => return Err(RecvError::Read { local: socket.local, source }),
            }
        };
        Ok(state.report(&socket, !finished))
    }
}

struct Flow {
    id: u64,
    tracker: Tracker,
}

/// Everything kept while reading.
struct State<'a> {
    config: &'a RecvConfig,
    flows: Vec<Flow>,
    index: HashMap<u64, usize>,
    current: usize,
    unique: u64,
    bytes: u64,
    unstamped: u64,
    foreign: u64,
    reads: u64,
    measured: u64,
    measured_first: Option<i64>,
    measured_last: i64,
    first: Option<i64>,
    last: Option<i64>,
    from_offer: LatencyHistogram,
    from_intended: LatencyHistogram,
}

impl<'a> State<'a> {
    fn new(config: &'a RecvConfig) -> Self {
        Self {
            config,
            flows: Vec::with_capacity(16),
            index: HashMap::new(),
            current: 0,
            unique: 0,
            bytes: 0,
            unstamped: 0,
            foreign: 0,
            reads: 0,
            measured: 0,
            measured_first: None,
            measured_last: 0,
            first: None,
            last: None,
            from_offer: LatencyHistogram::new(),
            from_intended: LatencyHistogram::new(),
        }
    }

    fn take(
        &mut self,
        batch: &RecvBatch,
        received_ns: i64,
        progress: &Progress,
        log: &mut impl FnMut(&Delivery),
    ) {
        self.reads += 1;
        let mut stamped = 0;
        for datagram in batch.datagrams() {
            let Some(stamp) = Stamp::parse(datagram.bytes) else {
                self.unstamped += 1;
                continue;
            };
            let Some(flow) = self.flow(&stamp) else {
                self.foreign += 1;
                continue;
            };
            stamped += 1;
            let arrival = flow.tracker.arrive(stamp.seq());
            self.bytes += count(datagram.len);
            if arrival == Arrival::New {
                self.unique += 1;
                if self.config.window.is_none_or(|(from, to)| (from..to).contains(&stamp.offer_ns)) {
                    self.measured += 1;
                    self.measured_first.get_or_insert(received_ns);
                    self.measured_last = received_ns;
                    // Stamps come from the network: any difference is possible.
                    self.from_offer.record(received_ns.saturating_sub(stamp.offer_ns));
                    self.from_intended.record(received_ns.saturating_sub(stamp.intended_ns));
                }
            }
            log(&Delivery { stamp, received_ns, len: datagram.len, arrival });
        }
        if stamped > 0 {
            self.first.get_or_insert(received_ns);
            self.last = Some(received_ns);
            progress.add_received(stamped);
        }
    }

    #[inline]
    fn flow(&mut self, stamp: &Stamp) -> Option<&mut Flow> {
        let id = flow_id(stamp);
        if self.flows.get(self.current).is_none_or(|f| f.id != id) {
            self.current = match self.index.get(&id) {
                Some(i) => *i,
                None => {
                    let wanted = self.config.run.is_none_or(|r| r == stamp.run);
                    if !wanted || self.flows.len() >= MAX_FLOWS {
                        return None;
                    }
                    self.flows.push(Flow { id, tracker: Tracker::new() });
                    self.index.insert(id, self.flows.len() - 1);
                    self.flows.len() - 1
                }
            };
        }
        self.flows.get_mut(self.current)
    }

    fn report(self, socket: &RxSocket, interrupted: bool) -> RecvReport {
        let mut flows: Vec<FlowReport> = self
            .flows
            .iter()
            .map(|f| FlowReport { run: run_of(f.id), stream: stream_of(f.id), counts: f.tracker.counts() })
            .collect();
        flows.sort_unstable_by_key(|f| (f.run, f.stream));
        let mut total = Counts::default();
        for c in flows.iter().map(|f| &f.counts) {
            total.received += c.received;
            total.unique += c.unique;
            total.lost += c.lost;
            total.duplicated += c.duplicated;
            total.reordered += c.reordered;
            total.stale += c.stale;
            total.implausible += c.implausible;
        }
        let outside = self.from_offer.underflow() + self.from_offer.overflow();
        let no_latency = if self.from_offer.count() == 0 {
            Some("no datagram was measured")
        } else if outside * 100 > self.from_offer.count() {
            Some("the sender's clock is not this host's: it is another machine, or another time namespace")
        } else {
            None
        };
        let keep = no_latency.is_none();
        let span = self.first.zip(self.last).map_or(0, |(a, b)| b - a);
        RecvReport {
            local: socket.local,
            interrupted,
            total,
            bytes: self.bytes,
            unstamped: self.unstamped,
            foreign: self.foreign,
            socket_drops: socket::drops(&socket.fd).ok(),
            reads: self.reads,
            first_ns: self.first,
            last_ns: self.last,
            measured: self.measured,
            measured_span_ns: self.measured_first.map_or(0, |first| self.measured_last - first),
            received_per_s: (span > 0).then(|| total.unique.saturating_sub(1) as f64 * 1e9 / span as f64),
            from_offer: keep.then_some(self.from_offer),
            from_intended: keep.then_some(self.from_intended),
            no_latency,
            flows,
            rcvbuf: socket.rcvbuf,
        }
    }
}

#[cfg(test)]
impl RecvReport {
    /// A report with these latencies and nothing else.
    pub(crate) fn for_test(latency: LatencyHistogram) -> Self {
        Self {
            local: SocketAddr::from(([127, 0, 0, 1], 9)),
            interrupted: false,
            total: Counts::default(),
            bytes: 0,
            unstamped: 0,
            foreign: 0,
            socket_drops: Some(0),
            reads: 0,
            first_ns: None,
            last_ns: None,
            measured: latency.count(),
            measured_span_ns: 0,
            received_per_s: None,
            from_offer: Some(latency.clone()),
            from_intended: Some(latency),
            no_latency: None,
            flows: Vec::new(),
            rcvbuf: 0,
        }
    }
}

fn flow_id(stamp: &Stamp) -> u64 {
    observer_ebpf::abi::flow_id(stamp.run, stamp.stream())
}

fn run_of(id: u64) -> u32 {
    u32::try_from(id >> 16).unwrap_or(0)
}

fn stream_of(id: u64) -> u16 {
    u16::try_from(id & 0xFFFF).unwrap_or(0)
}

const _: () = assert!(STAMP_LEN <= 64, "the smallest buffer of a batch holds a stamp");
