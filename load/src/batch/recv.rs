//! A batch of incoming datagrams: buffers laid out once, one call fills
//! them, and each datagram is handed on as the bytes kept and the length it
//! had on the wire.

use std::fmt;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use rustix::io::Errno;
use serde::Serialize;

use super::MAX_BATCH;
use crate::socket::last_errno;

/// The system call that reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadCall {
    /// Many datagrams with one call.
    #[default]
    Recvmmsg,
    /// One message per call.
    Recvmsg,
    /// One buffer per call.
    Recvfrom,
    /// One buffer per call. It has no flags: it always blocks.
    Read,
}

/// One datagram of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Its first bytes, as many as the buffer holds.
    pub bytes: &'a [u8],
    /// Its length on the wire, bytes. With [`ReadCall::Read`] a datagram
    /// longer than the buffer looks as long as the buffer.
    pub len: usize,
}

/// Room in the control buffer of a message, in 8-byte words: one `c_int`.
const CONTROL_WORDS: usize = 4;
/// Buffers lie this much apart beyond their length, so that the heads of
/// page-sized ones do not all fall into the same cache sets.
const STAGGER: usize = 64;

/// Buffers for incoming messages.
pub struct RecvBatch {
    payload: Vec<u8>,
    // 64-bit words: control messages are aligned like size_t.
    control: Vec<u64>,
    // Referenced by the headers only.
    _iovecs: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
    keep: usize,
    gro: bool,
    filled: usize,
}

impl RecvBatch {
    /// Room for `messages` (1 to [`MAX_BATCH`]) of which the first `keep`
    /// bytes (at least 64) are kept. With `gro` a message may be several
    /// datagrams, and `keep` is raised to the largest such message.
    pub fn new(messages: usize, keep: usize, gro: bool) -> Self {
        let messages = messages.clamp(1, MAX_BATCH);
        let keep = if gro { 1 << 16 } else { keep.clamp(64, 1 << 16) };
        let mut payload = vec![0_u8; messages * (keep + STAGGER)];
        let mut control = vec![0_u64; if gro { messages * CONTROL_WORDS } else { 0 }];
        let mut iovecs: Vec<libc::iovec> = payload
            .chunks_exact_mut(keep + STAGGER)
            .map(|m| libc::iovec { iov_base: m.as_mut_ptr().cast(), iov_len: keep })
            .collect();
        let mut controls = control.chunks_exact_mut(CONTROL_WORDS);
        let headers = iovecs
            .iter_mut()
            .map(|iov| {
                // SAFETY: mmsghdr is integers and pointers; zero and null are
                // values of them.
                let mut h: libc::mmsghdr = unsafe { std::mem::zeroed() };
                h.msg_hdr.msg_iov = ptr::from_mut(iov);
                h.msg_hdr.msg_iovlen = 1;
                h.msg_hdr.msg_control = controls.next().map_or(ptr::null_mut(), |c| c.as_mut_ptr().cast());
                h
            })
            .collect();
        Self { payload, control, _iovecs: iovecs, headers, keep, gro, filled: 0 }
    }

    /// Reads what there is, waiting for the first message unless `wait` is
    /// false; the number of messages read.
    ///
    /// # Errors
    /// The kernel's answer; EAGAIN where nothing came (in time).
    pub fn read(&mut self, fd: impl AsFd, call: ReadCall, wait: bool) -> Result<usize, Errno> {
        self.filled = 0;
        let fd = fd.as_fd().as_raw_fd();
        let flags = libc::MSG_TRUNC | if wait { 0 } else { libc::MSG_DONTWAIT };
        match call {
            ReadCall::Recvmmsg => {
                if self.gro {
                    self.headers.iter_mut().for_each(reset_control);
                }
                let n = libc::c_uint::try_from(self.headers.len()).unwrap_or(0);
                // SAFETY: `headers` is `n` initialized headers; each points at
                // one live iovec of `payload` bytes that are its own, and at
                // its own control words or null. All are owned by `self`,
                // which is borrowed mutably for the call.
                let rc = unsafe {
                    libc::recvmmsg(
                        fd,
                        self.headers.as_mut_ptr(),
                        n,
                        flags | libc::MSG_WAITFORONE,
                        ptr::null_mut(),
                    )
                };
                self.filled = usize::try_from(rc).map_err(|_| last_errno())?;
            }
            ReadCall::Recvmsg => {
                let Some(header) = self.headers.first_mut() else { return Ok(0) };
                if self.gro {
                    reset_control(header);
                }
                // SAFETY: as above, one header.
                let rc = unsafe { libc::recvmsg(fd, &raw mut header.msg_hdr, flags) };
                self.one(rc)?;
            }
            ReadCall::Recvfrom => {
                // SAFETY: `payload` holds at least `keep` bytes.
                let rc = unsafe {
                    let at = self.payload.as_mut_ptr().cast();
                    libc::recvfrom(fd, at, self.keep, flags, ptr::null_mut(), ptr::null_mut())
                };
                self.one(rc)?;
            }
            ReadCall::Read => {
                // SAFETY: `payload` holds at least `keep` bytes.
                let rc = unsafe { libc::read(fd, self.payload.as_mut_ptr().cast(), self.keep) };
                self.one(rc)?;
            }
        }
        Ok(self.filled)
    }

    fn one(&mut self, rc: libc::ssize_t) -> Result<(), Errno> {
        let len = libc::c_uint::try_from(rc).map_err(|_| last_errno())?;
        if let Some(header) = self.headers.first_mut() {
            header.msg_len = len;
            self.filled = 1;
        }
        Ok(())
    }

    /// The datagrams read last, in order.
    pub fn datagrams(&self) -> impl Iterator<Item = Datagram<'_>> {
        self.headers[..self.filled].iter().zip(self.payload.chunks_exact(self.keep + STAGGER)).flat_map(
            |(header, buffer)| {
                let len = usize::try_from(header.msg_len).unwrap_or(0);
                let segment = if self.gro { segment_size(&header.msg_hdr) } else { None };
                let kept = &buffer[..len.min(self.keep)];
                Segments { kept, len, segment: segment.unwrap_or(len.max(1)), empty: len == 0 }
            },
        )
    }
}

impl fmt::Debug for RecvBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvBatch")
            .field("messages", &self.headers.len())
            .field("keep", &self.keep)
            .field("gro", &self.gro)
            .field("control", &self.control.len())
            .field("filled", &self.filled)
            .finish_non_exhaustive()
    }
}

/// A message cut into its datagrams. A message of length 0 is one of them.
struct Segments<'a> {
    kept: &'a [u8],
    len: usize,
    segment: usize,
    empty: bool,
}

impl<'a> Iterator for Segments<'a> {
    type Item = Datagram<'a>;

    #[inline]
    fn next(&mut self) -> Option<Datagram<'a>> {
        if self.len == 0 {
            return std::mem::take(&mut self.empty).then_some(Datagram { bytes: &[], len: 0 });
        }
        let len = self.segment.min(self.len);
        let (bytes, rest) = self.kept.split_at(len.min(self.kept.len()));
        self.kept = rest;
        self.len -= len;
        Some(Datagram { bytes, len })
    }
}

fn reset_control(header: &mut libc::mmsghdr) {
    // The kernel has shortened it to what it wrote last time.
    header.msg_hdr.msg_controllen = CONTROL_WORDS * size_of::<u64>();
}

/// The segment size the kernel attached to a merged message.
fn segment_size(header: &libc::msghdr) -> Option<usize> {
    // SAFETY: `header` points at its own control words (see `new`), of which
    // the kernel has initialized `msg_controllen` bytes; CMSG_FIRSTHDR checks
    // that a whole header lies within.
    let first = unsafe { libc::CMSG_FIRSTHDR(header).as_ref() }?;
    let room = size_of::<libc::cmsghdr>() + size_of::<libc::c_int>();
    if first.cmsg_level != libc::SOL_UDP || first.cmsg_type != libc::UDP_GRO || first.cmsg_len < room {
        return None;
    }
    // SAFETY: the message was just seen to carry at least a c_int, which may
    // lie unaligned.
    let size = unsafe { libc::CMSG_DATA(first).cast::<libc::c_int>().read_unaligned() };
    usize::try_from(size).ok().filter(|s| *s > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::Duration;

    fn socket() -> UdpSocket {
        let s = UdpSocket::bind("127.0.0.1:0").unwrap();
        s.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        s
    }

    #[test]
    fn every_call_yields_bytes_and_true_length() {
        for call in [ReadCall::Recvmmsg, ReadCall::Recvmsg, ReadCall::Recvfrom, ReadCall::Read] {
            let (tx, rx) = (socket(), socket());
            tx.connect(rx.local_addr().unwrap()).unwrap();
            for (len, byte) in [(0, 0), (1, 1), (64, 2), (900, 3)] {
                tx.send(&vec![byte; len]).unwrap();
            }
            let mut batch = RecvBatch::new(8, 100, false);
            let mut got = Vec::new();
            while got.len() < 4 {
                batch.read(&rx, call, true).unwrap();
                got.extend(batch.datagrams().map(|d| (d.len, d.bytes.to_vec())));
            }
            let long = if call == ReadCall::Read { 100 } else { 900 };
            let want = [(0, 0, 0), (1, 1, 1), (64, 64, 2), (long, 100, 3)]
                .map(|(len, kept, byte)| (len, vec![byte; kept]));
            assert_eq!(got, want, "{call:?}");
        }
    }

    #[test]
    fn nothing_there_is_eagain_and_no_datagrams() {
        let rx = socket();
        let mut batch = RecvBatch::new(4, 64, false);
        for call in [ReadCall::Recvmmsg, ReadCall::Recvmsg, ReadCall::Recvfrom] {
            assert_eq!(batch.read(&rx, call, false), Err(Errno::AGAIN));
            assert_eq!(batch.datagrams().count(), 0);
        }
    }

    #[test]
    fn merged_messages_are_cut_into_their_datagrams() {
        let rx = crate::socket::receiver("127.0.0.1:0".parse().unwrap(), crate::socket::Buffer::Kernel, true)
            .unwrap();
        let tx = crate::socket::sender(&crate::socket::TxOptions {
            target: rx.local,
            bind: None,
            connect: true,
            sndbuf: crate::socket::Buffer::Kernel,
            size: 200,
            segments: 5,
            share_port: false,
        })
        .unwrap();
        let mut out = super::super::SendBatch::new(1, 5, 200, None);
        for seq in 0..5 {
            assert!(out.push(&observer_ebpf::stamp::Stamp::new(3, 0, seq, 1, 1)));
        }
        assert_eq!(out.send(&tx.fd, super::super::SendCall::Sendmmsg, 0), Ok(1));
        let mut batch = RecvBatch::new(4, 64, true);
        let mut seqs = Vec::new();
        let mut messages = 0;
        while seqs.len() < 5 {
            messages += batch.read(&rx.fd, ReadCall::Recvmmsg, true).unwrap();
            for d in batch.datagrams() {
                assert_eq!(d.len, 200);
                seqs.push(observer_ebpf::stamp::Stamp::parse(d.bytes).unwrap().seq());
            }
        }
        assert_eq!(seqs, [0, 1, 2, 3, 4]);
        assert_eq!(messages, 1, "loopback hands a GSO packet over whole");
    }
}
