//! A table of the programs, mapped for reading.

use std::{marker::PhantomData, os::fd::BorrowedFd, ptr::NonNull};

use observer_ebpf::abi::Plain;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A read-only view of an array map made with `BPF_F_MMAPABLE`.
pub(crate) struct Mapped<T> {
    base: NonNull<u8>,
    entries: usize,
    bytes: usize,
    _elements: PhantomData<T>,
}

// SAFETY: a shared read-only mapping; all access is by copying out.
unsafe impl<T: Send> Send for Mapped<T> {}

impl<T: Plain> Mapped<T> {
    /// Maps all `entries` of the map behind `fd`.
    pub(crate) fn new(fd: BorrowedFd<'_>, entries: usize) -> rustix::io::Result<Self> {
        let stride = size_of::<T>().next_multiple_of(8);
        let bytes = (stride * entries).next_multiple_of(rustix::param::page_size());
        // SAFETY: a fresh mapping at an address of the kernel's choosing.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, fd, 0)? };
        let base = NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Self { base, entries, bytes, _elements: PhantomData })
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    /// A copy of entry `index`. Programs may be writing to it: words are
    /// whole, the entry as a whole need not be.
    pub(crate) fn get(&self, index: usize) -> Option<T> {
        let stride = size_of::<T>().next_multiple_of(8);
        (index < self.entries).then(|| {
            // SAFETY: inside the mapping, and any bytes are a `T`.
            unsafe { std::ptr::read_volatile(self.base.as_ptr().add(index * stride).cast::<T>()) }
        })
    }

    /// The first word of entry `index`.
    pub(crate) fn first_word(&self, index: usize) -> Option<u64> {
        let stride = size_of::<T>().next_multiple_of(8);
        (index < self.entries && stride >= 8).then(|| {
            // SAFETY: inside the mapping, aligned to 8.
            unsafe { std::ptr::read_volatile(self.base.as_ptr().add(index * stride).cast::<u64>()) }
        })
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, not used any more. Failure would
        // leave it mapped, which is harmless.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
