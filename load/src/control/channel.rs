//! A TCP connection whose frames are tagged, bounded and due by a deadline.
//!
//! Frame: length of the content (u32, big-endian), tag (32 B), content (JSON).

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ControlError;
use super::token::{Key, NONCE, Role, TAG, Token};
use crate::stop::{POLL, Stop};

/// What both ends begin with; a nonce follows.
const GREETING: &[u8; 16] = b"load-control/1\r\n";
/// Content is read in pieces of this many bytes.
const PIECE: usize = 16 << 10;

/// How long to wait, and for what.
#[derive(Clone, Copy)]
pub(super) struct Patience<'a> {
    begin: Instant,
    most: Duration,
    /// At what point, for errors.
    when: &'static str,
    stop: &'a Stop,
    /// When the stop was first seen, where what comes next may take a little
    /// longer than that.
    lenient: Option<&'a Cell<Option<Instant>>>,
}

/// How long after a stop the other end is still waited for, if leniently.
const AFTER_STOP: Duration = Duration::from_millis(1_500);

impl<'a> Patience<'a> {
    /// From now on, for `most` at most, unless stopped.
    pub(super) fn new(most: Duration, when: &'static str, stop: &'a Stop) -> Self {
        Self { begin: Instant::now(), most, when, stop, lenient: None }
    }

    /// Not at once when stopped, but 1.5 s after that; `seen` remembers when.
    pub(super) fn lenient(self, seen: &'a Cell<Option<Instant>>) -> Self {
        Self { lenient: Some(seen), ..self }
    }

    /// The flag that ends the waiting.
    pub(super) fn stop(&self) -> &'a Stop {
        self.stop
    }

    /// The same deadline, for what comes next.
    pub(super) fn at(self, when: &'static str) -> Self {
        Self { when, ..self }
    }

    /// How long one system call may wait.
    fn slice(&self, peer: SocketAddr) -> Result<Duration, ControlError> {
        if self.stop.is_set() {
            let since = self.lenient.map(|seen| seen.get().unwrap_or_else(Instant::now));
            if since.is_none_or(|since| since.elapsed() >= AFTER_STOP) {
                return Err(ControlError::Stopped { peer });
            }
            if let Some(seen) = self.lenient {
                seen.set(since);
            }
        }
        match self.most.checked_sub(self.begin.elapsed()) {
            // A timeout of 0 would mean none.
            Some(left) if !left.is_zero() => Ok(left.min(POLL)),
            _ => Err(ControlError::Slow { peer, after: self.most, when: self.when }),
        }
    }
}

/// An end of a connection, keyed.
pub(super) struct Channel {
    stream: TcpStream,
    pub(super) peer: SocketAddr,
    key: Key,
    role: Role,
    written: u64,
    read: u64,
}

impl Channel {
    /// Exchanges nonces and derives the key. That the other end has the
    /// token shows with its first frame.
    pub(super) fn open(
        stream: TcpStream,
        peer: SocketAddr,
        role: Role,
        token: &Token,
        patience: Patience<'_>,
    ) -> Result<Self, ControlError> {
        let io = |source| ControlError::Io { peer, source };
        stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true)).map_err(io)?;
        let own = nonce().map_err(io)?;
        let mut hello = [0; GREETING.len() + NONCE];
        hello[..GREETING.len()].copy_from_slice(GREETING);
        hello[GREETING.len()..].copy_from_slice(&own);
        let mut raw = Raw { stream: &stream, peer };
        let mut theirs = [0; GREETING.len() + NONCE];
        // The receiver speaks first; a sender reads before it says anything.
        if role == Role::Receiver {
            raw.write(&hello, patience)?;
            raw.read(&mut theirs, patience)?;
        } else {
            raw.read(&mut theirs, patience)?;
            raw.write(&hello, patience)?;
        }
        let (greeting, other) = theirs.split_at(GREETING.len());
        if greeting != GREETING {
            return Err(ControlError::Garbage { peer, why: "its greeting is another one".into() });
        }
        let mut nonce = [0; NONCE];
        nonce.copy_from_slice(other);
        let key = match role {
            Role::Receiver => token.key(&own, &nonce),
            Role::Sender => token.key(&nonce, &own),
        };
        Ok(Self { stream, peer, key, role, written: 0, read: 0 })
    }

    /// Writes one frame.
    pub(super) fn write(
        &mut self,
        message: &impl Serialize,
        patience: Patience<'_>,
    ) -> Result<(), ControlError> {
        let content = serde_json::to_vec(message)
            .map_err(|e| ControlError::Io { peer: self.peer, source: std::io::Error::other(e) })?;
        let length = u32::try_from(content.len()).map_err(|_| ControlError::TooLong {
            peer: self.peer,
            length: crate::num::count(content.len()),
            limit: super::MAX_REPORT,
        })?;
        let mut frame = Vec::with_capacity(content.len() + TAG + 4);
        frame.extend_from_slice(&length.to_be_bytes());
        frame.extend_from_slice(&self.key.tag(self.role, self.written, &content));
        frame.extend_from_slice(&content);
        self.written += 1;
        Raw { stream: &self.stream, peer: self.peer }.write(&frame, patience)
    }

    /// Reads one frame of at most `limit` bytes of content.
    pub(super) fn read<T: DeserializeOwned>(
        &mut self,
        limit: usize,
        patience: Patience<'_>,
    ) -> Result<T, ControlError> {
        let peer = self.peer;
        let mut raw = Raw { stream: &self.stream, peer };
        let (mut length, mut tag) = ([0; 4], [0; TAG]);
        raw.read(&mut length, patience)?;
        let announced = u32::from_be_bytes(length);
        let length = usize::try_from(announced).unwrap_or(usize::MAX);
        if length > limit {
            return Err(ControlError::TooLong { peer, length: announced.into(), limit });
        }
        raw.read(&mut tag, patience)?;
        let mut content = Vec::new();
        while content.len() < length {
            let have = content.len();
            content.resize(length.min(have + PIECE), 0);
            raw.read(&mut content[have..], patience)?;
        }
        if !self.key.fits(self.role.other(), self.read, &content, &tag) {
            return Err(ControlError::Unauthenticated { peer });
        }
        self.read += 1;
        serde_json::from_slice(&content).map_err(|e| ControlError::Garbage { peer, why: e.to_string() })
    }
}

fn nonce() -> std::io::Result<[u8; NONCE]> {
    let mut bytes = [0; NONCE];
    // Up to 256 bytes come whole once the pool is ready (getrandom(2)).
    let n = rustix::io::retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))?;
    if n == NONCE { Ok(bytes) } else { Err(std::io::Error::other("too few random bytes")) }
}

/// Bytes by a deadline.
struct Raw<'a> {
    stream: &'a TcpStream,
    peer: SocketAddr,
}

impl Raw<'_> {
    fn io(&self, source: std::io::Error, when: &'static str) -> ControlError {
        let peer = self.peer;
        match source.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
                ControlError::Closed { peer, when }
            }
            _ => ControlError::Io { peer, source },
        }
    }

    fn read(&mut self, mut into: &mut [u8], patience: Patience<'_>) -> Result<(), ControlError> {
        while !into.is_empty() {
            let slice = patience.slice(self.peer)?;
            self.stream.set_read_timeout(Some(slice)).map_err(|e| self.io(e, patience.when))?;
            match self.stream.read(into) {
                Ok(0) => return Err(ControlError::Closed { peer: self.peer, when: patience.when }),
                Ok(n) => into = &mut into[n..],
                Err(e) if waits(&e) => {}
                Err(e) => return Err(self.io(e, patience.when)),
            }
        }
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8], patience: Patience<'_>) -> Result<(), ControlError> {
        while !bytes.is_empty() {
            let slice = patience.slice(self.peer)?;
            self.stream.set_write_timeout(Some(slice)).map_err(|e| self.io(e, patience.when))?;
            match self.stream.write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if waits(&e) => {}
                Err(e) => return Err(self.io(e, patience.when)),
            }
        }
        Ok(())
    }
}

fn waits(e: &std::io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
