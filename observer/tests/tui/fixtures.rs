//! Snapshots recorded from plans, as a session would have published them: one
//! per interval, through the real pipeline.

use std::sync::{Arc, LazyLock};

use observer::host::qdisc::{Config, Counters, Handle, Qdisc};
use observer::pipeline::Pipeline;
use observer::snapshot::Snapshot;
use observer::source::synthetic::{Plan, QDISC_DROP, RCVBUFF, Spread, Synthetic};
use observer::source::{Batch, HostSample, ProgramStats, Progress, Source, Tables};
use observer::surroundings::{Queue, Side, Socket, Surroundings, Update};
use observer_ebpf::abi::Counter;

/// Plays `plan` with an interval after each poll (8,192 datagrams); what each
/// table says may be changed by `bend`. The last one is final if `ends`.
pub(crate) fn record(plan: Plan, ends: bool, bend: impl Fn(&mut Tables)) -> Vec<Arc<Snapshot>> {
    let mut source = Synthetic::new(plan);
    let mut pipeline = Pipeline::new(source.meta().clone());
    let mut batch = Batch::default();
    let mut snapshots = Vec::new();
    loop {
        batch.clear();
        let progress = source.poll(&mut batch).unwrap();
        pipeline.batch(&batch);
        let end = progress == Progress::End;
        let mut tables = source.tables(end).unwrap();
        bend(&mut tables);
        let at_ns = tables.at_ns;
        if end && ends {
            snapshots.push(pipeline.finish(tables));
            return snapshots;
        }
        pipeline.tables(tables);
        snapshots.push(pipeline.interval(at_ns));
        if end {
            return snapshots;
        }
    }
}

/// Six intervals: 8,192 datagrams each, 50,000/s. A p99.9 needs two.
fn plan() -> Plan {
    Plan { datagrams: 6 * 8_192, ..Plan::default() }
}

/// Recorded once for all tests.
macro_rules! once {
    ($make:block) => {{
        static MADE: LazyLock<Update> = LazyLock::new(|| $make);
        MADE.clone()
    }};
}

/// The last of a recording, with what surrounds it.
fn last(snapshots: &[Arc<Snapshot>]) -> Update {
    Update { snapshot: Arc::clone(snapshots.last().unwrap()), surroundings: Some(Arc::new(surroundings(0))) }
}

/// Nothing has been sent.
pub(crate) fn nothing() -> Update {
    once!({
        last(&record(Plan { datagrams: 0, ..plan() }, false, |t| {
            t.flows.clear();
            t.at_ns += 3_000_000_000;
            t.counters[Counter::UnstampedSent as usize] = 1_204;
        }))
    })
}

/// A quiet link.
pub(crate) fn quiet() -> Update {
    once!({ last(&record(plan(), false, |_| {})) })
}

/// A shaper in the way, several flows, costs measured.
pub(crate) fn shaper() -> Update {
    once!({
        let plan = Plan { streams: 5, shaper: Spread::Spike(40_000, 4_810_000, 90), ..plan() };
        last(&record(plan, false, measured))
    })
}

/// More than everybody can take: a full qdisc, a sender that falls behind, 70
/// flows.
pub(crate) fn overloaded() -> Update {
    once!({
        let plan = Plan {
            streams: 70,
            sender_queue: Spread::Ramp(900_000_000),
            shaper: Spread::Uniform(50_000, 300_000_000),
            blocked_percent: 10,
            drop_every: 3,
            drop_reason: QDISC_DROP,
            ..plan()
        };
        let mut update = last(&record(plan, false, |_| {}));
        update.surroundings = Some(Arc::new(surroundings(3)));
        update
    })
}

/// Not one datagram arrives.
pub(crate) fn all_dropped() -> Update {
    once!({ last(&record(Plan { drop_every: 1, drop_reason: RCVBUFF, ..plan() }, false, |_| {})) })
}

/// The observer loses events and sight of datagrams.
pub(crate) fn lossy() -> Update {
    once!({
        last(&record(Plan { receiver: Spread::Spike(8_000, 20_000_000, 50), ..plan() }, false, |t| {
            t.counters[Counter::RingFull as usize] = 3_201;
            t.counters[Counter::SlotBusy as usize] = 17;
            for flow in &mut t.flows {
                flow.sent += 1_000;
                flow.evicted += 1_000;
            }
        }))
    })
}

/// A run that is over.
pub(crate) fn over() -> Update {
    once!({
        last(&record(Plan { receiver: Spread::Spike(8_000, 20_000_000, 50), ..plan() }, true, measured))
    })
}

fn measured(tables: &mut Tables) {
    let program = |point: &str, hook: &str, runs, run_ns| ProgramStats {
        name: String::new(),
        point: point.into(),
        hook: hook.into(),
        kind: "tp_btf".into(),
        runs,
        run_ns,
        missed: 0,
    };
    tables.programs = vec![
        program("dev_queue", "net:net_dev_queue", 49_152, 49_152 * 143),
        program("app_dequeue", "sock:sock_recv_length", 49_152, 49_152 * 413),
    ];
    tables.host = HostSample {
        steal_ratio: Some(0.004),
        busy_ratio: Some(0.61),
        cpus: Some(2),
        ..HostSample::default()
    };
}

/// Sockets and queues; `full`: how bad it is.
pub(crate) fn surroundings(full: u64) -> Surroundings {
    let socket = |side, local: &str, comm: &str, peak_bytes, drops, inode| Socket {
        side,
        local: local.into(),
        pid: Some(4_242),
        comm: comm.into(),
        netns: 4_026_531_840,
        queued_bytes: peak_bytes / 2,
        peak_bytes,
        buffer_bytes: 212_992,
        drops,
        inode,
    };
    let queue = |qdisc| Queue { netns: 4_026_531_840, qdisc };
    Surroundings {
        sockets: Some(vec![
            socket(Side::Sender, "10.0.0.1:40000", "sender", 60_000 * full, 0, 1),
            socket(Side::Receiver, "10.0.0.2:9000", "receiver", 1_024 + 70_000 * full, full * 1_204, 2),
            socket(Side::Receiver, "[2001:db8::2]:9000", "receiver", 0, 0, 3),
        ]),
        queues: Some(vec![
            queue(Qdisc {
                device: "eth0".into(),
                ifindex: 3,
                kind: "tbf".into(),
                handle: Handle(0x8001_0000),
                config: Config {
                    rate_bit_s: Some(100_000_000),
                    burst_bytes: Some(262_144),
                    limit_bytes: Some(16 << 20),
                    ..Config::default()
                },
                counters: Counters {
                    backlog_bytes: 1_242 * 300,
                    backlog_packets: 300,
                    drops: full * 40,
                    overlimits: 12_345,
                    ..Counters::default()
                },
                ..Qdisc::default()
            }),
            queue(Qdisc { device: "veth1".into(), ifindex: 7, kind: "noqueue".into(), ..Qdisc::default() }),
        ]),
    }
}

/// All of them, for whoever tries everything.
pub(crate) fn all() -> Vec<Update> {
    let mut all = vec![nothing(), quiet(), shaper(), overloaded(), all_dropped(), lossy(), over()];
    let bare = Update { surroundings: None, ..all[2].clone() };
    let unread = Update { surroundings: Some(Arc::new(Surroundings::default())), ..all[3].clone() };
    all.extend([bare, unread]);
    all
}
