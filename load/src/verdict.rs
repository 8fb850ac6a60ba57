//! Did the run measure what it was asked to? Checks look at the reports of
//! both ends and give findings; the worst finding is the verdict.
//!
//! INVALID outranks FAILED: a run whose load was never offered says nothing
//! about the system under test, not even that it failed.

use serde::Serialize;

use crate::control::ControlError;
use crate::engine::SendReport;
use crate::host::HostReport;
use crate::num::round_u64;
use crate::recv::RecvReport;
use crate::units::{show_count, show_ns};

/// From best to worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Sound, and every objective met.
    #[default]
    Passed,
    /// Sound, with something to know about it.
    Warning,
    /// Sound, an objective missed.
    Failed,
    /// The run did not measure what it was asked to.
    Invalid,
}

impl Verdict {
    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "PASSED",
            Self::Warning => "WARNING",
            Self::Failed => "FAILED",
            Self::Invalid => "INVALID",
        }
    }

    /// The process exit code it stands for.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Passed | Self::Warning => 0,
            Self::Failed => 1,
            Self::Invalid => 2,
        }
    }
}

/// One check's result, where there is something to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check.
    pub check: &'static str,
    /// How bad it is.
    pub level: Verdict,
    /// What was seen.
    pub observed: String,
    /// What follows from it, and what to do.
    pub means: String,
    /// Figures to go on with.
    pub detail: String,
}

/// The verdict of some findings: the worst.
pub fn worst(findings: &[Finding]) -> Verdict {
    findings.iter().map(|f| f.level).max().unwrap_or_default()
}

/// Least share of the asked rate that counts as kept.
const LEAST_KEPT: f64 = 0.99;
/// Most lag gained per unit of time.
const MOST_SLOPE: f64 = 0.01;
/// Send-lag p99 from which a run is invalid: this, or so many intervals.
const INVALID_LAG: (f64, f64) = (1e6, 100.0);
/// Send-lag p99 from which a run is warned of: this, or so many intervals.
const WARN_LAG: (f64, f64) = (1e5, 10.0);
/// Share of skipped slots from which a run is warned of.
const WARN_SKIPPED: f64 = 0.001;
/// Shortest measured time not warned of, ns.
const LONG_ENOUGH_NS: i64 = 30_000_000_000;
/// Steal from which a run is warned of, and invalid.
const STEAL: (f64, f64) = (0.01, 0.05);
/// How far the lag identity may be off, and the lag it needs to be told, ns.
const IDENTITY: (f64, i64) = (0.02, 20_000_000);

/// Every check that the given reports allow, worst first.
pub fn judge(sent: &SendReport, received: Option<&RecvReport>, host: Option<&HostReport>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = [
        interrupted(sent),
        generator_kept_up(sent),
        lag_identity(sent),
        unthrottled(sent),
        kernel_took_all(sent),
        long_enough(sent),
        host.and_then(quiet),
    ]
    .into_iter()
    .flatten()
    .collect();
    if let Some(received) = received {
        findings.extend([reconciled(sent, received), receiver_kept_up(received)].into_iter().flatten());
    }
    findings.sort_by_key(|f| std::cmp::Reverse(f.level));
    findings
}

fn interrupted(r: &SendReport) -> Option<Finding> {
    r.interrupted.then(|| Finding {
        check: "run-was-completed",
        level: Verdict::Invalid,
        observed: format!("stopped after {}", show_ns(r.length_ns)),
        means: "the figures are of a part of the run; repeat it and let it finish".into(),
        detail: format!("{} of {} slots used by then", show_count(r.offered + r.skipped), show_count(r.due)),
    })
}

/// What share of the asked rate was offered; `None` where nothing was asked.
pub fn kept(r: &SendReport) -> Option<f64> {
    let (asked, achieved) = (r.offered_per_s?, r.achieved_per_s?);
    (asked > 0.0).then(|| achieved / asked)
}

fn generator_kept_up(r: &SendReport) -> Option<Finding> {
    let kept = kept(r)?;
    let limit = |(floor, intervals): (f64, f64)| r.interval_ns.map(|i| f64::max(floor, intervals * i));
    // Too few samples for the quantile: the largest is what there is.
    let (lag, lag_name) = match r.send_lag.quantile(0.99) {
        Some(p99) => (Some(p99 as f64), "p99"),
        None => (r.send_lag.max().map(|m| m as f64), "max"),
    };
    let above = |l| lag.zip(limit(l)).is_some_and(|(lag, limit)| lag > limit);
    let skipped = if r.due == 0 { 0.0 } else { r.skipped as f64 / r.due as f64 };
    // A grid without intervals (bursts offered all at once) has lag by design.
    let slope = r.send_lag_slope.filter(|_| r.interval_ns.is_some()).unwrap_or(0.0);
    let level = if kept < LEAST_KEPT || slope > MOST_SLOPE || above(INVALID_LAG) {
        Verdict::Invalid
    } else if above(WARN_LAG) || skipped > WARN_SKIPPED {
        Verdict::Warning
    } else {
        return None;
    };
    let lag_text = lag.map_or("—".into(), |l| show_ns(crate::num::signed(round_u64(l))));
    let means = if level == Verdict::Invalid {
        "the configured load was never offered, so this run does not show what the system under test can \
         take: the ceiling is the generator's. Add streams, use a larger batch or GSO, run the generator on \
         another machine, or ask for less, and repeat"
    } else {
        "the load was offered, but less evenly than asked: a tail of this size may be the generator's own. \
         Pin its threads or give it a core of its own"
    };
    Some(Finding {
        check: "generator-kept-up",
        level,
        observed: format!(
            "datagrams ran {lag_text} behind their own schedule at {lag_name} (max {}); the configured rate was \
             {}/s and the achieved rate was {}/s ({:.1} %)",
            r.send_lag.max().map_or("—".into(), show_ns),
            show_count(round_u64(r.offered_per_s.unwrap_or(0.0))),
            show_count(round_u64(r.achieved_per_s.unwrap_or(0.0))),
            kept * 100.0
        ),
        means: means.into(),
        detail: format!(
            "streams={}, send lag p50={}, slope={slope:.4} s/s, skipped={} of {}",
            r.streams.len(),
            r.send_lag.quantile(0.5).map_or("—".into(), |v| show_ns(crate::num::signed(v))),
            show_count(r.skipped),
            show_count(r.due)
        ),
    })
}

/// The send lag an evenly late run must end with, ns: whatever was not
/// offered of the grid is how far it is behind. Holds for a grid of one rate
/// whose run ended by time, with nothing skipped.
pub fn lag_by_identity(r: &SendReport) -> Option<f64> {
    if r.due == 0 || r.skipped > 0 || r.unthrottled || r.interval_ns.is_none() {
        return None;
    }
    Some((1.0 - r.offered as f64 / r.due as f64) * r.length_ns as f64)
}

fn lag_identity(r: &SendReport) -> Option<Finding> {
    let by_identity = lag_by_identity(r)?;
    let lag = r.final_lag_ns.filter(|l| *l > IDENTITY.1 && by_identity > IDENTITY.1 as f64)?;
    let off = lag as f64 / by_identity - 1.0;
    (off.abs() > IDENTITY.0).then(|| Finding {
        check: "lag-identity",
        level: Verdict::Warning,
        observed: format!(
            "the run ended {} behind; from its rates it should be {}",
            show_ns(lag),
            show_ns(crate::num::signed(round_u64(by_identity)))
        ),
        means: "the generator's own figures do not agree: the rate was not even over the run".into(),
        detail: format!("off by {:.1} %", off * 100.0),
    })
}

fn unthrottled(r: &SendReport) -> Option<Finding> {
    r.unthrottled.then(|| Finding {
        check: "unthrottled-latency",
        level: Verdict::Warning,
        observed: "this run was unthrottled, so there was no schedule to be late against".into(),
        means: "its throughput counts and its latency does not: when the system stalls, so does the load. \
                Find the ceiling here, then measure latency at a rate below it"
            .into(),
        detail: format!("{}/s offered", show_count(round_u64(r.achieved_per_s.unwrap_or(0.0)))),
    })
}

fn kernel_took_all(r: &SendReport) -> Option<Finding> {
    if r.refused.is_empty() && r.reported.is_empty() {
        return None;
    }
    let refused: u64 = r.refused.values().sum();
    let reported: u64 = r.reported.values().sum();
    // Answers are rate-limited on most networks: few say that there were none.
    let lost = refused.max(reported) as f64;
    Some(Finding {
        check: "kernel-took-all",
        level: if lost > (1.0 - LEAST_KEPT) * r.offered as f64 { Verdict::Invalid } else { Verdict::Warning },
        observed: format!(
            "{} datagrams were refused by the kernel, {} errors came back from the network",
            show_count(refused),
            show_count(reported)
        ),
        means: "refused datagrams were never sent; ECONNREFUSED means that nobody listens at the target"
            .into(),
        detail: r
            .refused
            .iter()
            .map(|(name, n)| format!("refused {name}={n}"))
            .chain(r.reported.iter().map(|(name, n)| format!("reported {name}={n}")))
            .collect::<Vec<_>>()
            .join(", "),
    })
}

fn long_enough(r: &SendReport) -> Option<Finding> {
    (r.measured_ns < LONG_ENOUGH_NS).then(|| Finding {
        check: "run-was-long-enough",
        level: Verdict::Warning,
        observed: format!("measured for {}", show_ns(r.measured_ns)),
        means: "fine for finding out, too short for a number to be quoted: use 30 s or more".into(),
        detail: format!("{} datagrams measured", show_count(r.measured())),
    })
}

fn quiet(h: &HostReport) -> Option<Finding> {
    let level = if h.steal > STEAL.1 {
        Verdict::Invalid
    } else if h.steal > STEAL.0 {
        Verdict::Warning
    } else {
        return None;
    };
    Some(Finding {
        check: "host-was-quiet",
        level,
        observed: format!("{:.1} % of the CPU time was stolen by the hypervisor", h.steal * 100.0),
        means:
            "the machine stood still at times: what looks like a queue may be that. Repeat on a quieter host"
                .into(),
        detail: "steal, from /proc/stat, over all CPUs".into(),
    })
}

fn reconciled(s: &SendReport, r: &RecvReport) -> Option<Finding> {
    let drops = r.socket_drops.map(u64::from);
    let explained = r.total.unique.saturating_add(drops.unwrap_or(0));
    if explained == s.sent {
        return None;
    }
    let more = explained > s.sent;
    let gap = explained.abs_diff(s.sent);
    Some(Finding {
        check: "counts-reconcile",
        level: if more { Verdict::Invalid } else { Verdict::Warning },
        observed: format!(
            "sent {}, delivered {}, dropped by the receiving socket {}: {} {}",
            show_count(s.sent),
            show_count(r.total.unique),
            drops.map_or("unknown".into(), show_count),
            show_count(gap),
            if more { "too many" } else { "lost in between" }
        ),
        means: if more {
            "other traffic came in, or a clock or counter is wrong: the figures cannot be trusted".into()
        } else {
            "something between the two sockets (a queue, a device, the backlog) dropped them; \
             `observer` shows where"
                .into()
        },
        detail: format!("duplicated={}, stale={}", r.total.duplicated, r.total.stale),
    })
}

/// The finding for a run whose receiver did not tell what it received.
pub fn receiver_unknown(trouble: &ControlError) -> Finding {
    Finding {
        check: "receiver-reported",
        level: Verdict::Invalid,
        observed: "the receiver's counts did not come back".into(),
        means: "what arrived, and how late, is not known: look at the receiving host and repeat the run"
            .into(),
        detail: trouble.to_string(),
    }
}

fn receiver_kept_up(r: &RecvReport) -> Option<Finding> {
    let drops = r.socket_drops.filter(|d| *d > 0)?;
    Some(Finding {
        check: "receiver-kept-up",
        level: Verdict::Warning,
        observed: format!("the receiving socket dropped {} datagrams", show_count(u64::from(drops))),
        means: "the reader was slower than the load, or its buffer too small for a burst: raise net.core.rmem_max \
                and --rcvbuf, or ask for less"
            .into(),
        detail: format!("SO_RCVBUF granted {} B", show_count(crate::num::count(r.rcvbuf))),
    })
}

/// Findings as they are printed.
pub fn show(findings: &[Finding]) -> String {
    let mut out = String::new();
    for f in findings {
        out.push_str(&format!(
            "\n  [{}] {}\n      observed:  {}\n      means:     {}\n      detail:    {}\n",
            f.level.name(),
            f.check,
            wrap(&f.observed),
            wrap(&f.means),
            wrap(&f.detail)
        ));
    }
    out
}

/// Breaks a text into lines that fit beside their label.
fn wrap(text: &str) -> String {
    const WIDTH: usize = 88;
    const INDENT: &str = "\n                 ";
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            out.push_str(INDENT);
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::SendReport;

    /// A run of 40 s that was asked for `asked`/s, kept `kept` of it, and lagged
    /// by `lag` ns throughout.
    fn run(asked: f64, kept: f64, lag: i64) -> SendReport {
        let mut r = SendReport::for_test(asked);
        r.due = round_u64(asked * 40.0);
        r.offered = round_u64(asked * 40.0 * kept);
        r.sent = r.offered;
        r.achieved_per_s = Some(asked * kept);
        (0..2_000).for_each(|_| r.send_lag.record(lag));
        r.final_lag_ns = Some(lag);
        r
    }

    fn level(r: &SendReport) -> Verdict {
        worst(&judge(r, None, None))
    }

    #[test]
    fn the_thresholds_are_those_of_the_table() {
        assert_eq!(level(&run(1e5, 1.0, 5_000)), Verdict::Passed);
        assert_eq!(level(&run(1e5, 0.991, 5_000)), Verdict::Passed);
        assert_eq!(level(&run(1e5, 0.989, 5_000)), Verdict::Invalid);
        // 10 µs intervals: warned above 100 µs, invalid above 1 ms.
        assert_eq!(level(&run(1e5, 1.0, 99_000)), Verdict::Passed);
        assert_eq!(level(&run(1e5, 1.0, 110_000)), Verdict::Warning);
        assert_eq!(level(&run(1e5, 1.0, 1_100_000)), Verdict::Invalid);
        // 1 ms intervals: ten and a hundred of them.
        assert_eq!(level(&run(1e3, 1.0, 9_900_000)), Verdict::Passed);
        assert_eq!(level(&run(1e3, 1.0, 11_000_000)), Verdict::Warning);
        assert_eq!(level(&run(1e3, 1.0, 110_000_000)), Verdict::Invalid);
        let mut skipping = run(1e5, 1.0, 5_000);
        skipping.skipped = skipping.due / 900;
        assert_eq!(level(&skipping), Verdict::Warning);
        let mut sinking = run(1e5, 1.0, 5_000);
        sinking.send_lag_slope = Some(0.011);
        assert_eq!(level(&sinking), Verdict::Invalid);
    }

    #[test]
    fn invalid_outranks_failed_and_comes_first() {
        assert!(Verdict::Invalid > Verdict::Failed && Verdict::Failed > Verdict::Warning);
        let mut r = run(1e5, 0.5, 20_000_000_000);
        r.measured_ns = 1_000_000_000;
        let findings = judge(&r, None, Some(&HostReport { steal: 0.02 }));
        assert_eq!(findings[0].check, "generator-kept-up");
        assert!(findings[0].means.contains("the ceiling is the generator's"));
        assert!(findings.iter().any(|f| f.check == "host-was-quiet" && f.level == Verdict::Warning));
        assert_eq!(
            [Verdict::Passed, Verdict::Warning, Verdict::Failed, Verdict::Invalid].map(Verdict::exit_code),
            [0, 0, 1, 2]
        );
    }

    #[test]
    fn the_lag_identity_is_checked() {
        let mut r = run(1e6, 0.25, 30_000_000_000);
        assert!(judge(&r, None, None).iter().all(|f| f.check != "lag-identity"));
        r.final_lag_ns = Some(20_000_000_000);
        assert!(judge(&r, None, None).iter().any(|f| f.check == "lag-identity"));
    }

    #[test]
    fn long_lines_are_broken_and_nothing_is_lost() {
        let text = "word ".repeat(60);
        let wrapped = wrap(&text);
        assert!(wrapped.lines().all(|l| l.trim_start().chars().count() <= 88));
        assert_eq!(wrapped.split_whitespace().count(), 60);
    }
}
