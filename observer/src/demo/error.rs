//! What can keep the demo from coming to an end.

use std::io;

use super::observe::ObserveError;
use crate::lab::LabError;

/// Why a scenario could not be played or shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// The hosts or the load.
    #[error("scenario {scenario}: {source}")]
    Lab {
        /// The scenario.
        scenario: &'static str,
        /// What failed.
        source: LabError,
    },
    /// The observer.
    #[error("scenario {scenario}: {source}")]
    Observe {
        /// The scenario.
        scenario: &'static str,
        /// What failed.
        source: ObserveError,
    },
    /// The result could not be written.
    #[error("the result could not be written: {0}")]
    Output(#[from] io::Error),
}

impl DemoError {
    /// The process's exit code: 4 without permission, else 2, since nothing
    /// was judged.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Lab { source, .. } if source.is_permission() => 4,
            Self::Observe { source, .. } => source.exit_code,
            _ => 2,
        }
    }
}
