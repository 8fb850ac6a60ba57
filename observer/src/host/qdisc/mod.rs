//! The queueing disciplines of a network namespace, as the kernel has them:
//! what they are configured to, and what they have counted.
//!
//! Read over rtnetlink, from the calling thread's namespace ([`here`]), from
//! one held open ([`of_namespace`]) or from that of a process
//! ([`of_process`]). Needs no privileges, but entering another namespace does.
//! Out come [`Qdisc`]s: one per qdisc and, for htb, one per class, in the
//! kernel's order with each device's classes behind its qdiscs.
//!
//! `tc` shows the same with less: it cuts a bucket to whole microseconds (at
//! 12.5 MB/s to 12 bytes) when it shows one, and htb's when it sets one; these
//! values are what the kernel works with, in ticks of 64 ns. What a limiter
//! was measured to be is compared with them.

use std::{fmt, fs::File, io, os::fd::AsFd, str::FromStr};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

mod decode;
mod netlink;

#[cfg(test)]
mod tests;

/// Whether an entry is a qdisc or a class of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A queueing discipline.
    #[default]
    Qdisc,
    /// A class inside one.
    Class,
}

/// The kernel's name of a qdisc or class: a major and a minor number.
/// Displayed, and in JSON, as `tc` writes them: `8001:`, `1:10`, `root`,
/// `ingress`, `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Handle(pub u32);

impl Handle {
    /// The parent of a device's root qdisc.
    pub const ROOT: Self = Self(u32::MAX);
    /// The parent of a device's ingress qdisc.
    pub const INGRESS: Self = Self(0xFFFF_FFF1);
    /// No handle at all.
    pub const NONE: Self = Self(0);
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (*self, self.0 >> 16, self.0 & 0xFFFF) {
            (Self::ROOT, ..) => f.write_str("root"),
            (Self::INGRESS, ..) => f.write_str("ingress"),
            (Self::NONE, ..) => f.write_str("none"),
            (_, major, 0) => write!(f, "{major:x}:"),
            (_, major, minor) => write!(f, "{major:x}:{minor:x}"),
        }
    }
}

/// A text that is no handle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no handle: it is root, ingress, none, or MAJOR:MINOR in hexadecimal")]
pub struct HandleError(String);

impl FromStr for Handle {
    type Err = HandleError;

    fn from_str(text: &str) -> Result<Self, HandleError> {
        let part = |digits: &str| match digits {
            "" => Some(0),
            d if d.bytes().all(|b| b.is_ascii_hexdigit()) => u16::from_str_radix(d, 16).ok(),
            _ => None,
        };
        let numbered = || {
            let (major, minor) = text.split_once(':')?;
            Some(Self(u32::from(part(major)?) << 16 | u32::from(part(minor)?)))
        };
        match text {
            "root" => Ok(Self::ROOT),
            "ingress" => Ok(Self::INGRESS),
            "none" => Ok(Self::NONE),
            _ => numbered().ok_or_else(|| HandleError(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Handle {
    type Error = HandleError;

    fn try_from(text: String) -> Result<Self, HandleError> {
        text.parse()
    }
}

impl From<Handle> for String {
    fn from(handle: Handle) -> Self {
        handle.to_string()
    }
}

/// What a qdisc or class is configured to, as far as its kind has it. `None`
/// where it does not apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Rate r, bits per second, Ethernet headers included (tbf, htb class).
    pub rate_bit_s: Option<u64>,
    /// Bucket b, bytes. The kernel keeps it as time, in ns, and tells it in
    /// ticks, rounded down: the true value is up to one tick's bytes above.
    pub burst_bytes: Option<u64>,
    /// Peak rate (tbf) or ceiling (htb class), bits per second.
    pub peak_bit_s: Option<u64>,
    /// Bucket of the peak rate or ceiling, bytes: tbf's `mtu`, htb's `cburst`.
    pub peak_burst_bytes: Option<u64>,
    /// Bytes its queue holds before it drops (tbf, bfifo).
    pub limit_bytes: Option<u64>,
    /// Packets its queue holds before it drops (pfifo, fq, fq_codel).
    pub limit_packets: Option<u64>,
    /// Bytes it adds to every packet's length before charging for it.
    pub overhead_bytes: Option<u64>,
}

/// What a qdisc or class has counted since it was installed, and what waits
/// in it now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Bytes that left it, Ethernet headers included.
    pub bytes: u64,
    /// Packets that left it; segments, where it segments.
    pub packets: u64,
    /// Packets it dropped. The kernel's counter has 32 bits and wraps, as do
    /// the three below.
    pub drops: u64,
    /// Times it held a packet back.
    pub overlimits: u64,
    /// Times the device gave a packet back.
    pub requeues: u64,
    /// Bytes that wait in it now.
    pub backlog_bytes: u64,
    /// Packets that wait in it now.
    pub backlog_packets: u64,
}

/// A qdisc, or a class of one, on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qdisc {
    /// The device's name; `if<index>` if it was gone before it was asked.
    pub device: String,
    /// The device's number in its own namespace.
    pub ifindex: u32,
    /// Qdisc or class.
    pub role: Role,
    /// `tbf`, `htb`, `noqueue`, `pfifo_fast`, …
    pub kind: String,
    /// Its own handle.
    pub handle: Handle,
    /// That of what it hangs on.
    pub parent: Handle,
    /// What it is configured to.
    #[serde(default)]
    pub config: Config,
    /// What it has counted.
    #[serde(default)]
    pub counters: Counters,
}

impl Qdisc {
    /// Whether it limits the rate of what leaves: an entry with a rate.
    pub fn is_limiter(&self) -> bool {
        self.config.rate_bit_s.is_some()
    }
}

/// Why the qdiscs could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QdiscError {
    /// The namespace could not be found or entered.
    #[error(
        "cannot enter the network namespace of {whose}: {source}; needs CAP_SYS_ADMIN, and the process to be alive"
    )]
    Enter {
        /// Whose namespace.
        whose: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// No thread could be started to enter it.
    #[error("no thread could be started to read qdiscs: {0}; raise the limit on processes (ulimit -u)")]
    Thread(io::Error),
    /// The kernel refused or broke off the conversation.
    #[error("the kernel's table of qdiscs could not be read ({doing}): {source}")]
    Netlink {
        /// What was being done.
        doing: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The table changed at every attempt to read it.
    #[error("qdiscs change faster than they can be read; try again when the set-up is done")]
    Unsteady,
}

/// The qdiscs of the calling thread's network namespace.
///
/// # Errors
///
/// [`QdiscError::Netlink`] or [`QdiscError::Unsteady`].
pub fn here() -> Result<Vec<Qdisc>, QdiscError> {
    netlink::read()
}

/// The qdiscs of the network namespace that `namespace` is open on.
///
/// # Errors
///
/// [`QdiscError::Enter`] without CAP_SYS_ADMIN, else as [`here`].
pub fn of_namespace(namespace: impl AsFd) -> Result<Vec<Qdisc>, QdiscError> {
    let fd = namespace.as_fd();
    let inside = || {
        move_into_link_name_space(fd, Some(LinkNameSpaceType::Network)).map_err(|errno| {
            QdiscError::Enter { whose: "the descriptor given".to_owned(), source: errno.into() }
        })?;
        here()
    };
    // A thread of its own enters the namespace and ends there.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("observer-qdisc".to_owned());
        match thread.spawn_scoped(scope, inside).map_err(QdiscError::Thread)?.join() {
            Ok(read) => read,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// The qdiscs of the network namespace of process (or thread) `pid`.
///
/// # Errors
///
/// [`QdiscError::Enter`] if it is gone or out of reach, else as [`here`].
pub fn of_process(pid: u32) -> Result<Vec<Qdisc>, QdiscError> {
    let whose = |source| QdiscError::Enter { whose: format!("process {pid}"), source };
    let file = File::open(format!("/proc/{pid}/ns/net")).map_err(whose)?;
    match of_namespace(file) {
        Err(QdiscError::Enter { source, .. }) => Err(whose(source)),
        other => other,
    }
}
