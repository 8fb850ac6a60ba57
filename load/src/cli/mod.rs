//! The command line: arguments in, a report on stdout, progress and errors on
//! stderr, the exit code.

mod args;
mod both;
mod recv;
mod run;
mod send;
mod serve;
mod text;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use load::control::{ControlError, RemoteError, ServeError};
use load::pair::PairError;
use load::{RecvError, SendError, Stop, Verdict};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// What a command ends with instead of a report.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Stopped before there was anything to report: exit code 2.
    Stopped(String),
    /// Bad usage or file: exit code 3.
    Usage(String),
    /// No permission or target: exit code 4.
    System(String),
}

impl From<SendError> for Failure {
    fn from(e: SendError) -> Self {
        if e.is_usage() { Self::Usage(e.to_string()) } else { Self::System(e.to_string()) }
    }
}

impl From<RecvError> for Failure {
    fn from(e: RecvError) -> Self {
        if e.is_usage() { Self::Usage(e.to_string()) } else { Self::System(e.to_string()) }
    }
}

impl From<PairError> for Failure {
    fn from(e: PairError) -> Self {
        match e {
            PairError::Send(e) => e.into(),
            PairError::Recv(e) => e.into(),
            PairError::Thread(_) => Self::System(e.to_string()),
        }
    }
}

impl From<ControlError> for Failure {
    fn from(e: ControlError) -> Self {
        match e {
            ControlError::Stopped { .. } => Self::Stopped(e.to_string()),
            _ if e.is_usage() => Self::Usage(e.to_string()),
            _ => Self::System(e.to_string()),
        }
    }
}

impl From<RemoteError> for Failure {
    fn from(e: RemoteError) -> Self {
        match e {
            RemoteError::Send(e) => e.into(),
            RemoteError::Control(e) => e.into(),
        }
    }
}

impl From<ServeError> for Failure {
    fn from(e: ServeError) -> Self {
        match e {
            ServeError::Control(e) => e.into(),
            ServeError::Recv(e) => e.into(),
            ServeError::Thread(_) => Self::System(e.to_string()),
        }
    }
}

/// Runs the command given on the command line.
pub(crate) fn main() -> ExitCode {
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let wanted = matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            // A reader of the help that went away is no failure.
            let _ = e.print();
            return ExitCode::from(if wanted { 0 } else { 3 });
        }
    };
    let result = stop_on_signals().and_then(|stop| match &cli.command {
        args::Command::Send(a) => send::run(a, &stop),
        args::Command::Recv(a) => recv::run(a, &stop),
        args::Command::Both(a) => both::run(a, &stop),
        args::Command::Run(a) => run::run(a, &stop),
    });
    match result {
        Ok(verdict) => ExitCode::from(verdict.exit_code()),
        Err(failure) => {
            let (code, message) = match failure {
                Failure::Stopped(m) => (2, m),
                Failure::Usage(m) => (3, m),
                Failure::System(m) => (4, m),
            };
            let _ = writeln!(std::io::stderr(), "load: {message}");
            ExitCode::from(code)
        }
    }
}

/// A stop flag that Ctrl-C, SIGTERM and SIGHUP set; a second one of them ends
/// the process at once.
fn stop_on_signals() -> Result<Stop, Failure> {
    let stop = Stop::new();
    let flag = stop.flag();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the first signal finds the flag unset, the second set.
        signal_hook::flag::register_conditional_shutdown(signal, 2, flag.clone())
            .and_then(|_| signal_hook::flag::register(signal, flag.clone()))
            .map_err(|e| Failure::System(format!("cannot handle signal {signal}: {e}")))?;
    }
    Ok(stop)
}

/// Writes a report to stdout. A reader that went away (`| head`) is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::System(format!("cannot write the report: {e}")))
        }
        _ => Ok(()),
    }
}

/// Writes a report to stdout as one line of JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    match serde_json::to_string(value) {
        Ok(line) => print(&(line + "\n")),
        Err(e) => Err(Failure::System(format!("cannot write the report: {e}"))),
    }
}

/// The verdict of a command without objectives: interrupted is invalid.
pub(crate) fn completed(interrupted: bool) -> Verdict {
    if interrupted { Verdict::Invalid } else { Verdict::Passed }
}
