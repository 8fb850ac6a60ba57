//! A TAP device: an Ethernet device whose other end is a file descriptor.
//!
//! What a namespace sends through the device is read from the descriptor, one
//! frame at a time, and what is written to it arrives at the device. The
//! device is gone when the descriptor is closed. TAP rather than TUN, so that
//! lengths include the Ethernet header as they do everywhere else.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::lab::{LabError, Namespace};

const CLONE_DEVICE: &str = "/dev/net/tun";

/// The largest frame the lab's devices carry: far above their MTU.
pub(super) const FRAME: usize = 16 * 1024;

/// The descriptor's side of a device. Reads and writes do not block.
#[derive(Debug)]
pub(super) struct Tap(File);

impl Tap {
    /// Makes device `name` in `host`.
    pub(super) fn create(host: &Namespace, name: &'static str) -> Result<Self, LabError> {
        // The device lands in the namespace of the thread that opens the
        // descriptor.
        let made = host.enter(|| {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(CLONE_DEVICE)?;
            attach(&file, name)?;
            Ok(Self(file))
        })?;
        made.map_err(|source: io::Error| LabError::Tap { device: name, source })
    }

    /// The next frame that the namespace sent; `None` if there is none now.
    pub(super) fn read(&self, frame: &mut [u8; FRAME]) -> io::Result<Option<usize>> {
        match (&self.0).read(frame) {
            Ok(length) => Ok(Some(length)),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Lets a frame arrive at the namespace.
    pub(super) fn write(&self, frame: &[u8]) -> io::Result<()> {
        (&self.0).write(frame).map(drop)
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes `file` the other end of a new device.
fn attach(file: &File, name: &str) -> io::Result<()> {
    // SAFETY: all fields of the C struct accept zeros.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One less: the kernel reads a C string.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name.iter_mut().take(room).zip(name.bytes()) {
        *to = from.cast_signed();
    }
    // Frames as they are, without a header of the driver's.
    request.ifr_ifru.ifru_flags = TAP_FLAGS;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives for the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[expect(clippy::cast_possible_truncation, reason = "IFF_TAP and IFF_NO_PI are 0x1002")]
const TAP_FLAGS: libc::c_short = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
