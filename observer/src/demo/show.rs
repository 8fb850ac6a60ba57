//! The demo as text: each scenario's figures as soon as it is judged, and a
//! line of progress on a terminal while it runs.

use std::collections::BTreeMap;
use std::io::{Write, stderr};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use load::Progress;

use super::{Demo, DemoError, Event, Known, Played};
use crate::component::Component;
use crate::report::{Counts, Distribution, Finding, Level, Report};
use crate::view::units::{count, duration_or_dash};

/// How often the line of progress is renewed.
const TICK: Duration = Duration::from_millis(200);

/// Clears the terminal's current line.
const CLEAR: &str = "\r\x1b[K";

/// Checks that a demo does not pass by design: it is short.
const BY_DESIGN: [&str; 2] = ["run-was-long-enough", "quantile-quotable"];

/// A quantile and how to find it in a distribution.
type Quantile = (&'static str, fn(&Distribution) -> Option<u64>);

/// Quantiles of the tail, highest first.
const TAIL: [Quantile; 2] = [("p99.9", |d| d.p99_9_ns), ("p99", |d| d.p99_ns)];

/// Writes the demo as text.
pub(super) struct Text<'w> {
    out: &'w mut dyn Write,
    live: bool,
    ticker: Option<Ticker>,
}

impl<'w> Text<'w> {
    /// To `out`; `live` says that standard error is a terminal.
    pub(super) fn new(out: &'w mut dyn Write, live: bool) -> Self {
        Self { out, live, ticker: None }
    }

    /// Progress alone.
    pub(super) fn progress(&mut self, event: &Event<'_>) {
        match event {
            Event::Begins { known, progress, .. } if self.live => {
                self.ticker = Ticker::start(*known, progress);
            }
            Event::Over => self.ticker = None,
            _ => {}
        }
    }

    /// Progress and results.
    pub(super) fn show(&mut self, event: &Event<'_>) -> Result<(), DemoError> {
        match event {
            Event::Begins { known, number, of, .. } => {
                writeln!(self.out, "{number}/{of} {}: {}", known.name(), known.about())?;
            }
            Event::Judged { played, before } => self.judged(played, before)?,
            Event::Over => {}
        }
        self.out.flush()?;
        self.progress(event);
        Ok(())
    }

    /// The last line.
    pub(super) fn close(mut self, demo: &Demo, asked: usize) -> Result<(), DemoError> {
        self.ticker = None;
        if demo.failure.is_some() && demo.scenarios.is_empty() {
            // The failure says it all.
            return Ok(());
        }
        let (found, judged) = (demo.found(), demo.scenarios.len());
        write!(self.out, "{found} of {judged} culprits found")?;
        let missed: Vec<&str> = demo.scenarios.iter().filter(|s| !s.ok).map(|s| s.name.name()).collect();
        if !missed.is_empty() {
            write!(self.out, "; not in {}", missed.join(", "))?;
        }
        if demo.interrupted {
            write!(self.out, "; interrupted, {} not judged", asked - judged)?;
        } else if demo.failure.is_some() {
            write!(self.out, "; failed, {} not judged", asked - judged)?;
        }
        writeln!(self.out)?;
        Ok(self.out.flush()?)
    }

    fn judged(&mut self, played: &Played, before: &[Played]) -> Result<(), DemoError> {
        let (out, report) = (&mut *self.out, &played.report);
        writeln!(
            out,
            "    {:<13}{:>11}{:>11}{:>11}{:>11}{:>11}",
            "", "datagrams", "p50", "p99", "p99.9", "max"
        )?;
        for component in Component::ALL {
            let figures = &report.components.get(component).distribution;
            writeln!(out, "{}", row(component.title(), figures))?;
        }
        let total = &report.components.total.distribution;
        writeln!(out, "{}", row("total", total))?;
        writeln!(out, "    {}", conservation(&report.counts))?;
        if report.counts.partial > 0 {
            writeln!(out, "    {} of those delivered passed a point unseen", count(report.counts.partial))?;
        }
        if !report.counts.dropped.is_empty() {
            writeln!(out, "    dropped: {}", by_name(&report.counts.dropped))?;
        }
        if !report.counts.lost_events.is_empty() {
            writeln!(out, "    events lost to the observer: {}", by_name(&report.counts.lost_events))?;
        }
        let told = |f: &&Finding| f.level > Level::Passed && !BY_DESIGN.contains(&f.check.as_str());
        for finding in report.findings.iter().filter(told) {
            writeln!(out, "    {} {}: {}", finding.level.name(), finding.check, finding.observed)?;
        }
        if let Some(line) = beside_quiet(played, before) {
            writeln!(out, "    {line}")?;
        }
        if let Some(culprit) = &report.culprit {
            writeln!(out, "    {}", culprit.cause)?;
        }
        let found = played.found.map_or("nothing (too few datagrams seen)", |f| f.name());
        let ok = if played.ok { "ok" } else { "WRONG" };
        writeln!(out, "    expected {}, found {found}: {ok}\n", played.expected.name())?;
        Ok(())
    }
}

/// One component's figures; a dash where there are too few datagrams.
fn row(name: &str, d: &Distribution) -> String {
    format!(
        "    {name:<13}{:>11}{:>11}{:>11}{:>11}{:>11}",
        count(d.count),
        duration_or_dash(d.p50_ns),
        duration_or_dash(d.p99_ns),
        duration_or_dash(d.p99_9_ns),
        duration_or_dash(d.max_ns)
    )
}

/// Where every datagram sent is now.
fn conservation(counts: &Counts) -> String {
    let sent = counts.sent.map_or_else(|| "—".into(), count);
    let mut line = format!(
        "sent {sent} = delivered {} + dropped {} + in flight {} + unobserved {}",
        count(counts.delivered),
        count(counts.dropped_total()),
        count(counts.in_flight),
        count(counts.unobserved)
    );
    if counts.unaccounted != 0 {
        line.push_str(&format!(" + unaccounted {}", counts.unaccounted));
    }
    line
}

fn by_name(counts: &BTreeMap<String, u64>) -> String {
    let each: Vec<String> = counts.iter().map(|(name, n)| format!("{name} {}", count(*n))).collect();
    each.join(", ")
}

/// How the tail compares with that of the quiet scenario.
fn beside_quiet(played: &Played, before: &[Played]) -> Option<String> {
    let quiet = before.iter().find(|p| p.name == Known::Quiet)?;
    let figure = |report: &Report, of: Quantile| (of.1)(&report.components.total.distribution);
    TAIL.iter().find_map(|&of| {
        let (own, quiet) = (figure(&played.report, of)?, figure(&quiet.report, of)?);
        let times = own.checked_div(quiet)?;
        Some(format!("tail: total {} is {} times that of quiet", of.0, count(times)))
    })
}

/// A thread that renews the line of progress until it is dropped.
struct Ticker {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// `None` if no thread can be had: progress is not worth failing for.
    fn start(known: Known, progress: &Progress) -> Option<Self> {
        let (end, ended) = channel();
        let progress = progress.clone();
        let tick = move || tick(known.name(), &progress, &ended);
        let thread = thread::Builder::new().name("progress".into()).spawn(tick).ok()?;
        Some(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it lost a line of progress, nothing else.
            let _ = thread.join();
        }
    }
}

fn tick(name: &str, progress: &Progress, ended: &Receiver<()>) {
    let started = Instant::now();
    while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        let line = format!(
            "{CLEAR}    {name}: {:.1} s, offered {}, sent {}, received {}",
            started.elapsed().as_secs_f64(),
            count(progress.offered()),
            count(progress.sent()),
            count(progress.received())
        );
        // A terminal that went away is no reason to stop.
        let _ = stderr().write_all(line.as_bytes());
    }
    let _ = stderr().write_all(CLEAR.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::tests::{distribution_of, report};
    use super::super::{DemoError, ObserveError, Played, SCHEMA};
    use super::*;
    use crate::report::{Blame, Culprit};

    fn quiet() -> Played {
        let mut report = report(Some(Blame::None), None);
        let flat = distribution_of(80_000, [9_100, 21_400, 310_000, 1_240_000]);
        report.components.total.distribution = flat;
        report.counts.sent = Some(80_000);
        report.counts.delivered = 80_000;
        Played::judge(Known::Quiet, report)
    }

    fn receiver(blame: Blame) -> Played {
        let mut report = report(Some(blame), None);
        report.components.sender_queue.distribution = distribution_of(15_258, [4_000, 9_000, 20_000, 55_000]);
        let waits = distribution_of(900, [24_000, 293_000_000, 0, 300_000_000]);
        report.components.receiver.distribution = waits;
        report.components.total.distribution =
            distribution_of(15_258, [27_000, 293_000_000, 299_000_000, 300_000_000]);
        report.counts.sent = Some(20_000);
        report.counts.delivered = 15_258;
        report.counts.dropped.insert("SOCKET_RCVBUFF".into(), 4_740);
        report.counts.partial = 8;
        report.counts.in_flight = 1;
        report.counts.unobserved = 2;
        report.counts.unaccounted = -1;
        report.counts.lost_events.insert("ring_full".into(), 3);
        let finding = |level, check: &str| Finding {
            check: check.into(),
            level,
            observed: "4,740 datagrams did not fit".into(),
            means: String::new(),
            detail: String::new(),
            advice: String::new(),
            evidence: BTreeMap::new(),
        };
        report.findings.push(finding(Level::Passed, "counts-reconcile"));
        report.findings.push(finding(Level::Warning, "receiver-kept-up"));
        report.findings.push(finding(Level::Warning, "run-was-long-enough"));
        let cause = "98 % of the excess above p99.9 is receiver: in the socket queue".into();
        report.culprit = Some(Culprit { component: blame, quantile: Some(0.999), share: Some(0.98), cause });
        Played::judge(Known::Receiver, report)
    }

    /// What is printed when `played` are judged one after the other.
    fn shown(played: Vec<Played>, interrupted: bool, failure: Option<DemoError>, asked: usize) -> String {
        let mut out = Vec::new();
        let mut text = Text::new(&mut out, false);
        for (i, p) in played.iter().enumerate() {
            let progress = Progress::new();
            let begins = Event::Begins { known: p.name, number: i + 1, of: asked, progress: &progress };
            for event in [begins, Event::Over, Event::Judged { played: p, before: &played[..i] }] {
                text.show(&event).unwrap();
            }
        }
        let demo = Demo { schema: SCHEMA, scenarios: played, interrupted, failure };
        text.close(&demo, asked).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn all_found() {
        insta::assert_snapshot!(shown(vec![quiet(), receiver(Blame::Receiver)], false, None, 2));
    }

    #[test]
    fn one_missed_and_one_without_figures() {
        let silent = Played::judge(Known::Shaper, report(None, None));
        insta::assert_snapshot!(shown(vec![receiver(Blame::Wire), silent], false, None, 2));
    }

    #[test]
    fn the_last_line_says_what_is_missing() {
        let last = |text: String| text.lines().last().unwrap().to_owned();
        assert_eq!(
            last(shown(vec![quiet()], true, None, 4)),
            "1 of 1 culprits found; interrupted, 3 not judged"
        );
        let failure = || Some(DemoError::Observe { scenario: "shaper", source: ObserveError::invalid("no") });
        let after_one = shown(vec![quiet()], false, failure(), 2);
        assert_eq!(last(after_one), "1 of 1 culprits found; failed, 1 not judged");
        assert_eq!(shown(vec![], false, failure(), 2), "");
    }

    #[test]
    fn lines_fit_a_terminal() {
        for line in shown(vec![quiet(), receiver(Blame::Receiver)], false, None, 2).lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }

    /// The line of progress ends with the scenario, and its thread with it.
    #[test]
    fn progress_ends() {
        let ticker = Ticker::start(Known::Quiet, &Progress::new()).unwrap();
        let started = Instant::now();
        drop(ticker);
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}
