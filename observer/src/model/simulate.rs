//! What a queue does, datagram by datagram: the truth that closed forms and
//! estimators are held against, and what a lab's own limiters follow.
//!
//! Times are in seconds here, on any origin; sizes in bytes.

/// A FIFO with one server: departures for `arrivals` in order, each served
/// for `service_s`.
pub fn fifo(arrivals: &[f64], service_s: f64) -> Vec<f64> {
    let mut free = f64::NEG_INFINITY;
    arrivals
        .iter()
        .map(|a| {
            free = free.max(*a) + service_s;
            free
        })
        .collect()
}

/// A token bucket as tbf keeps it: tokens fill at `rate_byte_s` up to
/// `burst_bytes`; a datagram goes when there are tokens for all of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenBucket {
    /// r, bytes per second, Ethernet headers included.
    pub rate_byte_s: f64,
    /// b, bytes.
    pub burst_bytes: f64,
}

impl TokenBucket {
    /// When each of `entries` (time, bytes), in order, leaves; the bucket is
    /// full at the first. A datagram that has to wait is let go by a timer that
    /// fires `late()` seconds behind its time, and tokens that overflow
    /// meanwhile are lost, as tbf's are.
    pub fn exits(&self, entries: &[(f64, f64)], mut late: impl FnMut() -> f64) -> Vec<f64> {
        let mut tokens = self.burst_bytes;
        let mut last = entries.first().map_or(0.0, |e| e.0);
        // Nothing overtakes: the next is looked at when the one before left.
        entries
            .iter()
            .map(|(entry, bytes)| {
                let now = entry.max(last);
                let filled =
                    |at: f64, tokens: f64| (tokens + (at - last) * self.rate_byte_s).min(self.burst_bytes);
                let have = filled(now, tokens);
                let at = if have >= *bytes {
                    now
                } else {
                    now + (bytes - have) / self.rate_byte_s + late().max(0.0)
                };
                tokens = filled(at, tokens) - bytes;
                last = at;
                at
            })
            .collect()
    }
}

/// A credit limiter as Xen's netback keeps it: Q bytes every T. Credit is
/// looked at only when a datagram is larger than what remains; an idle time,
/// however long, brings one refill.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Credit {
    /// Q, bytes per window.
    pub quantum_bytes: f64,
    /// T, seconds; netback's default is 50 ms.
    pub period_s: f64,
}

/// What netback lets credit add up to, at least (bytes).
const CREDIT_CAP: f64 = 131_072.0;

impl Credit {
    /// When each of `entries` (time, bytes), in order, leaves; the credit is
    /// one quantum at the first.
    pub fn exits(&self, entries: &[(f64, f64)]) -> Vec<f64> {
        let mut run = CreditRun::new(*self, entries.first().map_or(0.0, |e| e.0));
        entries.iter().map(|(entry, bytes)| run.pass(*entry, *bytes)).collect()
    }
}

/// A credit limiter at work, one datagram after the other.
#[derive(Clone, Copy, Debug)]
pub struct CreditRun {
    credit: Credit,
    window_s: f64,
    remaining: f64,
    last_s: f64,
}

impl CreditRun {
    /// One that has a quantum of credit at `start_s`.
    pub fn new(credit: Credit, start_s: f64) -> Self {
        Self { credit, window_s: start_s, remaining: credit.quantum_bytes, last_s: start_s }
    }

    /// When the next datagram leaves that enters at `entry_s`. One larger than
    /// the credit can become leaves at the next window, as if it fitted.
    pub fn pass(&mut self, entry_s: f64, bytes: f64) -> f64 {
        let mut now = entry_s.max(self.last_s);
        if bytes > self.remaining {
            if now >= self.window_s + self.credit.period_s {
                self.refill(now);
            }
            let most = self.credit.quantum_bytes.max(CREDIT_CAP);
            while bytes.min(most) > self.remaining && self.credit.quantum_bytes > 0.0 {
                // A timer on the grid.
                self.refill(self.window_s + self.credit.period_s);
                now = now.max(self.window_s);
            }
        }
        self.remaining = (self.remaining - bytes).max(0.0);
        self.last_s = now;
        now
    }

    fn refill(&mut self, at_s: f64) {
        let quantum = self.credit.quantum_bytes;
        self.remaining = (self.remaining + quantum).min(quantum.max(CREDIT_CAP));
        self.window_s = at_s;
    }
}

/// N arrivals of a burst: `n` of them, `interval_s` apart, from 0 on.
pub fn burst(n: usize, interval_s: f64) -> Vec<f64> {
    (0..n).map(|i| i as f64 * interval_s).collect()
}

/// The most that were inside at once: arrived, and not departed.
pub fn peak_backlog(arrivals: &[f64], departures: &[f64]) -> usize {
    let mut gone = 0;
    arrivals
        .iter()
        .enumerate()
        .map(|(i, a)| {
            while departures.get(gone).is_some_and(|d| d <= a) {
                gone += 1;
            }
            i + 1 - gone
        })
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_fifo_serves_one_after_the_other() {
        assert_eq!(fifo(&[0.0, 0.0, 5.0], 1.0), [1.0, 2.0, 6.0]);
        assert_eq!(peak_backlog(&[0.0, 0.0, 5.0], &[1.0, 2.0, 6.0]), 2);
    }

    #[test]
    fn a_full_bucket_passes_b_at_once_and_then_r() {
        let bucket = TokenBucket { rate_byte_s: 1e6, burst_bytes: 10_000.0 };
        let entries = vec![(0.0, 1_000.0); 30];
        let exits = bucket.exits(&entries, || 0.0);
        assert!(exits[..10].iter().all(|d| *d == 0.0));
        assert!((exits[29] - 0.020).abs() < 1e-9, "{}", exits[29]);
    }

    #[test]
    fn tokens_that_overflow_behind_a_late_timer_are_lost() {
        // b/r = 1 ms; the timer is 4 ms late each time.
        let bucket = TokenBucket { rate_byte_s: 1e6, burst_bytes: 1_000.0 };
        let exits = bucket.exits(&vec![(0.0, 500.0); 1_000], || 0.004);
        let rate = 500_000.0 / exits[999];
        assert!(rate < 0.3e6, "{rate}");
    }

    #[test]
    fn credit_is_a_grid_of_windows_with_a_quantum_each() {
        let credit = Credit { quantum_bytes: 625_000.0, period_s: 0.05 };
        let entries: Vec<_> = (0..5_000).map(|i| (f64::from(i) * 50e-6, 1_242.0)).collect();
        let exits = credit.exits(&entries);
        let mut bursts: Vec<(f64, f64)> = Vec::new();
        for pair in exits.windows(2) {
            if pair[1] - pair[0] > 1e-3 {
                bursts.push((pair[1], 0.0));
            }
            if let Some(last) = bursts.last_mut() {
                last.1 += 1_242.0;
            }
        }
        bursts.pop();
        for pair in bursts.windows(2) {
            assert!((pair[1].0 - pair[0].0 - 0.05).abs() < 1e-9);
            assert!((pair[0].1 - 625_000.0).abs() <= 1_242.0, "{bursts:?}");
        }
        assert!(bursts.len() >= 3);
    }

    #[test]
    fn a_long_idle_time_brings_one_refill_and_the_cap() {
        // 10 Mb/s: Q = 62,500, cap 131,072: after any idle time at most what
        // was left and one quantum.
        let credit = Credit { quantum_bytes: 62_500.0, period_s: 0.05 };
        let mut entries = vec![(0.0, 1_000.0); 62];
        entries.extend(vec![(100.0, 1_000.0); 200]);
        let exits = credit.exits(&entries);
        let at_once = exits[62..].iter().filter(|d| **d < 100.001).count();
        assert_eq!(at_once, 63, "500 left and 62,500: 63 datagrams");
    }

    proptest! {
        #[test]
        fn a_token_bucket_keeps_its_invariant(
            gaps in proptest::collection::vec(0.0_f64..5e-4, 2..200), rate in 1e5_f64..1e8, burst in 2_000.0_f64..1e5, late in 0.0_f64..1e-3,
        ) {
            let mut at = 0.0;
            let entries: Vec<_> = gaps.iter().map(|g| { at += g; (at, 1_242.0) }).collect();
            let bucket = TokenBucket { rate_byte_s: rate, burst_bytes: burst };
            let exits = bucket.exits(&entries, || late);
            // Σ bytes over i..=k ≤ b + r (t_k − t_i), and nothing overtakes.
            for (i, from) in exits.iter().enumerate() {
                let mut sum = 0.0;
                for (k, to) in exits.iter().enumerate().skip(i) {
                    sum += entries[k].1;
                    prop_assert!(sum <= burst + rate * (to - from) + 1e-3);
                }
                prop_assert!(*from >= entries[i].0);
            }
            prop_assert!(exits.windows(2).all(|w| w[0] <= w[1]));
        }

        #[test]
        fn credit_never_passes_more_than_cap_and_quantum_per_window(
            gaps in proptest::collection::vec(0.0_f64..2e-3, 2..300), quantum in 2_000.0_f64..2e5,
        ) {
            let mut at = 0.0;
            let entries: Vec<_> = gaps.iter().map(|g| { at += g; (at, 1_242.0) }).collect();
            let credit = Credit { quantum_bytes: quantum, period_s: 0.05 };
            let exits = credit.exits(&entries);
            prop_assert!(exits.windows(2).all(|w| w[0] <= w[1]));
            for (i, from) in exits.iter().enumerate() {
                let within = exits[i..].iter().take_while(|d| **d < from + 0.05).count();
                prop_assert!(within as f64 * 1_242.0 <= quantum.max(CREDIT_CAP) + quantum + 1_242.0);
            }
        }
    }
}
