//! `observer demo`: the live observer for the demo's scenarios.

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, TryRecvError, channel},
    },
    time::Duration,
};

use load::Stop;
use observer::{
    demo::{self, Demo, DemoError, Observe, ObserveError, Watch, cli::DemoArgs},
    kernel::attach::{AttachOptions, NamedRun},
    lab::{
        priority::{Role, raise},
        scenario::Outcome,
    },
    report::Report,
    session::{Session, SessionError},
    surroundings::{Update, queues::Namespaces, sampler},
    tui::{self, Fed, Feed, Left, TerminalError, feed},
};
use tokio::sync::watch;

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

use super::exit;

/// Time between two pictures on the terminal UI: a scenario lasts some
/// seconds.
const TUI_INTERVAL: Duration = Duration::from_millis(500);

/// One session per scenario, following that scenario's run alone.
#[derive(Default)]
struct Live {
    session: Option<Session>,
    /// The terminal UI, if there is one.
    screen: Option<Sender<Shown>>,
}

impl Live {
    fn show(&self, shown: Shown) {
        if let Some(screen) = &self.screen {
            // It may have been left.
            let _ = screen.send(shown);
        }
    }
}

/// What the scenarios have to say to the terminal UI.
enum Shown {
    /// The next one begins.
    Scene(String, watch::Receiver<Option<Update>>),
    /// Its last picture.
    Last(Update),
    /// All are over.
    Over(String),
}

/// The scenarios, one after the other.
struct Scenes {
    shown: Receiver<Shown>,
    updates: Option<watch::Receiver<Option<Update>>>,
}

impl Feed for Scenes {
    fn next(&mut self) -> Fed {
        match self.shown.try_recv() {
            Ok(Shown::Scene(scene, updates)) => {
                self.updates = Some(updates);
                return Fed::Scene(scene);
            }
            Ok(Shown::Last(update)) => {
                self.updates = None;
                return Fed::Update(update);
            }
            Ok(Shown::Over(how)) => return Fed::Ended(how),
            Err(TryRecvError::Disconnected) => return Fed::Ended("the demo is over".to_owned()),
            Err(TryRecvError::Empty) => {}
        }
        match self.updates.as_mut().map(|updates| feed::newest(updates, "")) {
            // The next scenario will come.
            Some(Fed::Ended(_)) => {
                self.updates = None;
                Fed::Nothing
            }
            fed => fed.unwrap_or(Fed::Nothing),
        }
    }
}

fn refused(error: SessionError) -> ObserveError {
    ObserveError { exit_code: exit::of_error(&error), source: Box::new(error) }
}

impl Observe for Live {
    fn start(&mut self, watch: &Watch) -> Result<(), ObserveError> {
        let options = AttachOptions { runs: vec![NamedRun::ours(watch.run)], ..AttachOptions::default() };
        // The scenarios' threads run at a raised priority; the reader of the
        // rings, which inherits this thread's, must come before them.
        let interval = if self.screen.is_some() { TUI_INTERVAL } else { Duration::from_secs(1) };
        let start = || {
            raise(Role::Observer);
            Session::start(&options, interval).map_err(refused)
        };
        let started = std::thread::scope(|scope| scope.spawn(start).join());
        let session = started.map_err(|_| ObserveError::invalid("attaching panicked"))??;
        if self.screen.is_some() {
            let updates =
                sampler::start(session.snapshots(), Box::new(Namespaces)).map_err(ObserveError::invalid)?;
            self.show(Shown::Scene(format!("demo: {}", watch.scenario), updates));
        }
        self.session = Some(session);
        Ok(())
    }

    fn finish(&mut self, _: &Outcome) -> Result<Report, ObserveError> {
        let session = self.session.take().ok_or_else(|| ObserveError::invalid("nothing was observed"))?;
        let snapshot = session.finish().map_err(refused)?;
        self.show(Shown::Last(Update::from(Arc::clone(&snapshot))));
        Ok(snapshot.total.as_ref().clone())
    }
}

/// Plays the demo.
///
/// # Errors
///
/// [`DemoError`] if its result cannot be written.
pub(crate) fn run(args: &DemoArgs) -> Result<ExitCode, DemoError> {
    if args.tui
        && let Err(e) = tui::terminal::check()
    {
        eprintln!("observer: {e}");
        return Ok(ExitCode::from(exit::USAGE));
    }
    let stop = Stop::new();
    let caught =
        [SIGINT, SIGTERM, SIGHUP].into_iter().try_for_each(|s| flag::register(s, stop.flag()).map(drop));
    if let Err(e) = caught {
        eprintln!("observer: cannot catch signals: {e}");
        return Ok(ExitCode::from(exit::INVALID));
    }
    if args.tui || args.svg.is_some() {
        return on_screen(args, &stop);
    }
    let live = io::stderr().is_terminal();
    let demo = demo::cli::run(args, &mut Live::default(), &stop, &mut io::stdout().lock(), live)?;
    if let Some(failure) = &demo.failure {
        eprintln!("observer: {failure}");
    }
    Ok(ExitCode::from(demo.exit_code()))
}

/// Sets its flag on every way out: the demo must not outlast whoever shows it.
struct StopAtEnd<'a>(&'a Stop);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Size of the picture.
const PICTURE: (u16, u16) = (110, 36);

/// Plays the demo behind the terminal UI (or a picture of it), and prints its
/// result once that is left. Leaving it stops the demo; the demo's end does
/// not leave it.
fn on_screen(args: &DemoArgs, stop: &Stop) -> Result<ExitCode, DemoError> {
    let (screen, shown) = channel();
    let mut printed = Vec::new();
    let (demo, left) = std::thread::scope(|scope| {
        let printed = &mut printed;
        let playing = scope.spawn(move || play(args, stop, printed, screen));
        let left = {
            let _stop = StopAtEnd(stop);
            show(args, stop, &mut Scenes { shown, updates: None })
        };
        (playing.join(), left)
    });
    let demo = demo.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked))?;
    if let Err(e) = &left {
        eprintln!("observer: {e}");
    }
    if !matches!(left, Ok(Left::HungUp)) {
        io::stdout().lock().write_all(&printed).map_err(DemoError::Output)?;
    }
    if let Some(failure) = &demo.failure {
        eprintln!("observer: {failure}");
    }
    Ok(ExitCode::from(demo.exit_code()))
}

/// Plays all scenarios and tells the screen how that went.
fn play(
    args: &DemoArgs,
    stop: &Stop,
    printed: &mut Vec<u8>,
    screen: Sender<Shown>,
) -> Result<Demo, DemoError> {
    let mut live = Live { session: None, screen: Some(screen.clone()) };
    let demo = demo::cli::run(args, &mut live, stop, printed, false);
    let how = match &demo {
        Ok(demo) => match &demo.failure {
            Some(failure) => failure.to_string(),
            None => format!("demo over: {} of {} culprits found", demo.found(), demo.scenarios.len()),
        },
        Err(e) => e.to_string(),
    };
    // The screen may have been left.
    let _ = screen.send(Shown::Over(how));
    demo
}

fn show(args: &DemoArgs, stop: &Stop, scenes: &mut Scenes) -> Result<Left, TerminalError> {
    if let Some(file) = &args.svg {
        let title = "The main screen of observer --tui, beside a load whose reader pauses";
        let svg = tui::svg::of_feed(scenes, PICTURE, title).unwrap_or_default();
        std::fs::write(file, svg)?;
        return Ok(Left::Asked);
    }
    let options = tui::Options {
        scene: "demo".to_owned(),
        theme: args.screen.theme(),
        refresh: args.screen.refresh(),
        duration: None,
        stop: stop.flag(),
    };
    tui::run(&options, scenes)
}
