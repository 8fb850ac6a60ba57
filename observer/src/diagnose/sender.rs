//! The sender queue from measurement: how fast the Sender drains, how bursts
//! wait for it, and what they would have to do to wait less.
//!
//! A burst is a busy period of the Sender: from an offer that finds it idle to
//! the send that leaves nothing. In go the samples of the Sender whose
//! datagrams waited longest; out comes a [`SenderQueue`], part of the report.

use serde::{Deserialize, Serialize};

use super::evidence::{Sample, Stretch};
use super::{FLOOR_NS, Thread};
use crate::correlate::FlowBook;
use crate::model::busy::{self, Busy};
use crate::model::drain::{self, BurstDrain, Drain};
use crate::model::question::{advice, time};
use crate::model::sender_queue::{Answer, Burst};
use crate::model::{seconds, stats};
use crate::view::units::{count, percent, rate};

/// Bursts looked at: each costs a Theil–Sen slope.
const BURSTS: usize = 64;
/// Bursts told one by one.
const TOLD: usize = 16;
/// Points of the backlog over time.
const POINTS: usize = 60;
/// Share of the waiting from which on something is its cause.
const CAUSE: f64 = 0.5;

/// Late starts from which on a Sender is said to sleep.
const LATE: usize = 5;

/// What makes datagrams wait in front of the Sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SenderCause {
    /// Nothing worth naming.
    None,
    /// Bursts beyond what the Sender drains.
    Drain,
    /// The Sender was asleep when the burst came.
    StartLatency,
    /// The Sender was blocked on a full send buffer: what drains that is to
    /// blame.
    Limiter,
    /// A window or ring smaller than the burst holds the publisher back.
    Window,
    /// The Sender's thread had no CPU.
    Host,
}

/// One burst, as measured and as the model has it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BurstFit {
    /// First offer, ns.
    pub start_ns: u64,
    /// Datagrams.
    pub size: u64,
    /// P, per second; null if they were offered at one moment.
    pub dispatch_per_s: Option<f64>,
    /// D by span, per second.
    pub drain_per_s: f64,
    /// The longest wait, s.
    pub max_wait_s: f64,
    /// That of the model: start latency and (N/D)·(1 − D/P), s.
    pub model_wait_s: f64,
    /// The most that waited at once.
    pub peak_backlog: u64,
}

/// The backlog at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BacklogPoint {
    /// When, ns.
    pub at_ns: u64,
    /// The most that waited in the time up to the next point.
    pub datagrams: u64,
}

/// D for datagrams of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeDrain {
    /// Bytes with the Ethernet header.
    pub l2_bytes: u32,
    /// Bursts of it.
    pub bursts: u64,
    /// D, the median by span, per second.
    pub typical_per_s: f64,
}

/// Sizes of datagrams, bytes with the Ethernet header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// The smallest.
    pub min: u32,
    /// The median.
    pub p50: u32,
    /// The largest.
    pub max: u32,
}

/// The sender queue of one Sender. Times in seconds, rates per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SenderQueue {
    /// The sending thread.
    pub sender: Thread,
    /// Datagrams looked at.
    pub datagrams: u64,
    /// Why they wait.
    pub cause: SenderCause,
    /// D; null without a burst of a hundred.
    pub drain: Option<Drain>,
    /// N, the largest burst.
    pub burst: u64,
    /// Bursts of a hundred and more that were looked at, 64 at most.
    pub bursts: u64,
    /// P of it; null if it was offered at one moment.
    pub dispatch_per_s: Option<f64>,
    /// Θ, what the Sender takes to start: the 0.95 quantile of the first waits,
    /// of those of 1 ms and more if there are five.
    pub start_latency_s: f64,
    /// T, the wait the advice is for.
    pub target_s: f64,
    /// The longest wait measured.
    pub measured_max_wait_s: f64,
    /// What the model makes of D, N, P and Θ; absent without D.
    #[serde(flatten)]
    pub answer: Option<Answer>,
    /// P_max by the conservative D.
    pub p_max_conservative_per_s: Option<f64>,
    /// Of the waiting, share blocked on the send buffer.
    pub blocked_share: f64,
    /// Of the waiting, share in which the Sender had no CPU.
    pub run_queue_share: f64,
    /// Of the waiting, share in bursts that waited for the Sender to start.
    pub start_share: f64,
    /// Datagrams the application's window or ring holds, where it is smaller
    /// than the burst and holds the publisher back.
    pub window: Option<u64>,
    /// Mean number of datagrams in a send call.
    pub per_call: f64,
    /// Datagrams came several to a packet (GSO).
    pub segmented: bool,
    /// Sizes of the datagrams.
    pub l2_bytes: Sizes,
    /// D by size, where bursts were of one size each and sizes differ.
    pub by_size: Vec<SizeDrain>,
    /// The bursts that waited longest, in order of time.
    pub slowest_bursts: Vec<BurstFit>,
    /// The backlog over time.
    pub backlog: Vec<BacklogPoint>,
    /// What to do, rounded to the safe side.
    pub advice: String,
}

/// The samples of one Sender in one stretch, by send time.
struct Sender<'a> {
    samples: Vec<&'a Sample>,
    times: Vec<(u64, u64)>,
    periods: Vec<Busy>,
}

impl<'a> Sender<'a> {
    fn of(stretch: &Stretch<'a>, tid: u32) -> Self {
        let mut samples: Vec<&Sample> =
            stretch.samples.iter().filter(|s| s.tx_tid == tid && waits(s)).copied().collect();
        samples.sort_by_key(|s| s.dev_queue_ns);
        let times: Vec<(u64, u64)> = samples.iter().map(|s| (s.offer_ns, s.dev_queue_ns)).collect();
        let periods = busy::periods(&times);
        Self { samples, times, periods }
    }

    fn times(&self, b: &Busy) -> &[(u64, u64)] {
        self.times.get(b.range()).unwrap_or_default()
    }

    fn samples(&self, b: &Busy) -> &[&'a Sample] {
        self.samples.get(b.range()).unwrap_or_default()
    }
}

/// Whether its wait for the Sender is known.
fn waits(s: &Sample) -> bool {
    s.sender_here && s.tx_tid != 0 && s.offer_ns != 0 && s.dev_queue_ns >= s.offer_ns
}

/// Diagnoses the Sender whose datagrams waited longest in all; `None` where no
/// datagram left this host.
pub fn diagnose(stretches: &[Stretch<'_>], book: &FlowBook, target_s: f64) -> Option<SenderQueue> {
    let (tid, flow) = slowest(stretches)?;
    let senders: Vec<Sender<'_>> = stretches.iter().map(|s| Sender::of(s, tid)).collect();
    let mut bursts: Vec<(BurstDrain, BurstFit, Option<u32>)> = Vec::new();
    let mut windows = Vec::new();
    for (sender, b) in largest_bursts(&senders) {
        let Some(of) = drain::of_burst(sender.times(b)) else { continue };
        windows.extend(drain::windows(sender.times(b), crate::model::nanoseconds(target_s)));
        let fit = BurstFit {
            start_ns: b.start_ns,
            size: of.size as u64,
            dispatch_per_s: of.dispatch_per_s,
            drain_per_s: of.span_per_s,
            max_wait_s: of.max_wait_s,
            model_wait_s: seconds(b.first_wait_ns),
            peak_backlog: b.peak as u64,
        };
        bursts.push((of, fit, one_size(sender.samples(b))));
    }
    let of: Vec<BurstDrain> = bursts.iter().map(|b| b.0).collect();
    let drain = drain::of_bursts(&of, &windows);
    let largest = bursts.iter().map(|b| b.1).max_by_key(|b| b.size);
    let start_latency_s = start_latency(&senders);
    let model = |drain_per_s: f64, size: u64, dispatch_per_s: Option<f64>, start_latency_s: f64| {
        let burst = Burst { dispatch_per_s, start_latency_s, ..Burst::new(drain_per_s, size) };
        burst.answer(target_s).ok()
    };
    if let Some(d) = &drain {
        for (_, fit, _) in &mut bursts {
            let answer = model(d.typical_per_s, fit.size, fit.dispatch_per_s, fit.model_wait_s);
            fit.model_wait_s = answer.map_or(fit.model_wait_s, |a| a.max_wait_s);
        }
    }
    let answer = drain
        .as_ref()
        .zip(largest)
        .and_then(|(d, b)| model(d.typical_per_s, b.size, b.dispatch_per_s, start_latency_s));
    let careful = drain
        .as_ref()
        .zip(largest)
        .and_then(|(d, b)| model(d.conservative_per_s, b.size, b.dispatch_per_s, start_latency_s));
    let shares = Shares::of(&senders);
    let window = window(&senders);
    let mut found = SenderQueue {
        sender: Thread::sender(tid, flow, book),
        datagrams: senders.iter().map(|s| s.samples.len() as u64).sum(),
        cause: SenderCause::None,
        burst: largest.map_or(0, |b| b.size),
        bursts: bursts.len() as u64,
        dispatch_per_s: largest.and_then(|b| b.dispatch_per_s),
        start_latency_s,
        target_s,
        measured_max_wait_s: seconds(longest(&senders)),
        answer,
        p_max_conservative_per_s: careful.and_then(|a| a.p_max_per_s),
        blocked_share: shares.blocked,
        run_queue_share: shares.starved,
        start_share: shares.start,
        window,
        per_call: per_call(&senders),
        segmented: senders.iter().flat_map(|s| &s.samples).any(|s| s.segmented),
        l2_bytes: sizes(&senders),
        by_size: by_size(&bursts),
        slowest_bursts: told(bursts.into_iter().map(|b| b.1).collect()),
        backlog: backlog(&senders),
        drain,
        advice: String::new(),
    };
    let all = || senders.iter().flat_map(|s| &s.samples);
    let late = all().filter(|s| s.dev_queue_ns - s.offer_ns >= FLOOR_NS).count();
    found.cause = cause(&found, super::worth_naming(late, all().count()));
    found.advice = advise(&found);
    Some(found)
}

/// The largest bursts, at most [`BURSTS`], largest first. Ten of them apart,
/// only those of at least half of the largest: a publisher that is interrupted
/// leaves pieces, which say less of the rate, and nothing behind a full bucket.
fn largest_bursts<'a, 's>(senders: &'s [Sender<'a>]) -> Vec<(&'s Sender<'a>, &'s Busy)> {
    let mut all: Vec<_> = senders.iter().flat_map(|s| s.periods.iter().map(move |b| (s, b))).collect();
    all.retain(|(_, b)| b.len >= drain::SMALLEST);
    all.sort_by_key(|(_, b)| std::cmp::Reverse(b.len));
    let most = all.first().map_or(0, |(_, b)| b.len);
    let whole = all.partition_point(|(_, b)| 2 * b.len >= most);
    all.truncate(whole.clamp(drain::BURSTS, BURSTS));
    all
}

/// The thread with the longest waits in all, and one of its flows.
fn slowest(stretches: &[Stretch<'_>]) -> Option<(u32, u64)> {
    let mut threads: Vec<(u32, (u64, u64))> = Vec::new();
    for s in stretches.iter().flat_map(|s| &s.samples).filter(|s| waits(s)) {
        if let Some((waited, flow)) = super::entry(&mut threads, s.tx_tid, 64) {
            *waited = waited.saturating_add(s.dev_queue_ns - s.offer_ns);
            *flow = s.flow;
        }
    }
    threads.into_iter().max_by_key(|t| t.1.0).map(|(tid, (_, flow))| (tid, flow))
}

fn longest(senders: &[Sender<'_>]) -> u64 {
    senders.iter().flat_map(|s| &s.periods).map(|b| b.max_wait_ns).max().unwrap_or(0)
}

/// Bursts that waited for the Sender to start, and for long enough to be
/// worth naming.
fn late_starts<'a>(senders: &'a [Sender<'_>]) -> impl Iterator<Item = &'a Busy> {
    let all = senders.iter().flat_map(|s| &s.periods);
    all.filter(|b| b.is_late_start() && b.first_wait_ns >= FLOOR_NS)
}

/// The 0.95 quantile of the first waits: of those worth naming if there are
/// enough of them, s.
fn start_latency(senders: &[Sender<'_>]) -> f64 {
    let firsts: Vec<f64> = if late_starts(senders).count() >= LATE {
        late_starts(senders).map(|b| seconds(b.first_wait_ns)).collect()
    } else {
        senders.iter().flat_map(|s| &s.periods).map(|b| seconds(b.first_wait_ns)).collect()
    };
    stats::quantile(&stats::sorted(firsts), 0.95).unwrap_or(0.0)
}

/// Where the waiting goes, over the busy periods with a wait worth naming.
#[derive(Default)]
struct Shares {
    blocked: f64,
    starved: f64,
    start: f64,
}

impl Shares {
    fn of(senders: &[Sender<'_>]) -> Self {
        let (mut all, mut blocked, mut starved, mut start) = (0.0, 0.0, 0.0, 0.0);
        for sender in senders {
            for b in sender.periods.iter().filter(|b| b.max_wait_ns >= FLOOR_NS) {
                let mut waited = 0.0;
                for s in sender.samples(b) {
                    waited += (s.dev_queue_ns - s.offer_ns) as f64;
                    blocked += s.blocked_ns as f64;
                    starved += s.sender_starved_ns as f64;
                }
                all += waited;
                let late = b.is_late_start() && b.first_wait_ns >= FLOOR_NS;
                start += if late { waited } else { 0.0 };
            }
        }
        if all == 0.0 {
            return Self::default();
        }
        // One late start is an accident.
        let start = if late_starts(senders).count() >= LATE { start } else { 0.0 };
        Self { blocked: blocked / all, starved: starved / all, start: start / all }
    }
}

/// The most datagrams that waited, where that was less than half of the burst
/// and the publisher was then let go on only as fast as the Sender drained.
fn window(senders: &[Sender<'_>]) -> Option<u64> {
    let largest = |s: &Sender<'_>| s.periods.iter().copied().max_by_key(|b| b.len);
    let (sender, b) = senders.iter().filter_map(|s| Some((s, largest(s)?))).max_by_key(|x| x.1.len)?;
    if b.peak < 32 || b.len < 2 * b.peak || b.max_wait_ns < FLOOR_NS {
        return None;
    }
    let times = sender.times(&b);
    let rate = |from: usize, to: usize| {
        let (a, z) = (times.get(from)?.0, times.get(to)?.0);
        Some((to - from) as f64 / seconds(z.checked_sub(a)?.max(1)))
    };
    let filled = rate(0, b.peak / 2)?;
    let held = rate(b.peak, b.len - 1)?;
    // Held back means that it was to be offered earlier.
    let late =
        sender.samples(&b).iter().skip(b.peak).filter(|s| s.intended_ns + FLOOR_NS < s.offer_ns).count();
    (filled > 2.0 * held && late * 2 > b.len - b.peak).then_some(b.peak as u64)
}

fn cause(q: &SenderQueue, waits: bool) -> SenderCause {
    if !waits {
        SenderCause::None
    } else if q.blocked_share > CAUSE {
        SenderCause::Limiter
    } else if q.run_queue_share > CAUSE {
        SenderCause::Host
    } else if q.start_share > CAUSE {
        SenderCause::StartLatency
    } else if q.window.is_some() {
        SenderCause::Window
    } else if q.bursts > 0 {
        SenderCause::Drain
    } else {
        SenderCause::None
    }
}

fn advise(q: &SenderQueue) -> String {
    match (q.cause, &q.answer, &q.drain) {
        (SenderCause::None, ..) => String::new(),
        (SenderCause::Limiter, ..) => format!(
            "the Sender is not slow, it is blocked: {} of the waiting is for room in the send buffer behind the \
             limiter; raise the limiter's rate or offer less",
            percent(q.blocked_share)
        ),
        (SenderCause::Host, ..) => format!(
            "{} of the waiting the Sender had no CPU: give it one of its own",
            percent(q.run_queue_share)
        ),
        (SenderCause::StartLatency, ..) => format!(
            "the Sender takes up to {} to start: let it spin or yield instead of sleeping, or sleep for less",
            time(q.start_latency_s)
        ),
        (SenderCause::Window, _, Some(d)) => format!(
            "the window of {} datagrams is smaller than the burst: publishers are held back to the drain rate of \
             {}; a larger one only moves the wait into the queue",
            count(q.window.unwrap_or(0)),
            rate(d.typical_per_s)
        ),
        (_, Some(answer), _) => advice(q.burst, q.target_s, answer),
        _ => String::new(),
    }
}

fn per_call(senders: &[Sender<'_>]) -> f64 {
    let (mut datagrams, mut calls) = (0_u64, 0_u64);
    for s in senders.iter().flat_map(|s| &s.samples) {
        datagrams += 1;
        calls += u64::from(s.batch_pos == 0);
    }
    datagrams as f64 / calls.max(1) as f64
}

fn sizes(senders: &[Sender<'_>]) -> Sizes {
    let mut all: Vec<u32> = senders.iter().flat_map(|s| &s.samples).map(|s| s.bytes).collect();
    all.sort_unstable();
    match (all.first(), all.get(all.len() / 2), all.last()) {
        (Some(min), Some(p50), Some(max)) => Sizes { min: *min, p50: *p50, max: *max },
        _ => Sizes::default(),
    }
}

/// The size of all of a burst's datagrams, if they have one.
fn one_size(samples: &[&Sample]) -> Option<u32> {
    let first = samples.first()?.bytes;
    samples.iter().all(|s| s.bytes == first).then_some(first)
}

fn by_size(bursts: &[(BurstDrain, BurstFit, Option<u32>)]) -> Vec<SizeDrain> {
    let mut found: Vec<(u32, Vec<f64>)> = Vec::new();
    for (of, _, size) in bursts {
        let Some(size) = size else { continue };
        if let Some(rates) = super::entry(&mut found, *size, 16) {
            rates.push(of.span_per_s);
        }
    }
    if found.len() < 2 {
        return Vec::new();
    }
    found.sort_by_key(|f| f.0);
    found
        .into_iter()
        .filter_map(|(l2_bytes, rates)| {
            let bursts = rates.len() as u64;
            Some(SizeDrain { l2_bytes, bursts, typical_per_s: stats::median(rates)? })
        })
        .collect()
}

/// The bursts that waited longest, in order of time.
fn told(mut bursts: Vec<BurstFit>) -> Vec<BurstFit> {
    bursts.sort_by(|a, b| b.max_wait_s.total_cmp(&a.max_wait_s));
    bursts.truncate(TOLD);
    bursts.sort_by_key(|b| b.start_ns);
    bursts
}

/// The most that waited in each of [`POINTS`] parts of the last stretch.
fn backlog(senders: &[Sender<'_>]) -> Vec<BacklogPoint> {
    let Some(sender) = senders.iter().rev().find(|s| !s.times.is_empty()) else { return Vec::new() };
    let start = sender.periods.first().map_or(0, |b| b.start_ns);
    let end = sender.times.last().map_or(start, |t| t.1);
    let step = ((end - start.min(end)) / POINTS as u64).max(1);
    let mut points: Vec<BacklogPoint> = (0..POINTS as u64)
        .map(|i| BacklogPoint { at_ns: start.saturating_add(i * step), datagrams: 0 })
        .collect();
    let mut gone = 0;
    for (i, (offer, _)) in sender.times.iter().enumerate() {
        while sender.times.get(gone).is_some_and(|t| t.1 <= *offer) {
            gone += 1;
        }
        let part = usize::try_from(offer.saturating_sub(start) / step).unwrap_or(usize::MAX);
        if let Some(point) = points.get_mut(part.min(POINTS - 1)) {
            point.datagrams = point.datagrams.max((i + 1).saturating_sub(gone) as u64);
        }
    }
    points
}
