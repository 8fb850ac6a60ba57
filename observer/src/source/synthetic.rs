//! Journeys made to a plan: a source without a kernel, for tests, benchmarks
//! and trying out views.
//!
//! A [`Plan`] says how many datagrams, how far apart, and how each component
//! is distributed; [`Synthetic`] yields their records and the tables that go
//! with them. Equal plans yield equal journeys.

use std::collections::BTreeMap;

use observer_ebpf::abi::{
    Detail, FlowRecord, FlowSlot, JourneyRecord, RecordKind, RunSlot, WaitKind, WaitRecord, flow_id,
    run_origin,
};
use observer_ebpf::stamp::Stamp;

use super::{Batch, ChosenHook, HostSample, Progress, Source, SourceError, SourceMeta, Tables};

/// Number of `SOCKET_RCVBUFF` in [`meta`]'s table of reasons (as on 6.18).
pub const RCVBUFF: u32 = 6;
/// Number of `QDISC_DROP` in [`meta`]'s table of reasons (as on 6.18).
pub const QDISC_DROP: u32 = 64;
/// When every plan begins, ns.
pub const START_NS: u64 = 1_000_000_000;

/// Most records yielded by one poll.
const PER_POLL: u64 = 8192;

/// How a component is distributed, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// Always the same.
    Constant(u64),
    /// Anything from the first to the second, inclusive.
    Uniform(u64, u64),
    /// Exponential with this mean.
    Exponential(u64),
    /// The first value, and once in so many datagrams the second.
    Spike(u64, u64, u64),
    /// Grows from 0 to this over the plan: the wait inside a burst.
    Ramp(u64),
}

impl Spread {
    fn draw(self, rng: &mut fastrand::Rng, nth: u64, of: u64) -> u64 {
        match self {
            Self::Constant(ns) => ns,
            Self::Uniform(low, high) => rng.u64(low..=high.max(low)),
            Self::Exponential(mean) => exponential(mean, rng.f64()),
            Self::Spike(usual, spike, every) => {
                if nth % every.max(1) == every.max(1) - 1 {
                    spike
                } else {
                    usual
                }
            }
            Self::Ramp(high) => {
                u64::try_from(u128::from(high) * u128::from(nth) / u128::from(of.max(1))).unwrap_or(high)
            }
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a random duration: its last digits do not matter, it is not negative, and casts saturate"
)]
fn exponential(mean: u64, uniform: f64) -> u64 {
    (-(1.0 - uniform).ln() * mean as f64) as u64
}

/// What to make.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of everything random in it.
    pub seed: u64,
    /// Run id.
    pub run: u32,
    /// Streams; datagrams take turns.
    pub streams: u16,
    /// Datagrams in all.
    pub datagrams: u64,
    /// Time between two offers, ns.
    pub gap_ns: u64,
    /// dev_queue − offer.
    pub sender_queue: Spread,
    /// Time in the qdisc of the one hop; no qdisc is seen where it is 0.
    pub shaper: Spread,
    /// rx − xmit.
    pub wire: Spread,
    /// app_dequeue − rx.
    pub receiver: Spread,
    /// Share of the sender queue spent blocked on the send buffer, percent.
    pub blocked_percent: u64,
    /// Share of the receiver spent runnable without a CPU, percent.
    pub run_queue_percent: u64,
    /// One datagram in so many is dropped; 0 for none.
    pub drop_every: u64,
    /// The reason of those drops; [`QDISC_DROP`] kills in the shaper, anything
    /// else at the socket.
    pub drop_reason: u32,
}

impl Default for Plan {
    /// 20,000 datagrams at 50,000/s over a quiet veth.
    fn default() -> Self {
        Self {
            seed: 1,
            run: 0x0b5e_7e57,
            streams: 1,
            datagrams: 20_000,
            gap_ns: 20_000,
            sender_queue: Spread::Uniform(1_500, 4_000),
            shaper: Spread::Constant(0),
            wire: Spread::Uniform(800, 2_000),
            receiver: Spread::Uniform(3_000, 12_000),
            blocked_percent: 0,
            run_queue_percent: 0,
            drop_every: 0,
            drop_reason: RCVBUFF,
        }
    }
}

/// A source that follows a [`Plan`].
#[derive(Debug)]
pub struct Synthetic {
    plan: Plan,
    meta: SourceMeta,
    rng: fastrand::Rng,
    next: u64,
    slots: Vec<FlowSlot>,
    dropped: u64,
    now_ns: u64,
    waits: Vec<WaitRecord>,
}

impl Synthetic {
    /// A source for `plan`.
    pub fn new(plan: Plan) -> Self {
        let slots = (0..plan.streams.max(1))
            .map(|stream| FlowSlot {
                id: flow_id(plan.run, stream),
                tx_socket: 0x1000 + u64::from(stream),
                rx_socket: 0x2000,
                tx_tgid: 100,
                admitted: 1,
                ..FlowSlot::default()
            })
            .collect();
        Self {
            meta: meta(),
            rng: fastrand::Rng::with_seed(plan.seed),
            next: 0,
            slots,
            dropped: 0,
            now_ns: START_NS,
            waits: Vec::new(),
            plan,
        }
    }

    fn make(&mut self) -> Option<JourneyRecord> {
        let plan = &self.plan;
        let nth = self.next;
        self.next += 1;
        let streams = self.slots.len() as u64;
        let slot = self.slots.get_mut(usize::try_from(nth % streams).ok()?)?;
        let stream = u16::try_from(slot.id & 0xffff).ok()?;
        let mut draw = |spread: Spread| spread.draw(&mut self.rng, nth, plan.datagrams);
        let offer = START_NS + nth * plan.gap_ns;
        let sender = draw(plan.sender_queue);
        let (shaper, wire, receiver) = (draw(plan.shaper), draw(plan.wire), draw(plan.receiver));

        let mut j = journey(plan.run, stream, nth / streams);
        j.offer_ns = i64::try_from(offer).ok()?;
        j.intended_ns = j.offer_ns;
        j.dev_queue_ns = offer + sender;
        j.syscall_ns = offer + sender / 4;
        j.xmit_ns = j.dev_queue_ns + shaper;
        j.dequeue_ns = if shaper == 0 { 0 } else { j.xmit_ns };
        (j.shaper_ns, j.slowest_hop_ns, j.slowest_qdisc_ns) = (shaper, shaper, shaper);
        j.rx_ns = j.xmit_ns + wire;
        j.sock_enqueue_ns = j.rx_ns + receiver / 8;
        j.app_dequeue_ns = j.rx_ns + receiver;

        slot.offered += 1;
        slot.sent += 1;
        slot.dev_queued += 1;
        if plan.drop_every > 0 && nth % plan.drop_every == plan.drop_every - 1 {
            kill(&mut j, plan.drop_reason);
            slot.dropped += 1;
            self.dropped += 1;
        } else {
            slot.delivered += 1;
            slot.delivered_bytes += 160;
            let blocked = sender * plan.blocked_percent / 100;
            if blocked > 0 {
                self.waits.push(wait(WaitKind::SendBuffer, j.tx_tid, j.dev_queue_ns - blocked, blocked));
            }
            let starved = receiver * plan.run_queue_percent / 100;
            if starved > 0 {
                self.waits.push(wait(WaitKind::RunQueue, j.rx_tid, j.app_dequeue_ns - starved, starved));
            }
        }
        self.now_ns = self.now_ns.max(j.app_dequeue_ns).max(j.drop_ns);
        Some(j)
    }
}

impl Source for Synthetic {
    fn poll(&mut self, batch: &mut Batch) -> Result<Progress, SourceError> {
        if self.next == 0 {
            for stream in 0..self.plan.streams.max(1) {
                batch.flows.extend([flow(self.plan.run, stream, 1), flow(self.plan.run, stream, 2)]);
            }
        }
        let until = self.plan.datagrams.min(self.next + PER_POLL);
        while self.next < until {
            batch.journeys.extend(self.make());
        }
        batch.waits.append(&mut self.waits);
        Ok(if self.next < self.plan.datagrams { Progress::More } else { Progress::End })
    }

    fn tables(&mut self, _last: bool) -> Result<Tables, SourceError> {
        let mut tables = Tables::empty(self.now_ns);
        tables.flows.clone_from(&self.slots);
        tables.runs[0] =
            RunSlot { id: self.plan.run.into(), origin: run_origin::SENT, tgid: 100, since_ns: START_NS };
        if self.dropped > 0 {
            tables.drops.push((0, self.plan.drop_reason, self.dropped));
        }
        tables.host =
            HostSample { steal_ratio: Some(0.0), busy_ratio: Some(0.25), cpus: Some(2), stolen_ns: Some(0) };
        Ok(tables)
    }

    fn meta(&self) -> &SourceMeta {
        &self.meta
    }
}

fn kill(j: &mut JourneyRecord, reason: u32) {
    j.kind = RecordKind::Dropped as u8;
    j.drop_reason = reason;
    j.app_dequeue_ns = 0;
    if reason == QDISC_DROP {
        j.drop_ns = j.dev_queue_ns;
        j.hop_start_ns = j.dev_queue_ns;
        (j.dequeue_ns, j.xmit_ns, j.rx_ns, j.sock_enqueue_ns) = (0, 0, 0, 0);
        (j.shaper_ns, j.slowest_hop_ns, j.slowest_qdisc_ns, j.hops) = (0, 0, 0, 0);
    } else {
        j.drop_ns = j.sock_enqueue_ns;
    }
}

/// A wait of thread `tid`, `length_ns` long.
pub fn wait(kind: WaitKind, tid: u32, from_ns: u64, length_ns: u64) -> WaitRecord {
    WaitRecord {
        kind: RecordKind::Wait as u8,
        wait: kind as u8,
        pad: 0,
        tid,
        from_ns,
        to_ns: from_ns + length_ns,
    }
}

/// A complete journey over one hop: sender queue 2 µs, shaper 1 µs, wire 3 µs,
/// receiver 4 µs, offered at [`START_NS`].
pub fn journey(run: u32, stream: u16, seq: u64) -> JourneyRecord {
    let at = |ns: u64| START_NS + ns;
    let offer = START_NS.cast_signed();
    JourneyRecord {
        kind: RecordKind::Delivered as u8,
        detail: Detail::Full as u8,
        flags: 0,
        run,
        stream_seq: Stamp::new(run, stream, seq, 0, 0).stream_seq,
        intended_ns: offer,
        offer_ns: offer,
        syscall_ns: at(500),
        dev_queue_ns: at(2_000),
        dequeue_ns: 0,
        xmit_ns: at(3_000),
        rx_ns: at(6_000),
        sock_enqueue_ns: at(7_000),
        app_dequeue_ns: at(10_000),
        drop_ns: 0,
        shaper_ns: 1_000,
        slowest_hop_ns: 1_000,
        slowest_qdisc_ns: 0,
        hop_start_ns: 0,
        drop_location: 0,
        slowest_ifindex: 3,
        ifindex: 3,
        l2_bytes: 202,
        drop_reason: 0,
        tx_tid: 101,
        rx_tid: 201,
        hops: 1,
        batch_pos: 0,
        run_index: 0,
        pad: 0,
    }
}

/// The description of a flow at its sending (1) or receiving (2) end.
pub fn flow(run: u32, stream: u16, side: u8) -> FlowRecord {
    let address = |last| {
        let mut a = [0; 16];
        a[..4].copy_from_slice(&[10, 0, 0, last]);
        a
    };
    let mut comm = [0; 16];
    let (name, tgid) = if side == 1 { (b"sender\0\0", 100) } else { (b"receiver", 200) };
    comm[..8].copy_from_slice(name);
    FlowRecord {
        kind: RecordKind::Flow as u8,
        side,
        ip_version: 4,
        pad: 0,
        run,
        first_ns: START_NS,
        stream,
        sport: 40_000 + stream % 1_000,
        dport: 9_000,
        pad2: 0,
        tgid,
        tid: tgid + 1,
        netns: 4_026_531_840,
        buffer_bytes: 212_992,
        saddr: address(1),
        daddr: address(2),
        comm,
    }
}

/// What a synthetic source says of itself.
pub fn meta() -> SourceMeta {
    let hook = |point: &str, hook: &str, kind: &str| ChosenHook {
        point: point.to_owned(),
        hook: hook.to_owned(),
        kind: kind.to_owned(),
    };
    SourceMeta {
        origin: "synthetic".to_owned(),
        start_ns: START_NS,
        clock: "CLOCK_MONOTONIC".to_owned(),
        kernel: "6.18.0-synthetic".to_owned(),
        host: "synthetic".to_owned(),
        detail: Detail::Full,
        reasons: BTreeMap::from([
            (2, "NOT_SPECIFIED".to_owned()),
            (3, "NO_SOCKET".to_owned()),
            (RCVBUFF, "SOCKET_RCVBUFF".to_owned()),
            (QDISC_DROP, "QDISC_DROP".to_owned()),
        ]),
        hooks: vec![
            hook("offer", "stamp", "payload"),
            hook("dev_queue", "net:net_dev_queue", "tp_btf"),
            hook("app_dequeue", "sock:sock_recv_length", "tp_btf"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(plan: Plan) -> (Vec<JourneyRecord>, Tables) {
        let mut source = Synthetic::new(plan);
        let mut batch = Batch::default();
        while source.poll(&mut batch).unwrap() != Progress::End {}
        (batch.journeys, source.tables(true).unwrap())
    }

    #[test]
    fn a_plan_is_followed_to_the_last_datagram() {
        let plan = Plan { datagrams: 10_001, streams: 3, drop_every: 10, ..Plan::default() };
        let (journeys, tables) = drain(plan);
        assert_eq!(journeys.len(), 10_001);
        let dropped = journeys.iter().filter(|j| j.kind == RecordKind::Dropped as u8).count();
        assert_eq!(dropped, 1_000);
        assert_eq!(tables.flows.iter().map(|f| f.sent).sum::<u64>(), 10_001);
        assert_eq!(tables.flows.iter().map(|f| f.delivered).sum::<u64>(), 9_001);
        assert_eq!(tables.drops, [(0, RCVBUFF, 1_000)]);
    }

    #[test]
    fn equal_plans_yield_equal_journeys() {
        assert_eq!(drain(Plan::default()).0, drain(Plan::default()).0);
        assert_ne!(drain(Plan::default()).0, drain(Plan { seed: 2, ..Plan::default() }).0);
    }

    #[test]
    fn the_exponential_has_its_mean() {
        let mut rng = fastrand::Rng::with_seed(3);
        let sum: u64 = (0..100_000).map(|n| Spread::Exponential(1_000_000).draw(&mut rng, n, 1)).sum();
        // Standard error of the mean is 0.3 %; five of them.
        assert!((985_000..=1_015_000).contains(&(sum / 100_000)), "{}", sum / 100_000);
    }
}
