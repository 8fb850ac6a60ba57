//! How many datagrams one send call carried.
//!
//! A record says at which position of its call a datagram stood, from 0. A
//! call of n datagrams has one at each position below n, so the datagrams
//! seen at position p are the calls longer than p: counting positions gives
//! the distribution of the calls' lengths without following any call. Lost
//! records make calls look shorter, never longer.

use serde::{Deserialize, Serialize};

/// Lengths told apart: 1, 2, 4, … 1024.
pub const STEPS: usize = 11;

/// Datagrams and the calls they were sent with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendCalls {
    /// Datagrams whose send call was seen.
    pub datagrams: u64,
    /// Send calls with at least 2^i datagrams, by i.
    pub at_least: [u64; STEPS],
}

impl SendCalls {
    /// Counts a datagram at position `position` of its call, from 0.
    pub fn record(&mut self, position: u16) {
        self.datagrams = self.datagrams.saturating_add(1);
        let nth = u32::from(position) + 1;
        if nth.is_power_of_two()
            && let Some(calls) =
                usize::try_from(nth.trailing_zeros()).ok().and_then(|i| self.at_least.get_mut(i))
        {
            *calls = calls.saturating_add(1);
        }
    }

    /// Calls seen.
    pub fn calls(&self) -> u64 {
        self.at_least[0]
    }

    /// Mean datagrams per call; `None` before the first.
    #[expect(clippy::cast_precision_loss, reason = "a mean needs a few digits")]
    pub fn mean(&self) -> Option<f64> {
        (self.calls() > 0).then(|| self.datagrams as f64 / self.calls() as f64)
    }

    /// Calls of 2^i up to 2^(i+1) − 1 datagrams; the last step has all above.
    pub fn of_length(&self, step: usize) -> u64 {
        let at_least = |i: usize| self.at_least.get(i).copied().unwrap_or(0);
        at_least(step).saturating_sub(at_least(step + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn positions_give_the_lengths_of_the_calls(lengths in proptest::collection::vec(1_u16..2_000, 1..200)) {
            let mut calls = SendCalls::default();
            lengths.iter().for_each(|n| (0..*n).for_each(|p| calls.record(p)));
            prop_assert_eq!(calls.calls(), lengths.len() as u64);
            prop_assert_eq!(calls.datagrams, lengths.iter().map(|n| u64::from(*n)).sum::<u64>());
            for step in 0..STEPS {
                let longest = if step == STEPS - 1 { u16::MAX } else { (1 << (step + 1)) - 1 };
                let known = lengths.iter().filter(|n| (1 << step..=longest).contains(*n)).count();
                prop_assert_eq!(calls.of_length(step), known as u64);
            }
        }
    }

    #[test]
    fn nothing_seen_has_no_mean() {
        assert_eq!(SendCalls::default().mean(), None);
        let mut calls = SendCalls::default();
        (0..3).for_each(|p| calls.record(p));
        assert_eq!(calls.mean(), Some(3.0));
    }
}
