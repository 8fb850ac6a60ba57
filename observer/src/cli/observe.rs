//! `observer`: attach, show, report.

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use observer::{
    attach::{Access, AttachError, Server},
    correlate::pair::Pairs,
    filter::{self, FilterError},
    kernel::attach::{AttachOptions, NamedRun},
    report::{Level, Report},
    session::{Session, SessionError},
    snapshot::Snapshot,
    surroundings::{Update, queues::Namespaces, sampler},
    tui::{TerminalError, terminal},
    view,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::record::Recording;
use super::{ObserveArgs, exit};

/// Clears a terminal from the cursor's home on.
const REDRAW: &str = "\x1b[H\x1b[J";

/// What ends an observation before its report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ObserveError {
    /// Something named does not exist.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The kernel side failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Signals cannot be caught.
    #[error("cannot catch signals: {0}")]
    Signal(io::Error),
    /// The terminal UI failed.
    #[error(transparent)]
    Screen(#[from] TerminalError),
    /// Nobody can attach.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// Nobody can read what is printed. A closed pipe is not an error.
    #[error("cannot write the report: {0}")]
    Output(io::Error),
}

impl ObserveError {
    /// The process's exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Filter(FilterError::Pair { .. }) => exit::USAGE,
            Self::Filter(_) => exit::NO_TARGET,
            Self::Session(e) => exit::of_error(e),
            Self::Screen(e) => super::screen::exit_code(e),
            Self::Attach(e) => super::attach::exit_code(e),
            Self::Signal(_) | Self::Output(_) => exit::INVALID,
        }
    }
}

/// Snapshots with what surrounds them.
pub(super) type Updates = tokio::sync::watch::Receiver<Option<Update>>;

/// How an observation ended.
enum Ended {
    /// Its time was over.
    Duration,
    /// SIGINT, SIGTERM or SIGHUP.
    Signal,
    /// Nobody reads the output any more.
    ClosedPipe,
}

/// Observes until the duration is over or a signal comes, then reports.
///
/// # Errors
///
/// What kept it from observing or from reporting.
pub(crate) fn run(args: &ObserveArgs) -> Result<ExitCode, ObserveError> {
    let mut options = AttachOptions {
        runs: args.runs.iter().map(|id| NamedRun { id: *id, owner: None }).collect(),
        measure_cost: args.cost,
        ..AttachOptions::default()
    };
    options.settings.stamp_offset = args.stamp_offset;
    args.filter().apply(&mut options.settings)?;
    options.pairs = Pairs::new(args.pairs.iter().map(|p| filter::pair(p)).collect::<Result<_, _>>()?);
    if args.verbose > 0 {
        options.log = Some(if args.verbose > 1 { log::Level::Debug } else { log::Level::Info });
        super::diagnostics::to_stderr();
    }
    if args.tui {
        // Before anything is attached.
        terminal::check()?;
        return super::screen::observe(args, &options);
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ObserveError::Signal)?;
    runtime.block_on(observe(args, &options))
}

async fn observe(args: &ObserveArgs, options: &AttachOptions) -> Result<ExitCode, ObserveError> {
    // Before anything is attached: a signal during attaching is not lost.
    let mut signals = Signals::new().map_err(ObserveError::Signal)?;
    let mut out = Output::new(args.json);
    let (recording, recorder) = args.record.start(args.interval);
    let session = Session::start_recorded(options, args.interval, Box::new(|_| {}), recorder)?;
    let server = serve(args, &session, updates(&session)?)?;
    out.started(args.duration);
    let ended = watch(args, &session, recording.as_ref(), &mut signals, &mut out).await?;
    // Joins the reader: a second signal in these moments changes nothing, the
    // machine is being cleaned already.
    let snapshot = session.finish()?;
    if let Some(server) = server {
        server.finish(Update::from(Arc::clone(&snapshot)));
    }
    if !matches!(ended, Ended::ClosedPipe) {
        out.finish(&snapshot.total)?;
    }
    let recorded = recording.is_none_or(|r| r.finish());
    let verdict = match ended {
        // A bounded observation that was cut short judges nothing.
        Ended::Signal if args.duration.is_some() => Level::Invalid,
        _ => snapshot.total.verdict,
    };
    Ok(exit::of_observation(verdict, recorded))
}

/// The session's snapshots with what surrounds them.
pub(super) fn updates(session: &Session) -> Result<Updates, ObserveError> {
    sampler::start(session.snapshots(), Box::new(Namespaces)).map_err(ObserveError::Signal)
}

/// Lets others attach, if that was asked for.
pub(super) fn serve(
    args: &ObserveArgs,
    session: &Session,
    updates: Updates,
) -> Result<Option<Server>, ObserveError> {
    let Some(path) = &args.listen else { return Ok(None) };
    let access = args.listen_group.clone().map_or(Access::Owner, Access::Group);
    Ok(Some(Server::start(path, &access, &session.meta().host, updates)?))
}

async fn watch(
    args: &ObserveArgs,
    session: &Session,
    recording: Option<&Recording>,
    signals: &mut Signals,
    out: &mut Output,
) -> Result<Ended, ObserveError> {
    let mut snapshots = session.snapshots();
    let over = async {
        match args.duration {
            Some(duration) => tokio::time::sleep(duration).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(over);
    loop {
        tokio::select! {
            () = &mut over => return Ok(Ended::Duration),
            () = signals.next() => return Ok(Ended::Signal),
            changed = snapshots.changed() => {
                let snapshot = snapshots.borrow_and_update().clone();
                if let Some(recording) = recording {
                    recording.tell();
                }
                match (changed, snapshot) {
                    // The reader is gone; `finish` says why.
                    (Err(_), _) => return Ok(Ended::Duration),
                    (Ok(()), Some(snapshot)) if !out.interval(&snapshot)? => return Ok(Ended::ClosedPipe),
                    (Ok(()), _) => {}
                }
            }
        }
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}

/// Where reports go: a table redrawn on a terminal, JSON lines, or only the
/// final text.
pub(super) struct Output {
    json: bool,
    live: bool,
    colour: bool,
}

impl Output {
    pub(super) fn new(json: bool) -> Self {
        let terminal = io::stdout().is_terminal();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|t| t == "dumb");
        Self { json, live: terminal && !json && !dumb, colour: terminal && !no_color && !dumb }
    }

    /// Says on standard error that observing has begun, so that a script or a
    /// person knows when to start the load.
    fn started(&self, duration: Option<Duration>) {
        if self.live {
            return;
        }
        let until = match duration {
            Some(d) => {
                format!("for {}", load::units::show_ns(i64::try_from(d.as_nanos()).unwrap_or(i64::MAX)))
            }
            None => "until Ctrl-C".to_owned(),
        };
        eprintln!("observing {until}");
    }

    /// Shows an interval; false if nobody reads any more.
    fn interval(&self, snapshot: &Arc<Snapshot>) -> Result<bool, ObserveError> {
        let mut out = io::stdout().lock();
        let written = if self.json {
            view::json::line(&snapshot.interval, &mut out)
        } else if self.live {
            out.write_all(REDRAW.as_bytes())
                .and_then(|()| out.write_all(view::text::live(snapshot, self.colour).as_bytes()))
        } else {
            Ok(())
        };
        still_read(written.and_then(|()| out.flush()))
    }

    pub(super) fn finish(&self, report: &Report) -> Result<(), ObserveError> {
        let mut out = io::stdout().lock();
        let written = if self.json {
            view::json::line(report, &mut out)
        } else {
            let clear = if self.live { REDRAW } else { "" };
            out.write_all(clear.as_bytes())
                .and_then(|()| out.write_all(view::text::report(report, self.colour).as_bytes()))
        };
        still_read(written.and_then(|()| out.flush())).map(drop)
    }
}

fn still_read(written: io::Result<()>) -> Result<bool, ObserveError> {
    match written {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(ObserveError::Output(e)),
    }
}
