//! Network namespaces that cannot outlive the process.
//!
//! A [`Namespace`] is made with unshare(2) on a thread of its own and held
//! by nothing but a file descriptor: it has no name in /run/netns, no mount
//! and no process. When the last descriptor is closed, by `Drop`, by an
//! ordinary exit or by SIGKILL, the kernel takes it down with every device
//! and qdisc in it. So there is nothing to reap, and no way to touch a
//! namespace that somebody else made.
//!
//! Work is done inside by a thread that enters first ([`Namespace::enter`],
//! [`Namespace::spawn`]); threads and processes it starts are inside as well.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::linux::fs::MetadataExt;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::LabError;

/// This thread's own network namespace. Not /proc/self, which is the main
/// thread's.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace made by this process. Clones share it; the last one
/// to be dropped takes it down.
#[derive(Clone, Debug)]
pub struct Namespace {
    fd: Arc<OwnedFd>,
    label: Arc<str>,
    inode: u64,
}

impl Namespace {
    /// Makes an empty network namespace; `label` names it in messages and
    /// in the names of the threads that enter it.
    ///
    /// # Errors
    ///
    /// [`LabError::Permission`] without CAP_SYS_ADMIN, [`LabError::Namespace`]
    /// where the kernel has no network namespaces or no more of them.
    pub fn create(label: &str) -> Result<Self, LabError> {
        let made = thread::scope(|scope| {
            let make = || -> Result<(OwnedFd, u64), LabError> {
                // SAFETY: unsharing the network namespace alone leaves memory,
                // descriptors and credentials shared as they were; only this
                // thread, which ends here, sees other network devices.
                unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
                    .map_err(|e| LabError::namespace("creating a network namespace", e))?;
                open_own().map_err(|source| LabError::Namespace {
                    doing: "opening /proc/thread-self/ns/net",
                    source,
                })
            };
            match thread::Builder::new().name(label.into()).spawn_scoped(scope, make) {
                Ok(handle) => handle.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(source) => Err(LabError::Thread { host: label.into(), source }),
            }
        });
        let (fd, inode) = made?;
        Ok(Self { fd: Arc::new(fd), label: label.into(), inode })
    }

    /// The label given at creation.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Inode number, as in `ls -l /proc/PID/ns/net` and in the observer's
    /// flow records.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// A path by which programs like `ip` and `nsenter --net=` find it; valid
    /// while it lives.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd()).into()
    }

    /// Runs `work` inside, on a fresh thread, and waits for it. A panic in it
    /// goes on in the caller.
    ///
    /// # Errors
    ///
    /// [`LabError::Thread`] if no thread could be started, or that of entering.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        thread::scope(|scope| {
            let inside = || self.move_here().map(|()| work());
            match thread::Builder::new().name(self.thread_name()).spawn_scoped(scope, inside) {
                Ok(handle) => handle.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(source) => Err(self.no_thread(source)),
            }
        })
    }

    /// Starts `work` inside, on a thread of its own.
    ///
    /// # Errors
    ///
    /// [`LabError::Thread`] if no thread could be started; that of entering
    /// comes with the thread's result.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<Result<T, LabError>>, LabError> {
        let here = self.clone();
        thread::Builder::new()
            .name(self.thread_name())
            .spawn(move || here.move_here().map(|()| work()))
            .map_err(|source| self.no_thread(source))
    }

    fn move_here(&self) -> Result<(), LabError> {
        move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|e| LabError::namespace("entering a network namespace", e))
    }

    /// As the kernel shows it: 15 bytes at most.
    fn thread_name(&self) -> String {
        format!("lab-{}", self.label)
    }

    fn no_thread(&self, source: io::Error) -> LabError {
        LabError::Thread { host: self.label.to_string(), source }
    }
}

fn open_own() -> io::Result<(OwnedFd, u64)> {
    let file = File::open(OWN)?;
    let inode = file.metadata()?.st_ino();
    Ok((file.into(), inode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::needs_root;

    #[test]
    fn threads_enter_and_their_children_inherit() {
        needs_root!();
        let outside = open_own().unwrap().1;
        let ns = Namespace::create("one").unwrap();
        assert_ne!(ns.inode(), outside);
        let (here, child) = ns
            .enter(|| {
                let child = thread::spawn(|| open_own().unwrap().1).join().unwrap();
                (open_own().unwrap().1, child)
            })
            .unwrap();
        assert_eq!((here, child), (ns.inode(), ns.inode()));
        assert_eq!(ns.spawn(|| open_own().unwrap().1).unwrap().join().unwrap().unwrap(), ns.inode());
        assert_eq!(open_own().unwrap().1, outside, "the calling thread stays where it was");
    }

    #[test]
    fn a_panic_inside_goes_on_outside() {
        needs_root!();
        let ns = Namespace::create("panics").unwrap();
        let caught = std::panic::catch_unwind(|| ns.enter(|| panic!("inside")));
        assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"inside"));
        ns.enter(|| ()).unwrap();
    }
}
