//! Which limiter stands between an entry and an exit that were both seen.
//!
//! In: [`Passage`]s in order of exit. Out: an [`Estimate`]. The steps:
//!
//! 1. wᵢ = exit − entry − min w; a passage is throttled if wᵢ > 50 µs. Runs of
//!    throttled passages are *episodes*: the queue held something throughout.
//! 2. r̂ is the median over some 40 windows of ΔS/Δd inside the episodes, their
//!    first 5 % left out. A median, since tokens lost behind a late timer bias
//!    the end-to-end rate low; se = 1.4826·MAD/√windows.
//! 3. b̂ from a virtual bucket q = max(0, q − r̂·Δd) + L: the largest q up to a
//!    window after the first throttled passage of an episode that began with
//!    the bucket full. The median over the episodes.
//! 4. The kind by the scale of the exit gaps, not per packet:
//!    G = max(1 ms, 8·L̄/r̂). Where less than a fifth of the exit time lies in
//!    gaps above G, the output is smooth: a token bucket. Else, regular bursts
//!    (spacing T and bytes Q vary by less than 10 %) are a credit limiter with
//!    r = Q/T; bytes in proportion to the gap before, or always a bucket full,
//!    are a token bucket behind late timers; gaps before which nothing had
//!    entered are the sender's.
//!
//! What there is too little of is said ([`Kind::NotEnoughEvidence`]), with
//! what would give it.

use serde::{Deserialize, Serialize};

use super::seconds;
use super::stats::{self, Interval, median, spread, variation};

/// A wait above this is a limiter's, ns: timers and softirqs of a quiet host
/// are below.
pub const THROTTLED_NS: u64 = 50_000;
/// Throttled passages below which nothing is said about a limiter.
pub const NEEDED: usize = 200;
/// A smaller share of throttled passages needs episodes that agree.
pub const SHARE: f64 = 0.02;
/// Windows over which the rate's median is taken.
const WINDOWS: usize = 40;
/// Passages in the shortest episode looked at.
const EPISODE: usize = 20;
/// Share of the exit time in gaps below which the output is smooth.
const SMOOTH: f64 = 0.2;
/// Variation below which bursts are regular.
const REGULAR: f64 = 0.1;
/// Variation of the rate above which there is none.
const UNSTEADY: f64 = 0.5;
/// Share of the entry time in gaps above which the sender stood still.
const STALLED: f64 = 0.05;

/// One datagram through a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// It was handed to the device, ns.
    pub entry_ns: u64,
    /// It left it, ns.
    pub exit_ns: u64,
    /// Its bytes with the Ethernet header.
    pub bytes: u32,
    /// When its sender was to offer it, ns; 0 if that is not known.
    pub wanted_ns: u64,
    /// When its sender did, ns; 0 if that is not known.
    pub offered_ns: u64,
}

impl Passage {
    /// A passage of whose sender nothing is known.
    pub fn new(entry_ns: u64, exit_ns: u64, bytes: u32) -> Self {
        Self { entry_ns, exit_ns, bytes, wanted_ns: 0, offered_ns: 0 }
    }

    fn wait_ns(&self) -> u64 {
        self.exit_ns.saturating_sub(self.entry_ns)
    }

    /// Whether the sender had stood still before it, for more than half of a
    /// gap of `gap_ns` up to it: wanted before, and not offered then. Where the
    /// sender is not known, an entry that late is enough.
    fn ends_a_stall(&self, gap_ns: u64) -> bool {
        let middle = self.entry_ns.saturating_sub(gap_ns / 2);
        match (self.wanted_ns, self.offered_ns) {
            (0, _) | (_, 0) => true,
            (wanted, offered) => wanted < middle && offered >= middle,
        }
    }
}

/// What kind of limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// None: nothing is held back.
    None,
    /// A token bucket: tbf, htb, a policer that queues, or a plain link.
    Tbf,
    /// Credit by windows, as Xen's netback gives it.
    Credit,
    /// None: the sender stood still as a whole.
    SenderStall,
    /// Something that is none of these.
    Unknown,
    /// Too little was held back to tell.
    NotEnoughEvidence,
}

impl Kind {
    /// Its name in the report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Tbf => "tbf",
            Self::Credit => "credit",
            Self::SenderStall => "sender-stall",
            Self::Unknown => "unknown",
            Self::NotEnoughEvidence => "not-enough-evidence",
        }
    }
}

/// Tokens that overflowed while a timer was late.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokensLost {
    /// The longest gap between two exits while the queue held something, s.
    pub longest_gap_s: f64,
    /// b/r: a longer gap loses tokens, s.
    pub bucket_s: f64,
    /// Throughput lost to it: 1 − (end-to-end rate)/r̂, as a share.
    pub lost_share: f64,
    /// The rate that came out end to end, bits per second.
    pub throughput_bit_s: f64,
}

/// What was found. Figures that do not apply or are not known are `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// The kind.
    pub kind: Kind,
    /// r, bits per second.
    pub rate_bit_s: Option<f64>,
    /// Its 95 % interval.
    pub rate_interval: Option<Interval>,
    /// b, bytes.
    pub burst_bytes: Option<f64>,
    /// Where b lies: a datagram less to a datagram more, and the spread.
    pub burst_interval: Option<Interval>,
    /// T, s.
    pub period_s: Option<f64>,
    /// Q, bytes.
    pub quantum_bytes: Option<f64>,
    /// Tokens lost behind late timers.
    pub tokens_lost: Option<TokensLost>,
    /// Passages looked at.
    pub passages: usize,
    /// Of those, throttled.
    pub throttled: usize,
    /// The longest wait, s.
    pub max_wait_s: f64,
    /// Share of the exit time that lies in gaps above the gap scale.
    pub gap_share: f64,
    /// Share of the time in which the sender stood still.
    pub stall_share: f64,
    /// What the kind rests on, or what would give more.
    pub why: String,
}

/// A run of throttled passages.
#[derive(Clone, Copy, Debug)]
struct Episode {
    from: usize,
    to: usize,
}

/// What the steps share.
struct Work<'a> {
    p: &'a [Passage],
    /// L̄, bytes.
    mean_bytes: f64,
    throttled: usize,
    episodes: Vec<Episode>,
}

/// Identifies the limiter from `passages`, sorted by exit. `fresh` says that
/// the first of them is the first of its flow, so that a bucket is full there.
/// Waits above `threshold_ns` count as throttled ([`THROTTLED_NS`] for a local
/// device).
pub fn estimate(passages: &[Passage], fresh: bool, threshold_ns: u64) -> Estimate {
    let base = passages.iter().map(Passage::wait_ns).min().unwrap_or(0);
    let is_throttled = |p: &Passage| p.wait_ns() - base > threshold_ns;
    let throttled = passages.iter().filter(|p| is_throttled(p)).count();
    let bytes: f64 = passages.iter().map(|p| f64::from(p.bytes)).sum();
    let work = Work {
        p: passages,
        mean_bytes: bytes / (passages.len().max(1)) as f64,
        throttled,
        episodes: episodes(passages, is_throttled),
    };
    let max_wait = passages.iter().map(Passage::wait_ns).max().unwrap_or(0) - base;
    Estimate { max_wait_s: seconds(max_wait), ..work.classify(fresh) }
}

/// Where the windows of an episode begin.
fn starts(e: &Episode) -> usize {
    e.from + (e.to - e.from) / 20
}

/// Runs of throttled passages, at least [`EPISODE`] long.
fn episodes(p: &[Passage], is_throttled: impl Fn(&Passage) -> bool) -> Vec<Episode> {
    let mut found = Vec::new();
    let mut from = None;
    for i in 0..=p.len() {
        let held = p.get(i).is_some_and(&is_throttled);
        match (from, held) {
            (None, true) => from = Some(i),
            (Some(start), false) => {
                if i - start >= EPISODE {
                    found.push(Episode { from: start, to: i });
                }
                from = None;
            }
            _ => {}
        }
    }
    found
}

impl Work<'_> {
    fn classify(&self, fresh: bool) -> Estimate {
        let n = self.p.len();
        let share = self.throttled as f64 / n.max(1) as f64;
        let stall_share = self.stall_share();
        let found = |kind, why: String| Estimate { stall_share, ..self.nothing(kind, why) };
        if n < NEEDED {
            return found(Kind::NotEnoughEvidence, format!("{n} datagrams, {NEEDED} are the least"));
        }
        let rates = self.rates();
        let agree = rates.len() >= 3 && variation(&rates).is_some_and(|v| v < REGULAR);
        if share < SHARE && !(self.throttled >= NEEDED && self.episodes.len() >= 3 && agree) {
            if stall_share > STALLED {
                return found(
                    Kind::SenderStall,
                    "the sender stood still, and nothing was held back".to_owned(),
                );
            }
            let why =
                format!("{} of {n} datagrams were held back, by other things than a limiter", self.throttled);
            return found(Kind::None, why);
        }
        if self.episodes.is_empty() && share < 0.5 {
            let why = format!(
                "{} of {n} datagrams were held back, one by one and never as a queue",
                self.throttled
            );
            return found(Kind::None, why);
        }
        let rate = median(rates.iter().copied()).filter(|r| *r > 0.0);
        let (Some(rate), true) = (rate, self.throttled >= NEEDED) else {
            return found(
                Kind::NotEnoughEvidence,
                format!(
                    "{} datagrams held back, of {NEEDED} that are needed: offer more than the limiter passes for \
                     longer, after a pause",
                    self.throttled
                ),
            );
        };
        let se = spread(&rates).unwrap_or(0.0) / (rates.len() as f64).sqrt();
        let found = Estimate {
            rate_bit_s: Some(8.0 * rate),
            rate_interval: Some(Interval::around(8.0 * rate, 8.0 * 1.96 * se)),
            ..found(Kind::Unknown, String::new())
        };
        let steady = variation(&rates).is_none_or(|v| v <= UNSTEADY);
        self.by_gaps(rate, steady, fresh, found)
    }

    fn nothing(&self, kind: Kind, why: String) -> Estimate {
        Estimate {
            kind,
            rate_bit_s: None,
            rate_interval: None,
            burst_bytes: None,
            burst_interval: None,
            period_s: None,
            quantum_bytes: None,
            tokens_lost: None,
            passages: self.p.len(),
            throttled: self.throttled,
            max_wait_s: 0.0,
            gap_share: 0.0,
            stall_share: 0.0,
            why,
        }
    }

    /// Bytes per second over some [`WINDOWS`] windows inside the episodes.
    fn rates(&self) -> Vec<f64> {
        let mut lengths: Vec<usize> = self.episodes.iter().map(|e| e.to - starts(e)).collect();
        lengths.sort_unstable();
        // Many short episodes have two windows each, or one.
        let usual = lengths.get(lengths.len() / 2).map_or(0, |n| n / 2);
        let size = (lengths.iter().sum::<usize>() / WINDOWS).min(usual);
        self.rates_over(size.max(EPISODE / 2))
    }

    /// The same over windows of `size` passages.
    fn rates_over(&self, size: usize) -> Vec<f64> {
        let mut rates = Vec::new();
        for e in &self.episodes {
            let held = self.p.get(starts(e)..e.to).unwrap_or_default();
            rates.extend(held.windows(size + 1).step_by(size).filter_map(|w| {
                let (first, last) = (w.first()?, w.last()?);
                let ns = last.exit_ns.checked_sub(first.exit_ns).filter(|ns| *ns > 0)?;
                let bytes: f64 = w.iter().skip(1).map(|p| f64::from(p.bytes)).sum();
                Some(bytes / seconds(ns))
            }));
        }
        rates
    }

    fn by_gaps(&self, rate: f64, steady: bool, fresh: bool, mut found: Estimate) -> Estimate {
        let scale = (8.0 * self.mean_bytes / rate).max(1e-3);
        let gaps = self.gaps(scale);
        found.gap_share = gaps.share;
        if gaps.share < SMOOTH && !steady {
            let why = "the queue did not empty at a steady rate".to_owned();
            return Estimate { why, rate_bit_s: None, rate_interval: None, ..found };
        }
        if gaps.share < SMOOTH {
            return self.token_bucket(rate, fresh, found, "the output is smooth");
        }
        if gaps.from_outside * 2 > gaps.count {
            found.kind = Kind::SenderStall;
            found.why = "nothing had entered during most gaps of the output".to_owned();
            (found.rate_bit_s, found.rate_interval) = (None, None);
            return found;
        }
        let (Some(period), Some(quantum)) =
            (median(gaps.spacings.iter().copied()), median(gaps.bytes.iter().copied()))
        else {
            found.why = format!("{} gaps in the output are too few to tell", gaps.count);
            return found;
        };
        let regular = |values: &[f64]| variation(values).is_some_and(|v| v < REGULAR);
        if regular(&gaps.spacings) && regular(&gaps.bytes) {
            found.kind = Kind::Credit;
            (found.period_s, found.quantum_bytes) = (Some(period), Some(quantum));
            found.rate_bit_s = Some(8.0 * quantum / period);
            // The quantum is known to a datagram.
            let half = self.mean_bytes / period;
            found.rate_interval = Some(Interval::around(8.0 * quantum / period, 8.0 * half));
            found.why = format!("{} bursts of equal size at equal distance", gaps.bytes.len());
            return found;
        }
        let ratios: Vec<f64> = gaps.bytes.iter().zip(&gaps.spacings).map(|(b, s)| b / s).collect();
        if variation(&ratios).is_some_and(|v| v < 2.0 * REGULAR) {
            return self.token_bucket(rate, fresh, found, "gaps of any length, each followed by its bytes");
        }
        if regular(&gaps.bytes) {
            return self.overflowing(quantum, &gaps, found);
        }
        found.why = "gaps in the output, neither regular nor followed by their bytes".to_owned();
        (found.rate_bit_s, found.rate_interval) = (None, None);
        found
    }

    /// Steps 3 and 4 for a token bucket.
    fn token_bucket(&self, rate: f64, fresh: bool, mut found: Estimate, why: &str) -> Estimate {
        found.kind = Kind::Tbf;
        found.why = why.to_owned();
        let mut rate = rate;
        if let Some((without, se)) = self.without_losses(rate) {
            rate = without;
            found.rate_bit_s = Some(8.0 * rate);
            found.rate_interval = Some(Interval::around(8.0 * rate, 8.0 * 1.96 * se));
        }
        let largest = self.p.iter().map(|p| f64::from(p.bytes)).fold(0.0, f64::max);
        let bursts = self.bursts(rate, fresh);
        let sorted = stats::sorted(bursts);
        if let (Some(b), Some(low), Some(high)) =
            (stats::quantile(&sorted, 0.5), sorted.first(), sorted.last())
        {
            found.burst_bytes = Some(b);
            found.burst_interval = Some(Interval { low: (low - largest).max(0.0), high: high + largest });
            found.tokens_lost = self.tokens_lost(rate, b);
        } else {
            found.why += "; the bucket was never seen full: pause for b/r before offering more than r";
        }
        found
    }

    /// Where every long window holds a gap in which tokens were lost, the rate
    /// of those that hold none, with its standard error: the median over
    /// windows of 2 ms and 20 passages at least. `None` where it is no higher.
    fn without_losses(&self, rate: f64) -> Option<(f64, f64)> {
        let size = usize::try_from(super::whole(2e-3 * rate / self.mean_bytes)).ok()?;
        let rates = self.rates_over(size.max(EPISODE));
        let median = median(rates.iter().copied())?;
        let se = spread(&rates)? / (rates.len() as f64).sqrt();
        (median > 1.01 * rate && rates.len() > WINDOWS).then_some((median, se))
    }

    /// A timer so late each time that the bucket is full again: whatever the
    /// gap, a bucket follows. Its rate shows in no exit, except that the
    /// shortest gap fills it.
    fn overflowing(&self, bucket: f64, gaps: &Gaps, mut found: Estimate) -> Estimate {
        let sorted = stats::sorted(gaps.spacings.iter().copied());
        let (Some(shortest), Some(longest)) = (sorted.first().copied(), sorted.last().copied()) else {
            return found;
        };
        let span: f64 = sorted.iter().sum();
        let throughput = gaps.bytes.iter().sum::<f64>() / span;
        let at_least = bucket / shortest;
        found.kind = Kind::Tbf;
        found.burst_bytes = Some(bucket);
        found.burst_interval = Some(Interval::around(bucket, self.mean_bytes));
        (found.rate_bit_s, found.rate_interval) = (None, None);
        found.tokens_lost = Some(TokensLost {
            longest_gap_s: longest,
            bucket_s: shortest,
            lost_share: (1.0 - throughput / at_least).max(0.0),
            throughput_bit_s: 8.0 * throughput,
        });
        found.why = format!(
            "gaps of any length, each followed by a bucket: r is at least {:.0} bit/s",
            8.0 * at_least
        );
        found
    }

    /// The largest fill of the virtual bucket at the begin of each episode that
    /// found the real one full.
    fn bursts(&self, rate: f64, fresh: bool) -> Vec<f64> {
        let held = |e: &Episode| self.p.get(e.from..e.to).unwrap_or_default();
        let mut found = Vec::new();
        let Some(first) = self.episodes.first().and_then(|e| held(e).first().zip(held(e).last())) else {
            return found;
        };
        let window_ns = (first.1.exit_ns - first.0.exit_ns) / 20;
        let mut bucket = Virtual { rate, used: 0.0, last_ns: 0, told: fresh, valid: fresh };
        let mut done = 0;
        let mut fullest = 0.0_f64;
        for e in &self.episodes {
            for p in self.p.get(done..e.from).unwrap_or_default() {
                bucket.pass(p);
            }
            let valid = bucket.valid;
            let until = held(e).first().map_or(0, |p| p.exit_ns.saturating_add(window_ns));
            let mut peak = 0.0_f64;
            for p in held(e).iter().take_while(|p| p.exit_ns <= until) {
                bucket.pass(p);
                peak = peak.max(bucket.used);
            }
            fullest = fullest.max(peak);
            if valid {
                found.push(peak);
            }
            // It ends with the real bucket empty, whatever r̂ has drifted to. One
            // whose size is not known yet is given twice the time to fill.
            let size = if found.is_empty() { 2.0 * fullest } else { fullest };
            bucket = Virtual {
                rate,
                used: size,
                last_ns: held(e).last().map_or(0, |p| p.exit_ns),
                told: true,
                valid: false,
            };
            done = e.to;
        }
        found
    }

    fn tokens_lost(&self, rate: f64, burst: f64) -> Option<TokensLost> {
        let (mut bytes, mut ns, mut longest) = (0.0, 0_u64, 0);
        for e in &self.episodes {
            let held = self.p.get(e.from..e.to).unwrap_or_default();
            for pair in held.windows(2) {
                let [a, b] = pair else { continue };
                let gap = b.exit_ns.saturating_sub(a.exit_ns);
                longest = longest.max(gap);
                ns = ns.saturating_add(gap);
                bytes += f64::from(b.bytes);
            }
        }
        let bucket_s = burst / rate;
        let lost = seconds(longest) > bucket_s && ns > 0;
        lost.then(|| {
            let throughput = bytes / seconds(ns);
            TokensLost {
                longest_gap_s: seconds(longest),
                bucket_s,
                lost_share: (1.0 - throughput / rate).max(0.0),
                throughput_bit_s: 8.0 * throughput,
            }
        })
    }

    /// Share of the time up to the last entry in which the sender stood still.
    fn stall_share(&self) -> f64 {
        let (Some(first), Some(last)) = (self.p.first(), self.p.last()) else { return 0.0 };
        let span = last.entry_ns.saturating_sub(first.entry_ns);
        if span == 0 {
            return 0.0;
        }
        // 8 L̄ at the mean rate is eight mean intervals.
        let usual = span.saturating_mul(8) / self.p.len() as u64;
        let scale = usual.max(1_000_000);
        let mut stalled = 0_u64;
        for pair in self.p.windows(2) {
            let [a, b] = pair else { continue };
            let gap = b.entry_ns.saturating_sub(a.entry_ns);
            if gap > scale && b.ends_a_stall(gap) {
                stalled = stalled.saturating_add(gap);
            }
        }
        (stalled as f64 / span as f64).min(1.0)
    }

    /// The exit gaps above `scale_s` inside the episodes, and the bursts
    /// between them.
    fn gaps(&self, scale_s: f64) -> Gaps {
        let scale = super::nanoseconds(scale_s);
        let mut gaps = Gaps::default();
        let (mut in_gaps, mut in_all) = (0_u64, 0_u64);
        // An episode ends where one datagram slipped through at once, as the
        // first of a window does: gaps are looked at from the first to the last.
        let from = self.episodes.first().map_or(0, |e| e.from);
        let to = self.episodes.last().map_or(0, |e| e.to);
        let held = self.p.get(from..to).unwrap_or_default();
        let mut burst: Option<(u64, f64)> = None;
        for (i, pair) in held.windows(2).enumerate() {
            let [a, b] = pair else { continue };
            let gap = b.exit_ns.saturating_sub(a.exit_ns);
            // Between two bursts of the load there is nothing to pass.
            let idle = b.entry_ns > a.exit_ns && !b.ends_a_stall(b.entry_ns - a.exit_ns);
            in_all = in_all.saturating_add(if idle { 0 } else { gap });
            if gap > scale && !idle {
                in_gaps = in_gaps.saturating_add(gap);
                gaps.count += 1;
                let next = held.get(i..held.len().min(i + 6)).unwrap_or_default();
                gaps.from_outside += usize::from(is_covered((a.exit_ns, b.exit_ns), next));
                if let Some((start, bytes)) = burst {
                    gaps.spacings.push(seconds(b.exit_ns - start));
                    gaps.bytes.push(bytes);
                }
                burst = Some((b.exit_ns, 0.0));
            } else if idle {
                burst = None;
            }
            if let Some((_, bytes)) = &mut burst {
                *bytes += f64::from(b.bytes);
            }
        }
        gaps.share = in_gaps as f64 / in_all.max(1) as f64;
        gaps
    }
}

/// What is missing in a token bucket, as far as exits tell.
struct Virtual {
    rate: f64,
    /// q, bytes.
    used: f64,
    last_ns: u64,
    /// Where it was once is known, so that `used` = 0 means full.
    told: bool,
    /// It has been full since.
    valid: bool,
}

impl Virtual {
    fn pass(&mut self, p: &Passage) {
        let since = p.exit_ns.saturating_sub(self.last_ns);
        self.used = (self.used - self.rate * seconds(since)).max(0.0);
        self.valid |= self.told && self.used == 0.0;
        self.used += f64::from(p.bytes);
        self.last_ns = p.exit_ns;
    }
}

#[derive(Default)]
struct Gaps {
    share: f64,
    count: usize,
    /// Gaps in whose latter half the next datagram had not entered yet.
    from_outside: usize,
    /// From the start of a burst to that of the next, s.
    spacings: Vec<f64>,
    /// Bytes of each burst.
    bytes: Vec<f64>,
}

/// Whether an entry gap among the datagrams around an exit gap lies over half
/// of it: then there was nothing to let out. Behind a limiter the datagrams
/// that are next had entered long before.
fn is_covered(gap: (u64, u64), around: &[Passage]) -> bool {
    around.windows(2).any(|pair| {
        let [x, y] = pair else { return false };
        let common = gap.1.min(y.entry_ns).saturating_sub(gap.0.max(x.entry_ns));
        common > (gap.1 - gap.0) / 2 && y.ends_a_stall(y.entry_ns.saturating_sub(x.entry_ns))
    })
}

#[cfg(test)]
#[path = "two_sided_tests.rs"]
mod tests;
