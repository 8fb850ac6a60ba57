//! `observer demo`: four scenarios whose culprit is known, to see whether the
//! observer finds it.
//!
//! ```text
//! Known ─▶ lab::scenario::Stage ─▶ Outcome ─┐
//!              │ Watch                      ▼
//!              └──────▶ Observe ────────▶ Report ─▶ found? ─▶ Played ─▶ text or JSON
//! ```
//!
//! What is found comes from the observer's report alone; what is expected is
//! only compared with it. Everything made for a scenario is gone when it is
//! over, however it ends (see [`crate::lab`]); a set [`Stop`] ends it early.

use load::{Progress, Stop};
use serde::Serialize;

use crate::lab::scenario::{PORT, Stage};
use crate::report::{Blame, Report};

pub mod cli;
mod error;
mod known;
mod observe;
mod show;

pub use error::DemoError;
pub use known::Known;
pub use observe::{Observe, ObserveError, Watch};

/// The version of [`Demo`] as JSON; described by docs/demo.schema.json.
pub const SCHEMA: &str = "observer-demo/1";

/// A scenario that was played to its end and judged.
#[derive(Debug, Serialize)]
pub struct Played {
    /// Which.
    pub name: Known,
    /// The culprit there is.
    pub expected: Blame,
    /// The culprit the report names; null if it saw too little to name one or
    /// to say that there is none.
    pub found: Option<Blame>,
    /// Whether that is right.
    pub ok: bool,
    /// The observer's report.
    pub report: Report,
}

impl Played {
    fn judge(name: Known, report: Report) -> Self {
        let found = report.culprit.as_ref().map(|c| c.component);
        let ok = found.is_some_and(|found| name.accepts(found));
        Self { name, expected: name.expected(), found, ok, report }
    }
}

/// The demo's result.
#[derive(Debug, Serialize)]
pub struct Demo {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What was played to its end, in this order.
    pub scenarios: Vec<Played>,
    /// It was stopped before its end.
    #[serde(skip)]
    pub interrupted: bool,
    /// What kept it from going on.
    #[serde(skip)]
    pub failure: Option<DemoError>,
}

impl Demo {
    /// How many culprits were found.
    pub fn found(&self) -> usize {
        self.scenarios.iter().filter(|s| s.ok).count()
    }

    /// 0 if all culprits were found, 1 if not, 2 if it was interrupted or
    /// could not be judged, 4 without permission.
    pub fn exit_code(&self) -> u8 {
        match &self.failure {
            Some(e) => e.exit_code(),
            None if self.interrupted => 2,
            None if self.found() == self.scenarios.len() => 0,
            None => 1,
        }
    }
}

/// What happens while the demo is played, for whoever shows it.
#[derive(Debug)]
pub enum Event<'a> {
    /// A scenario's hosts are there, it is observed, and its load begins;
    /// `number` of `of`, from 1.
    Begins {
        /// Which.
        known: Known,
        /// Its place in the order.
        number: usize,
        /// How many there are.
        of: usize,
        /// Its counts while it runs.
        progress: &'a Progress,
    },
    /// A scenario's load is over, whether or not it will be judged.
    Over,
    /// A scenario was judged.
    Judged {
        /// The result.
        played: &'a Played,
        /// Those judged before it.
        before: &'a [Played],
    },
}

/// Plays `known`, each some `seconds` long, watched by `observer`, until all
/// are played, one fails or `stop` is set.
///
/// # Errors
///
/// Only what `show` returns. A scenario that fails ends the demo and is
/// kept in [`Demo::failure`], beside what had been played before.
pub fn play(
    known: &[Known],
    seconds: u16,
    observer: &mut dyn Observe,
    stop: &Stop,
    show: &mut dyn FnMut(Event<'_>) -> Result<(), DemoError>,
) -> Result<Demo, DemoError> {
    let mut demo = Demo { schema: SCHEMA, scenarios: Vec::new(), interrupted: false, failure: None };
    for (i, &name) in known.iter().enumerate() {
        if stop.is_set() {
            demo.interrupted = true;
            break;
        }
        let place = (i + 1, known.len());
        let report = play_one(name, place, seconds, observer, stop, show);
        show(Event::Over)?;
        // A run that was cut short proves nothing, whatever came of it.
        if stop.is_set() {
            demo.interrupted = true;
            break;
        }
        match report {
            Ok(report) => {
                let played = Played::judge(name, report);
                show(Event::Judged { played: &played, before: &demo.scenarios })?;
                demo.scenarios.push(played);
            }
            Err(e @ DemoError::Output(_)) => return Err(e),
            Err(e) => {
                demo.failure = Some(e);
                break;
            }
        }
    }
    Ok(demo)
}

fn play_one(
    name: Known,
    (number, of): (usize, usize),
    seconds: u16,
    observer: &mut dyn Observe,
    stop: &Stop,
    show: &mut dyn FnMut(Event<'_>) -> Result<(), DemoError>,
) -> Result<Report, DemoError> {
    let scenario = name.name();
    let in_lab = |source| DemoError::Lab { scenario, source };
    let in_observer = |source| DemoError::Observe { scenario, source };
    let plan = name.scenario(seconds);
    let stage = Stage::set(&plan).map_err(in_lab)?;
    let watch = Watch {
        scenario,
        run: plan.load.run,
        sender_netns: stage.lab().sender().namespace.inode(),
        receiver_netns: stage.lab().receiver().namespace.inode(),
        port: PORT,
    };
    observer.start(&watch).map_err(in_observer)?;
    let progress = Progress::new();
    show(Event::Begins { known: name, number, of, progress: &progress })?;
    // The hosts live until the observer has read its tables.
    let (outcome, _lab) = stage.run(stop, &progress).map_err(in_lab)?;
    observer.finish(&outcome).map_err(in_observer)
}

#[cfg(test)]
mod tests;
