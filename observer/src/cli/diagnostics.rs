//! The kernel programs' own words, one line each on standard error.

use log::{LevelFilter, Log, Metadata, Record};

struct StandardError;

impl Log for StandardError {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        eprintln!("{}: {}", record.target(), record.args());
    }

    fn flush(&self) {}
}

/// Sends everything logged from now on to standard error.
pub(crate) fn to_stderr() {
    static LOGGER: StandardError = StandardError;
    // Fails only if there is a logger already, and then that one serves.
    if log::set_logger(&LOGGER).is_ok() {
        log::set_max_level(LevelFilter::Debug);
    }
}
