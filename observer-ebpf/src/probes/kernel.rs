//! Reading kernel objects: direct loads through the typed pointers that BTF
//! tracepoints hand over, at offsets taken from the running kernel.
//!
//! A direct load through such a pointer cannot fault (the JIT turns a bad
//! address into 0) and costs a fraction of `bpf_probe_read_kernel`. It works
//! for pointers the verifier knows the type of: arguments, and fields reached
//! from them. Anything else goes through [`copy`].

use core::mem::MaybeUninit;

use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_probe_read_kernel, bpf_task_pt_regs};

use observer_ebpf::abi::Plain;

use super::settings::constant;

/// A kernel object whose type the verifier knows.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Object(pub(super) *const u8);

impl Object {
    /// True for the null pointer (`qdisc_dequeue` on an empty qdisc).
    #[inline(always)]
    pub(super) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Its address, for comparing.
    #[inline(always)]
    pub(super) fn address(self) -> u64 {
        self.0 as u64
    }

    /// The `T` at `offset`, which must be a field of that size.
    #[inline(always)]
    pub(super) fn load<T: Copy>(self, offset: u32) -> T {
        // SAFETY: the verifier checks offset and size against the object's
        // BTF at load time; a bad address reads as 0.
        unsafe { core::ptr::read_volatile(self.0.add(offset as usize).cast::<T>()) }
    }

    /// The object that the pointer field at `offset` points to.
    #[inline(always)]
    pub(super) fn follow(self, offset: u32) -> Self {
        Self(self.load::<*const u8>(offset))
    }
}

/// Copies `T` from any kernel address. `None` if it is not mapped.
#[inline(always)]
pub(super) fn copy<T: Copy>(address: u64) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: `value` has room for `T`; the helper fills it or fails.
    unsafe {
        let failed =
            bpf_probe_read_kernel(value.as_mut_ptr().cast(), size_of::<T>() as u32, address as *const _);
        if failed != 0 {
            return None;
        }
        Some(value.assume_init())
    }
}

/// Fills `value` from any kernel address; false, and nothing said of its
/// contents, if that is not mapped.
#[inline(always)]
pub(super) fn copy_into<T: Plain>(value: &mut MaybeUninit<T>, address: u64) -> bool {
    // SAFETY: `value` has room for `T`, and every bit pattern is a `T`.
    unsafe {
        bpf_probe_read_kernel(value.as_mut_ptr().cast(), size_of::<T>() as u32, address as *const _) == 0
    }
}

/// A system call in progress, from the thread's saved user registers.
#[derive(Clone, Copy)]
pub(super) struct Syscall {
    /// Its number. While a thread is interrupted in user mode this is none of
    /// a system call's.
    pub(super) nr: u32,
    /// Second argument: the buffer, or what describes it.
    pub(super) arg1: u64,
    /// Third argument: the length, or the number of messages.
    pub(super) arg2: u64,
}

/// The system call the current thread is in.
#[inline(always)]
pub(super) fn current_syscall() -> Syscall {
    // SAFETY: both helpers return typed pointers that are never null.
    let regs = unsafe { Object(bpf_task_pt_regs(bpf_get_current_task_btf()) as *const u8) };
    Syscall {
        nr: regs.load::<u64>(constant!(OFFSETS.regs_nr)) as u32,
        arg1: regs.load(constant!(OFFSETS.regs_arg1)),
        arg2: regs.load(constant!(OFFSETS.regs_arg2)),
    }
}

/// Inode number of a socket's network namespace.
#[inline(always)]
pub(super) fn netns_of(sock: Object) -> u32 {
    sock.follow(constant!(OFFSETS.sk_net)).load::<u32>(constant!(OFFSETS.net_inum))
}

/// True for a UDP socket of either family.
#[inline(always)]
pub(super) fn is_udp(sock: Object) -> bool {
    const AF_INET: u16 = 2;
    const AF_INET6: u16 = 10;
    const IPPROTO_UDP: u16 = 17;
    let family = sock.load::<u16>(constant!(OFFSETS.sk_family));
    sock.load::<u16>(constant!(OFFSETS.sk_protocol)) == IPPROTO_UDP
        && (family == AF_INET || family == AF_INET6)
}
