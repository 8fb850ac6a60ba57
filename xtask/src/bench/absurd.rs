//! Asked for 2,000,000 datagrams per second, which the machine cannot do:
//! what does each tool say, and how does it exit?
//!
//! Each is run as a user would read it, without its machine-readable output;
//! `load` once more with it, for the lag identity.

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use super::pair::Bench;
use super::record::Setting;
use super::tool::{Tool, Variant, number};

/// Datagrams per second.
pub(super) const ASKED: f64 = 2_000_000.0;
/// Options that make a tool write for machines.
const FOR_MACHINES: [&str; 3] = ["-J", "--json", "-fparse"];

/// What a tool made of it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Answer {
    /// The tool.
    pub(super) tool: Tool,
    /// The sender's command line.
    pub(super) command: String,
    /// Datagrams per second that the kernel saw leave.
    pub(super) sent_per_s: f64,
    /// The exit code; null if it was ended by a signal.
    pub(super) exit: Option<i32>,
    /// All it printed, errors last.
    pub(super) said: Vec<String>,
}

/// The answers, and whether `load`'s own figures agree.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Absurd {
    /// One of each.
    pub(super) answers: Vec<Answer>,
    /// The send lag of the last datagram, ns.
    pub(super) final_lag_ns: f64,
    /// What it must be: (1 − offered/due) · run time, ns.
    pub(super) identity_ns: f64,
}

/// Asks each of them.
///
/// # Errors
///
/// If a tool cannot be run, or it is interrupted.
pub(super) fn measure(bench: &Bench<'_>, setting: &Setting) -> Result<Absurd> {
    let plain = Variant::new("plain", &[], &[]);
    let plan = |tool: Tool| tool.plan(&plain, Some(ASKED), setting.seconds, setting.buffer);
    let mut answers = Vec::new();
    for tool in [Tool::Load, Tool::Iperf3, Tool::Sockperf, Tool::Nuttcp] {
        let mut plan = plan(tool);
        plan.sender.retain(|word| !FOR_MACHINES.contains(&word.as_str()));
        let outcome = bench.run(&plan)?;
        let said = [outcome.sender.as_str(), outcome.complaints.as_str()]
            .iter()
            .flat_map(|text| text.lines())
            .map(|line| without_colours(line).trim_end().to_owned())
            .filter(|line| !line.is_empty())
            .collect();
        answers.push(Answer {
            tool,
            command: plan.sender.join(" "),
            sent_per_s: outcome.kernel.sent as f64 / f64::from(setting.seconds),
            exit: outcome.exit,
            said,
        });
    }
    let outcome = bench.run(&plan(Tool::Load))?;
    let report: Value = serde_json::from_str(&outcome.sender)
        .with_context(|| format!("load send: {}", outcome.complaints.trim()))?;
    let (offered, due) = (number(&report, "/send/offered")?, number(&report, "/send/due")?);
    Ok(Absurd {
        answers,
        final_lag_ns: number(&report, "/send/final_lag_ns")?,
        identity_ns: (1.0 - offered / due) * number(&report, "/send/length_ns")?,
    })
}

/// A line without the sequences that colour it on a terminal.
fn without_colours(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(part.split_once('m').map_or("", |(_, text)| text));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_go_and_the_text_stays() {
        assert_eq!(
            without_colours("sockperf: \u{1b}[2;35mNOTE: made\u{1b}[0m so"),
            "sockperf: NOTE: made so"
        );
        assert_eq!(without_colours("plain [m] text"), "plain [m] text");
    }
}
