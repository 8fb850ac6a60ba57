//! The receiving host: accepts one sender at a time, receives its run and
//! sends back what came.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::channel::{Channel, Patience};
use super::clock_id::ClockId;
use super::message::{Answer, Request};
use super::token::{Role, Token};
use super::{ANSWER, ControlError, GRACE, LONGEST, MAX_REQUEST, PROOF};
use crate::pair::await_arrival;
use crate::progress::Progress;
use crate::recv::{Delivery, NoLatency, Receiver, RecvConfig, RecvError, RecvReport};
use crate::stop::Stop;

/// What waits at the socket when the sender has finished has this long to be
/// read: the report must be on its way within [`ANSWER`].
const DRAINED: Duration = Duration::from_secs(7);

/// Waits for senders.
#[derive(Debug)]
pub struct Service {
    listener: TcpListener,
    control: SocketAddr,
    token: Token,
    config: RecvConfig,
    /// Holds the datagrams' port between the runs, each of which has a socket
    /// of its own: nobody else shall get it.
    held: Mutex<Option<Receiver>>,
}

/// One sender's run, however it ended.
#[derive(Debug)]
pub struct Session {
    /// The sender.
    pub peer: SocketAddr,
    /// What came.
    pub report: RecvReport,
    /// Why the sender did not get it, if it did not.
    pub trouble: Option<ControlError>,
}

impl Service {
    /// Listens on `control`, and makes sure that the address for datagrams
    /// can be had; its port is kept, also where any was asked for.
    ///
    /// # Errors
    /// [`ControlError::Listen`], or why the datagrams' socket cannot be had.
    pub fn bind(control: SocketAddr, token: Token, config: &RecvConfig) -> Result<Self, ServeError> {
        let listen = |source| ControlError::Listen { local: control, source };
        let listener = TcpListener::bind(control).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let control = listener.local_addr().map_err(listen)?;
        let mut config = config.clone();
        let held = Receiver::bind(&config)?;
        config.bind = held.local_addr();
        Ok(Self { listener, control, token, config, held: Mutex::new(Some(held)) })
    }

    /// The control connection's address, with its port.
    pub fn control_addr(&self) -> SocketAddr {
        self.control
    }

    /// The datagrams' address, with its port.
    pub fn local_addr(&self) -> SocketAddr {
        self.config.bind
    }

    /// Waits for a sender and receives its run; `None` if stopped before one
    /// came. The run's socket is bound when it is announced: what came before
    /// is not in its counts.
    ///
    /// # Errors
    /// A connection that led to no run, from whoever it came. The next may be
    /// better.
    pub fn session(
        &self,
        stop: &Stop,
        progress: &Progress,
        log: impl FnMut(&Delivery) + Send,
    ) -> Result<Option<Session>, ServeError> {
        let Some((stream, peer)) = self.accept(stop)? else { return Ok(None) };
        let result = self.serve(stream, peer, stop, progress, log);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_none() {
            // Whoever got it meanwhile: the next announcement is told.
            *held = Receiver::bind(&self.config).ok();
        }
        result.map(Some)
    }

    fn serve(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        stop: &Stop,
        progress: &Progress,
        log: impl FnMut(&Delivery) + Send,
    ) -> Result<Session, ServeError> {
        let patience = Patience::new(PROOF, "before it proved that it has the token", stop);
        let mut channel = Channel::open(stream, peer, Role::Receiver, &self.token, patience)?;
        let Request::Announce { run, length_ms, clock } = channel.read(MAX_REQUEST, patience)? else {
            return Err(unexpected(peer).into());
        };
        let same_clock = clock.is_some() && clock == ClockId::here();
        let patience = Patience::new(ANSWER, "before its run", stop);
        // A socket of its own, in the place of the held one.
        drop(self.held.lock().unwrap_or_else(PoisonError::into_inner).take());
        let receiver = match Receiver::bind(&self.config) {
            Ok(receiver) if run != 0 => receiver,
            Ok(_) => {
                let why = "run id 0 is reserved".to_owned();
                channel.write(&Answer::Refused { why }, patience)?;
                return Err(unexpected(peer).into());
            }
            Err(e) => {
                channel.write(&Answer::Refused { why: e.to_string() }, patience)?;
                return Err(e.into());
            }
        };
        channel.write(&Answer::Ready, patience)?;
        let Request::Start { measure_from_ns } = channel.read(MAX_REQUEST, patience)? else {
            return Err(unexpected(peer).into());
        };
        let receiver = receiver.measuring(run, measure_from_ns);
        let most = length_ms.map_or(LONGEST, |ms| {
            Duration::from_millis(ms).saturating_mul(2).saturating_add(GRACE).min(LONGEST)
        });
        let patience = Patience::new(most, "in the middle of its run", stop);
        let (mut report, mut trouble) = receive(receiver, &mut channel, patience, progress, log)?;
        report.interrupted = trouble.is_some() || report.unread;
        if !same_clock {
            report.forget_latency(NoLatency::AnotherClock);
        }
        if trouble.is_none() {
            // A stop ends the run; what came of it is still told.
            let told = Stop::new();
            let patience = Patience::new(ANSWER, "before it had its report", &told);
            trouble = channel.write(&Answer::report(&report), patience).err();
        }
        Ok(Session { peer, report, trouble })
    }

    fn accept(&self, stop: &Stop) -> Result<Option<(TcpStream, SocketAddr)>, ControlError> {
        let slice = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        while !stop.is_set() {
            // A signal, or nobody yet: look again.
            let _ = poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], Some(&slice));
            match self.listener.accept() {
                Ok(accepted) => return Ok(Some(accepted)),
                Err(e)
                    if matches!(
                        e.kind(),
                        std::io::ErrorKind::Interrupted | std::io::ErrorKind::WouldBlock
                    ) => {}
                // The caller left again before it was accepted.
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionAborted => {}
                Err(source) => return Err(ControlError::Listen { local: self.control, source }),
            }
        }
        Ok(None)
    }
}

fn unexpected(peer: SocketAddr) -> ControlError {
    ControlError::Garbage { peer, why: "a request out of its turn".into() }
}

/// Reads datagrams on a thread of their own until the sender says how many it
/// sent, and they came or nothing comes any more; or until it is gone.
fn receive(
    receiver: Receiver,
    channel: &mut Channel,
    patience: Patience<'_>,
    progress: &Progress,
    log: impl FnMut(&Delivery) + Send,
) -> Result<(RecvReport, Option<ControlError>), ServeError> {
    let over = Stop::new();
    let earlier = progress.received();
    let waiting = receiver.waiting()?;
    let mut all_read = true;
    std::thread::scope(|scope| {
        let reader = std::thread::Builder::new()
            .name("load-recv".into())
            .spawn_scoped(scope, || receiver.run_with(&over, progress, log))
            .map_err(ServeError::Thread)?;
        let trouble = match channel.read(MAX_REQUEST, patience) {
            Ok(Request::Finished { sent }) => {
                let expected = earlier.saturating_add(sent);
                all_read = await_arrival(progress, expected, &waiting, patience.stop(), DRAINED);
                None
            }
            Ok(_) => Some(unexpected(channel.peer)),
            Err(e) => Some(e),
        };
        over.set();
        match reader.join() {
            Ok(report) => {
                let mut report = report?;
                report.unread = !all_read;
                Ok((report, trouble))
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// A receiver that cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The control connection.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The datagrams' socket.
    #[error(transparent)]
    Recv(#[from] RecvError),
    /// No thread.
    #[error("cannot start a thread: {0}; check `ulimit -u`")]
    Thread(#[source] std::io::Error),
}

impl ServeError {
    /// True if the request itself is wrong, false if the system or the other
    /// end refused it.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Control(e) => e.is_usage(),
            Self::Recv(e) => e.is_usage(),
            Self::Thread(_) => false,
        }
    }

    /// True if only this run failed: the next may be better.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Control(e) => !matches!(e, ControlError::Listen { .. }),
            Self::Recv(e) => !e.is_usage(),
            Self::Thread(_) => false,
        }
    }
}
