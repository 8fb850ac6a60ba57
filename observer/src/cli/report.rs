//! `observer report`: the report of a trace.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, ValueEnum};
use observer::trace::answer::{self, Answer};
use observer::trace::curves;
use observer::trace::select::{FlowName, Selection, Sizes, Spent};
use observer::trace::{Trace, TraceError};
use observer::tui::args::ScreenArgs;
use observer::tui::played::Played;
use observer::tui::{self, Left, TerminalError, terminal};
use observer::view;
use observer::view::page::Plots;

use super::exit;

/// Options of `observer report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The trace's directory
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// The report as JSON (`observer-report/1`)
    #[arg(long)]
    json: bool,
    /// Write the report in these formats instead of printing it
    #[arg(long, value_delimiter = ',', value_name = "md,html")]
    format: Vec<Format>,
    /// Where --format writes: PATH.md, PATH.html
    #[arg(long, value_name = "PATH", default_value = "report")]
    out: PathBuf,
    #[command(flatten)]
    select: SelectArgs,
    #[command(flatten)]
    pub(crate) damage: DamageArgs,
    /// Play it full-screen, as it was seen; the report follows
    #[arg(long, conflicts_with_all = ["json", "format"])]
    tui: bool,
    /// With --tui: so many times as fast as it happened
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = speed)]
    speed: f64,
    #[command(flatten)]
    screen: ScreenArgs,
    /// From every record, even where the recorded distributions would do
    #[arg(long)]
    from_records: bool,
}

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Markdown.
    Md,
    /// One HTML file with plots.
    Html,
}

/// Which datagrams.
#[derive(Debug, Args)]
pub(crate) struct SelectArgs {
    /// Only datagrams offered this long after the start of the observation, or
    /// later
    #[arg(long, value_name = "TIME", value_parser = since)]
    from: Option<Duration>,
    /// Only datagrams offered before this time after the start
    #[arg(long, value_name = "TIME", value_parser = since)]
    to: Option<Duration>,
    /// Only datagrams of this RUN or RUN:STREAM; may be given several times
    #[arg(long = "flow", value_name = "FLOW")]
    flows: Vec<FlowName>,
    /// Only datagrams of so many bytes with the Ethernet header, or A..B
    #[arg(long, value_name = "BYTES")]
    size: Option<Sizes>,
    /// Only datagrams that spent so long there, as in 'shaper > 1ms'; may be
    /// given several times
    #[arg(long = "component", value_name = "EXPR")]
    components: Vec<Spent>,
}

impl SelectArgs {
    /// As the library has it.
    pub(crate) fn selection(&self) -> Selection {
        Selection {
            from: self.from,
            to: self.to,
            flows: self.flows.clone(),
            size: self.size,
            components: self.components.clone(),
        }
    }
}

/// What to do about damage.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct DamageArgs {
    /// Leave damaged segments out instead of stopping at the first
    #[arg(long)]
    skip_damaged: bool,
}

impl DamageArgs {
    /// Opens a trace.
    pub(crate) fn open(self, dir: &std::path::Path) -> Result<Trace, TraceError> {
        let mut trace = Trace::open(dir)?;
        if self.skip_damaged {
            trace.skip_damaged()?;
        }
        Ok(trace)
    }
}

fn speed(text: &str) -> Result<f64, String> {
    let n: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if n > 0.0 { Ok(n) } else { Err("must be above 0".to_owned()) }
}

pub(crate) fn since(text: &str) -> Result<Duration, String> {
    load::units::duration(text).map_err(|e| e.to_string())
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TraceFailure {
    /// The trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Nobody can read what is printed.
    #[error("cannot write the report: {0}")]
    Output(io::Error),
    /// The terminal UI failed.
    #[error(transparent)]
    Screen(#[from] TerminalError),
    /// An option makes no sense here.
    #[error("{0}")]
    Usage(String),
}

impl TraceFailure {
    /// The process's exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Trace(e) => code_of(e),
            Self::Usage(_) => exit::USAGE,
            Self::Screen(e) => super::screen::exit_code(e),
            Self::Output(_) => exit::INVALID,
        }
    }
}

/// The code of what is wrong with a trace.
pub(crate) fn code_of(error: &TraceError) -> u8 {
    match error {
        TraceError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => exit::NO_TARGET,
        _ => exit::USAGE,
    }
}

/// Reports.
///
/// # Errors
///
/// What is wrong with the trace or the output.
pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode, TraceFailure> {
    let trace = args.damage.open(&args.trace)?;
    let selection = args.select.selection();
    if args.tui && play(args, &trace, &selection)? == Left::HungUp {
        return Ok(ExitCode::SUCCESS);
    }
    let mut bar = Bar::new("reading");
    let mut progress = |done, all| bar.show(done, all);
    let Answer { snapshot, .. } = if args.from_records {
        answer::from_records(&trace, &selection, &mut progress)?
    } else {
        answer::report(&trace, &selection, &mut progress)?
    };
    bar.clear();
    let report = &snapshot.total;
    if !args.format.is_empty() {
        let plots = if selection.is_all() { curves::plots(&trace)? } else { Plots::of(report) };
        let title = args.trace.display().to_string();
        for format in &args.format {
            let (ending, text) = match format {
                Format::Md => ("md", view::page::markdown(report, &title)),
                Format::Html => ("html", view::page::html(report, &title, &plots)),
            };
            let path = args.out.with_added_extension(ending);
            load::report::replace(&path, &text).map_err(TraceError::io("write", &path))?;
            eprintln!("{}", path.display());
        }
        return Ok(exit::of_verdict(report.verdict));
    }
    let mut out = io::stdout().lock();
    let written = if args.json {
        view::json::line(report, &mut out)
    } else {
        let colour = out.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        out.write_all(view::text::report(report, colour).as_bytes())
    };
    printed(written.and_then(|()| out.flush()))?;
    Ok(exit::of_verdict(report.verdict))
}

/// Plays the trace on the terminal until somebody leaves.
fn play(args: &ReportArgs, trace: &Trace, selection: &Selection) -> Result<Left, TraceFailure> {
    terminal::check()?;
    let stop = Arc::new(AtomicBool::new(false));
    terminal::catch_signals(&stop).map_err(TerminalError::from)?;
    let options = tui::Options {
        scene: format!("{} ({})", args.trace.display(), trace.meta.host),
        theme: args.screen.theme(),
        refresh: args.screen.refresh(),
        duration: None,
        stop,
    };
    // Read once more by the thread that plays it.
    let again = args.damage.open(&args.trace)?;
    let mut played = Played::start(again, selection.clone(), args.speed).map_err(TerminalError::from)?;
    Ok(tui::run(&options, &mut played)?)
}

/// A closed pipe is no error.
pub(crate) fn printed(written: io::Result<()>) -> Result<(), TraceFailure> {
    match written {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(TraceFailure::Output(e)),
        _ => Ok(()),
    }
}

/// A progress bar on standard error, where that is a terminal and the work
/// takes long enough to look at it.
pub(crate) struct Bar {
    what: &'static str,
    terminal: bool,
    begun: std::time::Instant,
    shown: Option<usize>,
}

impl Bar {
    /// For `what`: `reading`, …
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, terminal: io::stderr().is_terminal(), begun: std::time::Instant::now(), shown: None }
    }

    /// Shows `done` of `all`.
    pub(crate) fn show(&mut self, done: usize, all: usize) {
        const WIDTH: usize = 40;
        if !self.terminal || self.begun.elapsed() < Duration::from_millis(300) {
            return;
        }
        let percent = done * 100 / all.max(1);
        if self.shown == Some(percent) {
            return;
        }
        self.shown = Some(percent);
        let full = done * WIDTH / all.max(1);
        eprint!(
            "\r{} [{}{}] {percent:3} %",
            self.what,
            "█".repeat(full),
            " ".repeat(WIDTH - full.min(WIDTH))
        );
    }

    /// Takes it off the screen.
    pub(crate) fn clear(&mut self) {
        if self.shown.take().is_some() {
            eprint!("\r\x1b[K");
        }
    }
}
