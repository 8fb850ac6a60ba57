//! Credit per window: the rule by which Xen's netback limits a guest's rate,
//! as arithmetic on given times.
//!
//! A quantum Q of bytes per period T. Credit is looked at only when a packet
//! is larger than what is left: then, if a period has passed since the window
//! began, the window begins now and Q is added once, however long the idle
//! time was; otherwise, or if that is still not enough, nothing leaves until
//! the window's end, when Q is added and the next window begins *at that end*:
//! in a backlog the refills lie on a grid that does not drift. Credit never
//! exceeds the larger of Q and 128 KiB.
//!
//! In netback (Linux, `drivers/net/xen-netback/netback.c`,
//! `tx_credit_exceeded` and `tx_add_credit`) time is counted in jiffies; here
//! in ns.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Credit never grows beyond this or the quantum, whichever is larger: a
/// packet of 128 KiB must be able to leave.
const LEAST_CAP: u64 = 131_072;

/// What is to be limited to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreditConfig {
    /// Q, bytes added per period.
    pub quantum_bytes: u64,
    /// T.
    pub period: Duration,
}

impl CreditConfig {
    /// Netback's default period.
    pub const PERIOD: Duration = Duration::from_millis(50);

    /// The quantum of a rate at netback's default period of 50 ms: 625,000
    /// bytes at 100 Mbit/s, 62,500 at 10.
    pub fn of_rate(bit_per_s: u64) -> Self {
        Self { quantum_bytes: bit_per_s / 8 / 20, period: Self::PERIOD }
    }
}

/// Whether a packet may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Now; it has been paid for.
    Now,
    /// Not before this time, ns; ask again then.
    At(u64),
}

/// The credit of one sender.
#[derive(Clone, Copy, Debug)]
pub struct Credit {
    quantum: u64,
    period_ns: u64,
    remaining: u64,
    window_start_ns: u64,
    timer_ns: Option<u64>,
}

impl Credit {
    /// With a full quantum, in a window that began at `now_ns`.
    pub fn new(config: CreditConfig, now_ns: u64) -> Self {
        let period = u64::try_from(config.period.as_nanos()).unwrap_or(u64::MAX);
        Self {
            quantum: config.quantum_bytes.max(1),
            period_ns: period.max(1),
            remaining: config.quantum_bytes,
            window_start_ns: now_ns,
            timer_ns: None,
        }
    }

    /// Asks for `bytes` at `now_ns`, which does not step back.
    pub fn ask(&mut self, now_ns: u64, bytes: u64) -> Release {
        if let Some(due) = self.timer_ns {
            if now_ns < due {
                return Release::At(due);
            }
            // The timer's callback: its window was begun when it was set.
            self.timer_ns = None;
            self.refill();
        }
        if bytes > self.remaining {
            let end = self.window_start_ns.saturating_add(self.period_ns);
            if now_ns >= end {
                self.window_start_ns = now_ns;
                self.refill();
            }
            if bytes > self.remaining {
                // As in netback, the timer is set to the end computed before a
                // refill: one that is past fires at once.
                self.window_start_ns = end;
                self.timer_ns = Some(end);
                // A packet larger than the cap would wait for ever; netback
                // splits none either, and its cap is larger than any.
                return if bytes > self.cap() { self.oversize(bytes) } else { Release::At(end.max(now_ns)) };
            }
        }
        self.remaining -= bytes;
        Release::Now
    }

    /// Credit left, bytes.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    fn cap(&self) -> u64 {
        self.quantum.max(LEAST_CAP)
    }

    fn refill(&mut self) {
        self.remaining = self.remaining.saturating_add(self.quantum).min(self.cap());
    }

    /// Lets what can never be paid for pass for all there is.
    fn oversize(&mut self, bytes: u64) -> Release {
        self.remaining = self.remaining.saturating_sub(bytes);
        self.timer_ns = None;
        Release::Now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// Sends a backlog of `count` packets from `start`, asking again exactly
    /// when told; the release times.
    fn drain(credit: &mut Credit, start: u64, count: usize, bytes: u64) -> Vec<u64> {
        let mut now = start;
        (0..count)
            .map(|_| {
                loop {
                    match credit.ask(now, bytes) {
                        Release::Now => return now,
                        Release::At(at) => {
                            assert!(at >= now, "the time to ask again has not passed");
                            now = at;
                        }
                    }
                }
            })
            .collect()
    }

    fn bursts(times: &[u64]) -> Vec<(u64, usize)> {
        times.chunk_by(|a, b| a == b).map(|c| (c[0], c.len())).collect()
    }

    #[test]
    fn quanta_of_the_rates_of_the_models() {
        assert_eq!(CreditConfig::of_rate(100_000_000).quantum_bytes, 625_000);
        assert_eq!(CreditConfig::of_rate(10_000_000).quantum_bytes, 62_500);
    }

    #[test]
    fn a_backlog_leaves_a_quantum_at_a_time_on_a_grid() {
        let mut credit = Credit::new(CreditConfig::of_rate(100_000_000), 1_000);
        // 503 packets of 1,242 bytes fit in 625,000; the 274 bytes left over
        // are lost at the next refill, since Q is the cap.
        let seen = bursts(&drain(&mut credit, 7 * MS, 2_400, 1_242));
        let starts: Vec<u64> = seen.iter().map(|b| b.0).collect();
        assert_eq!(starts, [7 * MS, 50 * MS + 1_000, 100 * MS + 1_000, 150 * MS + 1_000, 200 * MS + 1_000]);
        assert_eq!(seen.iter().map(|b| b.1).collect::<Vec<_>>(), [503, 503, 503, 503, 388]);
        // Below the cap it is carried over: 50.3 packets per window.
        let mut credit = Credit::new(CreditConfig::of_rate(10_000_000), 1_000);
        let seen = bursts(&drain(&mut credit, 7 * MS, 255, 1_242));
        assert_eq!(seen.iter().map(|b| b.1).collect::<Vec<_>>(), [50, 50, 50, 51, 50, 4]);
    }

    #[test]
    fn after_an_idle_time_there_is_one_refill_and_the_cap_holds() {
        let mut credit = Credit::new(CreditConfig::of_rate(10_000_000), 0);
        assert_eq!(credit.remaining(), 62_500);
        // Nothing is added while there is enough.
        assert_eq!(credit.ask(10_000 * MS, 62_000), Release::Now);
        assert_eq!(credit.remaining(), 500);
        // The window began long ago: it begins anew here, with one quantum.
        assert_eq!(credit.ask(10_001 * MS, 1_242), Release::Now);
        assert_eq!(credit.remaining(), 500 + 62_500 - 1_242);
        // A packet of two windows' credit: the timer set for a window's end
        // that is past fires at once, and gives up to the cap.
        let mut credit = Credit::new(CreditConfig::of_rate(10_000_000), 0);
        assert_eq!(drain(&mut credit, 500 * MS, 1, 131_072), [500 * MS]);
        assert_eq!(credit.remaining(), 0);
    }

    #[test]
    fn a_late_timer_does_not_move_the_grid() {
        let mut credit =
            Credit::new(CreditConfig { quantum_bytes: 1_000, period: Duration::from_millis(50) }, 0);
        assert_eq!(credit.ask(0, 1_000), Release::Now);
        assert_eq!(credit.ask(1, 1_000), Release::At(50 * MS));
        assert_eq!(credit.ask(53 * MS, 1_000), Release::Now, "three milliseconds late");
        assert_eq!(credit.ask(54 * MS, 1_000), Release::At(100 * MS));
    }

    #[test]
    fn what_can_never_be_paid_for_does_not_block_for_ever() {
        let mut credit = Credit::new(CreditConfig::of_rate(10_000_000), 0);
        assert_eq!(credit.ask(0, 200_000), Release::Now);
        assert_eq!(credit.remaining(), 0);
    }

    proptest! {
        /// In any backlog no more leaves by any time than the first credit and
        /// a quantum per period since, plus the one refill that the window in
        /// progress may give at the start; and no less than all but a packet
        /// of what was paid for.
        #[test]
        fn a_backlog_gets_its_rate_and_no_more(
            quantum in 2_000_u64..700_000, period_ms in 1_u64..100, bytes in 64_u64..1_500,
            start in 0_u64..1_000_000_000, windows in 3_usize..12,
        ) {
            let period = Duration::from_millis(period_ms);
            let mut credit = Credit::new(CreditConfig { quantum_bytes: quantum, period }, 0);
            let count = usize::try_from(quantum / bytes).unwrap() * windows;
            let times = drain(&mut credit, start, count, bytes);
            prop_assert!(times.is_sorted());
            let period_ns = period_ms * MS;
            for (i, t) in times.iter().enumerate() {
                let sent = (i as u64 + 1) * bytes;
                let elapsed = (t - start) / period_ns + 1;
                prop_assert!(sent <= quantum * (elapsed + 1), "{sent} bytes after {elapsed} periods");
            }
            let all = bursts(&times);
            for pair in all.windows(2).skip(1) {
                prop_assert!((pair[1].0 - pair[0].0).is_multiple_of(period_ns) || pair[1].0 - pair[0].0 <= period_ns);
            }
            // Between the second burst and the last one the mean is Q / T, within a packet.
            if let [_, second, .., last] = all[..] {
                let sent: usize = all[1..all.len() - 1].iter().map(|b| b.1).sum();
                let periods = (last.0 - second.0) / period_ns;
                let expected = quantum * periods;
                // Near the cap and above, what is left over may be lost each time.
                let lost = if quantum + bytes > LEAST_CAP { bytes * periods } else { 0 };
                let off = (sent as u64 * bytes).abs_diff(expected);
                prop_assert!(off <= bytes + lost, "{sent} x {bytes} in {periods} x {quantum}");
            }
        }
    }
}
