//! `observer --tui`: the live observer behind the terminal UI.

use std::{
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
};

use observer::{
    kernel::attach::AttachOptions,
    report::Level,
    session::Session,
    surroundings::Update,
    tui::{self, Left, TerminalError, feed},
};

use super::{
    ObserveArgs, exit,
    observe::{ObserveError, Output, serve, updates},
};

/// The code of what is wrong with the terminal.
pub(crate) fn exit_code(error: &TerminalError) -> u8 {
    match error {
        TerminalError::NotATerminal(_) => exit::USAGE,
        TerminalError::Io(_) => exit::INVALID,
    }
}

/// Observes until somebody leaves, then reports.
///
/// # Errors
///
/// What kept it from observing, showing or reporting.
pub(crate) fn observe(args: &ObserveArgs, options: &AttachOptions) -> Result<ExitCode, ObserveError> {
    let stop = Arc::new(AtomicBool::new(false));
    // Before anything is attached: a signal during attaching is not lost.
    tui::terminal::catch_signals(&stop).map_err(ObserveError::Signal)?;
    let (recording, recorder) = args.record.start(args.interval);
    let session = Session::start_recorded(options, args.interval, Box::new(|_| {}), recorder)?;
    let updates = updates(&session)?;
    let server = serve(args, &session, updates.clone())?;
    let screen = tui::Options {
        scene: session.meta().host.clone(),
        theme: args.screen.theme(),
        refresh: args.screen.refresh(),
        duration: args.duration,
        stop,
    };
    let left = tui::run(&screen, &mut feed::Live::new(updates, session.marker()))?;
    // Detached first; nothing is printed before the terminal is given back.
    let snapshot = session.finish()?;
    if let Some(server) = server {
        server.finish(Update::from(Arc::clone(&snapshot)));
    }
    if left != Left::HungUp {
        Output::new(false).finish(&snapshot.total)?;
    }
    let recorded = recording.is_none_or(|r| r.finish());
    let verdict = match left {
        // A bounded observation that was cut short judges nothing.
        Left::Asked | Left::Signal | Left::HungUp if args.duration.is_some() => Level::Invalid,
        _ => snapshot.total.verdict,
    };
    Ok(exit::of_observation(verdict, recorded))
}
