//! The receiver's queue from measurement: what the socket would have had to
//! hold, and whether its reader is too slow, too late, or only its buffer too
//! small.
//!
//! A busy period is the time from a datagram that finds the socket's queue
//! empty to the read that leaves it empty. Most of the longest wait there from
//! the start: the reader came late. Busy nearly all the time: it is too slow.
//! Neither, and datagrams dropped: the buffer is too small for the burst. In
//! go the samples of the socket that lost or waited most; out comes a
//! [`ReceiverQueue`], part of the report.

use serde::{Deserialize, Serialize};

use super::evidence::{End, Sample, Stretch};
use super::{FLOOR_NS, Thread};
use crate::correlate::FlowBook;
use crate::model::busy::{self, Busy};
use crate::model::question::time;
use crate::model::{seconds, stats, whole};
use crate::source::SourceMeta;
use crate::view::units::{bytes, count, percent, rate};

/// Share of the waiting from which on something is its cause.
const CAUSE: f64 = 0.5;
/// Share of the time a reader is busy from which on it is too slow.
const SATURATED: f64 = 0.9;
/// Drop reasons of a receive buffer that was full.
pub const FULL_BUFFER: [&str; 2] = ["SOCKET_RCVBUFF", "PROTO_MEM"];

/// What makes datagrams wait for their reader, or be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReceiverCause {
    /// Nothing worth naming.
    None,
    /// The buffer does not hold the burst; the reader keeps up on average.
    Buffer,
    /// The reader takes longer for a datagram than they are apart.
    ReaderSlow,
    /// The reader came late: asleep, or busy with something else.
    ReaderLate,
    /// Before the socket: softirq, backlog.
    Softirq,
    /// The reader's thread had no CPU.
    Host,
    /// Bursts queue, and the reader works them off.
    Burst,
}

/// What the truesize rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TruesizeBasis {
    /// The buffer was full: its size over what it held then.
    Drops,
    /// Reckoned from the datagrams' size.
    Size,
}

/// The receive buffer. Bytes as the kernel counts them (truesize).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buffer {
    /// What the socket has (`sk_rcvbuf`, twice what was asked for); null if the
    /// socket was not described.
    pub granted_bytes: Option<u64>,
    /// What it would have to have for the worst burst seen.
    pub needed_bytes: u64,
    /// The datagrams of that.
    pub needed_datagrams: u64,
    /// What a datagram takes.
    pub truesize_bytes: u64,
    /// How that is known.
    pub truesize_basis: TruesizeBasis,
    /// The most that SO_RCVBUF can ask for (`net.core.rmem_max`); null if not
    /// known. The kernel doubles what was asked for.
    pub rmem_max_bytes: Option<u64>,
}

/// The queue of one socket. Times in seconds, rates per second, shares of what
/// was dropped, or where nothing was, of the waiting: that in busy periods with
/// a wait worth naming.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceiverQueue {
    /// The reading thread.
    pub reader: Thread,
    /// Where the socket is bound, as its sender addresses it.
    pub socket: Option<String>,
    /// Datagrams looked at, dropped ones included.
    pub datagrams: u64,
    /// Of those, dropped at the full buffer.
    pub dropped: u64,
    /// Why they wait or die.
    pub cause: ReceiverCause,
    /// The buffer.
    pub buffer: Buffer,
    /// Datagrams per second that arrived.
    pub arrival_per_s: Option<f64>,
    /// Datagrams per second read while any waited: the median over the busy
    /// periods.
    pub drain_per_s: Option<f64>,
    /// Share of the time in which the queue held anything.
    pub busy_share: f64,
    /// How late the reader came: the 0.95 quantile of the first waits.
    pub wake_up_s: f64,
    /// The longest wait.
    pub max_wait_s: f64,
    /// Between entering the stack and the socket's queue.
    pub softirq_share: f64,
    /// In periods whose reader came late.
    pub late_share: f64,
    /// The reader runnable without a CPU.
    pub run_queue_share: f64,
    /// What to do, with the numbers.
    pub advice: String,
}

/// One socket's samples in one stretch.
struct Socket<'a> {
    read: Vec<&'a Sample>,
    dropped: Vec<u64>,
    periods: Vec<Busy>,
}

impl Socket<'_> {
    /// What was dropped at it during a busy period.
    fn lost(&self, b: &Busy) -> u64 {
        let from = self.dropped.partition_point(|at| *at < b.start_ns);
        let to = self.dropped.partition_point(|at| *at <= b.end_ns);
        to.saturating_sub(from) as u64
    }
}

/// When it was there to be read.
fn arrival(s: &Sample) -> u64 {
    if s.sock_enqueue_ns == 0 { s.rx_ns } else { s.sock_enqueue_ns }
}

fn is_read(s: &Sample) -> bool {
    s.end == End::Delivered && s.rx_ns != 0 && s.app_dequeue_ns >= s.rx_ns
}

/// Diagnoses the socket that lost most, or where none lost any, waited longest
/// in all; `None` where nothing arrived.
pub fn diagnose(
    stretches: &[Stretch<'_>],
    book: &FlowBook,
    meta: &SourceMeta,
    rmem_max: Option<u64>,
) -> Option<ReceiverQueue> {
    let full =
        |s: &Sample| s.end == End::Dropped && FULL_BUFFER.contains(&meta.reason(s.drop_reason).as_str());
    let flows = socket(stretches, book, &full)?;
    let sockets: Vec<Socket<'_>> = stretches
        .iter()
        .map(|stretch| {
            let of = |s: &&&Sample| flows.contains(&s.flow);
            let mut read: Vec<&Sample> =
                stretch.samples.iter().filter(of).copied().filter(|s| is_read(s)).collect();
            read.sort_by_key(|s| s.app_dequeue_ns);
            let mut dropped: Vec<u64> =
                stretch.samples.iter().filter(of).filter(|s| full(s)).map(|s| s.drop_ns).collect();
            dropped.sort_unstable();
            let times: Vec<_> = read.iter().map(|s| (arrival(s), s.app_dequeue_ns)).collect();
            Socket { periods: busy::periods(&times), read, dropped }
        })
        .collect();
    let flow = flows.first().copied()?;
    let key = book.key(flow);
    let dropped = sockets.iter().map(|s| s.dropped.len() as u64).sum();
    let shares = Shares::of(&sockets);
    let granted = key.receiver.as_ref().map(|e| u64::from(e.buffer_bytes)).filter(|b| *b > 0);
    let first_waits = sockets.iter().flat_map(|s| &s.periods).map(|b| seconds(b.first_wait_ns));
    let mut found = ReceiverQueue {
        reader: Thread::reader(flow, book),
        socket: key.destination,
        datagrams: sockets.iter().map(|s| s.read.len() as u64).sum::<u64>() + dropped,
        dropped,
        cause: ReceiverCause::None,
        buffer: buffer(&sockets, granted, rmem_max),
        arrival_per_s: arrivals(&sockets),
        drain_per_s: drain(&sockets),
        busy_share: busy_share(&sockets),
        wake_up_s: stats::quantile(&stats::sorted(first_waits), 0.95).unwrap_or(0.0),
        max_wait_s: seconds(
            sockets.iter().flat_map(|s| &s.read).map(|s| s.app_dequeue_ns - s.rx_ns).max().unwrap_or(0),
        ),
        softirq_share: shares.softirq,
        late_share: shares.late,
        run_queue_share: shares.starved,
        advice: String::new(),
    };
    let waits =
        sockets.iter().flat_map(|s| &s.read).filter(|s| s.app_dequeue_ns - s.rx_ns >= FLOOR_NS).count();
    let all = sockets.iter().map(|s| s.read.len()).sum();
    found.cause = cause(&found, super::worth_naming(waits, all));
    found.advice = advise(&found);
    Some(found)
}

/// The flows of the socket to be looked at: those with the same destination in
/// the same namespace.
fn socket(stretches: &[Stretch<'_>], book: &FlowBook, full: &dyn Fn(&Sample) -> bool) -> Option<Vec<u64>> {
    // Drops and waiting by flow.
    let mut flows: Vec<(u64, (u64, u64))> = Vec::new();
    for s in stretches.iter().flat_map(|s| &s.samples) {
        let (lost, waited) = match (full(s), is_read(s)) {
            (true, _) => (1, 0),
            (_, true) => (0, s.app_dequeue_ns - s.rx_ns),
            _ => continue,
        };
        if let Some(sum) = super::entry(&mut flows, s.flow, 64) {
            *sum = (sum.0 + lost, sum.1.saturating_add(waited));
        }
    }
    // One socket each: where its flows are bound for, or a flow of which that
    // is not known.
    let mut sockets: Vec<(Place, Group)> = Vec::new();
    for (flow, (lost, waited)) in flows {
        let key = book.key(flow);
        let place = match key.destination {
            Some(at) => Place::Bound(at, key.receiver.map(|e| e.netns)),
            None => Place::Unknown(flow),
        };
        if let Some(group) = super::entry(&mut sockets, place, 64) {
            group.flows.push(flow);
            group.lost += lost;
            group.waited = group.waited.saturating_add(waited);
        }
    }
    sockets.into_iter().map(|s| s.1).max_by_key(|g| (g.lost, g.waited)).map(|g| g.flows)
}

#[derive(PartialEq)]
enum Place {
    Bound(String, Option<u32>),
    Unknown(u64),
}

#[derive(Default)]
struct Group {
    flows: Vec<u64>,
    lost: u64,
    waited: u64,
}

#[derive(Default)]
struct Shares {
    softirq: f64,
    late: f64,
    starved: f64,
}

impl Shares {
    /// A period counts by what was dropped in it, or where nothing was, by what
    /// it waited: a long wait that cost nothing does not explain the drops of
    /// other periods.
    fn of(sockets: &[Socket<'_>]) -> Self {
        let dropped: usize = sockets.iter().map(|s| s.dropped.len()).sum();
        let (mut all, mut sum) = (0.0, Self::default());
        for socket in sockets {
            // What was dropped elsewhere, or before the socket, is in no period.
            for b in &socket.periods {
                let samples = socket.read.get(b.range()).unwrap_or_default();
                if samples.iter().all(|s| s.app_dequeue_ns - s.rx_ns < FLOOR_NS) {
                    continue;
                }
                let (mut waited, mut softirq, mut starved) = (0.0, 0.0, 0.0);
                for s in samples {
                    waited += (s.app_dequeue_ns - s.rx_ns) as f64;
                    softirq += arrival(s).saturating_sub(s.rx_ns) as f64;
                    starved += s.reader_starved_ns as f64;
                }
                let weight = if dropped > 0 { socket.lost(b) as f64 } else { waited };
                all += weight;
                sum.softirq += weight * softirq / waited;
                sum.starved += weight * starved / waited;
                sum.late += if b.is_late_start() && b.first_wait_ns >= FLOOR_NS { weight } else { 0.0 };
            }
        }
        let all = if dropped > 0 { dropped as f64 } else { all };
        if all == 0.0 {
            return Self::default();
        }
        Self { softirq: sum.softirq / all, late: sum.late / all, starved: sum.starved / all }
    }
}

/// From the first arrival to the last, dropped datagrams included.
fn arrivals(sockets: &[Socket<'_>]) -> Option<f64> {
    let (mut n, mut ns) = (0, 0);
    for s in sockets {
        let times = || s.read.iter().map(|s| arrival(s)).chain(s.dropped.iter().copied());
        let (Some(first), Some(last)) = (times().min(), times().max()) else { continue };
        n += s.read.len() + s.dropped.len() - 1;
        ns += last - first;
    }
    (n > 0 && ns > 0).then(|| n as f64 / seconds(ns))
}

/// The median over the busy periods of ten and more.
fn drain(sockets: &[Socket<'_>]) -> Option<f64> {
    let rates = sockets.iter().flat_map(|s| {
        s.periods.iter().filter(|b| b.len >= 10).filter_map(|b| {
            let read = s.read.get(b.range())?;
            let ns = read.last()?.app_dequeue_ns.checked_sub(read.first()?.app_dequeue_ns)?;
            (ns > 0).then(|| (b.len - 1) as f64 / seconds(ns))
        })
    });
    stats::median(rates)
}

fn busy_share(sockets: &[Socket<'_>]) -> f64 {
    let (mut busy, mut all) = (0, 0);
    for s in sockets {
        let (Some(first), Some(last)) = (s.periods.first(), s.periods.last()) else { continue };
        all += last.end_ns.saturating_sub(first.start_ns);
        busy += s.periods.iter().map(|b| b.end_ns - b.start_ns).sum::<u64>();
    }
    busy as f64 / all.max(1) as f64
}

fn buffer(sockets: &[Socket<'_>], granted: Option<u64>, rmem_max: Option<u64>) -> Buffer {
    let (mut needed, mut held, mut dropped) = (0_u64, 0_u64, 0_u64);
    for s in sockets {
        for b in &s.periods {
            let lost = s.lost(b);
            needed = needed.max(b.peak as u64 + lost);
            held = held.max(if lost > 0 { b.peak as u64 } else { 0 });
            dropped += lost;
        }
    }
    let sizes = sockets.iter().flat_map(|s| &s.read).map(|s| f64::from(s.bytes));
    let reckoned = truesize(stats::quantile(&stats::sorted(sizes), 0.5).unwrap_or(0.0));
    let (truesize_bytes, truesize_basis) = match granted {
        Some(granted) if dropped > 0 && held > 0 => ((granted / held).max(1), TruesizeBasis::Drops),
        _ => (reckoned, TruesizeBasis::Size),
    };
    Buffer {
        granted_bytes: granted,
        needed_bytes: needed.saturating_mul(truesize_bytes),
        needed_datagrams: needed,
        truesize_bytes,
        truesize_basis,
        rmem_max_bytes: rmem_max,
    }
}

/// What a datagram of `l2` bytes takes of a buffer, about: a linear packet is
/// put into a power of two that holds it, 64 bytes of room before and 320 of
/// shared information behind, and its `sk_buff` has 256 (64-bit kernels since
/// 4.0). Drivers that receive into pages take up to twice that.
fn truesize(l2: f64) -> u64 {
    let head = whole(l2) + 64 + 320;
    head.next_power_of_two().max(512) + 256
}

fn cause(q: &ReceiverQueue, waits: bool) -> ReceiverCause {
    if !waits && q.dropped == 0 {
        ReceiverCause::None
    } else if q.run_queue_share > CAUSE {
        ReceiverCause::Host
    } else if q.softirq_share > CAUSE {
        ReceiverCause::Softirq
    } else if q.late_share > CAUSE {
        ReceiverCause::ReaderLate
    } else if q.busy_share > SATURATED {
        ReceiverCause::ReaderSlow
    } else if q.dropped > 0 {
        ReceiverCause::Buffer
    } else {
        ReceiverCause::Burst
    }
}

fn advise(q: &ReceiverQueue) -> String {
    let per_s = |r: Option<f64>| r.map_or_else(|| "—".to_owned(), rate);
    match q.cause {
        ReceiverCause::None => String::new(),
        ReceiverCause::Buffer => enlarge(&q.buffer),
        ReceiverCause::ReaderSlow => format!(
            "the reader takes {} and {} arrive: no buffer helps; read in larger batches (recvmmsg), do less per \
             datagram, or share the port among readers (SO_REUSEPORT)",
            per_s(q.drain_per_s),
            per_s(q.arrival_per_s)
        ),
        ReceiverCause::ReaderLate => {
            let late = format!(
                "the reader comes up to {} late: keep it from sleeping or pausing",
                time(q.wake_up_s)
            );
            if q.dropped > 0 { format!("{late}; or {}", enlarge(&q.buffer)) } else { late }
        }
        ReceiverCause::Softirq => format!(
            "{} of the waiting is before the socket: spread the device's interrupts (RPS, more queues), or keep \
             other work off that CPU",
            percent(q.softirq_share)
        ),
        ReceiverCause::Host => {
            format!(
                "{} of {} the reader had no CPU: give it one of its own",
                percent(q.run_queue_share),
                if q.dropped > 0 { "the time around the drops" } else { "the waiting" }
            )
        }
        ReceiverCause::Burst => format!(
            "bursts of up to {} datagrams queue for a reader that takes {}: pace the sender, or read faster",
            count(q.buffer.needed_datagrams),
            per_s(q.drain_per_s)
        ),
    }
}

/// SO_RCVBUF asks for half of what the kernel then grants.
fn enlarge(b: &Buffer) -> String {
    let ask = b.needed_bytes.div_ceil(2);
    let have = b.granted_bytes.map_or_else(|| "an unknown buffer".to_owned(), |g| bytes(g as f64));
    let mut text = format!(
        "the worst burst needs {} ({} datagrams) against {have}: set SO_RCVBUF to {}",
        bytes(b.needed_bytes as f64),
        count(b.needed_datagrams),
        count(ask)
    );
    if let Some(max) = b.rmem_max_bytes.filter(|max| *max < ask) {
        text += &format!(" and raise net.core.rmem_max from {} to that", count(max));
    }
    text
}
