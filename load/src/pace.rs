//! From a grid of intended times to the moment a slot may be offered: what
//! happens to a slot that is late is the catch-up policy's business, and is
//! the same whatever engine carries the datagram.

use serde::Serialize;

use crate::num::signed;
use crate::schedule::Slots;

/// What to do with slots that are late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CatchUp {
    /// Offer them at once, as fast as possible.
    #[default]
    Burst,
    /// Offer them at no more than twice the scheduled rate.
    Capped,
    /// Give up those later than [`Schedule::tolerance_ns`](crate::Schedule::tolerance_ns), and count them.
    Skip,
}

/// A lag up to which `capped` does not start its gate anew, ns: the rate is
/// capped on the scale of this, not between neighbours.
const CAP_SLACK_NS: i64 = 100_000;

/// What a publisher is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Offer the slot with this intended time, now.
    Due(i64),
    /// Offer now; there is no schedule.
    Free,
    /// Nothing to offer before this time.
    Wait(i64),
    /// No further slot.
    End,
}

/// One stream's way along its slots.
#[derive(Debug)]
pub struct Pacer {
    slots: Slots,
    start: i64,
    end: i64,
    policy: CatchUp,
    tolerance: i64,
    /// The next slot's intended time, and when the policy lets it go.
    head: Option<(i64, i64)>,
    last_intended: i64,
    taken: u64,
    skipped: u64,
}

impl Pacer {
    /// Starts along `slots` at `start`; slots intended at `end` or later are
    /// not part of the run, and nothing is offered from then on.
    pub fn new(slots: Slots, start: i64, end: i64, policy: CatchUp, tolerance: i64) -> Self {
        let mut pacer = Self {
            slots,
            start,
            end,
            policy,
            tolerance,
            head: None,
            last_intended: start,
            taken: 0,
            skipped: 0,
        };
        pacer.advance(start);
        pacer
    }

    fn advance(&mut self, previous_gate: i64) {
        self.head = self.slots.next().map(|offset| {
            let intended = self.start.saturating_add(signed(offset));
            let gate = match self.policy {
                CatchUp::Capped => intended.max(previous_gate + (intended - self.last_intended) / 2),
                CatchUp::Burst | CatchUp::Skip => intended,
            };
            self.last_intended = intended;
            (intended, gate)
        });
    }

    /// What to do at `now`. [`Next::Due`] and [`Next::Free`] use the slot up.
    #[inline]
    pub fn next(&mut self, now: i64) -> Next {
        if now >= self.end {
            return Next::End;
        }
        loop {
            let Some((intended, gate)) = self.head else { return Next::End };
            if self.slots.is_free() {
                if now < self.start {
                    return Next::Wait(self.start);
                }
                self.taken += 1;
                self.advance(now);
                return Next::Free;
            }
            if intended >= self.end {
                return Next::End;
            }
            if gate > now {
                return Next::Wait(gate.min(self.end));
            }
            self.taken += 1;
            if self.policy == CatchUp::Skip && now - intended > self.tolerance {
                self.skipped += 1;
                self.advance(now);
                continue;
            }
            // A gate far in the past is a stall that is over: start anew from here.
            self.advance(if now - gate > CAP_SLACK_NS { now } else { gate });
            return Next::Due(intended);
        }
    }

    /// Slots given up so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Ends the run at `now` (or at its end, if that was earlier): the number
    /// of slots that were due by then, used up or not.
    pub fn finish(self, now: i64) -> u64 {
        if self.slots.is_free() {
            return self.taken;
        }
        let limit = now.min(self.end);
        let held = u64::from(self.head.is_some_and(|(intended, _)| intended < limit));
        let rest = match u64::try_from(limit.saturating_sub(self.start)) {
            Ok(offset) if held > 0 => self.slots.count_before(offset),
            _ => 0,
        };
        self.taken + held + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Schedule;
    use proptest::prelude::*;

    /// Drives a pacer through a stall: a publisher that needs `cost` ns per
    /// datagram and stands still from `stall.0` for `stall.1` ns.
    fn drive(
        policy: CatchUp,
        rate: f64,
        end: i64,
        cost: i64,
        stall: (i64, i64),
    ) -> (Vec<(i64, i64)>, u64, u64) {
        let s = Schedule::Constant { rate };
        let mut pacer = Pacer::new(s.slots(0, 1, None), 0, end, policy, s.tolerance_ns());
        let (mut now, mut out) = (0, Vec::new());
        loop {
            if (stall.0..stall.0 + stall.1).contains(&now) {
                now = stall.0 + stall.1;
            }
            match pacer.next(now) {
                Next::Due(intended) => {
                    out.push((intended, now));
                    now += cost;
                }
                Next::Wait(t) => now = t,
                Next::Free => unreachable!(),
                Next::End => break,
            }
        }
        let skipped = pacer.skipped();
        (out, skipped, pacer.finish(now))
    }

    const MS: i64 = 1_000_000;

    #[test]
    fn burst_offers_everything_and_keeps_the_intended_times() {
        let (out, skipped, due) = drive(CatchUp::Burst, 10_000.0, 100 * MS, 1_000, (20 * MS, 30 * MS));
        assert_eq!((out.len(), skipped, due), (1000, 0, 1000));
        // The whole stall shows: the slot intended at its start waits 30 ms.
        let worst = out.iter().map(|(i, t)| t - i).max().unwrap();
        assert_eq!(worst, 30 * MS);
        // Caught up at cost 1 µs: 300 slots in 0.3 ms, and some 3 more meanwhile.
        let after = out.iter().filter(|(_, t)| (50 * MS..50 * MS + MS / 2).contains(t)).count();
        assert!(after >= 300, "{after}");
    }

    #[test]
    fn capped_catches_up_at_twice_the_rate() {
        let (out, skipped, _) = drive(CatchUp::Capped, 10_000.0, 100 * MS, 1_000, (20 * MS, 30 * MS));
        assert_eq!(skipped, 0);
        let in_window = out.iter().filter(|(_, t)| (51 * MS..61 * MS).contains(t)).count();
        assert!((195..=205).contains(&in_window), "{in_window} in 10 ms at 2 x 100");
        // 300 behind, gaining 100 per 10 ms: level again 30 ms after the stall.
        let lag = |at: i64| out.iter().rfind(|(_, t)| *t <= at).map(|(i, t)| t - i).unwrap();
        assert!(lag(79 * MS) > MS / 2 && lag(81 * MS) < MS / 2, "{} {}", lag(79 * MS), lag(81 * MS));
    }

    #[test]
    fn skip_gives_up_what_is_late_and_counts_it() {
        let (out, skipped, due) = drive(CatchUp::Skip, 10_000.0, 100 * MS, 1_000, (20 * MS, 30 * MS));
        assert_eq!(out.len() as u64 + skipped, due);
        assert_eq!(due, 1000);
        // 30 ms at 100 µs, less the ten intervals of tolerance.
        assert!((288..=291).contains(&skipped), "{skipped}");
        assert!(out.iter().all(|(i, t)| t - i <= MS));
    }

    #[test]
    fn the_slots_not_reached_are_still_due() {
        // 1 M/s asked, 10 µs each: a tenth is offered, and the lag identity holds.
        let (out, _, due) = drive(CatchUp::Burst, 1e6, 100 * MS, 10_000, (-1, 0));
        assert_eq!((out.len(), due), (10_000, 100_000));
        let (i, t) = out.last().unwrap();
        let identity = (1.0 - 0.1) * 100.0 * MS as f64;
        assert!(((t - i) as f64 / identity - 1.0).abs() < 0.001);
    }

    proptest! {
        #[test]
        fn nothing_is_early_and_every_slot_is_accounted_for(
            policy in prop_oneof![Just(CatchUp::Burst), Just(CatchUp::Capped), Just(CatchUp::Skip)],
            rate in 1e3..1e5f64, cost in 100i64..200_000, at in 0i64..20_000_000, stall in 0i64..20_000_000,
        ) {
            let (out, skipped, due) = drive(policy, rate, 50 * MS, cost, (at, stall));
            prop_assert!(out.iter().all(|(i, t)| t >= i));
            prop_assert!(out.is_sorted());
            let asked = Schedule::Constant { rate }.slots(0, 1, None).count_before(50 * MS as u64);
            prop_assert_eq!(due, asked);
            prop_assert!(out.len() as u64 + skipped <= due);
        }
    }
}
