//! Which waits explain what was dropped.

use super::*;
use crate::source::synthetic;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// What happens at a socket, in order of time.
#[derive(Default)]
struct Story {
    samples: Vec<Sample>,
}

impl Story {
    /// `n` datagrams a microsecond apart from `at_ns` on, read one by one from
    /// `wait_ns` later on, all of that without a CPU if `starved`.
    fn burst(&mut self, at_ns: u64, n: u64, wait_ns: u64, starved: bool) {
        self.samples.extend((0..n).map(|i| {
            let arrived = at_ns + i * US;
            let read = at_ns + wait_ns + i * US;
            Sample {
                rx_ns: arrived,
                sock_enqueue_ns: arrived,
                app_dequeue_ns: read,
                reader_starved_ns: if starved { read - arrived } else { 0 },
                bytes: 202,
                end: End::Delivered,
                ..Sample::default()
            }
        }));
    }

    /// `n` datagrams dropped at the full buffer at `at_ns`.
    fn dropped(&mut self, at_ns: u64, n: u64) {
        let full = |name: &String| FULL_BUFFER.contains(&name.as_str());
        let meta = synthetic::meta();
        let (reason, _) = meta.reasons.iter().find(|(_, name)| full(name)).unwrap();
        let lost = Sample {
            rx_ns: at_ns,
            drop_ns: at_ns,
            drop_reason: *reason,
            end: End::Dropped,
            ..Sample::default()
        };
        self.samples.extend((0..n).map(|_| lost));
    }

    fn told(&self) -> ReceiverQueue {
        let samples = self.samples.iter().collect();
        let stretch = Stretch { samples, fresh: true };
        diagnose(&[stretch], &FlowBook::default(), &synthetic::meta(), Some(212_992)).unwrap()
    }
}

/// Nine bursts that overflow the buffer although they are read at once, and
/// one that does not, whose reader waited for a CPU for 5 ms.
#[test]
fn a_long_wait_that_cost_nothing_does_not_explain_the_drops_of_others() {
    let mut story = Story::default();
    for i in 0..9 {
        story.burst(i * 100 * MS, 60, 200 * US, false);
        story.dropped(i * 100 * MS + 40 * US, 200);
    }
    story.burst(950 * MS, 60, 5 * MS, true);
    let q = story.told();
    assert_eq!((q.cause, q.dropped), (ReceiverCause::Buffer, 1_800), "{q:?}");
    assert_eq!((q.run_queue_share, q.late_share, q.softirq_share), (0.0, 0.0, 0.0));
    assert!(q.advice.contains("set SO_RCVBUF"), "{}", q.advice);
}

/// The same, with the drops in the burst whose reader had no CPU.
#[test]
fn drops_while_the_reader_had_no_cpu_are_the_hosts() {
    let mut story = Story::default();
    for i in 0..9 {
        story.burst(i * 100 * MS, 60, 200 * US, false);
    }
    story.burst(950 * MS, 60, 5 * MS, true);
    story.dropped(952 * MS, 1_800);
    let q = story.told();
    assert_eq!((q.cause, q.dropped), (ReceiverCause::Host, 1_800), "{q:?}");
    assert!(q.run_queue_share > 0.99 && q.advice.contains("the time around the drops"), "{q:?}");
}

/// Many datagrams are read at once, and a reader that sleeps now and then is
/// as late as it was then.
#[test]
fn a_reader_that_sleeps_now_and_then_is_as_late_as_it_was_then() {
    let mut story = Story::default();
    for i in 0..200 {
        story.burst(i * MS, 1, 10 * US, false);
    }
    story.burst(300 * MS, 60, 120 * MS, false);
    let q = story.told();
    assert_eq!(q.cause, ReceiverCause::ReaderLate, "{q:?}");
    assert_eq!(q.wake_up_s, 0.12);
    assert!(q.advice.contains("up to 120 ms late"), "{}", q.advice);
}

/// Without drops the waiting itself is what is explained, and the longest has
/// most of it.
#[test]
fn without_drops_the_waiting_is_weighed() {
    let mut story = Story::default();
    for i in 0..9 {
        story.burst(i * 100 * MS, 60, 200 * US, false);
    }
    story.burst(950 * MS, 60, 5 * MS, true);
    let q = story.told();
    assert_eq!((q.cause, q.dropped), (ReceiverCause::Host, 0), "{q:?}");
}
