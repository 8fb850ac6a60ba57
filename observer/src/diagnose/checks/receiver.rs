//! What datagrams wait for, or die of, in front of their reader.

use super::{Seen, cause};
use crate::diagnose::receiver::{ReceiverCause, ReceiverQueue};
use crate::model::question::time;
use crate::report::Finding;
use crate::view::units::{bytes, count, percent, rate};

/// The queue, if that is its cause.
fn because<'a>(seen: &'a Seen<'_>, why: ReceiverCause) -> Option<&'a ReceiverQueue> {
    seen.diagnosis.receiver_queue.as_ref().filter(|q| q.cause == why)
}

fn evidence(q: &ReceiverQueue) -> [(&'static str, Option<f64>); 7] {
    [
        ("dropped", Some(q.dropped as f64)),
        ("needed_bytes", Some(q.buffer.needed_bytes as f64)),
        ("granted_bytes", q.buffer.granted_bytes.map(|b| b as f64)),
        ("drain_per_s", q.drain_per_s),
        ("arrival_per_s", q.arrival_per_s),
        ("busy_share", Some(q.busy_share)),
        ("wake_up_s", Some(q.wake_up_s)),
    ]
}

fn at(q: &ReceiverQueue) -> String {
    q.socket.as_ref().map_or_else(String::new, |s| format!(" at {s}"))
}

/// The buffer does not hold the burst.
pub(crate) fn receive_buffer(seen: &Seen<'_>) -> Option<Finding> {
    let q = because(seen, ReceiverCause::Buffer)?;
    let observed = format!(
        "{} dropped{}; the worst burst needs {}, the socket has {}",
        count(q.dropped),
        at(q),
        bytes(q.buffer.needed_bytes as f64),
        q.buffer.granted_bytes.map_or_else(|| "—".to_owned(), |b| bytes(b as f64))
    );
    let means = "the receive buffer is too small for the bursts; the reader keeps up on average";
    Some(cause("receive-buffer", observed, means, &q.advice, &evidence(q)))
}

/// The reader takes longer for a datagram than they are apart.
pub(crate) fn reader_slow(seen: &Seen<'_>) -> Option<Finding> {
    let q = because(seen, ReceiverCause::ReaderSlow)?;
    let per_s = |r: Option<f64>| r.map_or_else(|| "—".to_owned(), rate);
    let observed = format!(
        "{} arrive{} and {} are read; the queue holds something {} of the time; {} dropped",
        per_s(q.arrival_per_s),
        at(q),
        per_s(q.drain_per_s),
        percent(q.busy_share),
        count(q.dropped)
    );
    let means = "the reader is too slow for the load: its queue stays full";
    Some(cause("reader-slow", observed, means, &q.advice, &evidence(q)))
}

/// The reader comes late.
pub(crate) fn reader_late(seen: &Seen<'_>) -> Option<Finding> {
    let q = because(seen, ReceiverCause::ReaderLate)?;
    let observed = format!(
        "{} of the {}{} comes of a late reader, up to {}; once there it reads {}; {} dropped",
        percent(q.late_share),
        if q.dropped > 0 { "loss" } else { "waiting" },
        at(q),
        time(q.max_wait_s),
        q.drain_per_s.map_or_else(|| "—".to_owned(), rate),
        count(q.dropped)
    );
    let means = "the reader is asleep, or busy with something else, when datagrams come";
    Some(cause("reader-late", observed, means, &q.advice, &evidence(q)))
}

/// Bursts queue for a reader that works them off.
pub(crate) fn reader_burst(seen: &Seen<'_>) -> Option<Finding> {
    let q = because(seen, ReceiverCause::Burst)?;
    let observed = format!(
        "up to {} datagrams wait{}, up to {}, for a reader that takes {}",
        count(q.buffer.needed_datagrams),
        at(q),
        time(q.max_wait_s),
        q.drain_per_s.map_or_else(|| "—".to_owned(), rate)
    );
    Some(cause("reader-burst", observed, "bursts come faster than they are read", &q.advice, &evidence(q)))
}

/// The time is lost before the socket.
pub(crate) fn softirq(seen: &Seen<'_>) -> Option<Finding> {
    let q = because(seen, ReceiverCause::Softirq)?;
    let observed = format!(
        "{} of the waiting is before the socket's queue, up to {}",
        percent(q.softirq_share),
        time(q.max_wait_s)
    );
    let means = "the kernel is late with what has arrived: its backlog or softirq, not the reader";
    Some(cause(
        "receive-softirq",
        observed,
        means,
        &q.advice,
        &[("softirq_share", Some(q.softirq_share)), ("max_wait_s", Some(q.max_wait_s))],
    ))
}
