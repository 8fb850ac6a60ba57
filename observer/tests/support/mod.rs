//! What the tests against a real kernel have in common.

#![allow(clippy::allow_attributes, dead_code, reason = "each test program uses its own part of this")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) mod canned;
pub(crate) mod descheduled;
pub(crate) mod journey;
pub(crate) mod observed;
pub(crate) mod sheet;

static ALONE: Mutex<()> = Mutex::new(());

/// Waits until no other test of this program puts load on the machine.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the machine to itself for the rest of a test. Ends the test early, and
/// says so, where there are no privileges to make a namespace; CI has them:
/// there it fails.
#[macro_export]
macro_rules! needs_root {
    () => {
        let _alone = match observer::lab::Namespace::create("probe") {
            Ok(_) => $crate::support::alone(),
            Err(e) if e.is_permission() && std::env::var("CI").as_deref() != Ok("true") => {
                eprintln!("SKIPPED: needs root");
                return;
            }
            Err(e) => panic!("{e}"),
        };
    };
}
