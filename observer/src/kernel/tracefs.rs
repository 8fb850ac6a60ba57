//! Attaching classic tracepoints where tracefs is not mounted.
//!
//! Event ids are files in tracefs. Where nobody mounted it (containers,
//! minimal images), it is mounted in a mount namespace that only the attaching
//! thread has, and that goes when the thread does: the machine is left as it
//! was found.

use std::{path::Path, thread};

use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    thread::{UnshareFlags, unshare_unsafe},
};

const MOUNT_POINTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Whether tracefs can be read where it belongs.
pub(super) fn is_mounted() -> bool {
    MOUNT_POINTS.iter().any(|p| Path::new(p).join("events").is_dir())
}

/// Runs `attach` on a thread that sees tracefs.
pub(super) fn with_tracefs<T: Send>(attach: impl FnOnce() -> T + Send) -> Result<T, String> {
    if is_mounted() {
        return Ok(attach());
    }
    thread::scope(|scope| {
        scope
            .spawn(|| {
                private_mount().map_err(|e| format!("tracefs is not mounted and could not be: {e}"))?;
                Ok(attach())
            })
            .join()
            .unwrap_or_else(|_| Err("attaching panicked".to_owned()))
    })
}

fn private_mount() -> rustix::io::Result<()> {
    // SAFETY: this thread was made for the purpose, shares no file-system
    // state that anyone relies on afterwards, and ends right after attaching.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS)? };
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount(
        "tracefs",
        MOUNT_POINTS[0],
        "tracefs",
        MountFlags::NOEXEC | MountFlags::NOSUID | MountFlags::NODEV,
        None,
    )
}
