//! Records of a run whose cause is known: a schedule, a Sender, a token
//! bucket, a socket and a reader, datagram by datagram, as the programs would
//! have written them.

use std::collections::VecDeque;
use std::sync::Arc;

use observer::model::nanoseconds;
use observer::model::simulate::TokenBucket;
use observer::pipeline::Pipeline;
use observer::snapshot::Snapshot;
use observer::source::{Batch, HostSample, Tables, synthetic};
use observer_ebpf::abi::{
    FlowRecord, FlowSlot, JourneyRecord, RecordKind, RunSlot, WaitKind, flow_id, run_origin,
};

/// Run id of every canned run.
const RUN: u32 = 0x0b5e_7e57;
/// Uptime at the start, s.
const ORIGIN: f64 = 1_000.0;

/// A chain of queues. Times in seconds, rates per second.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    /// When each datagram is wanted.
    pub(crate) intended: Vec<f64>,
    /// Payload and headers, bytes.
    pub(crate) l2_bytes: u32,
    /// What the generator can offer.
    pub(crate) generator_per_s: f64,
    /// The generator and its Sender stand still: (every, for).
    pub(crate) stalls: Option<(f64, f64)>,
    /// D.
    pub(crate) drain_per_s: f64,
    /// An idle Sender looks again after this long.
    pub(crate) sleep_s: f64,
    /// The send buffer holds this many datagrams until the shaper lets them
    /// go; the sender is blocked beyond.
    pub(crate) sndbuf: usize,
    /// A shaper, and how late its timer may be.
    pub(crate) bucket: Option<(TokenBucket, f64)>,
    /// The receive buffer holds this many datagrams.
    pub(crate) rcvbuf: usize,
    /// What the reader reads.
    pub(crate) reader_per_s: f64,
    /// The reader stands still: (every, for).
    pub(crate) pauses: Option<(f64, f64)>,
    /// Seed of everything random.
    pub(crate) seed: u64,
}

impl Chain {
    /// A chain in which nothing waits.
    pub(crate) fn new(intended: Vec<f64>, seed: u64) -> Self {
        Self {
            intended,
            l2_bytes: 202,
            generator_per_s: 20e6,
            stalls: None,
            drain_per_s: 2e6,
            sleep_s: 0.0,
            sndbuf: usize::MAX,
            bucket: None,
            rcvbuf: usize::MAX,
            reader_per_s: 2e6,
            pauses: None,
            seed,
        }
    }

    /// The chain played through the pipeline.
    pub(crate) fn play(&self) -> Arc<Snapshot> {
        let mut batch = self.batch();
        let journeys = std::mem::take(&mut batch.journeys);
        let mut pipeline = Pipeline::new(synthetic::meta());
        pipeline.batch(&batch);
        for some in journeys.chunks(5_000) {
            pipeline.batch(&Batch { journeys: some.to_vec(), ..Batch::default() });
        }
        pipeline.finish(tables(&journeys))
    }

    /// All that the programs would have written.
    pub(crate) fn batch(&self) -> Batch {
        let (journeys, waits) = self.records();
        let flow = |side| FlowRecord { buffer_bytes: 212_992, ..synthetic::flow(RUN, 0, side) };
        Batch { flows: vec![flow(1), flow(2)], waits, journeys, ..Batch::default() }
    }

    fn records(&self) -> (Vec<JourneyRecord>, Vec<observer_ebpf::abi::WaitRecord>) {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let mut waits = Vec::new();
        let mut journeys = Vec::with_capacity(self.intended.len());
        let mut generator: f64 = 0.0;
        let mut sender: f64 = 0.0;
        let mut shaper = Shaper::new(self.bucket);
        let mut reader = Reader { free: 0.0, queue: VecDeque::new() };
        let mut exits: VecDeque<f64> = VecDeque::new();
        let tid = synthetic::journey(RUN, 0, 0).tx_tid;
        for (seq, wanted) in self.intended.iter().enumerate() {
            // Offered when wanted, or when the generator gets to it.
            let offer = after(generator.max(*wanted + 0.2e-6 * rng.f64()), self.stalls);
            generator = offer + 1.0 / self.generator_per_s;
            // Sent by one thread, which may be asleep, or blocked.
            let idle = sender <= offer;
            let wake = if idle && self.sleep_s > 0.0 {
                (offer / self.sleep_s).floor() * self.sleep_s + self.sleep_s
            } else {
                offer
            };
            let mut sent = after(sender.max(wake), self.stalls) + (0.9 + 0.2 * rng.f64()) / self.drain_per_s;
            if exits.len() >= self.sndbuf
                && let Some(room) = exits.pop_front().filter(|room| *room > sent)
            {
                let (from, length) = (nanoseconds(ORIGIN + sent), nanoseconds(room - sent));
                waits.push(synthetic::wait(WaitKind::SendBuffer, tid, from, length));
                sent = room + 1e-6;
            }
            sender = sent;
            let exit = shaper.pass(sent, f64::from(self.l2_bytes), &mut rng) + 0.5e-6;
            exits.push_back(exit);
            let rx = exit + 1e-6 + 0.5e-6 * rng.f64();
            let there = rx + 0.4e-6;
            let read = reader.take(there, self);
            let ns = |s: f64| nanoseconds(ORIGIN + s);
            let mut j = synthetic::journey(RUN, 0, seq as u64);
            j.intended_ns = ns(*wanted).cast_signed();
            j.offer_ns = ns(offer).cast_signed();
            j.syscall_ns = ns(sent - 0.3 / self.drain_per_s);
            j.dev_queue_ns = ns(sent);
            j.xmit_ns = ns(exit);
            j.dequeue_ns = if self.bucket.is_some() { j.xmit_ns } else { 0 };
            let span = j.xmit_ns - j.dev_queue_ns;
            (j.shaper_ns, j.slowest_hop_ns) = (span, span);
            j.slowest_qdisc_ns = if self.bucket.is_some() { span } else { 0 };
            j.rx_ns = ns(rx);
            j.sock_enqueue_ns = ns(there);
            j.l2_bytes = self.l2_bytes;
            match read {
                Some(read) => j.app_dequeue_ns = ns(read),
                None => {
                    j.kind = RecordKind::Dropped as u8;
                    j.drop_reason = synthetic::RCVBUFF;
                    j.app_dequeue_ns = 0;
                    j.drop_ns = j.sock_enqueue_ns;
                }
            }
            journeys.push(j);
        }
        journeys.sort_by_key(|j| j.app_dequeue_ns.max(j.drop_ns));
        (journeys, waits)
    }
}

/// `at`, or when the stall that holds then is over.
fn after(at: f64, stalls: Option<(f64, f64)>) -> f64 {
    match stalls {
        Some((every, lasts)) => {
            // The end of a stall is not in it, whatever the last bit says.
            let begun = (at / every + 1e-9).floor() * every;
            if at - begun >= every - lasts { begun + every } else { at }
        }
        None => at,
    }
}

struct Shaper {
    bucket: Option<(TokenBucket, f64)>,
    tokens: f64,
    last: f64,
}

impl Shaper {
    fn new(bucket: Option<(TokenBucket, f64)>) -> Self {
        Self { bucket, tokens: bucket.map_or(0.0, |b| b.0.burst_bytes), last: 0.0 }
    }

    fn pass(&mut self, entry: f64, bytes: f64, rng: &mut fastrand::Rng) -> f64 {
        let Some((b, late)) = self.bucket else { return entry };
        let now = entry.max(self.last);
        let fill =
            |from: f64, at: f64, tokens: f64| (tokens + (at - from) * b.rate_byte_s).min(b.burst_bytes);
        let have = fill(self.last, now, self.tokens);
        let at = if have >= bytes { now } else { now + (bytes - have) / b.rate_byte_s + late * rng.f64() };
        self.tokens = fill(self.last, at, self.tokens) - bytes;
        self.last = at;
        at
    }
}

struct Reader {
    free: f64,
    queue: VecDeque<f64>,
}

impl Reader {
    /// When it has the datagram that is there at `there`; `None` if the buffer
    /// is full then.
    fn take(&mut self, there: f64, chain: &Chain) -> Option<f64> {
        while self.queue.front().is_some_and(|read| *read <= there) {
            self.queue.pop_front();
        }
        if self.queue.len() >= chain.rcvbuf {
            return None;
        }
        // An idle reader takes a moment to wake.
        let wake = if self.queue.is_empty() { 8e-6 } else { 0.0 };
        let read = after(self.free.max(there + wake), chain.pauses) + 1.0 / chain.reader_per_s;
        self.free = read;
        self.queue.push_back(read);
        Some(read)
    }
}

fn tables(journeys: &[JourneyRecord]) -> Tables {
    let is = |j: &&JourneyRecord, kind: RecordKind| j.kind == kind as u8;
    let n = journeys.len() as u64;
    let delivered = journeys.iter().filter(|j| is(j, RecordKind::Delivered)).count() as u64;
    let end = journeys.iter().map(|j| j.app_dequeue_ns.max(j.drop_ns)).max().unwrap_or(0);
    let mut tables = Tables::empty(end);
    tables.flows = vec![FlowSlot {
        id: flow_id(RUN, 0),
        tx_socket: 1,
        rx_socket: 2,
        tx_tgid: 100,
        admitted: 1,
        offered: n,
        sent: n,
        dev_queued: n,
        delivered,
        dropped: n - delivered,
        delivered_bytes: 160 * delivered,
        ..FlowSlot::default()
    }];
    tables.runs[0] = RunSlot { id: RUN.into(), origin: run_origin::SENT, tgid: 100, since_ns: 1 };
    if n > delivered {
        tables.drops.push((0, synthetic::RCVBUFF, n - delivered));
    }
    tables.host =
        HostSample { steal_ratio: Some(0.0), busy_ratio: Some(0.4), cpus: Some(2), ..HostSample::default() };
    tables
}
