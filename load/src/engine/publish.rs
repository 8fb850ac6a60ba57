//! A publisher: walks its slots, takes the offer time of each datagram at the
//! moment it hands it over, and records the send lag of every one.

use observer_ebpf::stamp::Stamp;

use super::Span;
use super::config::SendConfig;
use crate::clock;
use crate::hist::LatencyHistogram;
use crate::pace::{Next, Pacer};
use crate::slope::Slope;
use crate::stop::Stop;

/// What a publisher hands its datagrams to.
pub(crate) trait Taker {
    /// Takes one datagram; false if the run was stopped before it could.
    fn take(&mut self, stamp: &Stamp) -> bool;
    /// Nothing more is due for a while: do not hold anything back.
    fn settle(&mut self);
}

/// What one publisher did.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) stream: u16,
    /// Slots that came due.
    pub(crate) due: u64,
    /// Datagrams handed over.
    pub(crate) offered: u64,
    /// Of those, from the start of the measured time on.
    pub(crate) measured: u64,
    /// Slots given up by policy `skip`.
    pub(crate) skipped: u64,
    /// Offer − intended, over the measured time.
    pub(crate) lag: LatencyHistogram,
    pub(crate) slope: Slope,
    pub(crate) last_lag: Option<i64>,
    pub(crate) first_offer: Option<i64>,
    pub(crate) last_offer: Option<i64>,
}

/// One stream, ready to start.
#[derive(Debug)]
pub(crate) struct Publisher {
    run: u32,
    stream: u16,
    span: Span,
    spin_ns: i64,
    pacer: Pacer,
}

impl Publisher {
    pub(crate) fn new(config: &SendConfig, stream: u16, span: Span) -> Self {
        let slots = config.schedule.slots(stream, config.streams, config.count);
        let tolerance = config.schedule.tolerance_ns();
        let pacer = Pacer::new(slots, span.start, span.end, config.catch_up, tolerance);
        Self { run: config.run, stream, span, spin_ns: config.spin_ns, pacer }
    }

    /// Runs until the slots or the time are used up, or `stop` is set.
    pub(crate) fn run(mut self, taker: &mut impl Taker, stop: &Stop) -> Published {
        let mut out = Published {
            stream: self.stream,
            due: 0,
            offered: 0,
            measured: 0,
            skipped: 0,
            lag: LatencyHistogram::new(),
            slope: Slope::new(self.span.measure),
            last_lag: None,
            first_offer: None,
            last_offer: None,
        };
        let mut now = clock::now_ns();
        loop {
            let intended = match self.pacer.next(now) {
                Next::Due(intended) => Some(intended),
                Next::Free => None,
                Next::Wait(until) => {
                    // `now` is the last offer's time: look again before settling.
                    now = clock::now_ns();
                    if now < until {
                        taker.settle();
                        now = clock::wait_until(until, self.spin_ns, stop);
                    }
                    if stop.is_set() {
                        break;
                    }
                    continue;
                }
                Next::End => break,
            };
            now = clock::now_ns();
            let stamp = Stamp::new(self.run, self.stream, out.offered, intended.unwrap_or(now), now);
            if !taker.take(&stamp) {
                break;
            }
            out.offered += 1;
            out.first_offer.get_or_insert(now);
            out.last_offer = Some(now);
            if now >= self.span.measure {
                out.measured += 1;
                if let Some(intended) = intended {
                    out.lag.record(now - intended);
                    out.slope.add(now, now - intended);
                    out.last_lag = Some(now - intended);
                }
            }
            // The unthrottled have no waits in which to look.
            if out.offered.is_multiple_of(256) && stop.is_set() {
                break;
            }
        }
        taker.settle();
        out.skipped = self.pacer.skipped();
        out.due = self.pacer.finish(clock::now_ns());
        out
    }
}
