//! `observer attach`: the terminal UI of a daemon elsewhere on this host.

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
};

use observer::{
    attach::{AttachError, Remote},
    tui::{self, TerminalError, terminal},
};

use super::{exit, screen};

/// Options of `observer attach`.
#[derive(Debug, clap::Args)]
pub(crate) struct AttachArgs {
    /// The socket that the other observer was told with --listen
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// How it looks.
    #[command(flatten)]
    screen: observer::tui::args::ScreenArgs,
}

/// What ends it before somebody leaves.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The daemon.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The terminal.
    #[error(transparent)]
    Screen(#[from] TerminalError),
}

impl Error {
    /// The process's exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Attach(e) => exit_code(e),
            Self::Screen(e) => screen::exit_code(e),
        }
    }
}

/// The code of what is wrong with the socket.
pub(crate) fn exit_code(error: &AttachError) -> u8 {
    match error {
        AttachError::Nobody { .. }
        | AttachError::Refused { .. }
        | AttachError::HungUp { .. }
        | AttachError::NoGroup(_) => exit::NO_TARGET,
        AttachError::Taken { .. } | AttachError::Listen { .. } | AttachError::Foreign { .. } => exit::USAGE,
    }
}

/// Attaches, and shows until somebody leaves.
///
/// # Errors
///
/// [`Error`] if there is no daemon, or no terminal.
pub(crate) fn run(args: &AttachArgs) -> Result<ExitCode, Error> {
    let mut remote = Remote::connect(&args.path)?;
    terminal::check()?;
    let stop = Arc::new(AtomicBool::new(false));
    terminal::catch_signals(&stop).map_err(TerminalError::from)?;
    let options = tui::Options {
        scene: format!("{} (attached)", remote.scene()),
        theme: args.screen.theme(),
        refresh: args.screen.refresh(),
        duration: None,
        stop,
    };
    tui::run(&options, &mut remote)?;
    Ok(ExitCode::SUCCESS)
}
