//! A batch of outgoing datagrams: stamps are written into buffers that were
//! laid out once, and one call sends them.

use std::fmt;
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use observer_ebpf::stamp::{STAMP_LEN, Stamp};
use rustix::io::Errno;
use serde::Serialize;

use super::MAX_BATCH;
use crate::socket::last_errno;

/// The system call that sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SendCall {
    /// Many datagrams with one call.
    #[default]
    Sendmmsg,
    /// One message per call.
    Sendmsg,
    /// One buffer per call, with the address unless connected.
    Sendto,
    /// One buffer per call; the socket must be connected.
    Write,
}

impl SendCall {
    /// True for the one that takes more than one message.
    pub fn is_batched(self) -> bool {
        self == Self::Sendmmsg
    }
}

/// Messages ready to be sent, `segments` datagrams in each.
pub struct SendBatch {
    payload: Vec<u8>,
    iovecs: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
    // Boxed: the headers point at it.
    address: Option<Box<Address>>,
    size: usize,
    segments: usize,
    filled: usize,
}

impl SendBatch {
    /// Room for `messages` (1 to [`MAX_BATCH`]) of `segments` datagrams of
    /// `size` bytes (at least a stamp) each, addressed to `target` unless the
    /// socket is connected. Figures outside those bounds are brought inside.
    pub fn new(messages: usize, segments: usize, size: usize, target: Option<SocketAddr>) -> Self {
        let (messages, segments, size) = (messages.clamp(1, MAX_BATCH), segments.max(1), size.max(STAMP_LEN));
        let mut payload = vec![0_u8; messages * segments * size];
        for (i, byte) in payload.iter_mut().enumerate() {
            // Something to see in a capture: the offset within the datagram.
            *byte = (i % size).to_le_bytes()[0];
        }
        let mut address = target.map(|t| Box::new(Address::new(t)));
        let (name, name_len) = match &mut address {
            Some(a) => ((&raw mut a.storage).cast(), a.len),
            None => (ptr::null_mut(), 0),
        };
        let mut iovecs: Vec<libc::iovec> = payload
            .chunks_exact_mut(segments * size)
            .map(|m| libc::iovec { iov_base: m.as_mut_ptr().cast(), iov_len: m.len() })
            .collect();
        let headers = iovecs
            .iter_mut()
            .map(|iov| {
                let mut h = empty_header();
                h.msg_hdr.msg_name = name;
                h.msg_hdr.msg_namelen = name_len;
                h.msg_hdr.msg_iov = ptr::from_mut(iov);
                h.msg_hdr.msg_iovlen = 1;
                h
            })
            .collect();
        Self { payload, iovecs, headers, address, size, segments, filled: 0 }
    }

    /// Datagrams waiting.
    #[inline]
    pub fn len(&self) -> usize {
        self.filled
    }

    /// True if none wait.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// True if no more fit.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.filled == self.headers.len() * self.segments
    }

    /// Messages the waiting datagrams make.
    pub fn messages(&self) -> usize {
        self.filled.div_ceil(self.segments)
    }

    /// Datagrams in message `index`.
    pub fn datagrams_in(&self, index: usize) -> usize {
        self.filled.saturating_sub(index * self.segments).min(self.segments)
    }

    /// Adds a datagram; false if the batch is full.
    #[inline]
    pub fn push(&mut self, stamp: &Stamp) -> bool {
        let at = self.filled * self.size;
        // The whole datagram must be there, not just room for the stamp.
        let Some(datagram) = self.payload.get_mut(at..at + self.size) else { return false };
        if !stamp.write(datagram) {
            return false;
        }
        self.filled += 1;
        true
    }

    /// Forgets the waiting datagrams.
    #[inline]
    pub fn clear(&mut self) {
        self.filled = 0;
    }

    /// Sends the messages from `first` on with one system call and returns
    /// how many the kernel took (at least one).
    ///
    /// # Errors
    /// The kernel's answer for message `first`.
    pub fn send(&mut self, fd: impl AsFd, call: SendCall, first: usize) -> Result<usize, Errno> {
        let last = self.messages();
        if first >= last {
            return Ok(0);
        }
        // The last message may be a part of one.
        self.iovecs[last - 1].iov_len = self.datagrams_in(last - 1) * self.size;
        let fd = fd.as_fd().as_raw_fd();
        let rc = match call {
            SendCall::Sendmmsg => {
                let waiting = &mut self.headers[first..last];
                let n = libc::c_uint::try_from(waiting.len()).unwrap_or(0);
                // SAFETY: `waiting` is `n` initialized headers; each points at
                // one live iovec, that at bytes of `payload` it alone covers,
                // and at `address` or null. All are owned by `self`, which is
                // borrowed mutably for the call.
                let rc = unsafe { libc::sendmmsg(fd, waiting.as_mut_ptr(), n, 0) };
                self.iovecs[last - 1].iov_len = self.segments * self.size;
                return usize::try_from(rc).map_err(|_| last_errno());
            }
            SendCall::Sendmsg => {
                // SAFETY: as above, one header.
                unsafe { libc::sendmsg(fd, &raw const self.headers[first].msg_hdr, 0) }
            }
            SendCall::Sendto => {
                let iov = self.iovecs[first];
                let (name, len) = match &self.address {
                    Some(a) => ((&raw const a.storage).cast(), a.len),
                    None => (ptr::null(), 0),
                };
                // SAFETY: the iovec covers live bytes of `payload`; `name` is
                // null or `len` bytes of an address owned by `self`.
                unsafe { libc::sendto(fd, iov.iov_base, iov.iov_len, 0, name, len) }
            }
            SendCall::Write => {
                let iov = self.iovecs[first];
                // SAFETY: the iovec covers live bytes of `payload`.
                unsafe { libc::write(fd, iov.iov_base, iov.iov_len) }
            }
        };
        self.iovecs[last - 1].iov_len = self.segments * self.size;
        if rc < 0 { Err(last_errno()) } else { Ok(1) }
    }
}

impl fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendBatch")
            .field("messages", &self.headers.len())
            .field("segments", &self.segments)
            .field("size", &self.size)
            .field("filled", &self.filled)
            .finish_non_exhaustive()
    }
}

/// A socket address as the kernel wants it.
struct Address {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl Address {
    fn new(addr: SocketAddr) -> Self {
        // SAFETY: sockaddr_storage is integers only; all zero is a value of it.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let at = &raw mut storage;
        let len = match addr {
            SocketAddr::V4(a) => {
                let raw = libc::sockaddr_in {
                    sin_family: family(libc::AF_INET),
                    sin_port: a.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(a.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: sockaddr_storage is as large and as aligned as every
                // address type, which is what it is for.
                unsafe { at.cast::<libc::sockaddr_in>().write(raw) };
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(a) => {
                let raw = libc::sockaddr_in6 {
                    sin6_family: family(libc::AF_INET6),
                    sin6_port: a.port().to_be(),
                    sin6_flowinfo: a.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: a.ip().octets() },
                    sin6_scope_id: a.scope_id(),
                };
                // SAFETY: as above.
                unsafe { at.cast::<libc::sockaddr_in6>().write(raw) };
                size_of::<libc::sockaddr_in6>()
            }
        };
        Self { storage, len: libc::socklen_t::try_from(len).unwrap_or(0) }
    }
}

fn family(af: libc::c_int) -> libc::sa_family_t {
    libc::sa_family_t::try_from(af).unwrap_or(0)
}

fn empty_header() -> libc::mmsghdr {
    // SAFETY: mmsghdr is integers and pointers; zero and null are values of
    // them. It has padding on some targets, so it cannot be built by fields.
    unsafe { std::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::Duration;

    fn stamp(seq: u64) -> Stamp {
        Stamp::new(7, 1, seq, 10, 20)
    }

    fn pair(v6: bool) -> (UdpSocket, UdpSocket) {
        let at = if v6 { "[::1]:0" } else { "127.0.0.1:0" };
        let (a, b) = (UdpSocket::bind(at).unwrap(), UdpSocket::bind(at).unwrap());
        b.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        (a, b)
    }

    #[test]
    fn every_call_sends_whole_datagrams_in_order_connected_or_not() {
        for v6 in [false, true] {
            for call in [SendCall::Sendmmsg, SendCall::Sendmsg, SendCall::Sendto, SendCall::Write] {
                for connected in [false, true] {
                    if call == SendCall::Write && !connected {
                        continue;
                    }
                    let (tx, rx) = pair(v6);
                    let to = rx.local_addr().unwrap();
                    if connected {
                        tx.connect(to).unwrap();
                    }
                    let mut batch = SendBatch::new(4, 1, 100, (!connected).then_some(to));
                    for round in 0..2 {
                        for i in 0..3 {
                            assert!(batch.push(&stamp(round * 3 + i)));
                        }
                        let mut done = 0;
                        while done < batch.messages() {
                            done += batch.send(&tx, call, done).unwrap();
                        }
                        batch.clear();
                    }
                    for seq in 0..6 {
                        let mut buf = [0; 200];
                        assert_eq!(rx.recv(&mut buf).unwrap(), 100, "{call:?} {connected}");
                        assert_eq!(Stamp::parse(&buf), Some(stamp(seq)));
                        assert_eq!(buf[40..44], [40, 41, 42, 43]);
                    }
                }
            }
        }
    }

    #[test]
    fn segments_leave_as_one_message_and_arrive_as_datagrams() {
        let rx = UdpSocket::bind("127.0.0.1:0").unwrap();
        rx.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let socket = crate::socket::sender(&crate::socket::TxOptions {
            target: rx.local_addr().unwrap(),
            bind: None,
            connect: true,
            sndbuf: crate::socket::Buffer::Kernel,
            size: 64,
            segments: 4,
            share_port: false,
        })
        .unwrap();
        let mut batch = SendBatch::new(2, 4, 64, None);
        for round in 0..2 {
            (0..6).for_each(|i| assert!(batch.push(&stamp(round * 6 + i))));
            assert_eq!((batch.messages(), batch.datagrams_in(0), batch.datagrams_in(1)), (2, 4, 2));
            assert_eq!(batch.send(&socket.fd, SendCall::Sendmmsg, 0), Ok(2));
            batch.clear();
        }
        for seq in 0..12 {
            let mut buf = [0; 200];
            assert_eq!(rx.recv(&mut buf).unwrap(), 64);
            assert_eq!(Stamp::parse(&buf), Some(stamp(seq)));
        }
    }

    #[test]
    fn a_full_batch_takes_no_more() {
        let mut batch = SendBatch::new(2, 3, 32, None);
        (0..6).for_each(|i| assert!(batch.push(&stamp(i))));
        assert!(batch.is_full() && !batch.push(&stamp(9)));
        assert_eq!(batch.len(), 6);
    }

    #[test]
    fn an_error_is_the_first_messages_own() {
        let (tx, _rx) = pair(false);
        let mut batch = SendBatch::new(2, 1, 32, None);
        assert!(batch.push(&stamp(0)));
        for call in [SendCall::Sendmmsg, SendCall::Sendmsg, SendCall::Sendto, SendCall::Write] {
            assert_eq!(batch.send(&tx, call, 0), Err(Errno::DESTADDRREQ), "{call:?}");
        }
    }
}
