//! Finding the stamp in the application's own buffer.
//!
//! After a receive the kernel has copied the datagram there; the buffer's
//! address comes from the system call's arguments, which are still in the
//! thread's saved registers. No program has to run when the call is entered,
//! except for recvmmsg and sendmmsg, where the position in the array counts.

use core::mem::MaybeUninit;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use observer_ebpf::stamp::{STAMP_LEN, Stamp};

use super::{kernel::Syscall, settings::constant};

/// `struct iovec`
#[repr(C)]
#[derive(Clone, Copy)]
struct IoVec {
    base: u64,
    len: u64,
}

/// `sizeof(struct mmsghdr)` on 64-bit.
const MMSGHDR_LEN: u64 = 64;
/// Offset of `msg_iov` in `struct msghdr` on 64-bit; the pointer is followed
/// by the number of vectors.
const MSG_IOV: u64 = 16;

/// Why there is no stamp to look at.
pub(super) enum NoStamp {
    /// Not one of the system calls we know (io_uring, compat).
    UnknownCall,
    /// User memory was not present.
    Unreadable,
    /// The first buffer is too short to hold a stamp.
    Short,
    /// It does not begin with a stamp.
    Unstamped,
}

/// The call moves data from the application to the network.
#[inline(always)]
pub(super) fn is_send(nr: u32) -> bool {
    nr == constant!(SYSCALLS.sendmmsg)
        || nr == constant!(SYSCALLS.sendto)
        || nr == constant!(SYSCALLS.sendmsg)
        || nr == constant!(SYSCALLS.write)
        || nr == constant!(SYSCALLS.writev)
}

/// The call moves data from the network to the application.
#[inline(always)]
pub(super) fn is_receive(nr: u32) -> bool {
    nr == constant!(SYSCALLS.recvmmsg)
        || nr == constant!(SYSCALLS.recvfrom)
        || nr == constant!(SYSCALLS.recvmsg)
        || nr == constant!(SYSCALLS.read)
        || nr == constant!(SYSCALLS.readv)
}

/// Reads the stamp of message `index` of the receive call in progress.
/// `received` is the message's length.
#[inline(always)]
pub(super) fn received(call: Syscall, index: u32, received: u64) -> Result<Stamp, NoStamp> {
    let buffer = if call.nr == constant!(SYSCALLS.recvfrom) || call.nr == constant!(SYSCALLS.read) {
        IoVec { base: call.arg1, len: call.arg2 }
    } else if call.nr == constant!(SYSCALLS.recvmmsg) {
        message(call.arg1 + u64::from(index) * MMSGHDR_LEN)?
    } else if call.nr == constant!(SYSCALLS.recvmsg) {
        message(call.arg1)?
    } else if call.nr == constant!(SYSCALLS.readv) {
        copy::<IoVec>(call.arg1)?
    } else {
        return Err(NoStamp::UnknownCall);
    };
    stamp_in(buffer, received)
}

/// Reads the stamp of message `index` of the send call in progress.
#[inline(always)]
pub(super) fn sent(call: Syscall, index: u32, length: u64) -> Result<Stamp, NoStamp> {
    let buffer = if call.nr == constant!(SYSCALLS.sendto) || call.nr == constant!(SYSCALLS.write) {
        IoVec { base: call.arg1, len: call.arg2 }
    } else if call.nr == constant!(SYSCALLS.sendmmsg) {
        message(call.arg1 + u64::from(index) * MMSGHDR_LEN)?
    } else if call.nr == constant!(SYSCALLS.sendmsg) {
        message(call.arg1)?
    } else if call.nr == constant!(SYSCALLS.writev) {
        copy::<IoVec>(call.arg1)?
    } else {
        return Err(NoStamp::UnknownCall);
    };
    stamp_in(buffer, length)
}

/// The first buffer of the `struct msghdr` at `address`.
#[inline(always)]
fn message(address: u64) -> Result<IoVec, NoStamp> {
    copy::<IoVec>(copy::<u64>(address + MSG_IOV)?)
}

#[inline(always)]
fn stamp_in(buffer: IoVec, length: u64) -> Result<Stamp, NoStamp> {
    let offset = u64::from(constant!(SETTINGS.stamp_offset));
    let end = offset + STAMP_LEN as u64;
    if length < end {
        return Err(NoStamp::Unstamped);
    }
    if buffer.len < end {
        return Err(NoStamp::Short);
    }
    Stamp::from_words(&copy::<[u64; 4]>(buffer.base + offset)?).ok_or(NoStamp::Unstamped)
}

/// Copies `T` from the current process.
#[inline(always)]
fn copy<T: Copy>(address: u64) -> Result<T, NoStamp> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: `value` has room for `T`; the helper fills it or fails, and
    // fails for any address outside the process.
    unsafe {
        let failed =
            bpf_probe_read_user(value.as_mut_ptr().cast(), size_of::<T>() as u32, address as *const _);
        if failed != 0 {
            return Err(NoStamp::Unreadable);
        }
        Ok(value.assume_init())
    }
}
