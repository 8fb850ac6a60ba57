//! The kernel side's tables and flow descriptions as JSON.
//!
//! What the pipeline reads of them, and nothing else: addresses inside the
//! kernel (sockets) become 0 or 1, since a trace is passed around and they
//! would tell where the kernel lies in memory.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use observer_ebpf::abi::{Counter, FlowRecord, FlowSlot, MAX_RUNS, RecordKind, RunSlot};
use serde::{Deserialize, Serialize};

use crate::source::{HostSample, ProgramStats, Tables};

/// [`Tables`] without the unfinished journeys, which are rows of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TablesState {
    /// When they were read, ns.
    pub at_ns: u64,
    /// Flow-table entries in use.
    pub flows: Vec<FlowState>,
    /// Run-table entries in use.
    pub runs: Vec<RunState>,
    /// Events by [`Counter`]; at the end of the list, zeros may be left out.
    pub counters: Vec<u64>,
    /// Drops: run-table index, kernel number of the reason, count.
    pub drops: Vec<(u16, u32, u64)>,
    /// Events no program saw.
    pub missed: u64,
    /// Cost of the programs.
    pub programs: Vec<ProgramState>,
    /// Steal since the start, 0 to 1.
    pub steal_ratio: Option<f64>,
    /// Busy CPU time since the start, 0 to 1.
    pub busy_ratio: Option<f64>,
    /// CPUs online.
    pub cpus: Option<u32>,
    /// Time the hypervisor took since the start, ns.
    pub stolen_ns: Option<u64>,
}

/// One entry of the flow table; fields as in [`FlowSlot`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is documented at the field of the same name of FlowSlot")]
pub struct FlowState {
    pub id: u64,
    pub sender_here: bool,
    pub receiver_here: bool,
    pub tx_pid: u32,
    pub admitted: bool,
    pub offered: u64,
    pub sent: u64,
    pub dev_queued: u64,
    pub delivered: u64,
    pub duplicated: u64,
    pub dropped: u64,
    pub evicted: u64,
    pub unclaimed: u64,
    pub ring_lost: u64,
    pub send_errors: u64,
    pub delivered_bytes: u64,
    pub run_index: u32,
}

/// One entry of the run table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunState {
    /// Its place in the table.
    pub index: u16,
    /// Run id.
    pub run: u64,
    /// What admitted it, as `observer_ebpf::abi::run_origin` numbers it.
    pub origin: u32,
    /// Process that sends it.
    pub pid: u32,
    /// When it was admitted, ns.
    pub since_ns: u64,
}

/// One program's cost; fields as in [`ProgramStats`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is documented at the field of the same name of ProgramStats")]
pub struct ProgramState {
    pub name: String,
    pub point: String,
    pub hook: String,
    pub kind: String,
    pub runs: u64,
    pub run_ns: u64,
    pub missed: u64,
}

/// One end of a flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowEnd {
    /// Run id.
    pub run: u32,
    /// Stream.
    pub stream: u16,
    /// 1 the sending end, 2 the receiving, 3 only the addresses.
    pub side: u8,
    /// When it was first seen, ns.
    pub first_ns: u64,
    /// Source address; null if this end does not know the addresses.
    pub source: Option<IpAddr>,
    /// Source port.
    pub source_port: u16,
    /// Destination address.
    pub destination: Option<IpAddr>,
    /// Destination port.
    pub destination_port: u16,
    /// Process at this end; 0 unknown.
    pub pid: u32,
    /// Thread at this end; 0 unknown.
    pub tid: u32,
    /// Inode number of the socket's network namespace.
    pub netns: u32,
    /// The socket's buffer limit, bytes.
    pub buffer_bytes: u32,
    /// Name of the thread, as its bytes up to the first NUL.
    pub comm: Vec<u8>,
}

impl From<&Tables> for TablesState {
    fn from(t: &Tables) -> Self {
        let mut counters = t.counters.to_vec();
        while counters.last() == Some(&0) {
            counters.pop();
        }
        let runs = t.runs.iter().enumerate().filter(|(_, r)| r.id != 0).map(|(i, r)| RunState {
            index: u16::try_from(i).unwrap_or(u16::MAX),
            run: r.id,
            origin: r.origin,
            pid: r.tgid,
            since_ns: r.since_ns,
        });
        Self {
            at_ns: t.at_ns,
            flows: t.flows.iter().map(FlowState::from).collect(),
            runs: runs.collect(),
            counters,
            drops: t.drops.clone(),
            missed: t.missed,
            programs: t.programs.iter().map(ProgramState::from).collect(),
            steal_ratio: t.host.steal_ratio,
            busy_ratio: t.host.busy_ratio,
            cpus: t.host.cpus,
            stolen_ns: t.host.stolen_ns,
        }
    }
}

impl From<&TablesState> for Tables {
    fn from(s: &TablesState) -> Self {
        let mut runs = [RunSlot::default(); MAX_RUNS];
        for r in &s.runs {
            if let Some(slot) = runs.get_mut(usize::from(r.index)) {
                *slot = RunSlot { id: r.run, origin: r.origin, tgid: r.pid, since_ns: r.since_ns };
            }
        }
        let mut counters = [0; Counter::COUNT];
        for (to, from) in counters.iter_mut().zip(&s.counters) {
            *to = *from;
        }
        Self {
            at_ns: s.at_ns,
            flows: s.flows.iter().map(FlowSlot::from).collect(),
            runs,
            counters,
            drops: s.drops.clone(),
            unfinished: Vec::new(),
            missed: s.missed,
            programs: s.programs.iter().map(ProgramStats::from).collect(),
            host: HostSample {
                steal_ratio: s.steal_ratio,
                busy_ratio: s.busy_ratio,
                cpus: s.cpus,
                stolen_ns: s.stolen_ns,
            },
        }
    }
}

impl From<&FlowSlot> for FlowState {
    fn from(f: &FlowSlot) -> Self {
        Self {
            id: f.id,
            sender_here: f.tx_socket != 0,
            receiver_here: f.rx_socket != 0,
            tx_pid: f.tx_tgid,
            admitted: f.admitted != 0,
            offered: f.offered,
            sent: f.sent,
            dev_queued: f.dev_queued,
            delivered: f.delivered,
            duplicated: f.duplicated,
            dropped: f.dropped,
            evicted: f.evicted,
            unclaimed: f.unclaimed,
            ring_lost: f.ring_lost,
            send_errors: f.send_errors,
            delivered_bytes: f.delivered_bytes,
            run_index: f.run_index,
        }
    }
}

impl From<&FlowState> for FlowSlot {
    fn from(f: &FlowState) -> Self {
        Self {
            id: f.id,
            tx_socket: f.sender_here.into(),
            rx_socket: f.receiver_here.into(),
            tx_tgid: f.tx_pid,
            admitted: f.admitted.into(),
            offered: f.offered,
            sent: f.sent,
            dev_queued: f.dev_queued,
            delivered: f.delivered,
            duplicated: f.duplicated,
            dropped: f.dropped,
            evicted: f.evicted,
            unclaimed: f.unclaimed,
            ring_lost: f.ring_lost,
            send_errors: f.send_errors,
            delivered_bytes: f.delivered_bytes,
            run_index: f.run_index,
            pad: 0,
        }
    }
}

impl From<&ProgramStats> for ProgramState {
    fn from(p: &ProgramStats) -> Self {
        Self {
            name: p.name.clone(),
            point: p.point.clone(),
            hook: p.hook.clone(),
            kind: p.kind.clone(),
            runs: p.runs,
            run_ns: p.run_ns,
            missed: p.missed,
        }
    }
}

impl From<&ProgramState> for ProgramStats {
    fn from(p: &ProgramState) -> Self {
        Self {
            name: p.name.clone(),
            point: p.point.clone(),
            hook: p.hook.clone(),
            kind: p.kind.clone(),
            runs: p.runs,
            run_ns: p.run_ns,
            missed: p.missed,
        }
    }
}

impl From<&FlowRecord> for FlowEnd {
    fn from(f: &FlowRecord) -> Self {
        let address = |bytes: [u8; 16]| match f.ip_version {
            4 => {
                let [a, b, c, d, ..] = bytes;
                Some(IpAddr::from(Ipv4Addr::new(a, b, c, d)))
            }
            6 => Some(IpAddr::from(Ipv6Addr::from(bytes))),
            _ => None,
        };
        Self {
            run: f.run,
            stream: f.stream,
            side: f.side,
            first_ns: f.first_ns,
            source: address(f.saddr),
            source_port: f.sport,
            destination: address(f.daddr),
            destination_port: f.dport,
            pid: f.tgid,
            tid: f.tid,
            netns: f.netns,
            buffer_bytes: f.buffer_bytes,
            comm: f.comm.iter().copied().take_while(|b| *b != 0).collect(),
        }
    }
}

impl From<&FlowEnd> for FlowRecord {
    fn from(f: &FlowEnd) -> Self {
        let bytes = |address: Option<IpAddr>| match address {
            Some(IpAddr::V4(v4)) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&v4.octets());
                bytes
            }
            Some(IpAddr::V6(v6)) => v6.octets(),
            None => [0; 16],
        };
        let mut comm = [0; 16];
        for (to, from) in comm.iter_mut().zip(&f.comm) {
            *to = *from;
        }
        Self {
            kind: RecordKind::Flow as u8,
            side: f.side,
            ip_version: match f.source.or(f.destination) {
                Some(IpAddr::V4(_)) => 4,
                Some(IpAddr::V6(_)) => 6,
                None => 0,
            },
            pad: 0,
            run: f.run,
            first_ns: f.first_ns,
            stream: f.stream,
            sport: f.source_port,
            dport: f.destination_port,
            pad2: 0,
            tgid: f.pid,
            tid: f.tid,
            netns: f.netns,
            buffer_bytes: f.buffer_bytes,
            saddr: bytes(f.source),
            daddr: bytes(f.destination),
            comm,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::synthetic;
    use observer_ebpf::abi::run_origin;

    #[test]
    fn flows_survive_the_way_through_json() {
        let v4 = synthetic::flow(7, 3, 1);
        let v6 = FlowRecord { ip_version: 6, saddr: [7; 16], daddr: [9; 16], comm: [0xff; 16], ..v4 };
        let unknown = FlowRecord { ip_version: 0, saddr: [0; 16], daddr: [0; 16], side: 3, ..v4 };
        for flow in [v4, v6, unknown] {
            let json = serde_json::to_string(&FlowEnd::from(&flow)).unwrap();
            assert_eq!(FlowRecord::from(&serde_json::from_str::<FlowEnd>(&json).unwrap()), flow);
        }
    }

    #[test]
    fn tables_survive_the_way_through_json_but_for_kernel_addresses() {
        let mut tables = Tables::empty(9);
        tables.flows = vec![FlowSlot {
            id: u64::MAX,
            tx_socket: 0xffff_8881_0000_0000,
            sent: u64::MAX,
            admitted: 1,
            ..FlowSlot::default()
        }];
        tables.runs[3] = RunSlot { id: 7, origin: run_origin::SENT, tgid: 4, since_ns: 5 };
        tables.counters[2] = 8;
        tables.drops = vec![(3, 6, 7)];
        tables.missed = 4;
        tables.host =
            HostSample { steal_ratio: Some(0.1), busy_ratio: None, cpus: Some(2), stolen_ns: Some(3) };
        let json = serde_json::to_string(&TablesState::from(&tables)).unwrap();
        assert!(!json.contains(&0xffff_8881_0000_0000_u64.to_string()));
        let back = Tables::from(&serde_json::from_str::<TablesState>(&json).unwrap());
        tables.flows[0].tx_socket = 1;
        assert_eq!(format!("{back:?}"), format!("{tables:?}"));
    }
}
