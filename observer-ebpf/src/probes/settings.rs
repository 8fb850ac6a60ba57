//! Constants that userspace fills in before the programs are loaded.
//!
//! They sit in read-only data, which the loader freezes: the verifier sees
//! known scalars, follows only the branches they leave open, and accepts the
//! offsets as parts of typed kernel pointers.

use observer_ebpf::abi::{Offsets, Settings, Syscalls};

/// Field offsets of the running kernel.
#[unsafe(no_mangle)]
pub(super) static OFFSETS: Offsets = Offsets::UNSET;
/// System call numbers of the running architecture.
#[unsafe(no_mangle)]
pub(super) static SYSCALLS: Syscalls = Syscalls::UNSET;
/// What the programs are asked to do.
#[unsafe(no_mangle)]
pub(super) static SETTINGS: Settings = Settings::UNSET;

/// Reads a load-time constant; volatile, so that the compiler does not fold in
/// the placeholder it was built with.
#[inline(always)]
pub(super) fn read<T: Copy>(constant: &'static T) -> T {
    // SAFETY: a valid reference to plain integers that are only ever read.
    unsafe { core::ptr::read_volatile(constant) }
}

/// Reads one field of a load-time constant.
macro_rules! constant {
    ($table:ident . $field:ident) => {
        $crate::probes::settings::read(&$crate::probes::settings::$table.$field)
    };
}
pub(super) use constant;
