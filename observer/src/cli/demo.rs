//! `observer demo`: the live observer for the demo's scenarios.

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    time::Duration,
};

use load::Stop;
use observer::{
    demo::{self, DemoError, Observe, ObserveError, Watch, cli::DemoArgs},
    kernel::attach::{AttachOptions, NamedRun},
    lab::{
        priority::{Role, raise},
        scenario::Outcome,
    },
    report::Report,
    session::{Session, SessionError},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

use super::exit;

/// One session per scenario, following that scenario's run alone.
#[derive(Default)]
struct Live {
    session: Option<Session>,
}

fn refused(error: SessionError) -> ObserveError {
    ObserveError { exit_code: exit::of_error(&error), source: Box::new(error) }
}

impl Observe for Live {
    fn start(&mut self, watch: &Watch) -> Result<(), ObserveError> {
        let options = AttachOptions { runs: vec![NamedRun::ours(watch.run)], ..AttachOptions::default() };
        // The scenarios' threads run at a raised priority; the reader of the
        // rings, which inherits this thread's, must come before them.
        let start = || {
            raise(Role::Observer);
            Session::start(&options, Duration::from_secs(1)).map_err(refused)
        };
        let started = std::thread::scope(|scope| scope.spawn(start).join());
        self.session = Some(started.map_err(|_| ObserveError::invalid("attaching panicked"))??);
        Ok(())
    }

    fn finish(&mut self, _: &Outcome) -> Result<Report, ObserveError> {
        let session = self.session.take().ok_or_else(|| ObserveError::invalid("nothing was observed"))?;
        let snapshot = session.finish().map_err(refused)?;
        Ok(snapshot.total.as_ref().clone())
    }
}

/// Plays the demo.
///
/// # Errors
///
/// [`DemoError`] if its result cannot be written.
pub(crate) fn run(args: &DemoArgs) -> Result<ExitCode, DemoError> {
    let stop = Stop::new();
    let caught =
        [SIGINT, SIGTERM, SIGHUP].into_iter().try_for_each(|s| flag::register(s, stop.flag()).map(drop));
    if let Err(e) = caught {
        eprintln!("observer: cannot catch signals: {e}");
        return Ok(ExitCode::from(exit::INVALID));
    }
    let live = io::stderr().is_terminal();
    let demo = demo::cli::run(args, &mut Live::default(), &stop, &mut io::stdout().lock(), live)?;
    if let Some(failure) = &demo.failure {
        eprintln!("observer: {failure}");
    }
    Ok(ExitCode::from(demo.exit_code()))
}
