//! What the sender queue waits for.

use super::{Seen, cause};
use crate::diagnose::sender::{SenderCause, SenderQueue};
use crate::model::question::time;
use crate::report::Finding;
use crate::view::units::{count, percent, rate};

/// The queue, if that is what it waits for.
fn waiting_for<'a>(seen: &'a Seen<'_>, why: SenderCause) -> Option<&'a SenderQueue> {
    seen.diagnosis.sender_queue.as_ref().filter(|q| q.cause == why)
}

/// Bursts beyond what the Sender drains.
pub(crate) fn sender_drain(seen: &Seen<'_>) -> Option<Finding> {
    let q = waiting_for(seen, SenderCause::Drain)?;
    let d = q.drain.as_ref()?;
    let model = q.answer.map(|a| a.max_wait_s);
    let observed = format!(
        "bursts of up to {} at {} for a Sender that drains {} (at worst {}); longest wait {}, by the model {}",
        count(q.burst),
        q.dispatch_per_s.map_or_else(|| "memory speed".to_owned(), rate),
        rate(d.typical_per_s),
        rate(d.conservative_per_s),
        time(q.measured_max_wait_s),
        model.map_or_else(|| "—".to_owned(), time),
    );
    Some(cause(
        "sender-drain",
        observed,
        "datagrams wait for the Sender's thread: the burst is larger than it drains in time",
        &q.advice,
        &[
            ("drain_typical_per_s", Some(d.typical_per_s)),
            ("drain_conservative_per_s", Some(d.conservative_per_s)),
            ("bursts", Some(q.bursts as f64)),
            ("burst", Some(q.burst as f64)),
            ("max_wait_s", Some(q.measured_max_wait_s)),
            ("model_wait_s", model),
        ],
    ))
}

/// A Sender that sleeps.
pub(crate) fn sender_start_latency(seen: &Seen<'_>) -> Option<Finding> {
    let q = waiting_for(seen, SenderCause::StartLatency)?;
    let observed = format!(
        "{} of the waiting is for the Sender to start, up to {}; once it runs it drains {}",
        percent(q.start_share),
        time(q.start_latency_s),
        q.drain.as_ref().map_or_else(|| "—".to_owned(), |d| rate(d.typical_per_s)),
    );
    Some(cause(
        "sender-start-latency",
        observed,
        "datagrams wait for a Sender that is asleep when they are offered",
        &q.advice,
        &[
            ("start_latency_s", Some(q.start_latency_s)),
            ("start_share", Some(q.start_share)),
            ("max_wait_s", Some(q.measured_max_wait_s)),
        ],
    ))
}

/// A window or ring smaller than the burst.
pub(crate) fn sender_window(seen: &Seen<'_>) -> Option<Finding> {
    let q = waiting_for(seen, SenderCause::Window)?;
    let window = q.window?;
    let observed = format!(
        "never more than {} datagrams waited, of bursts of {}; longest wait {}",
        count(window),
        count(q.burst),
        time(q.measured_max_wait_s)
    );
    Some(cause(
        "sender-window",
        observed,
        "the application's window or ring is smaller than the burst: publishers wait, not the queue",
        &q.advice,
        &[
            ("window", Some(window as f64)),
            ("burst", Some(q.burst as f64)),
            ("max_wait_s", Some(q.measured_max_wait_s)),
        ],
    ))
}
