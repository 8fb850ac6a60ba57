//! Who the flows are: sockets, processes and addresses at their ends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use foldhash::HashMap;
use observer_ebpf::abi::{FLOW_SLOTS, FlowRecord, flow_id};

use crate::report::{Endpoint, FlowKey};

/// Flows remembered: as many as the kernel side follows.
const REMEMBERED: usize = FLOW_SLOTS as usize;

/// The flows described so far, by [`flow_id`].
#[derive(Debug, Default)]
pub struct FlowBook {
    flows: HashMap<u64, FlowKey>,
}

impl FlowBook {
    /// Enters one end of a flow. A later description of the same end replaces
    /// the earlier one (a socket was opened anew).
    pub fn add(&mut self, record: &FlowRecord) {
        let id = flow_id(record.run, record.stream);
        if self.flows.len() >= REMEMBERED && !self.flows.contains_key(&id) {
            return;
        }
        let flow = self.flows.entry(id).or_insert_with(|| FlowKey {
            run: record.run,
            stream: record.stream,
            ..FlowKey::default()
        });
        if record.ip_version != 0 {
            flow.source = Some(address(record.ip_version, record.saddr, record.sport));
            flow.destination = Some(address(record.ip_version, record.daddr, record.dport));
        }
        let end = Endpoint {
            pid: known(record.tgid),
            tid: known(record.tid),
            comm: comm(&record.comm),
            netns: record.netns,
            buffer_bytes: record.buffer_bytes,
        };
        match record.side {
            1 => flow.sender = Some(end),
            2 => flow.receiver = Some(end),
            // Only the addresses are told.
            _ => {}
        }
    }

    /// Whether the flow's sender was seen on this host.
    pub fn sender_here(&self, id: u64) -> bool {
        self.flows.get(&id).is_some_and(|f| f.sender.is_some())
    }

    /// The network namespaces of a flow's sender and receiver, as far as they
    /// are known.
    pub fn namespaces(&self, id: u64) -> (Option<u32>, Option<u32>) {
        let of = |end: &Option<Endpoint>| end.as_ref().map(|e| e.netns);
        self.flows.get(&id).map_or((None, None), |f| (of(&f.sender), of(&f.receiver)))
    }

    /// What is known of a flow; run and stream at least.
    pub fn key(&self, id: u64) -> FlowKey {
        self.flows.get(&id).cloned().unwrap_or_else(|| {
            let (run, stream) = run_and_stream(id);
            FlowKey { run, stream, ..FlowKey::default() }
        })
    }
}

/// The run and the stream in a [`flow_id`].
#[expect(clippy::cast_possible_truncation, reason = "a flow id is 32 bits of run above 16 of stream")]
pub fn run_and_stream(id: u64) -> (u32, u16) {
    ((id >> 16) as u32, id as u16)
}

fn known(id: u32) -> Option<u32> {
    (id != 0).then_some(id)
}

fn address(version: u8, bytes: [u8; 16], port: u16) -> String {
    let [a, b, c, d, ..] = bytes;
    let ip = match version {
        4 => IpAddr::from(Ipv4Addr::new(a, b, c, d)),
        _ => IpAddr::from(Ipv6Addr::from(bytes)),
    };
    SocketAddr::new(ip, port).to_string()
}

/// A thread may name itself with any bytes: what is not text is replaced, and
/// control characters never reach a terminal.
fn comm(bytes: &[u8; 16]) -> String {
    let name = bytes.split(|b| *b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::synthetic;

    #[test]
    fn both_ends_come_together() {
        let mut book = FlowBook::default();
        let id = flow_id(7, 3);
        book.add(&synthetic::flow(7, 3, 2));
        assert!(!book.sender_here(id));
        book.add(&synthetic::flow(7, 3, 1));
        assert!(book.sender_here(id));
        let key = book.key(id);
        assert_eq!(key.source.as_deref(), Some("10.0.0.1:40003"));
        assert_eq!(key.destination.as_deref(), Some("10.0.0.2:9000"));
        assert_eq!(key.sender.map(|e| (e.pid, e.comm)), Some((Some(100), "sender".to_owned())));
        assert_eq!(key.receiver.map(|e| e.comm), Some("receiver".to_owned()));
    }

    #[test]
    fn an_end_that_knows_no_addresses_leaves_them_alone() {
        let mut book = FlowBook::default();
        book.add(&synthetic::flow(7, 3, 1));
        book.add(&FlowRecord { ip_version: 0, saddr: [0; 16], daddr: [0; 16], ..synthetic::flow(7, 3, 2) });
        let key = book.key(flow_id(7, 3));
        assert_eq!(key.source.as_deref(), Some("10.0.0.1:40003"));
        assert!(key.receiver.is_some());
    }

    #[test]
    fn an_undescribed_flow_has_its_numbers() {
        let key = FlowBook::default().key(flow_id(u32::MAX, u16::MAX));
        assert_eq!((key.run, key.stream, key.source), (u32::MAX, u16::MAX, None));
    }

    #[test]
    fn ipv6_and_hostile_names_are_printable() {
        assert_eq!(address(6, Ipv6Addr::LOCALHOST.octets(), 9), "[::1]:9");
        assert_eq!(comm(b"\x1b[2J\xff\0garbage___"), "\u{fffd}[2J\u{fffd}");
    }
}
