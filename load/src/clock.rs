//! CLOCK_MONOTONIC, and waiting on it: sleep while there is time, spin for
//! the rest.
//!
//! Everything in this crate that is a time is nanoseconds of this clock, the
//! one the stamp carries and the kernel's `bpf_ktime_get_ns` reads.

use rustix::thread::ClockId;
use rustix::time::{Timespec, clock_gettime};

use crate::num::duration_ns;
use crate::stop::{POLL, Stop};

/// How long before its target a wait stops sleeping and starts to spin. A
/// timer wakes a thread of a loaded two-core machine some 60 µs late; less
/// than that makes every slot late, more burns a core for nothing.
pub const SPIN_NS: i64 = 120_000;

/// The same for a thread with real-time priority: its timers wake it at once,
/// and if it never slept the kernel would stop it for 50 ms of each second.
pub const REALTIME_SPIN_NS: i64 = 20_000;

/// Now, ns of CLOCK_MONOTONIC.
#[inline]
pub fn now_ns() -> i64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

/// Waits until `target` (ns), sleeping until `spin_ns` before it and spinning
/// from there. Returns the time read last, which is ≥ `target` unless `stop`
/// was set.
pub fn wait_until(target: i64, spin_ns: i64, stop: &Stop) -> i64 {
    let poll = duration_ns(POLL);
    loop {
        let now = now_ns();
        if now >= target || stop.is_set() {
            return now;
        }
        let sleep = target - now - spin_ns;
        if sleep > 0 {
            sleep_until(now + sleep.min(poll));
        } else {
            std::hint::spin_loop();
        }
    }
}

/// Sleeps until the given time or a signal.
fn sleep_until(ns: i64) {
    let at = Timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 };
    // Interrupted or not, the caller looks at the clock again.
    let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &at);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_at_its_target_and_not_before() {
        let target = now_ns() + 3_000_000;
        assert!(wait_until(target, SPIN_NS, &Stop::new()) >= target);
    }

    #[test]
    fn a_stop_ends_a_long_wait() {
        let stop = Stop::new();
        let other = stop.clone();
        let begin = now_ns();
        let waiter = std::thread::spawn(move || wait_until(begin + 60_000_000_000, SPIN_NS, &other));
        stop.set();
        assert!(waiter.join().unwrap() - begin < 10_000_000_000);
    }
}
