//! Each tool's highest rate with next to no loss, in interleaved rounds.
//!
//! First the best [`Variant`] of each tool is found. Then, in every round and
//! for every tool, [`highest`]: unlimited; and if that overruns the receiver,
//! from a little above what was delivered downwards until it does not. What
//! counts is what the receiver had, by its own account, checked against the
//! kernel's.

use anyhow::Result;
use serde::Serialize;

use super::pair::Bench;
use super::record::Setting;
use super::stats;
use super::tool::{Tool, Variant};

/// Loss that a rate may have and still count.
pub(super) const LOSS_BUDGET: f64 = 0.001;
/// First rate after an overrun, as a part of what was delivered in it.
const FIRST: f64 = 1.03;
/// Each further one, as a part of the one before.
const STEP: f64 = 0.95;
/// Rates tried before a round is given up for a tool.
const MOST_RUNS: u32 = 8;
/// Tries of each variant before the rounds.
const TRIES: u32 = 2;
/// By how much a tool's count may differ from the kernel's.
const AGREEMENT: f64 = 0.005;

/// One run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Sample {
    /// Rate asked for, per second; none: as fast as possible.
    pub(super) asked_per_s: Option<f64>,
    /// Datagrams sent, by the sender.
    pub(super) sent: u64,
    /// Datagrams received, by the receiver.
    pub(super) delivered: u64,
    /// Received per second.
    pub(super) delivered_per_s: f64,
    /// Part of the sent that did not arrive, by the tool or by the kernel,
    /// whichever says more.
    pub(super) loss: f64,
    /// The receiver's count is the kernel's; null with GSO, where the kernel
    /// counts messages.
    pub(super) agrees_with_kernel: Option<bool>,
}

impl Sample {
    /// Whether it counts.
    fn within_budget(&self) -> bool {
        self.loss < LOSS_BUDGET
    }
}

/// The search of one tool in one round.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Highest {
    /// Every run of it, in order.
    pub(super) runs: Vec<Sample>,
    /// Delivered per second in the last, if it kept to the loss budget.
    pub(super) delivered_per_s: Option<f64>,
}

/// A variant that was tried.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Tried {
    /// The variant.
    pub(super) variant: Variant,
    /// The best of its tries.
    pub(super) delivered_per_s: Option<f64>,
}

/// One tool over all rounds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Series {
    /// The tool.
    pub(super) tool: Tool,
    /// What was tried before.
    pub(super) tried: Vec<Tried>,
    /// The variant chosen.
    pub(super) variant: Variant,
    /// Its command lines, without a rate limit.
    pub(super) commands: [String; 2],
    /// One search per round.
    pub(super) rounds: Vec<Highest>,
    /// Over the rounds that have one.
    pub(super) median_per_s: Option<f64>,
}

impl Series {
    /// What this tool reached in a round.
    pub(super) fn round(&self, index: usize) -> Option<f64> {
        self.rounds.get(index)?.delivered_per_s
    }
}

/// Runs all of it.
///
/// # Errors
///
/// If a tool does not work, or it is interrupted.
pub(super) fn measure(bench: &Bench<'_>, setting: &Setting) -> Result<Vec<Series>> {
    let mut all = Vec::new();
    for tool in Tool::ALL {
        all.push(choose(bench, setting, tool)?);
    }
    for round in 0..setting.rounds {
        // Another one begins each round: none always follows the same one.
        for turn in 0..all.len() {
            let next = (turn + round as usize) % all.len();
            let series = &mut all[next];
            let found = highest(|rate| sample(bench, setting, series.tool, &series.variant, rate))?;
            eprintln!(
                "throughput {}/{}: {}: {}",
                round + 1,
                setting.rounds,
                series.tool.name(),
                found.delivered_per_s.map_or("no rate without loss".into(), |r| format!("{r:.0}/s"))
            );
            series.rounds.push(found);
        }
    }
    for series in &mut all {
        series.median_per_s = stats::median(series.rounds.iter().filter_map(|r| r.delivered_per_s));
    }
    Ok(all)
}

/// Finds the variant of `tool` that does best here.
fn choose(bench: &Bench<'_>, setting: &Setting, tool: Tool) -> Result<Series> {
    eprintln!("{}: trying its ways", tool.name());
    let mut tried: Vec<Tried> = tool
        .variants()
        .into_iter()
        .filter(|variant| !variant.pinned || setting.cpus > 1)
        .map(|variant| Tried { variant, delivered_per_s: None })
        .collect();
    for _ in 0..TRIES {
        for t in &mut tried {
            let found = highest(|rate| sample(bench, setting, tool, &t.variant, rate))?;
            t.delivered_per_s =
                [t.delivered_per_s, found.delivered_per_s].into_iter().flatten().reduce(f64::max);
        }
    }
    let rate = |t: &Tried| t.delivered_per_s.unwrap_or(0.0);
    let best = tried.iter().max_by(|a, b| rate(a).total_cmp(&rate(b)));
    let variant = best.map_or(tool.variants()[0], |t| t.variant);
    eprintln!("{}: {} does best", tool.name(), variant.shown());
    let plan = tool.plan(&variant, None, setting.seconds, setting.buffer);
    Ok(Series {
        tool,
        tried,
        variant,
        commands: [plan.receiver.join(" "), plan.sender.join(" ")],
        rounds: Vec::new(),
        median_per_s: None,
    })
}

/// One run of a tool at a rate.
fn sample(
    bench: &Bench<'_>,
    setting: &Setting,
    tool: Tool,
    variant: &Variant,
    rate: Option<f64>,
) -> Result<Sample> {
    let outcome = bench.run(&tool.plan(variant, rate, setting.seconds, setting.buffer))?;
    let figures = tool.figures(&outcome)?;
    let kernel = outcome.kernel;
    let share = |part: u64, whole: u64| if whole == 0 { 1.0 } else { part as f64 / whole as f64 };
    let own = share(figures.sent.saturating_sub(figures.delivered), figures.sent);
    let (kernels, agrees) = if tool == Tool::LoadGso {
        (0.0, None)
    } else {
        let apart = figures.delivered.abs_diff(kernel.read);
        (
            share(kernel.dropped, kernel.read + kernel.dropped),
            Some(share(apart, kernel.read.max(figures.delivered)) <= AGREEMENT),
        )
    };
    Ok(Sample {
        asked_per_s: rate,
        sent: figures.sent,
        delivered: figures.delivered,
        delivered_per_s: if figures.seconds > 0.0 { figures.delivered as f64 / figures.seconds } else { 0.0 },
        loss: own.max(kernels),
        agrees_with_kernel: agrees,
    })
}

/// The highest rate without loss; `run` makes a run at a rate, or unlimited.
fn highest(mut run: impl FnMut(Option<f64>) -> Result<Sample>) -> Result<Highest> {
    let mut runs = vec![run(None)?];
    let mut rate = runs[0].delivered_per_s * FIRST;
    while !runs.last().is_some_and(Sample::within_budget) && runs.len() < MOST_RUNS as usize && rate >= 1.0 {
        runs.push(run(Some(rate))?);
        rate *= STEP;
    }
    let delivered_per_s = runs.last().filter(|s| s.within_budget()).map(|s| s.delivered_per_s);
    Ok(Highest { runs, delivered_per_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tool that sends 300/s at most to a receiver that reads `reads`/s.
    fn with_receiver(reads: f64) -> Highest {
        highest(|rate| {
            let sent = rate.unwrap_or(300.0).min(300.0);
            let delivered_per_s = sent.min(reads);
            Ok(Sample {
                asked_per_s: rate,
                sent: 1,
                delivered: 1,
                delivered_per_s,
                loss: 1.0 - delivered_per_s / sent,
                agrees_with_kernel: None,
            })
        })
        .unwrap()
    }

    #[test]
    fn a_receiver_that_keeps_up_needs_one_run() {
        let found = with_receiver(400.0);
        assert_eq!((found.runs.len(), found.delivered_per_s), (1, Some(300.0)));
        assert_eq!(found.runs[0].asked_per_s, None);
    }

    #[test]
    fn an_overrun_is_stepped_down_until_nothing_is_lost() {
        let found = with_receiver(200.0);
        // 206 loses, 195.7 does not: within a step of the receiver's 200.
        let rate = found.delivered_per_s.unwrap();
        assert!((200.0 * STEP..=200.0).contains(&rate), "{rate}");
        assert_eq!(found.runs.len(), 3);
    }

    #[test]
    fn a_tool_that_always_loses_has_no_rate() {
        let lossy = |rate| {
            Ok(Sample {
                asked_per_s: rate,
                sent: 10,
                delivered: 9,
                delivered_per_s: 90.0,
                loss: 0.1,
                agrees_with_kernel: Some(true),
            })
        };
        let found = highest(lossy).unwrap();
        assert_eq!((found.runs.len(), found.delivered_per_s), (MOST_RUNS as usize, None));
    }
}
