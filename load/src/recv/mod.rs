//! Receiving: reads stamped datagrams, takes the time right after each read,
//! and keeps what arrived and how late, in bounded memory.
//!
//! Latency is taken from the offer and from the intended time. The second is
//! the one a user of a fixed-rate service sees: a stall shows for every
//! datagram scheduled in it, not only for the one that hit it. Both need the
//! sender's clock to be this host's; where the differences say it is not
//! (negative, or beyond ten minutes, for more than 1 %) the report leaves
//! them out and says so.

mod config;
mod report;
mod state;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use observer_ebpf::stamp::Stamp;
use rustix::io::Errno;

pub use config::{RecvConfig, RecvError};
pub use report::{FlowReport, NoLatency, RecvReport};

use crate::batch::{ReadCall, RecvBatch};
use crate::clock;
use crate::engine::LONGEST_SLEEP;
use crate::num::duration_ns;
use crate::progress::Progress;
use crate::socket::{self, RxSocket};
use crate::stop::Stop;
use crate::track::Arrival;
use state::State;

/// Streams followed at once; datagrams of further ones are counted only.
pub const MAX_FLOWS: usize = 1024;

/// Polling ends this long after the last datagram, ns.
const POLLED_NS: i64 = 100_000_000;

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

/// A bound receiver; datagrams queue from here on.
#[derive(Debug)]
pub struct Receiver {
    config: RecvConfig,
    socket: RxSocket,
}

/// A look at whether datagrams wait at a receiver's socket, from beside it.
#[derive(Debug)]
pub(crate) struct Waiting(OwnedFd);

impl Waiting {
    /// Whether any does.
    pub(crate) fn any(&self) -> bool {
        // The size of the next datagram (udp(7), SIOCINQ): those with a stamp have one.
        rustix::io::ioctl_fionread(&self.0).is_ok_and(|bytes| bytes > 0)
    }
}

impl Receiver {
    /// Binds the socket on the calling thread, in its network namespace.
    ///
    /// # Errors
    /// [`RecvError`] for an address that cannot be had.
    pub fn bind(config: &RecvConfig) -> Result<Self, RecvError> {
        if config.poll > LONGEST_SLEEP {
            return Err(RecvError::Config(format!(
                "a poll of {:?}; at most {LONGEST_SLEEP:?} is possible: what sleeps longer does not receive",
                config.poll
            )));
        }
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

    /// A look at what waits to be read, for another thread.
    pub(crate) fn waiting(&self) -> Result<Waiting, RecvError> {
        rustix::io::dup(&self.socket.fd)
            .map(Waiting)
            .map_err(|source| RecvError::Read { local: self.socket.local, source })
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
                        stop.sleep(config.poll);
                    }
                    stop.sleep(config.read_delay);
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
                        stop.sleep(config.poll);
                    }
                }
                Err(source) => return Err(RecvError::Read { local: socket.local, source }),
            }
        };
        Ok(state.report(&socket, !finished))
    }
}
