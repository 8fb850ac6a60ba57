//! What was asked, what was offered and what the kernel took.

use std::collections::BTreeMap;

use serde::Serialize;

use super::config::SendConfig;
use super::driver::RingReport;
use super::outlet::{DrainMark, SendTally};
use super::publish::Published;
use super::{Span, run_length};
use crate::errno;
use crate::hist::LatencyHistogram;
use crate::slope::Slope;
use crate::socket::TxSocket;

/// One stream's counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StreamReport {
    /// Its number.
    pub stream: u16,
    /// Slots that came due.
    pub due: u64,
    /// Datagrams handed over; the highest sequence plus one.
    pub offered: u64,
    /// Datagrams the kernel took; null with the driver engine, whose Sender
    /// does not tell streams apart.
    pub sent: Option<u64>,
    /// Slots given up by policy `skip`.
    pub skipped: u64,
}

/// The report of a run's sending side. Times are ns of CLOCK_MONOTONIC.
#[derive(Clone, Debug, Serialize)]
pub struct SendReport {
    /// Run id.
    pub run: u32,
    /// Stopped before its bound.
    pub interrupted: bool,
    /// The schedule's origin.
    pub start_ns: i64,
    /// Length of the whole run, ns.
    pub length_ns: i64,
    /// Length of its measured part (without the warm-up), ns.
    pub measured_ns: i64,
    /// Slots of the schedule that came due.
    pub due: u64,
    /// Datagrams the application handed over.
    pub offered: u64,
    /// Datagrams the kernel took.
    pub sent: u64,
    /// Payload bytes sent.
    pub bytes: u64,
    /// Slots given up by policy `skip`.
    pub skipped: u64,
    /// Datagrams handed over and discarded because the run was stopped.
    pub discarded: u64,
    /// Datagrams not sent because the kernel refused them, by error.
    pub refused: BTreeMap<String, u64>,
    /// Errors the network reported for datagrams sent earlier, by error.
    pub reported: BTreeMap<String, u64>,
    /// Times a send call waited in vain for room in the send buffer.
    pub blocked: u64,
    /// Send calls that succeeded.
    pub calls: u64,
    /// What the schedule asked for on average, per second; null without one.
    pub offered_per_s: Option<f64>,
    /// What was handed over in the measured time, per second.
    pub achieved_per_s: Option<f64>,
    /// There was no schedule to be late against.
    pub unthrottled: bool,
    /// Mean interval of the schedule, ns; null without one.
    pub interval_ns: Option<f64>,
    /// Offer − intended of every datagram of the measured time.
    pub send_lag: LatencyHistogram,
    /// Seconds of lag gained per second of the measured time.
    pub send_lag_slope: Option<f64>,
    /// The send lag of the streams' last datagrams, their mean, ns.
    pub final_lag_ns: Option<i64>,
    /// First offer.
    pub first_offer_ns: Option<i64>,
    /// Last offer.
    pub last_offer_ns: Option<i64>,
    /// The first send call was entered.
    pub first_send_ns: Option<i64>,
    /// The last send call returned.
    pub last_send_ns: Option<i64>,
    /// The ring of the driver engine.
    pub ring: Option<RingReport>,
    /// Streams.
    pub streams: Vec<StreamReport>,
    /// Send buffer granted, bytes as the kernel counts them (twice the usable).
    pub sndbuf: usize,
    /// The path's MTU, bytes.
    pub mtu: u32,
    /// When send calls returned, thinned out evenly; the Sender's with the
    /// driver engine, else those of the first stream.
    #[serde(skip)]
    pub marks: Vec<DrainMark>,
    #[serde(skip)]
    last_lags: Vec<i64>,
    #[serde(skip)]
    slope: Slope,
    #[serde(skip)]
    measured: u64,
    #[serde(skip)]
    schedule_ns: Option<u64>,
}

impl SendReport {
    pub(crate) fn begin(config: &SendConfig, span: Span, sockets: &[TxSocket]) -> Self {
        let interval_ns = config.schedule.interval_ns();
        // With a count, the grid is as long as that many intervals.
        let by_count = config.count.zip(interval_ns).map(|(n, i)| crate::num::round_u64(n as f64 * i));
        let by_time = config.duration.map(|d| crate::num::duration_ns(d).unsigned_abs());
        let own = config.schedule.length_ns();
        let schedule_ns = match config.schedule {
            // Several bursts are not as long as their intervals add up to.
            crate::Schedule::Bursts { .. } => [own, by_time].into_iter().flatten().min(),
            _ => [own, by_count, by_time].into_iter().flatten().min(),
        };
        Self {
            run: config.run,
            interrupted: false,
            start_ns: span.start,
            length_ns: 0,
            measured_ns: 0,
            due: 0,
            offered: 0,
            sent: 0,
            bytes: 0,
            skipped: 0,
            discarded: 0,
            refused: BTreeMap::new(),
            reported: BTreeMap::new(),
            blocked: 0,
            calls: 0,
            offered_per_s: None,
            achieved_per_s: None,
            unthrottled: config.schedule == crate::Schedule::Unthrottled,
            interval_ns,
            send_lag: LatencyHistogram::new(),
            send_lag_slope: None,
            final_lag_ns: None,
            first_offer_ns: None,
            last_offer_ns: None,
            first_send_ns: None,
            last_send_ns: None,
            ring: None,
            streams: Vec::new(),
            sndbuf: sockets.first().map_or(0, |s| s.sndbuf),
            mtu: sockets.first().map_or(0, |s| s.mtu),
            marks: Vec::new(),
            last_lags: Vec::new(),
            slope: Slope::new(span.measure),
            measured: 0,
            schedule_ns,
        }
    }

    pub(crate) fn add_stream(&mut self, p: Published, tally: Option<&SendTally>) {
        self.due += p.due;
        self.offered += p.offered;
        self.skipped += p.skipped;
        self.measured += p.measured;
        self.send_lag.merge(&p.lag);
        self.slope.merge(&p.slope);
        self.last_lags.extend(p.last_lag);
        self.first_offer_ns = earliest(self.first_offer_ns, p.first_offer);
        self.last_offer_ns = self.last_offer_ns.max(p.last_offer);
        self.streams.push(StreamReport {
            stream: p.stream,
            due: p.due,
            offered: p.offered,
            sent: tally.map(|t| t.sent),
            skipped: p.skipped,
        });
    }

    pub(crate) fn add_sent(&mut self, t: &SendTally) {
        self.sent += t.sent;
        self.bytes += t.bytes;
        self.calls += t.calls;
        self.blocked += t.blocked;
        self.discarded += t.discarded;
        for (to, from) in [(&mut self.refused, &t.refused), (&mut self.reported, &t.reported)] {
            for (code, n) in from {
                *to.entry(errno::name(*code)).or_default() += n;
            }
        }
        self.first_send_ns = earliest(self.first_send_ns, t.first_ns);
        self.last_send_ns = self.last_send_ns.max(t.last_ns);
        if self.marks.is_empty() {
            self.marks.clone_from(&t.marks);
        }
    }

    pub(crate) fn add_ring(&mut self, ring: RingReport) {
        self.ring = Some(ring);
    }

    pub(crate) fn finish(&mut self, span: Span, stopped: bool) {
        let bound = self.schedule_ns.filter(|_| !stopped);
        self.length_ns = run_length(bound, span, self.last_offer_ns);
        let ended_early = self.offered + self.skipped < self.due;
        self.interrupted = stopped
            && (ended_early || self.schedule_ns.is_none_or(|s| self.length_ns < crate::num::signed(s)));
        self.measured_ns = (self.length_ns - (span.measure - span.start)).max(0);
        let seconds = |ns: i64| ns as f64 / 1e9;
        if self.measured_ns > 0 {
            self.achieved_per_s = Some(self.measured as f64 / seconds(self.measured_ns));
        }
        let grid = self.schedule_ns.filter(|_| !stopped).map_or(self.length_ns, crate::num::signed);
        if !self.unthrottled && grid > 0 {
            self.offered_per_s = Some(self.due as f64 / seconds(grid));
        }
        let streams = i64::try_from(self.last_lags.len()).unwrap_or(1).max(1);
        self.final_lag_ns =
            (!self.last_lags.is_empty()).then(|| self.last_lags.iter().sum::<i64>() / streams);
        self.send_lag_slope = self.slope.per_second();
    }

    /// Datagrams handed over in the measured time.
    pub fn measured(&self) -> u64 {
        self.measured
    }

    /// The drain rate D of a single burst, per second, from the times at which
    /// send calls returned: what was sent after the first tenth, over the time
    /// it took. It does not depend on the dispatch rate, unlike N / longest wait,
    /// which is too high by 1 / (1 − D/P). `None` below 100 datagrams or 10 calls.
    pub fn drain_rate(&self) -> Option<f64> {
        let last = self.marks.last().filter(|_| self.marks.len() >= 10)?;
        let first = self.marks.iter().find(|m| m.sent * 10 >= last.sent)?;
        let ns = last.at_ns - first.at_ns;
        (last.sent >= 100 && ns > 0).then(|| (last.sent - first.sent) as f64 * 1e9 / ns as f64)
    }

    /// Datagrams handed over that the kernel never took.
    pub fn unsent(&self) -> u64 {
        self.offered.saturating_sub(self.sent)
    }
}

#[cfg(test)]
impl SendReport {
    /// A report of 40 s at `asked`/s to be filled in.
    pub(crate) fn for_test(asked: f64) -> Self {
        let mut config = SendConfig::new(std::net::SocketAddr::from(([127, 0, 0, 1], 9)));
        config.schedule = crate::Schedule::Constant { rate: asked };
        let mut report = Self::begin(&config, Span { start: 0, measure: 0, end: 0 }, &[]);
        (report.length_ns, report.measured_ns) = (40_000_000_000, 40_000_000_000);
        report.offered_per_s = Some(asked);
        report
    }
}

fn earliest(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    [a, b].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drain_rate_forgets_a_slow_start() {
        let mut r = SendReport::for_test(1.0);
        assert_eq!(r.drain_rate(), None);
        // 50 ms until the first call returns, then 64 datagrams each 400 µs.
        r.marks = (1..200_u32)
            .map(|i| DrainMark { at_ns: 50_000_000 + i64::from(i) * 400_000, sent: u64::from(i) * 64 })
            .collect();
        assert!((r.drain_rate().unwrap() - 160_000.0).abs() < 1.0);
    }
}
