//! Everything a comparison found, as it is written to `load.json`, and the
//! claims that stand or fall with it.

use std::fmt;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use super::absurd::Absurd;
use super::lag;
use super::stats::{self, grouped, micros};
use super::throughput;
use super::tool::Tool;
use crate::run;

/// By how much `load` is to be ahead of the best peer, and with GSO.
const AHEAD: [(Tool, f64); 2] = [(Tool::Load, 1.1), (Tool::LoadGso, 3.0)];
/// How well the lag identity is to hold.
const IDENTITY: f64 = 0.02;
/// Largest socket buffer asked for, bytes.
const BUFFER: u64 = 4 << 20;

/// Under what conditions.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Setting {
    /// Interleaved rounds.
    pub(super) rounds: u32,
    /// Length of each run, seconds.
    pub(super) seconds: u32,
    /// Payload, bytes.
    pub(super) size: u32,
    /// Socket buffers asked for by every tool, bytes: what the kernel grants
    /// to all of them without a change of its settings.
    pub(super) buffer: u64,
    /// CPUs.
    pub(super) cpus: usize,
    /// The kernel's version.
    pub(super) kernel: String,
    /// The tools' versions, by their own account.
    pub(super) versions: Vec<String>,
    /// Part of the CPUs' time that others used in the second before.
    pub(super) busy_before: f64,
}

impl Setting {
    /// As it is here and now.
    ///
    /// # Errors
    ///
    /// If the kernel does not say, or a tool does not start.
    pub(super) fn of_this_machine(rounds: u32, seconds: u32) -> Result<Self> {
        let limit = |name: &str| -> Result<u64> {
            let file = format!("/proc/sys/net/core/{name}");
            let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
            text.trim().parse().with_context(|| format!("{file} is no number"))
        };
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let first_line = |program: &str, flag: &str| -> Result<String> {
            let text = run::output(Command::new(program).arg(flag))?;
            Ok(text.lines().next().unwrap_or(program).trim().to_owned())
        };
        Ok(Self {
            rounds,
            seconds,
            size: super::tool::SIZE,
            buffer: BUFFER.min(limit("rmem_max")?).min(limit("wmem_max")?),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: release.split('-').next().unwrap_or_default().to_owned(),
            versions: vec![
                format!("load {}", env!("CARGO_PKG_VERSION")),
                first_line("iperf3", "--version")?,
                first_line("sockperf", "--version")?,
                first_line("nuttcp", "-V")?,
            ],
            busy_before: busy(Duration::from_secs(1))?,
        })
    }
}

/// Part of all CPUs' time that was not idle in the coming `span`.
fn busy(span: Duration) -> Result<f64> {
    let read = || -> Result<(f64, f64)> {
        let stat = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        idle_and_total(&stat).context("/proc/stat has no line for all CPUs")
    };
    let before = read()?;
    std::thread::sleep(span);
    let after = read()?;
    let total = after.1 - before.1;
    Ok(if total > 0.0 { 1.0 - (after.0 - before.0) / total } else { 0.0 })
}

/// Idle (with waiting for disks) and all time of all CPUs, in ticks.
fn idle_and_total(stat: &str) -> Option<(f64, f64)> {
    let ticks: Vec<f64> =
        stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map_while(|t| t.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guests are in user.
    (ticks.len() >= 5).then(|| (ticks[3] + ticks[4], ticks.iter().take(8).sum()))
}

/// Something the comparison is to show.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Claim {
    /// What.
    pub(super) what: String,
    /// The figure that decides.
    pub(super) found: String,
    /// Whether it does; null where it could not be measured.
    pub(super) holds: Option<bool>,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.holds {
            Some(true) => "holds",
            Some(false) => "FAILS",
            None => "UNKNOWN",
        };
        write!(f, "{word}: {}: {}", self.what, self.found)
    }
}

/// One comparison.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Record {
    schema: &'static str,
    /// Under what conditions.
    pub(super) setting: Setting,
    /// What it shows.
    pub(super) claims: Vec<Claim>,
    /// Highest rates.
    pub(super) throughput: Vec<throughput::Series>,
    /// Lags, `load` and sockperf in turn for each rate.
    pub(super) lag: Vec<lag::Series>,
    /// The absurd request.
    pub(super) absurd: Absurd,
}

impl Record {
    /// Draws the claims from the figures.
    pub(super) fn new(
        setting: Setting,
        throughput: Vec<throughput::Series>,
        lag: Vec<lag::Series>,
        absurd: Absurd,
    ) -> Self {
        let mut claims: Vec<Claim> =
            AHEAD.iter().map(|(tool, factor)| ahead(&throughput, *tool, *factor)).collect();
        claims.push(counted(&throughput));
        claims.extend(lag.chunks_exact(2).map(|pair| punctual(&pair[0], &pair[1])));
        claims.extend(honest(&absurd));
        Self { schema: "observer-bench-load/1", setting, claims, throughput, lag, absurd }
    }

    /// Whether all claims hold; none if one could not be measured and none fails.
    pub(super) fn verdict(&self) -> Option<bool> {
        if self.claims.iter().any(|c| c.holds == Some(false)) {
            return Some(false);
        }
        self.claims.iter().all(|c| c.holds.is_some()).then_some(true)
    }

    /// The series of a tool.
    pub(super) fn of(&self, tool: Tool) -> Option<&throughput::Series> {
        series(&self.throughput, tool)
    }

    /// Rate of `tool` by that of the best peer, for each round that has both.
    pub(super) fn ratios(&self, tool: Tool) -> Vec<f64> {
        let rounds = self.of(tool).map_or(0, |s| s.rounds.len());
        (0..rounds)
            .filter_map(|i| {
                let peers = Tool::PEERS.iter().filter_map(|p| self.of(*p)?.round(i));
                Some(self.of(tool)?.round(i)? / peers.reduce(f64::max)?)
            })
            .collect()
    }
}

fn series(all: &[throughput::Series], tool: Tool) -> Option<&throughput::Series> {
    all.iter().find(|s| s.tool == tool)
}

fn ahead(all: &[throughput::Series], tool: Tool, factor: f64) -> Claim {
    let own = series(all, tool).and_then(|s| s.median_per_s);
    let best = Tool::PEERS
        .iter()
        .filter_map(|p| Some((*p, series(all, *p)?.median_per_s?)))
        .reduce(|a, b| if b.1 > a.1 { b } else { a });
    let (found, holds) = match own.zip(best) {
        Some((own, (peer, rate))) => (
            format!(
                "{}/s against {}/s of {}: {:.2} times",
                grouped(own),
                grouped(rate),
                peer.name(),
                own / rate
            ),
            Some(own >= factor * rate),
        ),
        None => ("no rate without loss".into(), None),
    };
    Claim { what: format!("{} delivers at least {factor} times the best peer", tool.name()), found, holds }
}

fn counted(all: &[throughput::Series]) -> Claim {
    let checks: Vec<bool> = all
        .iter()
        .flat_map(|s| &s.rounds)
        .filter_map(|r| r.runs.last()?.agrees_with_kernel.filter(|_| r.delivered_per_s.is_some()))
        .collect();
    let apart = checks.iter().filter(|agrees| !**agrees).count();
    Claim {
        what: "the receivers' counts are the kernel's".into(),
        found: format!("{} of {} runs agree", checks.len() - apart, checks.len()),
        holds: (!checks.is_empty()).then_some(apart == 0),
    }
}

fn punctual(load: &lag::Series, peer: &lag::Series) -> Claim {
    let (found, holds) = match load.median_p99_ns.zip(peer.median_p99_ns) {
        Some((own, other)) => {
            (format!("{} against {} of {}", micros(own), micros(other), peer.tool.name()), Some(own < other))
        }
        None => ("too few datagrams for a p99".into(), None),
    };
    Claim {
        what: format!("the send lag's p99 at {}/s is below the peer's", grouped(f64::from(load.rate_per_s))),
        found,
        holds,
    }
}

fn honest(absurd: &Absurd) -> [Claim; 2] {
    let own = absurd.answers.iter().find(|a| a.tool == Tool::Load);
    let words = own.map_or(String::new(), |a| a.said.join(" "));
    // Its lines are broken where they would be too long.
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let said =
        words.contains("[INVALID] generator-kept-up") && words.contains("the ceiling is the generator's");
    let exit = own.and_then(|a| a.exit);
    let off = (absurd.final_lag_ns / absurd.identity_ns - 1.0).abs();
    [
        Claim {
            what: "asked for what cannot be done, load says INVALID, that the ceiling is the generator's, and exits with 2"
                .into(),
            found: format!(
                "{} and exits with {}",
                if said { "says so" } else { "does not say so" },
                exit.map_or("no code".into(), |code| code.to_string())
            ),
            holds: Some(said && exit == Some(2)),
        },
        Claim {
            what: format!("the lag identity holds within {:.0} %", IDENTITY * 100.0),
            found: format!(
                "the last datagram was {:.3} s late, by the identity {:.3} s",
                absurd.final_lag_ns / 1e9,
                absurd.identity_ns / 1e9
            ),
            holds: off.is_finite().then_some(off <= IDENTITY),
        },
    ]
}

/// Median and range of ratios, as `1.23 (1.10–1.31)`.
pub(super) fn shown_ratios(ratios: &[f64]) -> String {
    match (stats::median(ratios.iter().copied()), stats::range(ratios.iter().copied())) {
        (Some(median), Some((low, high))) => format!("{median:.2} ({low:.2}–{high:.2})"),
        _ => "—".into(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::absurd::Answer;
    use super::super::throughput::{Highest, Sample};
    use super::super::tool::Variant;
    use super::*;

    fn throughput(tool: Tool, rates: &[f64]) -> throughput::Series {
        let rounds = rates
            .iter()
            .map(|rate| {
                let sample = Sample {
                    asked_per_s: None,
                    sent: 10,
                    delivered: 10,
                    delivered_per_s: *rate,
                    loss: 0.0,
                    agrees_with_kernel: (tool != Tool::LoadGso).then_some(true),
                };
                Highest { runs: vec![sample], delivered_per_s: Some(*rate) }
            })
            .collect();
        throughput::Series {
            tool,
            tried: Vec::new(),
            variant: Variant::new("plain", &[], &[]),
            commands: ["receive".into(), "send".into()],
            rounds,
            median_per_s: stats::median(rates.iter().copied()),
        }
    }

    fn lag(tool: Tool, p99: Option<f64>) -> lag::Series {
        lag::Series {
            tool,
            rate_per_s: 20_000,
            seconds: 2,
            variant: Variant::new("plain", &[], &[]),
            commands: ["receive".into(), "send".into()],
            rounds: vec![lag::Lag { count: 5000, p50_ns: Some(1000.0), p99_ns: p99, max_ns: Some(1e6) }],
            median_p99_ns: p99,
        }
    }

    /// A record in which everything holds.
    pub(in crate::bench) fn good() -> Record {
        let answer = |tool, exit, said: &str| Answer {
            tool,
            command: "send".into(),
            sent_per_s: 2e5,
            exit: Some(exit),
            said: vec![said.into()],
        };
        Record::new(
            Setting {
                rounds: 3,
                seconds: 2,
                size: 160,
                buffer: BUFFER,
                cpus: 2,
                kernel: "6.18.1".into(),
                versions: vec!["one 1".into()],
                busy_before: 0.01,
            },
            vec![
                throughput(Tool::Load, &[120.0, 130.0, 140.0]),
                throughput(Tool::Iperf3, &[100.0, 100.0, 110.0]),
                throughput(Tool::Sockperf, &[50.0, 120.0, 60.0]),
                throughput(Tool::Nuttcp, &[90.0, 80.0, 70.0]),
                throughput(Tool::LoadGso, &[400.0, 400.0, 400.0]),
            ],
            vec![lag(Tool::Load, Some(5e4)), lag(Tool::Sockperf, Some(2e6))],
            Absurd {
                answers: vec![
                    answer(Tool::Load, 2, "[INVALID] generator-kept-up: the ceiling is\n   the generator's"),
                    answer(Tool::Iperf3, 0, "iperf Done."),
                ],
                final_lag_ns: 1.80e9,
                identity_ns: 1.81e9,
            },
        )
    }

    fn again(r: Record) -> Record {
        Record::new(r.setting, r.throughput, r.lag, r.absurd)
    }

    #[test]
    fn a_good_record_holds_and_every_fault_is_found() {
        assert_eq!(good().verdict(), Some(true), "{:#?}", good().claims);
        let mut r = good();
        r.throughput[0].median_per_s = Some(109.0);
        assert_eq!(again(r).verdict(), Some(false));
        let mut r = good();
        r.throughput[4].median_per_s = Some(299.0);
        assert_eq!(again(r).verdict(), Some(false));
        let mut r = good();
        r.throughput[1].rounds[0].runs[0].agrees_with_kernel = Some(false);
        assert_eq!(again(r).verdict(), Some(false));
        let mut r = good();
        r.lag[0].median_p99_ns = Some(3e6);
        assert_eq!(again(r).verdict(), Some(false));
        let mut r = good();
        r.absurd.answers[0].exit = Some(0);
        assert_eq!(again(r).verdict(), Some(false));
        let mut r = good();
        r.absurd.answers[0].said = vec!["[WARNING] generator-kept-up".into()];
        assert_eq!(again(r).verdict(), Some(false));
        let mut r = good();
        r.absurd.final_lag_ns = 1.0e9;
        assert_eq!(again(r).verdict(), Some(false));
    }

    #[test]
    fn what_was_not_measured_is_not_claimed() {
        let mut r = good();
        r.lag[1].median_p99_ns = None;
        assert_eq!(again(r).verdict(), None);
        let mut r = good();
        r.throughput[0].median_per_s = None;
        assert_eq!(again(r).verdict(), None);
    }

    #[test]
    fn ratios_are_against_the_best_peer_of_the_same_round() {
        let found = good().ratios(Tool::Load);
        let expected = [120.0 / 100.0, 130.0 / 120.0, 140.0 / 110.0];
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?}");
        let mut r = good();
        r.throughput[0].rounds[1].delivered_per_s = None;
        assert_eq!(r.ratios(Tool::Load).len(), 2);
        assert_eq!(shown_ratios(&[]), "—");
    }

    #[test]
    fn idle_time_is_told_from_the_rest() {
        let stat = "cpu  10 1 5 80 4 0 0 0 7 0\ncpu0 1 1 1 1 1\n";
        assert_eq!(idle_and_total(stat), Some((84.0, 100.0)));
        assert_eq!(idle_and_total("intr 5"), None);
    }
}
