//! What surrounds the datagrams at one moment: the sockets they leave and
//! reach, and the queues between. Not part of a journey and not recorded in a
//! trace; read beside the pipeline, so that a slow `/proc` never holds it up.
//!
//! ```text
//! watch of Snapshot ─▶ sampler (own thread) ─▶ watch of Update ─▶ terminal UI, attached clients
//!                         ▲ sockets: /proc/<tid>/net/udp, at the flows' ends
//!                         ▲ queues: netlink, in the namespaces of the flows' ends
//! ```
//!
//! What cannot be read is `None`, never an empty list.

pub mod queues;
pub mod sampler;
pub mod sockets;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::host::qdisc::Qdisc;
use crate::snapshot::Snapshot;

/// A snapshot and what surrounded it: what a view shows.
#[derive(Clone, Debug)]
pub struct Update {
    /// The pipeline's picture.
    pub snapshot: Arc<Snapshot>,
    /// The sockets and queues at that time; `None` where nobody looks at them
    /// (a replayed trace).
    pub surroundings: Option<Arc<Surroundings>>,
}

impl From<Arc<Snapshot>> for Update {
    fn from(snapshot: Arc<Snapshot>) -> Self {
        Self { snapshot, surroundings: None }
    }
}

/// Sockets and queues at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Surroundings {
    /// The sockets at the flows' ends that are on this host; `None` if none
    /// of them could be looked at.
    pub sockets: Option<Vec<Socket>>,
    /// The queueing disciplines on the flows' way; `None` if they cannot be
    /// read.
    pub queues: Option<Vec<Queue>>,
}

/// Which end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// It sends.
    Sender,
    /// It receives.
    Receiver,
}

/// A UDP socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    /// Its part in the flows.
    pub side: Side,
    /// Local address, `address:port`.
    pub local: String,
    /// Process (thread group); `None` if unknown.
    pub pid: Option<u32>,
    /// Name of the thread that used it last.
    pub comm: String,
    /// Inode of its network namespace.
    pub netns: u32,
    /// Bytes charged to its buffer now, the kernel's overhead included: on a
    /// receiver waiting to be read, on a sender not yet freed by a driver.
    pub queued_bytes: u64,
    /// The most seen since the update before.
    pub peak_bytes: u64,
    /// The buffer's limit (`sk_rcvbuf`, `sk_sndbuf`), bytes.
    pub buffer_bytes: u64,
    /// Datagrams it refused since it was made (`sk_drops`).
    pub drops: u64,
    /// Its inode, by which `ss -e` and /proc name it.
    pub inode: u64,
}

/// A queueing discipline of a device, or a class of one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// Inode of its network namespace.
    pub netns: u32,
    /// The qdisc: what it is configured to, what it has counted.
    #[serde(flatten)]
    pub qdisc: Qdisc,
}

/// Reads the queues on the flows' way. The sampler's thread calls it and
/// nothing waits for it.
pub trait QueueReader: Send {
    /// The queues now; `None` if they cannot be read.
    fn read(&mut self, snapshot: &Snapshot) -> Option<Vec<Queue>>;
}

/// Where there is nobody to read them.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoQueues;

impl QueueReader for NoQueues {
    fn read(&mut self, _: &Snapshot) -> Option<Vec<Queue>> {
        None
    }
}
