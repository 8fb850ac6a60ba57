//! Threads that do not wait for a CPU because of other work on the machine.
//!
//! A scenario is to show the queue it was made for, not that a compiler runs
//! beside it. A nice value does not help: where the scheduler groups tasks by
//! session (autogroup), it counts within the session only. So the threads of
//! a scenario run in the real-time class, and in it the ones that empty
//! queues go before those that fill them. None of them spins, so that
//! ordinary work goes on between bursts.

use rustix::process::setpriority_process;
use rustix::system::uname;

/// From here on a runnable ksoftirqd no longer keeps others from processing
/// packets. Before, a real-time sender would starve it, and with it the
/// receiver.
const SAFE_KERNEL: (u32, u32) = (6, 5);

/// The nice value used where the real-time class is not.
const NICE: i32 = -15;

/// What a thread does, in ascending order of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Fills queues.
    Sender = 1,
    /// Empties sockets.
    Reader = 2,
    /// Empties the observer's rings: what waits there waits for nobody's sake.
    Observer = 3,
}

/// Raises the priority of the calling thread, and of those it starts from now
/// on. Without the privilege (CAP_SYS_NICE) nothing happens: the figures are
/// then those of the machine as busy as it is, and say so.
pub fn raise(role: Role) {
    let real_time = kernel().is_some_and(|k| k >= SAFE_KERNEL) && real_time(role);
    if !real_time {
        let _ = setpriority_process(None, NICE);
    }
}

fn real_time(role: Role) -> bool {
    let param = libc::sched_param { sched_priority: role as libc::c_int };
    // SAFETY: 0 is the calling thread; `param` lives for the call, which only
    // reads it.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const param) == 0 }
}

/// Major and minor number of the running kernel.
fn kernel() -> Option<(u32, u32)> {
    parse(uname().release().to_str().ok()?)
}

fn parse(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::needs_root;

    #[test]
    fn releases_are_understood() {
        assert_eq!(parse("6.18.44-generic"), Some((6, 18)));
        assert_eq!(parse("5.4.0+"), Some((5, 4)));
        assert_eq!(parse("6.5-rc1"), Some((6, 5)));
        assert_eq!(parse("unknown"), None);
        assert!(kernel().is_some());
    }

    #[test]
    fn a_raised_thread_passes_its_priority_on_and_others_keep_theirs() {
        needs_root!();
        // SAFETY: asks for the calling thread's scheduling class.
        let class = || unsafe { libc::sched_getscheduler(0) };
        let before = class();
        let child = std::thread::spawn(move || {
            raise(Role::Reader);
            (class(), std::thread::spawn(class).join().unwrap())
        });
        let (raised, inherited) = child.join().unwrap();
        assert_eq!(raised, inherited);
        assert_eq!(class(), before);
    }
}
