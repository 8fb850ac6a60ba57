//! The four tools: each one's command lines, and its own figures out of what
//! it prints.
//!
//! Every tool gets the same payload, the same socket buffers, the same
//! namespaces, and a choice of its own ways of running ([`Variant`]); the one
//! that does best on this machine is used.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::lab::RECEIVER;
use super::pair::{Ends, Listens, Outcome, Plan};

/// Payload, bytes.
pub(super) const SIZE: u32 = 160;

/// A generator with its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    /// This project's, engine `direct`.
    Load,
    /// The same with 16 datagrams in each message.
    LoadGso,
    /// iperf3, UDP.
    Iperf3,
    /// sockperf, mode `throughput`.
    Sockperf,
    /// nuttcp, UDP.
    Nuttcp,
}

impl Tool {
    /// All, in the order they run in a round.
    pub(super) const ALL: [Self; 5] = [Self::Load, Self::Iperf3, Self::Sockperf, Self::Nuttcp, Self::LoadGso];
    /// Other people's.
    pub(super) const PEERS: [Self; 3] = [Self::Iperf3, Self::Sockperf, Self::Nuttcp];

    /// As shown.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::LoadGso => "load, GSO 16",
            Self::Iperf3 => "iperf3",
            Self::Sockperf => "sockperf",
            Self::Nuttcp => "nuttcp",
        }
    }

    /// The ways to run it that are worth trying.
    pub(super) fn variants(self) -> Vec<Variant> {
        match self {
            Self::Load => vec![
                Variant::new("poll", &["--poll", "500us", "--batch", "256"], &["--batch", "256"]),
                Variant::new(
                    "poll, small batches",
                    &["--poll", "500us", "--batch", "256"],
                    &["--batch", "64"],
                ),
                Variant::new("poll", &["--poll", "500us", "--batch", "256"], &["--batch", "256"]).pinned(),
            ],
            Self::LoadGso => vec![
                Variant::new("poll", &["--gro", "--poll", "500us"], &["--gso", "16"]),
                Variant::new("poll", &["--gro", "--poll", "500us"], &["--gso", "16"]).pinned(),
            ],
            Self::Iperf3 | Self::Nuttcp => {
                vec![Variant::new("plain", &[], &[]), Variant::new("plain", &[], &[]).pinned()]
            }
            Self::Sockperf => vec![
                Variant::new("plain", &[], &[]),
                Variant::new("plain", &[], &[]).pinned(),
                Variant::new("spinning receiver", &["--nonblocked", "--recv_looping_num=-1"], &[]),
                Variant::new("spinning receiver", &["--nonblocked", "--recv_looping_num=-1"], &[]).pinned(),
            ],
        }
    }

    /// The two command lines for a run of `seconds` at `rate` datagrams per
    /// second (as fast as it can, if none) with socket buffers of `buffer`
    /// bytes.
    pub(super) fn plan(self, variant: &Variant, rate: Option<f64>, seconds: u32, buffer: u64) -> Plan {
        // None of the tools takes fractions.
        let pps = rate.map(f64::round);
        let (listens, ends, receiver, sender) = match self {
            Self::Load | Self::LoadGso => (
                Listens::Udp(9000),
                Ends::Itself,
                format!("load recv {RECEIVER}:9000 --until-idle 300ms --rcvbuf {buffer} --json"),
                format!(
                    "load send {RECEIVER}:9000 --size {SIZE} --duration {seconds}s --sndbuf {buffer} --json {}",
                    pps.map_or("--unthrottled".into(), |r| format!("--rate {r}"))
                ),
            ),
            Self::Iperf3 => (
                Listens::Tcp(5201),
                Ends::Itself,
                "iperf3 -s -1".into(),
                format!(
                    "iperf3 -c {RECEIVER} -u -l {SIZE} -w {buffer} -t {seconds} -J -b {}",
                    pps.map_or(0.0, |r| r * 8.0 * f64::from(SIZE))
                ),
            ),
            Self::Sockperf => (
                Listens::Udp(11111),
                Ends::Interrupted,
                format!("sockperf server -i {RECEIVER} --buffer-size {buffer}"),
                format!(
                    "sockperf throughput -i {RECEIVER} -m {SIZE} -t {seconds} --buffer-size {buffer} --mps {}",
                    pps.map_or("max".into(), |r| r.to_string())
                ),
            ),
            Self::Nuttcp => (
                Listens::Tcp(5000),
                Ends::Itself,
                "nuttcp -S -1 --nofork".into(),
                format!(
                    "nuttcp -u -l{SIZE} -w{k}k -ws{k}k -T{seconds} -fparse -R{} {RECEIVER}",
                    pps.map_or("u".into(), |r| format!("{r}p")),
                    k = buffer / 1024
                ),
            ),
        };
        let words = |line: String, more: &[&str]| -> Vec<String> {
            line.split_whitespace().chain(more.iter().copied()).map(str::to_owned).collect()
        };
        Plan {
            receiver: words(receiver, variant.receiver),
            sender: match self {
                // Its target comes last.
                Self::Nuttcp => words(sender, &[]),
                _ => words(sender, variant.sender),
            },
            listens,
            ends,
            pinned: variant.pinned,
            lasts: Duration::from_secs(seconds.into()),
        }
    }

    /// What the tool says of a run. Delivered is the receiver's own count.
    ///
    /// # Errors
    ///
    /// If the tool failed, or does not say.
    pub(super) fn figures(self, outcome: &Outcome) -> Result<Figures> {
        let read = match self {
            Self::Load | Self::LoadGso => load(outcome),
            Self::Iperf3 => iperf3(outcome),
            Self::Sockperf => sockperf(outcome),
            Self::Nuttcp => nuttcp(outcome),
        };
        read.with_context(|| {
            format!(
                "no figures from {} (exit {:?}): {} {}",
                self.name(),
                outcome.exit,
                outcome.sender.trim(),
                outcome.complaints.trim()
            )
        })
    }
}

impl Serialize for Tool {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

/// A way to run a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Variant {
    /// As shown, with [`pinned`](Self::pinned).
    pub(super) name: &'static str,
    /// Further options of the receiver.
    pub(super) receiver: &'static [&'static str],
    /// Further options of the sender.
    pub(super) sender: &'static [&'static str],
    /// The sender on CPU 0, the receiver on CPU 1.
    pub(super) pinned: bool,
}

impl Variant {
    pub(super) fn new(
        name: &'static str,
        receiver: &'static [&'static str],
        sender: &'static [&'static str],
    ) -> Self {
        Self { name, receiver, sender, pinned: false }
    }

    fn pinned(self) -> Self {
        Self { pinned: true, ..self }
    }

    /// As shown.
    pub(super) fn shown(&self) -> String {
        format!("{}{}", self.name, if self.pinned { ", pinned" } else { "" })
    }
}

/// A run by the tool's own account.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figures {
    /// Datagrams sent, by the sender.
    pub(super) sent: u64,
    /// Datagrams received, by the receiver.
    pub(super) delivered: u64,
    /// The time that the tool divides by.
    pub(super) seconds: f64,
}

fn load(outcome: &Outcome) -> Result<Figures> {
    let sent: Value = serde_json::from_str(&outcome.sender).context("load send")?;
    let received: Value = serde_json::from_str(&outcome.receiver).context("load recv")?;
    let recv = &received["recv"];
    let (first, last) = (number(recv, "/first_ns")?, number(recv, "/last_ns")?);
    Ok(Figures {
        sent: count(&sent, "/send/sent")?,
        delivered: count(recv, "/total/unique")?,
        seconds: (last - first) / 1e9,
    })
}

fn iperf3(outcome: &Outcome) -> Result<Figures> {
    let report: Value = serde_json::from_str(&outcome.sender).context("iperf3 -J")?;
    if let Some(error) = report["error"].as_str() {
        bail!("{error}");
    }
    // `sum_received` is the receiver's account; its packets include the lost.
    let (packets, lost) =
        (count(&report, "/end/sum_received/packets")?, count(&report, "/end/sum_received/lost_packets")?);
    Ok(Figures {
        sent: count(&report, "/end/sum_sent/packets")?,
        delivered: packets.saturating_sub(lost),
        seconds: number(&report, "/end/sum_received/seconds")?,
    })
}

fn sockperf(outcome: &Outcome) -> Result<Figures> {
    let after = |text: &str, before: &str, unit: &str| -> Option<f64> {
        let (_, rest) = text.split_once(before)?;
        rest.split_once(unit)?.0.trim().parse().ok()
    };
    let sent = after(&outcome.sender, "Total of ", " messages sent in").context("messages sent")?;
    let seconds = after(&outcome.sender, "messages sent in", " sec").context("run time")?;
    let received =
        after(&outcome.receiver, "sockperf: Total ", " messages received").context("messages received")?;
    Ok(Figures { sent: whole(sent)?, delivered: whole(received)?, seconds })
}

fn nuttcp(outcome: &Outcome) -> Result<Figures> {
    let value = |key: &str| -> Result<f64> {
        outcome
            .sender
            .split_whitespace()
            .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
            .and_then(|value| value.parse().ok())
            .with_context(|| format!("no {key}"))
    };
    let (packets, dropped) = (whole(value("pkt")?)?, whole(value("drop")?)?);
    Ok(Figures { sent: packets, delivered: packets.saturating_sub(dropped), seconds: value("real_seconds")? })
}

/// A number in a JSON document, by its pointer.
///
/// # Errors
///
/// If there is none.
pub(super) fn number(json: &Value, pointer: &str) -> Result<f64> {
    json.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("no number at {pointer}"))
}

fn count(json: &Value, pointer: &str) -> Result<u64> {
    json.pointer(pointer).and_then(Value::as_u64).with_context(|| format!("no count at {pointer}"))
}

fn whole(value: f64) -> Result<u64> {
    const MOST: f64 = 9_007_199_254_740_992.0;
    if !(0.0..MOST).contains(&value) || value.fract() != 0.0 {
        bail!("{value} is no count");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "just checked to be whole")]
    Ok(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::lab::Counters;

    fn printed(sender: &str, receiver: &str) -> Outcome {
        Outcome {
            receiver: receiver.into(),
            sender: sender.into(),
            complaints: String::new(),
            exit: Some(0),
            kernel: Counters { sent: 0, read: 0, dropped: 0 },
        }
    }

    #[test]
    fn each_tools_figures_are_found_in_what_it_prints() {
        let iperf3 = r#"{"end":{"sum_sent":{"packets":291180,"seconds":2.0},
            "sum_received":{"seconds":2.5,"lost_packets":682,"packets":291174}}}"#;
        let sockperf = "sockperf: Test ended\nsockperf: Total of 250477 messages sent in 2.003 sec\n";
        let server = "sockperf: Test end\nsockperf: Total 250470 messages received and handled\n";
        let nuttcp =
            "megabytes=31.7215 real_seconds=2.01 rate_Mbps=133.1 tx_cpu=64 drop=90 pkt=207890 data_loss=0.04";
        let send = r#"{"send":{"sent":400}}"#;
        let recv = r#"{"recv":{"first_ns":1000000000,"last_ns":3000000000,"total":{"unique":399}}}"#;
        for (tool, outcome, sent, delivered, seconds) in [
            (Tool::Iperf3, printed(iperf3, ""), 291_180, 290_492, 2.5),
            (Tool::Sockperf, printed(sockperf, server), 250_477, 250_470, 2.003),
            (Tool::Nuttcp, printed(nuttcp, ""), 207_890, 207_800, 2.01),
            (Tool::Load, printed(send, recv), 400, 399, 2.0),
        ] {
            assert_eq!(tool.figures(&outcome).unwrap(), Figures { sent, delivered, seconds }, "{tool:?}");
        }
    }

    #[test]
    fn a_tool_that_failed_is_quoted() {
        for tool in Tool::ALL {
            let error = format!("{:#}", tool.figures(&printed("no route", "")).unwrap_err());
            assert!(error.contains(tool.name()) && error.contains("no route"), "{error}");
        }
        let error = Tool::Iperf3.figures(&printed(r#"{"error":"unable to connect"}"#, "")).unwrap_err();
        assert!(format!("{error:#}").contains("unable to connect"));
    }

    #[test]
    fn the_rate_reaches_each_tool_in_its_own_unit() {
        let sender = |tool: Tool, rate| tool.plan(&tool.variants()[0], rate, 2, 4 << 20).sender.join(" ");
        assert!(sender(Tool::Iperf3, Some(1000.4)).contains("-b 1280000"));
        assert!(sender(Tool::Iperf3, None).contains("-b 0"));
        assert!(sender(Tool::Sockperf, Some(1000.4)).contains("--mps 1000"));
        assert!(sender(Tool::Sockperf, None).contains("--mps max"));
        assert!(sender(Tool::Nuttcp, Some(1000.4)).contains("-R1000p 10."));
        assert!(sender(Tool::Load, Some(1000.4)).contains("--rate 1000 "));
        assert!(sender(Tool::LoadGso, None).contains("--unthrottled"));
        assert!(sender(Tool::LoadGso, None).ends_with("--gso 16"));
    }
}
