//! How long a burst waits in front of the one thread that sends it, and how
//! it must be paced to wait no longer than a target.
//!
//! A burst of N datagrams is dispatched at rate P to a Sender that drains D
//! per second. With P > D the backlog grows to Q = N·(1 − D/P), and the last
//! datagram waits W = (N/D)·(1 − D/P). A target T permits N ≤ D·T at once;
//! a larger burst is spread over τ ≥ N/D − T, which is P ≤ N/τ. With other
//! traffic λ in the same FIFO, D − λ stands for D in the growth and D in the
//! service. A sleeping Sender adds its start latency Θ to every burst.
//!
//! Behind the Sender may stand a token bucket (r, b; L bytes a datagram): of a
//! burst that meets it full, the last waits (N·L − b)/r − (N − 1)/P. Sender
//! and bucket in a row make the last datagram wait the longer of the two
//! times, not their sum, since each works while the other does.
//!
//! In: [`Burst`] and a target. Out: [`Answer`]. `model = simulation` is a
//! property test below.

use serde::{Deserialize, Serialize};

use super::whole;

/// A burst, what drains it, and what else is in the way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// D, datagrams per second that the Sender drains.
    pub drain_per_s: f64,
    /// N, datagrams in the burst.
    pub size: u64,
    /// P, datagrams per second at which it is dispatched; `None`: all at once.
    pub dispatch_per_s: Option<f64>,
    /// Θ, how long a sleeping Sender takes to start, s.
    pub start_latency_s: f64,
    /// λ, datagrams per second of other traffic in the same FIFO.
    pub background_per_s: f64,
    /// A token bucket behind the Sender.
    pub bucket: Option<Bucket>,
    /// Bursts per second, where it comes again and again.
    pub repeats_per_s: Option<f64>,
}

/// A token bucket, full when the burst comes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// r, bytes per second.
    pub rate_byte_s: f64,
    /// b, bytes.
    pub burst_bytes: f64,
    /// L, bytes of a datagram with its Ethernet header.
    pub packet_bytes: f64,
}

/// What cannot be computed, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// A figure without sense.
    #[error("{what} must be {must}")]
    Figure {
        /// Which.
        what: &'static str,
        /// What it must be.
        must: &'static str,
    },
    /// The background alone fills the Sender.
    #[error(
        "the background is as fast as the Sender drains: its queue grows without end, whatever the burst does; \
         lower it below the drain rate"
    )]
    Saturated,
}

/// What follows for a burst and a target. Rates per second, times in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// W, the longest wait of the burst as dispatched, start latency included.
    pub max_wait_s: f64,
    /// Q, the most datagrams that wait at once for the Sender.
    pub peak_backlog: f64,
    /// Median of the waits inside the burst: they are spread evenly from Θ to W.
    pub p50_wait_s: f64,
    /// Their 0.99 quantile.
    pub p99_wait_s: f64,
    /// The largest burst that may be dispatched at once and meets the target.
    pub burst_within_target: u64,
    /// P_max, the fastest dispatch that meets the target; null where any does,
    /// 0 where none does.
    pub p_max_per_s: Option<f64>,
    /// τ, the shortest time over which to spread the burst; 0 where it need not
    /// be, null where nothing helps.
    pub spread_s: Option<f64>,
    /// Whether any dispatch meets the target: not if the Sender sleeps longer.
    pub feasible: bool,
    /// Whether repeated bursts are drained before the next; null if they do not
    /// repeat.
    pub stable: Option<bool>,
}

impl Burst {
    /// `size` datagrams at once to a Sender that drains `drain_per_s`.
    pub fn new(drain_per_s: f64, size: u64) -> Self {
        Self {
            drain_per_s,
            size,
            dispatch_per_s: None,
            start_latency_s: 0.0,
            background_per_s: 0.0,
            bucket: None,
            repeats_per_s: None,
        }
    }

    /// What follows for this burst, and for `target_s`.
    ///
    /// # Errors
    ///
    /// [`ModelError`] for figures without sense.
    pub fn answer(&self, target_s: f64) -> Result<Answer, ModelError> {
        self.check(target_s)?;
        let (size, interval) = (self.size as f64, self.interval_s());
        let max_wait_s =
            self.start_latency_s + self.sender_wait_s(interval).max(self.bucket_wait_s(interval));
        let left = target_s - self.start_latency_s;
        let feasible = left > 0.0;
        let spread = feasible.then(|| self.spread_s(left));
        let p_max_per_s = match spread {
            None => Some(0.0),
            Some(tau) if tau <= 0.0 => None,
            Some(tau) => Some(size / tau),
        };
        let inner = max_wait_s - self.start_latency_s;
        Ok(Answer {
            max_wait_s,
            peak_backlog: self.peak_backlog(interval),
            p50_wait_s: self.start_latency_s + inner * 0.5,
            p99_wait_s: self.start_latency_s + inner * 0.99,
            burst_within_target: if feasible { self.at_once(left) } else { 0 },
            p_max_per_s,
            spread_s: spread.map(|tau| tau.max(0.0)),
            feasible,
            stable: self.repeats_per_s.map(|f| self.is_stable(f)),
        })
    }

    fn check(&self, target_s: f64) -> Result<(), ModelError> {
        let above = |what, x: f64| {
            let sound = x.is_finite() && x > 0.0;
            if sound { Ok(()) } else { Err(ModelError::Figure { what, must: "a number above 0" }) }
        };
        let not_below = |what, x: f64| {
            let sound = x.is_finite() && x >= 0.0;
            if sound { Ok(()) } else { Err(ModelError::Figure { what, must: "a number, 0 or above" }) }
        };
        above("the drain rate", self.drain_per_s)?;
        above("the burst", self.size as f64)?;
        above("the target", target_s)?;
        above("the dispatch rate", self.dispatch_per_s.unwrap_or(1.0))?;
        above("the bursts per second", self.repeats_per_s.unwrap_or(1.0))?;
        not_below("the start latency", self.start_latency_s)?;
        not_below("the background", self.background_per_s)?;
        if let Some(bucket) = self.bucket {
            above("the bucket's rate", bucket.rate_byte_s)?;
            above("the datagram's size", bucket.packet_bytes)?;
            if bucket.burst_bytes.is_nan() || bucket.burst_bytes < bucket.packet_bytes {
                return Err(ModelError::Figure { what: "the bucket", must: "at least one datagram" });
            }
        }
        if self.background_per_s >= self.drain_per_s { Err(ModelError::Saturated) } else { Ok(()) }
    }

    /// 1/P; 0 at once.
    fn interval_s(&self) -> f64 {
        self.dispatch_per_s.map_or(0.0, |p| 1.0 / p)
    }

    /// What the Sender has left for the burst: D − λ.
    fn share_per_s(&self) -> f64 {
        self.drain_per_s - self.background_per_s
    }

    /// (N/D)·(1 − (D − λ)/P), not below 0.
    fn sender_wait_s(&self, interval_s: f64) -> f64 {
        (self.size as f64 / self.drain_per_s * (1.0 - self.share_per_s() * interval_s)).max(0.0)
    }

    /// (N·L − b)/r − (N − 1)/P, not below 0.
    fn bucket_wait_s(&self, interval_s: f64) -> f64 {
        let Some(b) = self.bucket else { return 0.0 };
        let over = self.size as f64 * b.packet_bytes - b.burst_bytes;
        (over / b.rate_byte_s - (self.size as f64 - 1.0) * interval_s).max(0.0)
    }

    fn peak_backlog(&self, interval_s: f64) -> f64 {
        (self.size as f64 * (1.0 - self.share_per_s() * interval_s)).max(0.0)
    }

    /// The largest burst that at once waits no longer than `left_s`.
    fn at_once(&self, left_s: f64) -> u64 {
        let sender = self.drain_per_s * left_s;
        let bucket =
            self.bucket.map_or(f64::INFINITY, |b| (b.burst_bytes + b.rate_byte_s * left_s) / b.packet_bytes);
        whole(sender.min(bucket))
    }

    /// N/P for the fastest P that waits no longer than `left_s`; 0 or less
    /// where any does.
    fn spread_s(&self, left_s: f64) -> f64 {
        let size = self.size as f64;
        let sender = (size - self.drain_per_s * left_s) / self.share_per_s();
        let bucket = self.bucket.map_or(0.0, |b| {
            let needed = (size * b.packet_bytes - b.burst_bytes) / b.rate_byte_s - left_s;
            // The last of N leaves (N − 1)/P after the first.
            if size > 1.0 { needed * size / (size - 1.0) } else { needed }
        });
        sender.max(bucket)
    }

    /// f·N ≤ D − λ, and for a bucket f·N·L ≤ r.
    fn is_stable(&self, repeats_per_s: f64) -> bool {
        let per_s = repeats_per_s * self.size as f64;
        per_s <= self.share_per_s() && self.bucket.is_none_or(|b| per_s * b.packet_bytes <= b.rate_byte_s)
    }
}

/// D where the link may be the gate: min(D, bits per second / (8·bytes)),
/// `wire_bytes` those of a datagram on the wire.
pub fn effective_drain(drain_per_s: f64, link_bit_s: f64, wire_bytes: f64) -> f64 {
    drain_per_s.min(link_bit_s / (8.0 * wire_bytes))
}

/// A rate rounded down to `digits` significant digits: advice on the safe
/// side.
pub fn round_down(x: f64, digits: i32) -> f64 {
    round(x, digits, f64::floor)
}

/// A time rounded up to `digits` significant digits: advice on the safe side.
pub fn round_up(x: f64, digits: i32) -> f64 {
    round(x, digits, f64::ceil)
}

fn round(x: f64, digits: i32, to: fn(f64) -> f64) -> f64 {
    if !x.is_finite() || x <= 0.0 {
        return x;
    }
    #[expect(clippy::cast_possible_truncation, reason = "a decimal exponent is within ±308")]
    let exponent = x.log10().floor() as i32 + 1 - digits;
    // Powers of ten are exact from 0 to 22, their inverses are not.
    let scale = |x: f64, by: i32| if by >= 0 { x * 10_f64.powi(by) } else { x / 10_f64.powi(-by) };
    // What is a whole number but for its last bits is left alone.
    let scaled = scale(x, -exponent);
    let near = scaled.round();
    let rounded = if (scaled - near).abs() <= 1e-9 * near { near } else { to(scaled) };
    scale(rounded, exponent)
}

#[cfg(test)]
#[path = "sender_queue_tests.rs"]
mod tests;
