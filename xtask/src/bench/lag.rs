//! How late datagrams leave at rates that the machine can do: `load`'s own
//! send lag beside the lateness of sockperf under-load, interleaved.
//!
//! `load` records the lag of every datagram against its schedule. sockperf
//! keeps only the send times of the messages it wants answered (one in
//! [`REPLY_EVERY`]), in its full log; [`lateness`] puts its grid back. Runs are long
//! enough for a p99 of those.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;

use super::lab::RECEIVER;
use super::pair::{Bench, Ends, Listens, Plan};
use super::record::Setting;
use super::tool::{SIZE, Tool, Variant, number};
use super::{lateness, stats};

/// Rates, per second.
const RATES: [u32; 2] = [20_000, 100_000];
/// sockperf logs every so many messages. Its own default is 100: at 20,000/s
/// one each 5 ms, which keeps step with the kernel's tick (4 ms at HZ 250), so
/// that a whole run of samples misses what the tick does to a sender, or hits
/// it each time (seen: p95 0.1 µs with 100, 17 µs with 97 and 101). A prime
/// meets the tick at all its phases.
const REPLY_EVERY: u32 = 97;
/// What sockperf leaves out at both ends of a run, seconds.
const NOT_LOGGED: f64 = 0.6;
/// Logged messages to aim for: p99 needs 1,000, and sockperf may fall behind.
const WANTED: f64 = 1_500.0;

/// The ways to run each that are worth trying.
fn variants(tool: Tool) -> Vec<Variant> {
    const APART: &[&str] = &["--sender-affinity", "0", "--receiver-affinity", "1"];
    // sockperf leaves as much of the start out of its log.
    const WARM: &[&str] = &["--warmup", "450ms"];
    const WARM_PLACED: &[&str] = &["--warmup", "450ms", "--pin", "0"];
    match tool {
        Tool::Sockperf => vec![
            Variant::new("plain", &[], &[]),
            Variant::new("threads placed", &["--cpu-affinity", "1"], APART),
            Variant::new("spinning receiver", &["--nonblocked", "--recv_looping_num=-1"], &[]),
        ],
        _ => vec![
            Variant::new("poll", &["--poll", "500us"], WARM),
            Variant::new("poll, threads placed", &["--poll", "500us", "--pin", "1"], WARM_PLACED),
        ],
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Lag {
    /// Datagrams whose lag is known.
    pub(super) count: usize,
    /// Median, ns; null below 20 datagrams.
    pub(super) p50_ns: Option<f64>,
    /// 0.99 quantile, ns; null below 1,000 datagrams.
    pub(super) p99_ns: Option<f64>,
    /// The largest, ns.
    pub(super) max_ns: Option<f64>,
}

/// One tool at one rate.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Series {
    /// The tool.
    pub(super) tool: Tool,
    /// Datagrams per second.
    pub(super) rate_per_s: u32,
    /// Length of each run, seconds.
    pub(super) seconds: u32,
    /// The variant chosen.
    pub(super) variant: Variant,
    /// Its command lines.
    pub(super) commands: [String; 2],
    /// One per round.
    pub(super) rounds: Vec<Lag>,
    /// Of the rounds' p99, ns.
    pub(super) median_p99_ns: Option<f64>,
}

/// Runs all of it: for each rate, `load` and sockperf.
///
/// # Errors
///
/// If a tool does not work, or it is interrupted.
pub(super) fn measure(bench: &Bench<'_>, setting: &Setting) -> Result<Vec<Series>> {
    let mut all = Vec::new();
    for rate in RATES {
        for tool in [Tool::Load, Tool::Sockperf] {
            all.push(choose(bench, setting, tool, rate)?);
        }
    }
    for round in 0..setting.rounds {
        for series in &mut all {
            let lag = run(bench, setting, series.tool, &series.variant, series.rate_per_s)?;
            eprintln!(
                "lag {}/{}: {} at {}/s: p99 {}",
                round + 1,
                setting.rounds,
                series.tool.name(),
                series.rate_per_s,
                lag.p99_ns.map_or("—".into(), |ns| format!("{:.0} µs", ns / 1e3))
            );
            series.rounds.push(lag);
        }
    }
    for series in &mut all {
        series.median_p99_ns = stats::median(series.rounds.iter().filter_map(|lag| lag.p99_ns));
    }
    Ok(all)
}

fn choose(bench: &Bench<'_>, setting: &Setting, tool: Tool, rate: u32) -> Result<Series> {
    let variants = variants(tool);
    let mut best = (variants[0], f64::INFINITY);
    for variant in variants.iter().filter(|_| setting.cpus > 1) {
        let p99 = run(bench, setting, tool, variant, rate)?.p99_ns.unwrap_or(f64::INFINITY);
        if p99 < best.1 {
            best = (*variant, p99);
        }
    }
    eprintln!("{} at {rate}/s: {} does best", tool.name(), best.0.shown());
    let seconds = length(rate, setting.seconds);
    let plan = plan(tool, &best.0, rate, seconds, setting.buffer, Path::new("FILE"));
    Ok(Series {
        tool,
        rate_per_s: rate,
        seconds,
        variant: best.0,
        commands: [plan.receiver.join(" "), plan.sender.join(" ")],
        rounds: Vec::new(),
        median_p99_ns: None,
    })
}

/// Seconds that give sockperf's log enough messages.
fn length(rate: u32, least: u32) -> u32 {
    let wanted = WANTED * f64::from(REPLY_EVERY) / f64::from(rate) + NOT_LOGGED;
    (least..).find(|s| f64::from(*s) >= wanted).unwrap_or(least)
}

fn plan(tool: Tool, variant: &Variant, rate: u32, seconds: u32, buffer: u64, log: &Path) -> Plan {
    if tool != Tool::Sockperf {
        return tool.plan(variant, Some(f64::from(rate)), seconds, buffer);
    }
    let words = |line: String, more: &[&str]| -> Vec<String> {
        line.split_whitespace().chain(more.iter().copied()).map(str::to_owned).collect()
    };
    let mut sender = words(
        format!(
            "sockperf under-load -i {RECEIVER} -m {SIZE} -t {seconds} --buffer-size {buffer} --mps {rate} \
             --reply-every {REPLY_EVERY} --full-log"
        ),
        &[],
    );
    sender.push(log.display().to_string());
    sender.extend(variant.sender.iter().map(|word| (*word).to_owned()));
    Plan {
        receiver: words(format!("sockperf server -i {RECEIVER} --buffer-size {buffer}"), variant.receiver),
        sender,
        listens: Listens::Udp(11111),
        ends: Ends::Interrupted,
        pinned: false,
        lasts: Duration::from_secs(seconds.into()),
    }
}

fn run(bench: &Bench<'_>, setting: &Setting, tool: Tool, variant: &Variant, rate: u32) -> Result<Lag> {
    let log = bench.scratch("full-log.csv");
    let seconds = length(rate, setting.seconds);
    let outcome = bench.run(&plan(tool, variant, rate, seconds, setting.buffer, &log))?;
    if tool == Tool::Sockperf {
        let text = std::fs::read_to_string(&log)
            .with_context(|| format!("sockperf wrote no full log: {}", outcome.sender.trim()))?;
        std::fs::remove_file(&log).context("cannot remove sockperf's full log")?;
        return sockperf(&text, rate);
    }
    let report: Value = serde_json::from_str(&outcome.sender)
        .with_context(|| format!("load send: {}", outcome.complaints.trim()))?;
    let lag = report.pointer("/send/send_lag").context("load send reports no send lag")?;
    // Null is what it says where there are too few datagrams.
    let quantile = |name: &str| lag[name].as_f64();
    Ok(Lag {
        count: usize::try_from(lag["count"].as_u64().context("load send reports no count")?)?,
        p50_ns: quantile("p50_ns"),
        p99_ns: quantile("p99_ns"),
        max_ns: Some(number(lag, "/max_ns")?),
    })
}

/// Lateness out of sockperf's full log.
fn sockperf(log: &str, rate: u32) -> Result<Lag> {
    const DROPPED: &str = "# dropped messages = ";
    let dropped = log.split_once(DROPPED).and_then(|(_, rest)| rest.split(';').next());
    if dropped.map(str::trim) != Some("0") {
        // The log numbers what was answered: a gap would shift the grid.
        let nothing = Lag { count: 0, p50_ns: None, p99_ns: None, max_ns: None };
        return dropped.map(|_| nothing).context("sockperf's full log does not say what was dropped");
    }
    let rows = log.lines().skip_while(|line| !line.starts_with("packet,")).skip(1);
    let mut times = Vec::new();
    for (k, row) in rows.take_while(|row| !row.starts_with('-')).enumerate() {
        let mut fields = row.split(',').map(str::trim);
        let number: Option<usize> = fields.next().and_then(|n| n.parse().ok());
        let seconds: Option<f64> = fields.next().and_then(|t| t.parse().ok());
        match (number, seconds) {
            (Some(number), Some(seconds)) if number == k => times.push(seconds * 1e9),
            _ => bail!("row {k} of sockperf's full log is not what it should be: {row:?}"),
        }
    }
    let late = lateness::against_grid(&times, 1e9 / f64::from(rate), f64::from(REPLY_EVERY));
    Ok(Lag {
        count: late.len(),
        p50_ns: stats::quantile(&late, 0.5),
        p99_ns: stats::quantile(&late, 0.99),
        max_ns: late.iter().copied().reduce(f64::max),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    fn log(dropped: u32, rows: impl Iterator<Item = f64>) -> String {
        let mut text = format!(
            "------\ntest was performed using: --mps=20000\nsockperf: # dropped messages = {dropped}; # duplicated \
             messages = 0\n------\npacket, txTime(sec), rxTime(sec), latency(usec)\n"
        );
        for (k, t) in rows.enumerate() {
            writeln!(text, "{k}, {t:.9}, {:.9}, 45.0", t + 1e-4).unwrap();
        }
        text + "------------------------------\n"
    }

    #[test]
    fn lateness_is_read_from_the_full_log() {
        // 1,000 rows, as far apart as they are logged; the last 15 are 2 ms late.
        let apart = f64::from(REPLY_EVERY) / 20_000.0;
        let rows = (0..1000).map(|k| 2.4 + f64::from(k) * apart + if k >= 985 { 0.002 } else { 0.0 });
        let lag = sockperf(&log(0, rows), 20_000).unwrap();
        assert_eq!(lag.count, 1000);
        assert!((lag.p99_ns.unwrap() - 2e6).abs() < 1e3 && lag.p50_ns.unwrap() < 1e3, "{lag:?}");
        assert!((lag.max_ns.unwrap() - 2e6).abs() < 1e3);
    }

    #[test]
    fn too_few_rows_or_lost_ones_give_no_quantile() {
        let rows = || (0..999).map(|k| f64::from(k) * 0.005);
        assert_eq!(sockperf(&log(0, rows()), 20_000).unwrap().p99_ns, None);
        assert_eq!(sockperf(&log(3, rows()), 20_000).unwrap().count, 0);
        assert!(sockperf("nothing", 20_000).is_err());
        assert!(sockperf(&(log(0, rows()).replace("7, ", "x, ")), 20_000).is_err());
    }

    #[test]
    fn runs_are_long_enough_for_a_p99() {
        for rate in RATES {
            let logged = f64::from(length(rate, 1)) - NOT_LOGGED;
            assert!(logged * f64::from(rate) / f64::from(REPLY_EVERY) >= WANTED);
        }
        assert_eq!(length(100_000, 60), 60);
    }
}
