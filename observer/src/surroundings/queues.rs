//! The queues in the network namespaces of the flows' ends, and in the
//! observer's own: a datagram's way out begins in its sender's, and a bridge or
//! an uplink is often the host's.
//!
//! At most [`NAMESPACES`] namespaces are read, and at most [`QUEUES`] queues
//! told of. A router's namespace in the middle is not looked into.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

use super::{Queue, QueueReader};
use crate::host::qdisc::{self, Qdisc, QdiscError};
use crate::snapshot::Snapshot;

/// Network namespaces read.
pub const NAMESPACES: usize = 8;
/// Queues told of.
pub const QUEUES: usize = 64;

/// Reads them over netlink.
#[derive(Clone, Copy, Debug, Default)]
pub struct Namespaces;

impl QueueReader for Namespaces {
    fn read(&mut self, snapshot: &Snapshot) -> Option<Vec<Queue>> {
        let mut read: BTreeMap<u32, Result<Vec<Qdisc>, QdiscError>> = BTreeMap::new();
        if let Some(own) = own_namespace() {
            read.insert(own, qdisc::here());
        }
        for flow in &snapshot.total.flows {
            for end in [&flow.key.sender, &flow.key.receiver].into_iter().flatten() {
                if read.len() >= NAMESPACES {
                    break;
                }
                if let (false, Some(thread)) = (read.contains_key(&end.netns), end.tid.or(end.pid)) {
                    read.insert(end.netns, qdisc::of_process(thread));
                }
            }
        }
        let any = read.values().any(Result::is_ok);
        let slowest = snapshot.total.components.shaper.slowest_hop.map(|hop| hop.ifindex);
        let mut queues: Vec<Queue> = read
            .into_iter()
            .filter_map(|(netns, queues)| Some((netns, queues.ok()?)))
            .flat_map(|(netns, queues)| queues.into_iter().map(move |qdisc| Queue { netns, qdisc }))
            .filter(|queue| matters(&queue.qdisc, slowest))
            .collect();
        queues.truncate(QUEUES);
        any.then_some(queues)
    }
}

/// Whether it can hold anything back, or is where most time was lost.
fn matters(qdisc: &Qdisc, slowest: Option<u32>) -> bool {
    qdisc.kind != "noqueue" || slowest == Some(qdisc.ifindex)
}

fn own_namespace() -> Option<u32> {
    let inode = std::fs::metadata("/proc/self/ns/net").ok()?.ino();
    u32::try_from(inode).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_queue_matters_only_where_time_was_lost() {
        let queue = |kind: &str| Qdisc { kind: kind.to_owned(), ifindex: 3, ..Qdisc::default() };
        assert!(matters(&queue("tbf"), None) && matters(&queue("noqueue"), Some(3)));
        assert!(!matters(&queue("noqueue"), Some(4)) && !matters(&queue("noqueue"), None));
    }
}
