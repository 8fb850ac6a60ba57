//! `observer model`: the calculator.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use observer::model::question::Question;
use observer::model::sender_queue::{Bucket, Burst, ModelError};
use observer::view;

/// What can be computed.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// How long a burst waits for its Sender, and how to pace it
    SenderQueue(SenderQueueArgs),
}

const EXAMPLES: &str = "\
Examples:
  observer model sender-queue --drain 1.6M --burst 90000 --target 1ms
  observer model sender-queue --drain 1.6M --burst 90000 --target 1ms --dispatch 2M --json
  observer model sender-queue --drain 400k --burst 5000 --target 5ms \\
      --bucket-rate 100Mbit --bucket-burst 256KiB --packet-bytes 1242";

/// A burst and what is in its way.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SenderQueueArgs {
    /// Datagrams per second that the Sender drains
    #[arg(long, value_name = "RATE", value_parser = rate)]
    drain: f64,
    /// Messages in the burst
    #[arg(long, value_name = "N", value_parser = count)]
    burst: u64,
    /// The longest wait that is acceptable
    #[arg(long, value_name = "TIME", value_parser = time)]
    target: Duration,
    /// Messages per second at which the burst is dispatched; at once if absent
    #[arg(long, value_name = "RATE", value_parser = rate)]
    dispatch: Option<f64>,
    /// How long a sleeping Sender takes to start
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0")]
    start_latency: Duration,
    /// Other messages per second in the same queue
    #[arg(long, value_name = "RATE", value_parser = rate)]
    background: Option<f64>,
    /// Rate of a token bucket behind the Sender
    #[arg(long, value_name = "BITS", value_parser = bits, requires_all = ["bucket_burst", "packet_bytes"])]
    bucket_rate: Option<f64>,
    /// Size of that bucket
    #[arg(long, value_name = "BYTES", value_parser = bytes, requires = "bucket_rate")]
    bucket_burst: Option<f64>,
    /// Bytes of a datagram there, Ethernet header included: payload + 42
    #[arg(long, value_name = "BYTES", value_parser = bytes, requires = "bucket_rate")]
    packet_bytes: Option<f64>,
    /// Bursts per second, where it comes again and again
    #[arg(long, value_name = "RATE", value_parser = rate)]
    repeat: Option<f64>,
    /// Rate of the link
    #[arg(long, value_name = "BITS", value_parser = bits, requires = "wire_bytes")]
    link: Option<f64>,
    /// Bytes of a datagram on the link, preamble and gap included: payload + 66
    #[arg(long, value_name = "BYTES", value_parser = bytes, requires = "link")]
    wire_bytes: Option<f64>,
    /// Messages that the application's flow control lets be under way
    #[arg(long, value_name = "N", value_parser = count)]
    window: Option<u64>,
    /// Messages that share a datagram
    #[arg(long, value_name = "N", value_parser = count, default_value = "1")]
    messages_per_datagram: u64,
    /// JSON instead of text
    #[arg(long)]
    json: bool,
}

impl SenderQueueArgs {
    fn question(&self) -> Question {
        let bucket = match (self.bucket_rate, self.bucket_burst, self.packet_bytes) {
            (Some(bit_s), Some(burst_bytes), Some(packet_bytes)) => {
                Some(Bucket { rate_byte_s: bit_s / 8.0, burst_bytes, packet_bytes })
            }
            _ => None,
        };
        Question {
            burst: Burst {
                drain_per_s: self.drain,
                size: self.burst,
                dispatch_per_s: self.dispatch,
                start_latency_s: self.start_latency.as_secs_f64(),
                background_per_s: self.background.unwrap_or(0.0),
                bucket,
                repeats_per_s: self.repeat,
            },
            target_s: self.target.as_secs_f64(),
            link: self.link.zip(self.wire_bytes),
            window: self.window,
            per_datagram: self.messages_per_datagram,
        }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ModelFailure {
    /// The figures make no sense together.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Nobody can read it.
    #[error("cannot write the answer: {0}")]
    Output(#[from] io::Error),
}

impl ModelFailure {
    /// The process's exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Model(_) => super::exit::USAGE,
            Self::Output(_) => super::exit::INVALID,
        }
    }
}

/// Answers.
///
/// # Errors
///
/// [`ModelFailure`].
pub(crate) fn run(command: &ModelCommand) -> Result<ExitCode, ModelFailure> {
    let ModelCommand::SenderQueue(args) = command;
    let reply = args.question().reply()?;
    let colour = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let text = if args.json {
        let mut json = serde_json::to_string(&reply).map_err(io::Error::from)?;
        json.push('\n');
        json
    } else {
        view::model::reply(&reply, colour)
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    load::units::rate(text).map_err(|e| e.to_string())
}

fn count(text: &str) -> Result<u64, String> {
    load::units::count(text).map_err(|e| e.to_string())
}

fn time(text: &str) -> Result<Duration, String> {
    load::units::duration(text).map_err(|e| e.to_string())
}

fn bytes(text: &str) -> Result<f64, String> {
    load::units::size(text).map(|n| n as f64).map_err(|e| e.to_string())
}

/// Bits per second as `tc` takes them: `100Mbit`, `1.5Gbit`, `64kbit`.
fn bits(text: &str) -> Result<f64, String> {
    let wrong = || format!("{text:?} is not a bit rate: write 64kbit, 100Mbit or 1.5Gbit");
    let number = text.strip_suffix("bit/s").or_else(|| text.strip_suffix("bit")).ok_or_else(wrong)?;
    let (number, scale) = match number.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&number[..at], 1e3),
        Some((at, 'M' | 'm')) => (&number[..at], 1e6),
        Some((at, 'G' | 'g')) => (&number[..at], 1e9),
        _ => (number, 1.0),
    };
    let value: f64 = number.trim().parse().map_err(|_| wrong())?;
    let bits = value * scale;
    if bits.is_finite() && bits > 0.0 { Ok(bits) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_rates_are_tcs() {
        assert_eq!(bits("100Mbit"), Ok(1e8));
        assert_eq!(bits("1.5Gbit/s"), Ok(1.5e9));
        assert_eq!((bits("64kbit"), bits("9600bit")), (Ok(64e3), Ok(9600.0)));
        for bad in ["", "bit", "100", "100M", "-1Mbit", "1Tbit", "0bit", "éMbit", "Mébit"] {
            assert!(bits(bad).is_err(), "{bad}");
        }
    }
}
