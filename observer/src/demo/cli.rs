//! `observer demo` on the command line.
//!
//! The caller brings an observer, a [`Stop`] that SIGINT and SIGTERM set, and
//! a place to write to; it prints [`Demo::failure`], if there is one, and ends
//! with [`Demo::exit_code`].

use std::io::{self, Write};

use load::Stop;

use super::show::Text;
use super::{Demo, DemoError, Known, Observe, play};

/// What can be asked of the demo.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {
    /// Play only this scenario; may be given several times.
    #[arg(long = "scenario", value_name = "NAME", value_enum)]
    pub scenarios: Vec<Known>,

    /// How long each scenario's load lasts.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=60))]
    pub seconds: u16,

    /// Print one line of JSON (`observer-demo/1`) when all is over.
    #[arg(long)]
    pub json: bool,

    /// Show it full-screen while it is played, and print the results after.
    #[arg(long)]
    pub tui: bool,

    /// Write the main screen at the end of the last scenario into this file.
    #[arg(long, value_name = "FILE", hide = true, conflicts_with_all = ["tui", "json"])]
    pub svg: Option<std::path::PathBuf>,

    /// How that looks.
    #[command(flatten)]
    pub screen: crate::tui::args::ScreenArgs,
}

impl DemoArgs {
    /// The scenarios to be played: those asked for, each once, or all.
    pub fn known(&self) -> Vec<Known> {
        if self.scenarios.is_empty() {
            return Known::ALL.to_vec();
        }
        let mut known = Vec::new();
        for &name in &self.scenarios {
            if !known.contains(&name) {
                known.push(name);
            }
        }
        known
    }
}

/// Plays the demo and writes its result to `out`: as text while it goes on,
/// or as one line of JSON at the end. With `live`, text shows its progress on
/// standard error; say so only if that is a terminal.
///
/// # Errors
///
/// [`DemoError::Output`] if `out` cannot be written. What else goes wrong is
/// in the result, so that what had been found before is not lost.
pub fn run(
    args: &DemoArgs,
    observer: &mut dyn Observe,
    stop: &Stop,
    out: &mut dyn Write,
    live: bool,
) -> Result<Demo, DemoError> {
    let known = args.known();
    if args.json {
        let mut nowhere = io::sink();
        let mut text = Text::new(&mut nowhere, live);
        let demo = play(&known, args.seconds, observer, stop, &mut |event| {
            text.progress(&event);
            Ok(())
        })?;
        // serde_json wraps the writer's error; this unwraps it again, so that
        // the caller can tell a closed pipe from a full disk.
        serde_json::to_writer(&mut *out, &demo).map_err(io::Error::from)?;
        writeln!(out)?;
        out.flush()?;
        return Ok(demo);
    }
    let mut text = Text::new(out, live);
    let demo = play(&known, args.seconds, observer, stop, &mut |event| text.show(&event))?;
    text.close(&demo, known.len())?;
    Ok(demo)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        demo: DemoArgs,
    }

    fn parse(line: &str) -> Result<DemoArgs, String> {
        Line::try_parse_from(line.split(' ')).map(|l| l.demo).map_err(|e| e.to_string())
    }

    #[test]
    fn all_scenarios_unless_some_are_named_and_each_once() {
        let all = parse("demo").unwrap();
        assert_eq!((all.known(), all.seconds, all.json), (Known::ALL.to_vec(), 4, false));
        let some =
            parse("demo --scenario shaper --scenario quiet --scenario shaper --json --seconds 9").unwrap();
        assert_eq!((some.known(), some.seconds, some.json), (vec![Known::Shaper, Known::Quiet], 9, true));
    }

    #[test]
    fn unknown_names_and_lengths_are_refused() {
        let said = parse("demo --scenario loud").unwrap_err();
        assert!(said.contains("sender-queue"), "{said}");
        for seconds in ["0", "1", "61", "-1", "4s"] {
            assert!(parse(&format!("demo --seconds {seconds}")).is_err(), "{seconds}");
        }
    }
}
