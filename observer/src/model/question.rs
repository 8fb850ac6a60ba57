//! A question about a burst as a person asks it, with what may gate it besides
//! the Sender, and the answer as a person reads it.
//!
//! In: [`Question`], from the command line. Out: [`Reply`], the JSON of
//! `observer model sender-queue`; [`crate::view::model`] prints it. The advice
//! is the same sentence wherever it is given ([`advice`]).

use serde::{Deserialize, Serialize};

use super::sender_queue::{Answer, Bucket, Burst, ModelError, effective_drain, round_down, round_up};
use crate::view::units::{count, duration, rate};

/// The targets of the table, s.
pub const TARGETS_S: [f64; 6] = [0.5e-3, 1e-3, 5e-3, 10e-3, 25e-3, 50e-3];

/// A burst, its target and what stands in its way. Rates per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    /// The burst in messages, its Sender in datagrams, and what is behind.
    pub burst: Burst,
    /// T, s.
    pub target_s: f64,
    /// The link: bits per second, and bytes of a datagram on it.
    pub link: Option<(f64, f64)>,
    /// Messages the application's flow control lets be under way.
    pub window: Option<u64>,
    /// Messages that share a datagram.
    pub per_datagram: u64,
}

/// What the burst waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gate {
    /// Nothing: no wait grows.
    None,
    /// The Sender's thread.
    Sender,
    /// The link's rate, below the Sender's.
    Link,
    /// The token bucket.
    Bucket,
    /// The application's own window: what does not fit waits in the publisher,
    /// as back-pressure.
    Window,
}

/// The answer with what it rests on. Times in seconds, rates per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// D, datagrams; the link's where that is less.
    pub drain_per_s: f64,
    /// N, datagrams.
    pub burst: u64,
    /// T.
    pub target_s: f64,
    /// P; null at once.
    pub dispatch_per_s: Option<f64>,
    /// Θ.
    pub start_latency_s: f64,
    /// λ.
    pub background_per_s: f64,
    /// The bucket behind the Sender.
    pub bucket: Option<Bucket>,
    /// What follows.
    #[serde(flatten)]
    pub answer: Answer,
    /// What the burst waits for.
    pub gate: Gate,
    /// What to do, rounded to the safe side.
    pub advice: String,
    /// What else to know.
    pub notes: Vec<String>,
    /// The same burst against other targets.
    pub table: Vec<Row>,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// T, s.
    pub target_s: f64,
    /// The largest burst that may be dispatched at once.
    pub burst_within_target: u64,
    /// P_max; null where any rate will do, 0 where none.
    pub p_max_per_s: Option<f64>,
    /// τ, s; null where nothing helps.
    pub spread_s: Option<f64>,
}

impl Question {
    /// Answers it.
    ///
    /// # Errors
    ///
    /// [`ModelError`] for figures without sense.
    pub fn reply(&self) -> Result<Reply, ModelError> {
        if self.per_datagram == 0 {
            return Err(ModelError::Figure { what: "the messages per datagram", must: "1 or more" });
        }
        if self
            .link
            .is_some_and(|(bit_s, bytes)| bit_s.is_nan() || bit_s <= 0.0 || bytes.is_nan() || bytes <= 0.0)
        {
            return Err(ModelError::Figure { what: "the link", must: "a rate and a size above 0" });
        }
        let burst = self.datagrams();
        let answer = burst.answer(self.target_s)?;
        let row = |target_s: f64| {
            burst.answer(target_s).map(|a| Row {
                target_s,
                burst_within_target: a.burst_within_target,
                p_max_per_s: a.p_max_per_s,
                spread_s: a.spread_s,
            })
        };
        Ok(Reply {
            drain_per_s: burst.drain_per_s,
            burst: burst.size,
            target_s: self.target_s,
            dispatch_per_s: burst.dispatch_per_s,
            start_latency_s: burst.start_latency_s,
            background_per_s: burst.background_per_s,
            bucket: burst.bucket,
            answer,
            gate: self.gate(&burst, &answer),
            advice: advice(burst.size, self.target_s, &answer),
            notes: self.notes(&burst, &answer),
            table: TARGETS_S.into_iter().map(row).collect::<Result<_, _>>()?,
        })
    }

    /// The burst in datagrams, drained no faster than the link.
    fn datagrams(&self) -> Burst {
        let per = self.per_datagram as f64;
        let asked = self.burst;
        let drain = self
            .link
            .map_or(asked.drain_per_s, |(bit_s, bytes)| effective_drain(asked.drain_per_s, bit_s, bytes));
        Burst {
            drain_per_s: drain,
            size: asked.size.div_ceil(self.per_datagram),
            dispatch_per_s: asked.dispatch_per_s.map(|p| p / per),
            background_per_s: asked.background_per_s / per,
            ..asked
        }
    }

    fn gate(&self, burst: &Burst, answer: &Answer) -> Gate {
        let free = Burst { bucket: None, ..*burst };
        let sender = free.answer(self.target_s).map_or(0.0, |a| a.max_wait_s);
        let window = self.window.map(|w| w.div_ceil(self.per_datagram));
        if window.is_some_and(|w| (w as f64) < answer.peak_backlog) {
            Gate::Window
        } else if answer.max_wait_s <= burst.start_latency_s {
            Gate::None
        } else if answer.max_wait_s > sender {
            Gate::Bucket
        } else if burst.drain_per_s < self.burst.drain_per_s {
            Gate::Link
        } else {
            Gate::Sender
        }
    }

    fn notes(&self, burst: &Burst, answer: &Answer) -> Vec<String> {
        let mut notes = Vec::new();
        if self.per_datagram > 1 {
            notes.push(format!(
                "{} messages make {} datagrams; rates and bursts are of datagrams",
                count(self.burst.size),
                count(burst.size)
            ));
        }
        if burst.drain_per_s < self.burst.drain_per_s {
            notes.push(format!(
                "the link is the gate: {} datagrams, not {}",
                rate(burst.drain_per_s),
                rate(self.burst.drain_per_s)
            ));
        }
        if let Some(window) = self.window.map(|w| w.div_ceil(self.per_datagram))
            && (window as f64) < answer.peak_backlog
        {
            notes.push(format!(
                "the window of {} datagrams is smaller than the backlog: the Sender's queue ends at {}, the rest waits \
                 in the publisher as back-pressure",
                count(window),
                time(window as f64 / burst.drain_per_s)
            ));
        }
        if answer.stable == Some(false) {
            notes.push("the bursts come before the last is drained: the queue grows without end".to_owned());
        }
        notes
    }
}

/// What to do, in a sentence, rounded to the safe side.
pub fn advice(size: u64, target_s: f64, answer: &Answer) -> String {
    let bursts = format!("bursts of {}", count(size));
    match (answer.feasible, answer.p_max_per_s, answer.spread_s) {
        (false, ..) => format!(
            "no pace brings {bursts} under {}: the Sender takes longer than that to start; let it spin instead of sleep",
            time(target_s)
        ),
        (true, Some(p_max), Some(spread)) => format!(
            "pace {bursts} to {} or spread them over {} to stay under {}",
            rate(round_down(p_max, 3)),
            time(round_up(spread, 2)),
            time(target_s)
        ),
        _ => format!("{bursts} may be dispatched at once: they stay under {}", time(target_s)),
    }
}

/// A time as people write it: `56 ms`, not `56.0 ms`.
pub fn time(seconds: f64) -> String {
    let text = duration(super::nanoseconds(seconds));
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Question {
        Question {
            burst: Burst::new(1.6e6, 90_000),
            target_s: 1e-3,
            link: None,
            window: None,
            per_datagram: 1,
        }
    }

    #[test]
    fn the_advice_is_on_the_safe_side() {
        let reply = question().reply().unwrap();
        assert_eq!(
            reply.advice,
            "pace bursts of 90,000 to 1.62 M/s or spread them over 56 ms to stay under 1 ms"
        );
        assert_eq!((reply.gate, reply.notes.len(), reply.table.len()), (Gate::Sender, 0, 6));
        let loose = Question { target_s: 0.06, ..question() }.reply().unwrap();
        assert_eq!(loose.advice, "bursts of 90,000 may be dispatched at once: they stay under 60 ms");
        let asleep = Burst { start_latency_s: 2e-3, ..question().burst };
        let reply = Question { burst: asleep, ..question() }.reply().unwrap();
        assert!(reply.advice.starts_with("no pace brings bursts of 90,000 under 1 ms"), "{}", reply.advice);
    }

    #[test]
    fn the_gate_may_be_elsewhere() {
        let gate = |q: Question| q.reply().unwrap().gate;
        assert_eq!(gate(Question { window: Some(4_096), ..question() }), Gate::Window);
        assert_eq!(gate(Question { link: Some((1e9, 1_514.0)), ..question() }), Gate::Link);
        let slow = Burst { dispatch_per_s: Some(1e6), ..question().burst };
        assert_eq!(gate(Question { burst: slow, ..question() }), Gate::None);
        let bucket = Bucket { rate_byte_s: 12.5e6, burst_bytes: 65_536.0, packet_bytes: 202.0 };
        let behind = Burst { bucket: Some(bucket), ..question().burst };
        assert_eq!(gate(Question { burst: behind, ..question() }), Gate::Bucket);
    }

    #[test]
    fn messages_that_share_datagrams_are_counted_as_datagrams() {
        let reply = Question { per_datagram: 7, ..question() }.reply().unwrap();
        assert_eq!(reply.burst, 12_858);
        assert!(reply.notes[0].starts_with("90,000 messages make 12,858 datagrams"));
        assert!(Question { per_datagram: 0, ..question() }.reply().is_err());
        assert!(Question { link: Some((f64::NAN, 1.0)), ..question() }.reply().is_err());
    }

    #[test]
    fn the_json_has_the_names_of_the_interface() {
        let json = serde_json::to_value(question().reply().unwrap()).unwrap();
        for name in ["max_wait_s", "peak_backlog", "burst_within_target", "p_max_per_s", "spread_s", "advice"]
        {
            assert!(json.get(name).is_some(), "{name}");
        }
        let loose = serde_json::to_value(Question { target_s: 0.06, ..question() }.reply().unwrap()).unwrap();
        assert_eq!(loose["p_max_per_s"], serde_json::Value::Null);
        assert_eq!(loose["spread_s"], 0.0);
    }
}
