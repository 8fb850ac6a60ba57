//! What the terminal UI shows and how it changes: a function of actions and
//! updates alone. No clock, no terminal and no file is looked at here, so
//! that equal inputs give equal screens, live and replayed.
//!
//! # States
//!
//! ```text
//!            ┌── Action::Filter (flows screen) ──▶ Mode::Editing ──┐
//! Mode::Normal ◀── Accept, Cancel, another screen ─────────────────┘
//!
//! running ◀── Action::Freeze ──▶ frozen: the picture kept is shown, new ones
//!                                 are taken in behind it
//! Screen::Help remembers the screen it was asked from, and goes back there
//! ```
//!
//! [`State::check`] says what holds in every one of them.

use std::sync::Arc;

use crate::report::{Counts, FlowReport, Report};
use crate::surroundings::Update;

use super::flows;

/// Longest filter, characters.
pub const FILTER_LENGTH: usize = 64;

/// Moments per column of the time line, by zoom.
pub const ZOOM: [usize; 5] = [1, 2, 5, 10, 20];

/// A full screen, by its digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Screen {
    /// The answer: who, how bad, since when, what is lost.
    Main,
    /// The sending side.
    Sender,
    /// The queues between.
    Shaper,
    /// The receiving side.
    Receiver,
    /// Single flows.
    Flows,
    /// The slowest datagrams.
    Journeys,
    /// Hooks, losses, findings: what the figures stand on.
    Health,
    /// The keys.
    Help,
}

impl Screen {
    /// How many there are.
    pub const COUNT: usize = 8;
    /// In the order of their digits.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Main,
        Self::Sender,
        Self::Shaper,
        Self::Receiver,
        Self::Flows,
        Self::Journeys,
        Self::Health,
        Self::Help,
    ];

    /// Its name on the tab.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Sender => "sender",
            Self::Shaper => "shaper",
            Self::Receiver => "receiver",
            Self::Flows => "flows",
            Self::Journeys => "journeys",
            Self::Health => "health",
            Self::Help => "help",
        }
    }

    fn step(self, by: usize) -> Self {
        Self::ALL[(self as usize + by) % Self::COUNT]
    }
}

/// What the keys mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Commands.
    Normal,
    /// Letters of the flows' filter.
    Editing,
}

/// What the strips of the time line draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// The median.
    P50,
    /// The 0.99 quantile.
    P99,
    /// The 0.999 quantile.
    P999,
    /// The largest.
    Max,
    /// All totals, log-spaced, instead of strips.
    Heat,
}

impl Line {
    const ALL: [Self; 5] = [Self::P50, Self::P99, Self::P999, Self::Max, Self::Heat];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Max => "max",
            Self::Heat => "heat",
        }
    }
}

/// Over which time figures are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// The last interval.
    Interval,
    /// Since the start, or since the reset.
    Whole,
}

/// What flows are sorted by, largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// The 0.999 quantile of the total, or the highest that can be quoted.
    Tail,
    /// The largest total.
    Max,
    /// The median total.
    Median,
    /// Datagrams delivered.
    Datagrams,
    /// Datagrams dropped.
    Drops,
}

impl Sort {
    const ALL: [Self; 5] = [Self::Tail, Self::Max, Self::Median, Self::Datagrams, Self::Drops];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tail => "tail",
            Self::Max => "max",
            Self::Median => "median",
            Self::Datagrams => "datagrams",
            Self::Drops => "drops",
        }
    }
}

/// What somebody did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Go to a screen.
    Show(Screen),
    /// The next screen, or the one before.
    Turn {
        /// Backwards.
        back: bool,
    },
    /// Help, or back from it.
    Help,
    /// Move the selection, or scroll, by rows.
    Move(i32),
    /// Select this row of the list.
    Select(usize),
    /// The first row, or the last.
    Edge {
        /// The last.
        last: bool,
    },
    /// Keep the picture, or let it go on.
    Freeze,
    /// Start the figures over.
    Reset,
    /// Write the report to a file.
    Export,
    /// Another quantile on the time line, or the heat map.
    NextLine,
    /// More (or less) time in a column of the time line.
    Zoom {
        /// Less time.
        closer: bool,
    },
    /// Figures of the interval, or of the whole.
    SwitchSpan,
    /// Sort by something else.
    NextSort,
    /// Begin to edit the filter.
    Filter,
    /// One more letter.
    Type(char),
    /// One letter less.
    Erase,
    /// Keep the filter.
    Accept,
    /// Leave the mode, or drop the filter, or let a frozen screen go on.
    Cancel,
    /// Leave the program.
    Quit,
    /// The terminal has another size.
    Resize(u16, u16),
}

/// What is to be done outside of the state.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Leave.
    Quit,
    /// Ask the source to start over.
    Mark,
    /// Write this report to a file.
    Export(Arc<Report>),
}

/// Counts at the last reset, for a source that does not start over itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// When, ns.
    pub at_ns: u64,
    /// The counts then.
    pub counts: Counts,
}

/// Everything that decides what is on the screen.
#[derive(Clone, Debug)]
pub struct State {
    /// Columns and rows.
    pub size: (u16, u16),
    /// The screen shown.
    pub screen: Screen,
    /// Where help was asked from; never [`Screen::Help`].
    pub back: Screen,
    /// What keys mean.
    pub mode: Mode,
    /// The newest picture.
    pub newest: Option<Update>,
    /// The picture kept.
    pub frozen: Option<Update>,
    /// What the time line draws.
    pub line: Line,
    /// Index into [`ZOOM`].
    pub zoom: usize,
    /// Over which time figures are shown.
    pub span: Span,
    /// The order of flows.
    pub sort: Sort,
    /// Flows shown: those that contain this.
    pub filter: String,
    /// The filter before it was edited, for [`Action::Cancel`].
    pub filter_before: String,
    /// Row selected, or scrolled to, by screen.
    pub rows: [usize; Screen::COUNT],
    /// Reset here, because the source does not do it.
    pub baseline: Option<Baseline>,
    /// What is being watched: a host, a trace, a scenario.
    pub scene: String,
    /// The source has ended, and how.
    pub ended: Option<String>,
    /// What the last key did, where the screen does not show it.
    pub message: Option<String>,
}

impl State {
    /// The state before the first update, on a terminal of this size.
    pub fn new(scene: impl Into<String>, size: (u16, u16)) -> Self {
        Self {
            size,
            screen: Screen::Main,
            back: Screen::Main,
            mode: Mode::Normal,
            newest: None,
            frozen: None,
            line: Line::P99,
            zoom: 0,
            span: Span::Interval,
            sort: Sort::Tail,
            filter: String::new(),
            filter_before: String::new(),
            rows: [0; Screen::COUNT],
            baseline: None,
            scene: scene.into(),
            ended: None,
            message: None,
        }
    }

    /// The picture that is shown.
    pub fn shown(&self) -> Option<&Update> {
        self.frozen.as_ref().or(self.newest.as_ref())
    }

    /// Whether the figures shown are restarted ones.
    pub fn is_reset(&self) -> bool {
        self.baseline.is_some() || self.shown().is_some_and(|u| u.snapshot.marked.is_some())
    }

    /// The report of everything: since the reset, if there was one and the
    /// source took it, else since the start.
    pub fn whole(&self) -> Option<&Report> {
        let snapshot = &self.shown()?.snapshot;
        Some(snapshot.marked.as_ref().unwrap_or(&snapshot.total))
    }

    /// The report of the time chosen by [`State::span`]. Of a run that is over
    /// that is the whole of it.
    pub fn spanned(&self) -> Option<&Report> {
        let snapshot = &self.shown()?.snapshot;
        match self.span {
            Span::Interval if snapshot.total.kind == crate::report::Kind::Interval => {
                Some(&snapshot.interval)
            }
            _ => self.whole(),
        }
    }

    /// Start of what the verdict and the time line are about, ns: the reset,
    /// or 0.
    pub fn since_ns(&self) -> u64 {
        let marked = self.shown().and_then(|u| u.snapshot.marked.as_ref()).map_or(0, |m| m.from_ns);
        self.baseline.as_ref().map_or(marked, |b| b.at_ns.max(marked))
    }

    /// Counts since the start, or since the reset.
    pub fn counts(&self) -> Option<Counts> {
        let whole = self.whole()?;
        Some(match &self.baseline {
            Some(baseline) => crate::metrics::counts::since(&whole.counts, &baseline.counts),
            None => whole.counts.clone(),
        })
    }

    /// The flows on the list, in its order.
    pub fn flows(&self) -> Vec<&FlowReport> {
        self.shown()
            .map_or_else(Vec::new, |u| flows::listed(&u.snapshot.total.flows, self.sort, &self.filter))
    }

    /// Row of the screen shown.
    pub fn row(&self) -> usize {
        self.rows[self.screen as usize]
    }

    /// Takes in a new picture. A frozen screen stays as it is.
    pub fn update(&mut self, update: Update) {
        self.newest = Some(update);
        self.keep_rows_in_bounds();
    }

    /// Something else is watched from now on.
    pub fn begin_scene(&mut self, scene: String) {
        self.scene = scene;
        (self.newest, self.frozen, self.baseline, self.ended) = (None, None, None, None);
        self.keep_rows_in_bounds();
    }

    /// No more will come; what is shown stays.
    pub fn end(&mut self, why: String) {
        self.ended = Some(why);
        self.message = None;
    }

    /// Does what was asked for; what is left to do outside is returned.
    pub fn act(&mut self, action: Action) -> Option<Effect> {
        if !matches!(action, Action::Resize(..)) {
            self.message = None;
        }
        let effect = self.apply(action);
        self.keep_rows_in_bounds();
        effect
    }

    fn apply(&mut self, action: Action) -> Option<Effect> {
        match action {
            Action::Quit => return Some(Effect::Quit),
            Action::Reset => return self.reset(),
            Action::Export => return self.export(),
            Action::Resize(columns, rows) => self.size = (columns, rows),
            Action::Show(screen) => self.show(screen),
            Action::Turn { back } => {
                self.show(self.screen.step(if back { Screen::COUNT - 1 } else { 1 }));
            }
            Action::Help if self.screen == Screen::Help => self.show(self.back),
            Action::Help => self.show(Screen::Help),
            Action::Freeze if self.frozen.is_some() => self.frozen = None,
            Action::Freeze => self.frozen.clone_from(&self.newest),
            Action::NextLine => self.line = next(&Line::ALL, self.line),
            Action::NextSort => self.sort = next(&Sort::ALL, self.sort),
            Action::Zoom { closer: true } => self.zoom = self.zoom.saturating_sub(1),
            Action::Zoom { closer: false } => self.zoom = (self.zoom + 1).min(ZOOM.len() - 1),
            Action::SwitchSpan => {
                self.span = if self.span == Span::Whole { Span::Interval } else { Span::Whole };
            }
            Action::Move(by) => {
                let by = isize::try_from(by).unwrap_or(0);
                *self.row_mut() = self.row().saturating_add_signed(by);
            }
            Action::Select(row) => *self.row_mut() = row,
            Action::Edge { last } => *self.row_mut() = if last { usize::MAX } else { 0 },
            Action::Filter => self.edit(),
            Action::Type(letter) => self.type_letter(letter),
            Action::Erase => self.erase(),
            Action::Accept => self.mode = Mode::Normal,
            Action::Cancel => self.cancel(),
        }
        None
    }

    fn row_mut(&mut self) -> &mut usize {
        &mut self.rows[self.screen as usize]
    }

    fn show(&mut self, screen: Screen) {
        if screen == Screen::Help && self.screen != Screen::Help {
            self.back = self.screen;
        }
        self.mode = Mode::Normal;
        self.screen = screen;
    }

    fn edit(&mut self) {
        self.show(Screen::Flows);
        self.mode = Mode::Editing;
        self.filter_before.clone_from(&self.filter);
    }

    fn type_letter(&mut self, letter: char) {
        let room = self.filter.chars().count() < FILTER_LENGTH;
        if self.mode == Mode::Editing && room && !letter.is_control() {
            self.filter.push(letter);
        }
    }

    fn erase(&mut self) {
        if self.mode == Mode::Editing {
            self.filter.pop();
        }
    }

    /// One step back from wherever one is; from the main screen nothing.
    fn cancel(&mut self) {
        if self.mode == Mode::Editing {
            self.mode = Mode::Normal;
            self.filter = std::mem::take(&mut self.filter_before);
        } else if self.screen == Screen::Help {
            self.show(self.back);
        } else if self.screen == Screen::Flows && !self.filter.is_empty() {
            self.filter.clear();
        } else if self.frozen.is_some() {
            self.frozen = None;
        } else {
            self.show(Screen::Main);
        }
    }

    /// Counts and time line start over here; the source is asked to restart
    /// its distributions too.
    fn reset(&mut self) -> Option<Effect> {
        let update = self.newest.as_ref()?;
        let total = &update.snapshot.total;
        self.baseline = Some(Baseline { at_ns: total.to_ns, counts: total.counts.clone() });
        self.frozen = None;
        self.message = Some("counts start over; quantiles are the source's, since its start".to_owned());
        Some(Effect::Mark)
    }

    /// The source starts over by itself: nothing is to be subtracted here.
    pub fn source_resets(&mut self) {
        self.baseline = None;
        self.message = Some("starting over".to_owned());
    }

    fn export(&mut self) -> Option<Effect> {
        match self.shown() {
            Some(update) => Some(Effect::Export(Arc::clone(&update.snapshot.total))),
            None => {
                self.message = Some("nothing to write yet".to_owned());
                None
            }
        }
    }

    /// Rows of the list on `screen`, or lines it can scroll.
    fn row_count(&self, screen: Screen) -> usize {
        let Some(update) = self.shown() else { return usize::from(screen == Screen::Help) * 64 };
        match screen {
            Screen::Main => 0,
            Screen::Flows => self.flows().len(),
            Screen::Journeys => update.snapshot.slowest.len(),
            Screen::Sender | Screen::Receiver | Screen::Shaper => 64,
            Screen::Health => {
                let total = &update.snapshot.total;
                total.hooks.len() + 4 * total.findings.len() + total.counts.lost_events.len() + 8
            }
            Screen::Help => 64,
        }
    }

    fn keep_rows_in_bounds(&mut self) {
        for screen in Screen::ALL {
            let last = self.row_count(screen).saturating_sub(1);
            let row = &mut self.rows[screen as usize];
            *row = (*row).min(last);
        }
    }

    /// What holds in every state.
    ///
    /// # Errors
    ///
    /// The first thing that does not, in words.
    pub fn check(&self) -> Result<(), String> {
        let must = |holds: bool, what: &str| if holds { Ok(()) } else { Err(format!("{what}: {self:?}")) };
        must(self.back != Screen::Help, "help goes back to help")?;
        must(self.mode == Mode::Normal || self.screen == Screen::Flows, "a filter is edited elsewhere")?;
        must(self.filter.chars().count() <= FILTER_LENGTH, "the filter is too long")?;
        must(self.zoom < ZOOM.len(), "a zoom beyond the last")?;
        must(self.frozen.is_none() || self.newest.is_some(), "something is frozen that never was")?;
        for screen in Screen::ALL {
            let row = self.rows[screen as usize];
            must(row == 0 || row < self.row_count(screen), "a row beyond the last")?;
        }
        Ok(())
    }
}

fn next<T: Copy + PartialEq>(all: &[T], now: T) -> T {
    let at = all.iter().position(|x| *x == now).map_or(0, |i| i + 1);
    all.get(at).or(all.first()).copied().unwrap_or(now)
}
