//! Exit codes: 0 passed, 1 failed, 2 invalid or interrupted, 3 bad usage or
//! file, 4 no permission or target.

use std::process::ExitCode;

use observer::{kernel::KernelError, report::Level, session::SessionError};

/// 1
pub(crate) const FAILED: u8 = 1;
/// 2
pub(crate) const INVALID: u8 = 2;
/// 3
pub(crate) const USAGE: u8 = 3;
/// 4
pub(crate) const NO_TARGET: u8 = 4;

/// The code of a verdict.
pub(crate) fn of_verdict(verdict: Level) -> ExitCode {
    match verdict {
        Level::Passed | Level::Warning => ExitCode::SUCCESS,
        Level::Failed => ExitCode::from(FAILED),
        Level::Invalid => ExitCode::from(INVALID),
    }
}

/// The code of an observation. What was to be recorded and was not is an
/// error of a file, which a worse verdict outranks.
pub(crate) fn of_observation(verdict: Level, recorded: bool) -> ExitCode {
    coded(verdict.exit_code(), recorded)
}

/// The same by a verdict's code.
pub(crate) fn coded(verdict: u8, recorded: bool) -> ExitCode {
    ExitCode::from(if recorded || verdict != 0 { verdict } else { USAGE })
}

/// The code of what kept observer from observing.
pub(crate) fn of_error(error: &SessionError) -> u8 {
    match error {
        SessionError::Kernel(
            KernelError::Permission { .. }
            | KernelError::NoBtf { .. }
            | KernelError::BadBtf { .. }
            | KernelError::NoField { .. }
            | KernelError::NoHook { .. }
            | KernelError::TooOld { .. }
            | KernelError::Program { .. },
        ) => NO_TARGET,
        SessionError::Kernel(KernelError::Object { .. }) => USAGE,
        SessionError::Kernel(KernelError::Table { .. })
        | SessionError::Source(_)
        | SessionError::Reader(_) => INVALID,
    }
}
