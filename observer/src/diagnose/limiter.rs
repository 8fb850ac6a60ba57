//! The limiter on the way from measurement: which kind, which rate, which
//! bucket, and what netlink says it should be.
//!
//! In: the samples of the device that held datagrams back longest, as
//! passages from entry to exit; or, where nothing on this host did, those of
//! the way behind it, from send to receive times. Out: a [`Limiter`], part of
//! the report.

use serde::{Deserialize, Serialize};

use super::configured::{Configuration, Configured};
use super::evidence::{End, Sample, Stretch};
use crate::correlate::FlowBook;
use crate::model::level_shift::Shift;
use crate::model::one_sided::{self, OneSided};
use crate::model::question::time;
use crate::model::stats::Interval;
use crate::model::two_sided::{self, Estimate, Kind, Passage, THROTTLED_NS, TokensLost};
use crate::model::{level_shift, seconds};
use crate::view::units::{bit_rate, bytes};

/// Offered from this share of the rate on, the rate is the limit and not the
/// bucket.
const SUSTAINED: f64 = 0.95;
/// Share of the throughput lost to late timers that is worth saying.
const LOST: f64 = 0.01;
/// What was offered in a shorter time, and took more than twice as long to
/// leave, is a single burst.
const LASTING_NS: u64 = 1_000_000_000;
/// Bins in which a long fall of the rate is looked for.
const LONG_BINS: usize = 400;

/// Which times the estimate stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Entry and exit of a device on this host.
    TwoSided,
    /// Send and receive times around a way that is not seen.
    OneSided,
}

/// The device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its number in its own network namespace.
    pub ifindex: u32,
    /// That namespace, as far as it is known: the sender's.
    pub netns: Option<u32>,
}

/// 95 % intervals; null where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Intervals {
    /// Of the rate, bits per second.
    pub rate_bit_s: Option<Interval>,
    /// Where the bucket lies, bytes.
    pub burst_bytes: Option<Interval>,
}

/// A fall of the rate after seconds or minutes: credit that was used up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LongTerm {
    /// The rate before, bits per second.
    pub before_bit_s: f64,
    /// The rate since, bits per second.
    pub after_bit_s: f64,
    /// When it fell, s from the first datagram.
    pub after_s: f64,
    /// What passed beyond the later rate until then, bytes.
    pub credit_bytes: f64,
    /// Where that lies.
    pub credit_interval: Interval,
}

/// What was found. Rates in bits per second, sizes in bytes with the Ethernet
/// header, times in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limiter {
    /// The kind.
    pub kind: Kind,
    /// r.
    pub rate_bit_s: Option<f64>,
    /// b.
    pub burst_bytes: Option<f64>,
    /// T of a credit limiter.
    pub period_s: Option<f64>,
    /// Q of a credit limiter.
    pub quantum_bytes: Option<f64>,
    /// Intervals of the two.
    pub interval: Intervals,
    /// What the device's qdisc is configured to; null if not known.
    pub configured: Option<Configured>,
    /// Which times it stands on.
    pub basis: Basis,
    /// The device; null one-sided.
    pub device: Option<Device>,
    /// Datagrams looked at.
    pub passages: u64,
    /// Of those, held back.
    pub throttled: u64,
    /// The longest time one was.
    pub max_wait_s: f64,
    /// What was offered on average; null of a single burst.
    pub offered_bit_s: Option<f64>,
    /// The bucket that would have let everything through at once.
    pub needed_burst_bytes: Option<f64>,
    /// Tokens lost behind late timers.
    pub tokens_lost: Option<TokensLost>,
    /// Share of the time in which the sender stood still.
    pub stall_share: f64,
    /// Share of CPU time that the hypervisor gave to others.
    pub steal_ratio: Option<f64>,
    /// One-sided: r by the slope of the delay.
    pub slope_rate_bit_s: Option<f64>,
    /// A fall of the rate after seconds or minutes.
    pub long_term: Option<LongTerm>,
    /// What the kind rests on, or what would give more.
    pub why: String,
    /// What to do, with the numbers.
    pub advice: String,
}

impl Limiter {
    /// Where no datagram left or arrived: too little to tell.
    pub fn of_nothing() -> Self {
        advised(limiter(two_sided::estimate(&[], false, THROTTLED_NS), Basis::TwoSided))
    }

    /// Whether more than the rate was offered all the time, so that no bucket
    /// would do.
    pub fn is_sustained(&self) -> bool {
        self.offered_bit_s.zip(self.rate_bit_s).is_some_and(|(o, r)| o > SUSTAINED * r)
    }

    /// Whether more than 1 % of the throughput was lost behind late timers.
    pub fn loses_tokens(&self) -> bool {
        self.tokens_lost.is_some_and(|t| t.lost_share > LOST || self.rate_bit_s.is_none())
    }

    /// Whether it is for that alone that datagrams wait: what is offered would
    /// pass at the rate, and does not at what is left of it.
    pub fn is_losing(&self) -> bool {
        let Some(lost) = self.tokens_lost.filter(|_| self.loses_tokens()) else { return false };
        match (self.rate_bit_s, self.offered_bit_s) {
            (Some(rate), Some(offered)) => offered <= rate && offered > SUSTAINED * lost.throughput_bit_s,
            _ => true,
        }
    }

    /// `tbf 99.98 Mbit/s, bucket 32.1 kB`
    pub fn figures(&self) -> String {
        let rate = self.rate_bit_s.map(bit_rate);
        match (self.kind, rate) {
            (Kind::Tbf, Some(rate)) => match self.burst_bytes {
                Some(b) => format!("{rate}, bucket {}", bytes(b)),
                None => format!("{rate}, bucket not seen full"),
            },
            (Kind::Tbf, None) => format!(
                "bucket {}, rate hidden by late timers",
                self.burst_bytes.map_or_else(|| "—".to_owned(), bytes)
            ),
            (Kind::Credit, Some(rate)) => format!(
                "{rate}: {} every {}",
                self.quantum_bytes.map_or_else(|| "—".to_owned(), bytes),
                self.period_s.map_or_else(|| "—".to_owned(), time)
            ),
            _ => self.kind.name().to_owned(),
        }
    }
}

/// A place on the way that may hold datagrams back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// 0 where the last hop is behind a first one: it may be another's.
    netns: u32,
    ifindex: u32,
    /// The last hop; else the first.
    last: bool,
}

impl Place {
    /// The slowest hop of `s`.
    fn of(s: &Sample, book: &FlowBook) -> Option<Self> {
        if !s.hops_known || s.dev_queue_ns == 0 {
            return None;
        }
        let last = s.hops == 1 || s.slowest_ifindex == s.ifindex;
        let netns = if last && s.hops > 1 { 0 } else { book.namespaces(s.flow).0.unwrap_or(0) };
        Some(Self { netns, ifindex: s.slowest_ifindex, last })
    }
}

/// Diagnoses the way; `None` where no datagram left or arrived.
pub fn diagnose(
    stretches: &[Stretch<'_>],
    book: &FlowBook,
    configuration: &Configuration,
    steal: Option<f64>,
    pairs: bool,
) -> Option<Limiter> {
    let local = slowest(stretches, book).map(|place| two_sided(stretches, place, book, configuration, pairs));
    let found = match local {
        // Nothing is held back here: what about the way?
        Some(l) if l.kind == Kind::None => match on_the_way(stretches) {
            Some(w) if matches!(w.kind, Kind::Tbf | Kind::Credit) => Some(w),
            _ => Some(l),
        },
        Some(l) => Some(l),
        None => on_the_way(stretches),
    };
    found.map(|l| advised(Limiter { steal_ratio: steal, ..l }))
}

/// The place with most time lost on it.
fn slowest(stretches: &[Stretch<'_>], book: &FlowBook) -> Option<Place> {
    let mut places: Vec<(Place, u64)> = Vec::new();
    for s in stretches.iter().flat_map(|s| &s.samples) {
        let Some(place) = Place::of(s, book) else { continue };
        if let Some(lost) = super::entry(&mut places, place, 64) {
            *lost = s.slowest_hop_ns.saturating_add(*lost);
        }
    }
    places.into_iter().max_by_key(|p| p.1).map(|p| p.0)
}

fn two_sided(
    stretches: &[Stretch<'_>],
    place: Place,
    book: &FlowBook,
    configuration: &Configuration,
    pairs: bool,
) -> Limiter {
    let ways: Vec<(Vec<Passage>, bool)> =
        stretches.iter().map(|s| (passages(s, place, book), s.fresh)).collect();
    let qdisc = pairs || stretches.iter().flat_map(|s| &s.samples).any(|s| s.qdisc_seen);
    // The later stretch has the rate; the bucket may be in either.
    let mut estimates = ways.iter().map(|(p, fresh)| two_sided::estimate(p, *fresh, THROTTLED_NS));
    let mut found = estimates.next_back().unwrap_or_else(|| two_sided::estimate(&[], false, THROTTLED_NS));
    if let Some(first) = estimates.next() {
        found = together(first, found);
    }
    if !qdisc && found.kind != Kind::SenderStall {
        found = Estimate {
            kind: Kind::None,
            why: "no datagram passed a qdisc".to_owned(),
            rate_bit_s: None,
            rate_interval: None,
            burst_bytes: None,
            burst_interval: None,
            ..found
        };
    }
    let any_netns = || stretches.iter().flat_map(|s| &s.samples).find_map(|s| book.namespaces(s.flow).0);
    let netns = if place.netns == 0 { any_netns() } else { Some(place.netns) };
    let rate = found.rate_bit_s;
    let at = |n: u32| configuration.at(n, place.ifindex, rate);
    // A second hop may be in the sender's namespace (a bridge) or in ours.
    let configured = match netns.and_then(at) {
        Some(c) if c.rate_bit_s.is_some() || place.netns != 0 => Some(c),
        other => at(0).filter(|c| place.netns == 0 && (other.is_none() || c.rate_bit_s.is_some())).or(other),
    };
    let longest = ways.iter().map(|w| &w.0).max_by_key(|p| p.len());
    let offered = longest.and_then(|p| offered(p));
    let needed = longest.zip(rate).map(|(p, r)| needed_burst(p, r));
    let long_term = longest.and_then(|p| long_term(p));
    let device = Some(Device { ifindex: place.ifindex, netns });
    Limiter {
        configured,
        device,
        offered_bit_s: offered,
        needed_burst_bytes: needed,
        long_term,
        ..limiter(found, Basis::TwoSided)
    }
}

/// The later estimate, with what only the first could see.
fn together(first: Estimate, later: Estimate) -> Estimate {
    if matches!(later.kind, Kind::None | Kind::NotEnoughEvidence)
        && matches!(first.kind, Kind::Tbf | Kind::Credit)
    {
        return first;
    }
    if later.kind == Kind::Tbf && later.burst_bytes.is_none() && first.kind == Kind::Tbf {
        return Estimate {
            burst_bytes: first.burst_bytes,
            burst_interval: first.burst_interval,
            tokens_lost: later.tokens_lost.or(first.tokens_lost),
            why: first.why,
            ..later
        };
    }
    later
}

fn limiter(e: Estimate, basis: Basis) -> Limiter {
    Limiter {
        kind: e.kind,
        rate_bit_s: e.rate_bit_s,
        burst_bytes: e.burst_bytes,
        period_s: e.period_s,
        quantum_bytes: e.quantum_bytes,
        interval: Intervals { rate_bit_s: e.rate_interval, burst_bytes: e.burst_interval },
        configured: None,
        basis,
        device: None,
        passages: e.passages as u64,
        throttled: e.throttled as u64,
        max_wait_s: e.max_wait_s,
        offered_bit_s: None,
        needed_burst_bytes: None,
        tokens_lost: e.tokens_lost,
        stall_share: e.stall_share,
        steal_ratio: None,
        slope_rate_bit_s: None,
        long_term: None,
        why: e.why,
        advice: String::new(),
    }
}

/// The passages through `place`, by exit. Datagrams of the same flows that
/// were not seen at all its points take part with their bytes, which went
/// through it as well.
fn passages(stretch: &Stretch<'_>, place: Place, book: &FlowBook) -> Vec<Passage> {
    let here = |s: &&&Sample| Place::of(s, book) == Some(place);
    let mut flows: Vec<u64> = Vec::new();
    let mut base = u64::MAX;
    for s in stretch.samples.iter().filter(here) {
        base = base.min(s.slowest_hop_ns);
        if flows.len() < 4_096 && flows.last() != Some(&s.flow) && !flows.contains(&s.flow) {
            flows.push(s.flow);
        }
    }
    if base == u64::MAX {
        return Vec::new();
    }
    flows.sort_unstable();
    let passage = |s: &Sample| -> Option<Passage> {
        if s.end == End::Dropped && s.xmit_ns == 0 {
            return None;
        }
        let exact = Place::of(s, book) == Some(place);
        let (entry, exit) = match (exact, place.last) {
            (true, true) => (s.xmit_ns.checked_sub(s.slowest_hop_ns)?, s.xmit_ns),
            (true, false) => (s.dev_queue_ns, s.dev_queue_ns.checked_add(s.slowest_hop_ns)?),
            // Another hop was slower: this one was passed at once.
            (false, true) if s.hops_known => (s.xmit_ns.checked_sub(base)?, s.xmit_ns),
            (false, false) if s.hops_known => (s.dev_queue_ns, s.dev_queue_ns.checked_add(base)?),
            // Points are missing: it was handed over and it arrived.
            _ => (if s.dev_queue_ns == 0 { s.offer_ns } else { s.dev_queue_ns }, s.rx_ns),
        };
        (s.sender_here && entry != 0 && exit >= entry).then_some(Passage {
            entry_ns: entry,
            exit_ns: exit,
            bytes: s.bytes,
            wanted_ns: s.intended_ns,
            offered_ns: s.offer_ns,
        })
    };
    let mut found: Vec<Passage> = stretch
        .samples
        .iter()
        .filter(|s| flows.binary_search(&s.flow).is_ok())
        .filter_map(|s| passage(s))
        .collect();
    fill_sizes(&mut found);
    found.sort_by_key(|p| p.exit_ns);
    found
}

/// Datagrams first seen on their way in have no size: they get the median.
fn fill_sizes(p: &mut [Passage]) {
    if p.iter().all(|p| p.bytes != 0) {
        return;
    }
    let mut sizes: Vec<u32> = p.iter().map(|p| p.bytes).filter(|b| *b != 0).collect();
    sizes.sort_unstable();
    let median = sizes.get(sizes.len() / 2).copied().unwrap_or(0);
    for passage in p.iter_mut().filter(|p| p.bytes == 0) {
        passage.bytes = median;
    }
}

/// One-sided, over what arrived here: from the driver, or for a sender
/// elsewhere from the offer, to the receiving stack.
fn on_the_way(stretches: &[Stretch<'_>]) -> Option<Limiter> {
    let stretch = stretches.iter().max_by_key(|s| s.samples.len())?;
    let mut p: Vec<Passage> = stretch
        .samples
        .iter()
        .filter(|s| s.rx_ns != 0)
        .filter_map(|s| {
            let sent = if s.xmit_ns == 0 { s.offer_ns } else { s.xmit_ns };
            (sent != 0).then_some(Passage {
                entry_ns: sent,
                exit_ns: s.rx_ns,
                bytes: s.bytes,
                wanted_ns: s.intended_ns,
                offered_ns: s.offer_ns,
            })
        })
        .collect();
    if p.is_empty() {
        return None;
    }
    fill_sizes(&mut p);
    p.sort_by_key(|x| x.exit_ns);
    let OneSided { estimate, slope_rate_bit_s, shift } = one_sided::estimate(&p, stretch.fresh);
    let rate = estimate.rate_bit_s;
    let found = limiter(estimate, Basis::OneSided);
    Some(Limiter {
        slope_rate_bit_s,
        offered_bit_s: offered(&p),
        needed_burst_bytes: rate.map(|r| needed_burst(&p, r)),
        long_term: shift
            .filter(|s| s.burst > 8.0 * found.burst_bytes.unwrap_or(0.0))
            .map(|s| lasting(&s, rate, &p)),
        ..found
    })
}

fn lasting(shift: &Shift, rate_bit_s: Option<f64>, p: &[Passage]) -> LongTerm {
    let mean = p.iter().map(|p| f64::from(p.bytes)).sum::<f64>() / p.len().max(1) as f64;
    let bin_s = rate_bit_s.map_or(0.0, |r| 50.0 * 8.0 * mean / r);
    long(shift, bin_s)
}

fn long(shift: &Shift, bin_s: f64) -> LongTerm {
    LongTerm {
        before_bit_s: shift.before,
        after_bit_s: shift.after,
        after_s: shift.at as f64 * bin_s,
        credit_bytes: shift.burst / 8.0,
        credit_interval: shift.burst_interval.map(|b| (b / 8.0).max(0.0)),
    }
}

/// Mean rate at which `p` entered, bits per second; `None` of a single burst,
/// which has no mean: how long it is until the next one is not known.
fn offered(p: &[Passage]) -> Option<f64> {
    let entries = || p.iter().map(|p| p.entry_ns);
    let first = entries().min()?;
    let span = entries().max()?.checked_sub(first).filter(|ns| *ns > 0)?;
    let until_out = p.iter().map(|p| p.exit_ns).max()?.saturating_sub(first);
    if span < LASTING_NS && span.saturating_mul(2) < until_out {
        return None;
    }
    Some(p.iter().map(|p| 8.0 * f64::from(p.bytes)).sum::<f64>() / seconds(span))
}

/// The bucket with which nothing would have waited: the largest fill of a
/// virtual one over the entries, bytes.
fn needed_burst(p: &[Passage], rate_bit_s: f64) -> f64 {
    let mut entries: Vec<(u64, u32)> = p.iter().map(|p| (p.entry_ns, p.bytes)).collect();
    entries.sort_unstable();
    let (mut used, mut most, mut last) = (0.0_f64, 0.0_f64, 0);
    for (at, bytes) in entries {
        used = (used - rate_bit_s / 8.0 * seconds(at.saturating_sub(last))).max(0.0) + f64::from(bytes);
        most = most.max(used);
        last = at;
    }
    most
}

/// A level shift of the rate that came out while datagrams were held back
/// afterwards: seconds or minutes of credit.
fn long_term(p: &[Passage]) -> Option<LongTerm> {
    let (first, last) = (p.first()?.exit_ns, p.last()?.exit_ns);
    let span = last.checked_sub(first).filter(|ns| *ns > 2_000_000_000)?;
    let bin_ns = span.div_ceil(LONG_BINS as u64).max(50_000_000);
    let bins = usize::try_from(span / bin_ns).ok()?;
    let bin_s = seconds(bin_ns);
    let mut rates = vec![0.0; bins];
    for x in p {
        let bin = usize::try_from((x.exit_ns - first) / bin_ns).unwrap_or(usize::MAX);
        if let Some(rate) = rates.get_mut(bin) {
            *rate += 8.0 * f64::from(x.bytes) / bin_s;
        }
    }
    let shift = level_shift::find(&rates, bin_s)?;
    // A load that was lowered is no limiter: behind one, datagrams wait.
    let from = first + bin_ns * shift.at as u64;
    let (mut after, mut held) = (0_u64, 0_u64);
    for x in p.iter().filter(|x| x.exit_ns >= from) {
        after += 1;
        held += u64::from(x.exit_ns - x.entry_ns > super::FLOOR_NS);
    }
    (held * 2 > after).then(|| long(&shift, bin_s))
}

fn advised(l: Limiter) -> Limiter {
    let advice = advise(&l);
    Limiter { advice, ..l }
}

/// What to do about tokens lost; empty where none were.
pub fn against_lost_tokens(l: &Limiter) -> String {
    let Some(lost) = &l.tokens_lost else { return String::new() };
    let configured = l.configured.as_ref().and_then(|c| c.rate_bit_s).map(|r| r as f64);
    let rate = configured.or(l.rate_bit_s);
    let enough = rate.map(|r| 2.0 * r / 8.0 * lost.longest_gap_s);
    format!(
        "timers were up to {} late and the bucket lasts {}: tokens were lost, {} came through{}; {}",
        time(lost.longest_gap_s),
        time(lost.bucket_s),
        bit_rate(lost.throughput_bit_s),
        rate.map_or_else(String::new, |r| format!(" of {}", bit_rate(r))),
        enough.map_or_else(
            || "enlarge the bucket".to_owned(),
            |b| format!("a bucket of {} rides that out", bytes(b))
        )
    )
}

fn advise(l: &Limiter) -> String {
    match (l.kind, l.is_losing()) {
        (Kind::Tbf, true) => against_lost_tokens(l),
        (Kind::Tbf | Kind::Credit, _) if l.is_sustained() => format!(
            "{} are offered against {}: no bucket helps; raise the rate or send less",
            l.offered_bit_s.map_or_else(|| "—".to_owned(), bit_rate),
            l.rate_bit_s.map_or_else(|| "—".to_owned(), bit_rate)
        ),
        (Kind::Tbf, _) => match l.needed_burst_bytes {
            Some(needed) => format!(
                "bursts need a bucket of {}{}: enlarge it, or pace them to the rate",
                bytes(needed),
                l.burst_bytes.map_or_else(String::new, |b| format!(" against {}", bytes(b)))
            ),
            None => String::new(),
        },
        (Kind::Credit, _) => format!(
            "bursts wait for the next window: keep them below {} each, or pace them to the rate",
            l.quantum_bytes.map_or_else(|| "the quantum".to_owned(), bytes)
        ),
        (Kind::SenderStall, _) => {
            let steal = l.steal_ratio.filter(|s| *s > crate::diagnose::checks::host::STEAL_WARNING);
            match steal {
                Some(steal) => format!(
                    "the hypervisor took {} of the CPU time: use a larger or dedicated instance",
                    crate::view::units::percent(steal)
                ),
                None => {
                    "the sending process is taken off its CPU (a CPU quota, a suspended container or virtual \
                         machine): lift the quota, or pin it to a CPU of its own"
                        .to_owned()
                }
            }
        }
        (Kind::NotEnoughEvidence, _) => l.why.clone(),
        _ => String::new(),
    }
}
