//! The command line: arguments, signals, exit codes.

use std::{net::IpAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
use observer::filter::Filter;

pub(crate) mod attach;
pub(crate) mod compare;
pub(crate) mod demo;
pub(crate) mod diagnostics;
pub(crate) mod exit;
pub(crate) mod export;
pub(crate) mod limiter;
pub(crate) mod merge;
pub(crate) mod model;
pub(crate) mod observe;
pub(crate) mod paths;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod screen;
pub(crate) mod trigger;

const EXAMPLES: &str = "\
Examples:
  sudo observer                              watch every stamped datagram on this host
  sudo observer --port 9000 --duration 30s   one port, for half a minute
  sudo observer --netns blue --json          one namespace, a JSON report per second
  sudo observer --tui                        the same, to look around in
  sudo observer --listen /run/observer.sock  for others to `observer attach` to
  sudo observer run FILE                     a workload file of `load`, judged by component
  sudo observer --record t1 --duration 30s   write a trace, to report on later
  observer report t1                         the same report again, or a part of it
  observer report t1 --tui --speed 10        played again, ten times as fast
  observer compare t1 t2                     what is different, and whether that is chance
  sudo observer demo                         four scenarios with a known culprit

Exit codes:
  0 passed (warnings included)   1 failed   2 invalid or interrupted
  3 bad usage or file            4 no permission, or no such target";

/// Shows where the tail latency of UDP datagrams hides: in the sender's queue,
/// in a shaper, on the wire, or at the receiver.
///
/// Datagrams are followed by a 32-byte stamp at the start of their payload
/// (see docs/stamp.md); `load` writes it, and any application can.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    /// What to do instead of observing.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// What to observe.
    #[command(flatten)]
    pub(crate) observe: ObserveArgs,
}

/// The other things observer does.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Plays four scenarios with a known culprit in network namespaces of its
    /// own, and says whether it was found
    Demo(observer::demo::cli::DemoArgs),
    /// Computes how long a burst waits, and how to pace it
    #[command(subcommand)]
    Model(model::ModelCommand),
    /// Shows what an observer with --listen sees, without privileges
    Attach(attach::AttachArgs),
    /// Runs a workload file as `load run` does, with the observer attached:
    /// objectives on components are judged, and a missed one names its culprit
    Run(run::RunArgs),
    /// Measures the capacity of paths, and how two of them compare, by the
    /// trains that `load send --pattern` sends meanwhile, or that a trace has
    Paths(paths::PathsArgs),
    /// Reports on a trace that `--record` wrote, as if it had just been
    /// observed
    Report(report::ReportArgs),
    /// Says what limits the rate in a trace: a token bucket, credit by windows,
    /// a sender that stood still
    Limiter(limiter::LimiterArgs),
    /// Says what is different between recorded runs, and whether that is more
    /// than chance
    Compare(compare::CompareArgs),
    /// Joins the halves that a sending and a receiving host recorded
    Merge(merge::MergeArgs),
    /// Writes a trace in a format that other tools read
    Export(export::ExportArgs),
    /// Makes a flight recorder keep its window
    Trigger(trigger::TriggerArgs),
}

/// Options of an observation.
#[derive(Debug, Args)]
pub(crate) struct ObserveArgs {
    /// Only datagrams of sockets with this UDP port, at either end
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Only datagrams that leave through this device first, in the namespace
    /// given or in this one
    #[arg(long, value_name = "NAME")]
    dev: Option<String>,
    /// Only sockets in this network namespace: a name, a path, or a process id
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,
    /// Only sockets used by this process, at either end
    #[arg(long, value_name = "PID")]
    pid: Option<NonZeroU32>,
    /// Only sockets used by processes of this cgroup (version 2) or below it
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// Only datagrams from or to this address
    #[arg(long, value_name = "IP")]
    addr: Option<IpAddr>,
    /// Only runs with this id, decimal or 0x…; may be given several times
    #[arg(long = "run", value_name = "ID", value_parser = load::units::run_id)]
    runs: Vec<u32>,
    /// Where the stamp begins in the UDP payload, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1024))]
    stamp_offset: u32,
    /// Two devices that together are a shaper, whatever is between them: what
    /// enters the first and leaves the second waits in it. Each as DEV or
    /// NETNS/DEV; may be given several times
    #[arg(long = "pair", value_name = "ENTRY:EXIT")]
    pub(crate) pairs: Vec<String>,
    /// Stop after this long and print the report (units: ms, s, m, h)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Time between two updates
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Duration,
    /// One JSON report (`observer-report/1`) per interval, and a final one
    #[arg(long)]
    pub(crate) json: bool,
    /// Show it full-screen: components, queues, sockets, flows, journeys
    #[arg(long, conflicts_with = "json")]
    pub(crate) tui: bool,
    /// How that looks.
    #[command(flatten)]
    pub(crate) screen: observer::tui::args::ScreenArgs,
    /// Let others attach at this Unix socket, see `observer attach`: the user
    /// who ran sudo, or only root
    #[arg(long, value_name = "PATH")]
    pub(crate) listen: Option<PathBuf>,
    /// Let this group attach, by name or number
    #[arg(long, value_name = "GROUP", requires = "listen")]
    pub(crate) listen_group: Option<String>,
    /// Measure what each program costs, in ns per call
    #[arg(long)]
    pub(crate) cost: bool,
    /// Recording.
    #[command(flatten)]
    pub(crate) record: record::RecordArgs,
    /// Diagnostics of the kernel programs on standard error; twice for every
    /// datagram
    #[arg(long, short, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl ObserveArgs {
    /// The restrictions asked for.
    pub(crate) fn filter(&self) -> Filter {
        Filter {
            port: self.port,
            dev: self.dev.clone(),
            netns: self.netns.clone(),
            pid: self.pid,
            cgroup: self.cgroup.clone(),
            addr: self.addr,
        }
    }
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let time = load::units::duration(text).map_err(|e| e.to_string())?;
    if time.is_zero() { Err("must be longer than 0".to_owned()) } else { Ok(time) }
}

fn interval(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    let allowed = Duration::from_millis(100)..=Duration::from_secs(3600);
    if allowed.contains(&time) { Ok(time) } else { Err("must be from 100ms to 1h".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn values_without_sense_are_refused() {
        for bad in [
            &["--port", "0"][..],
            &["--port", "65536"],
            &["--pid", "0"],
            &["--run", "0"],
            &["--run", "0x1ffffffff"],
            &["--duration", "10"],
            &["--duration", "0s"],
            &["--interval", "1ms"],
            &["--stamp-offset", "1025"],
            &["--addr", "10.0.0"],
            &["demo", "--seconds", "0"],
            &["demo", "--scenario", "nonsense"],
            &["--no-such-flag"],
        ] {
            let args = ["observer"].iter().chain(bad);
            assert!(Cli::try_parse_from(args).is_err(), "{bad:?}");
        }
        let good = Cli::try_parse_from(["observer", "--run", "0xff", "--duration", "1.5s"]).unwrap();
        assert_eq!(good.observe.runs, [255]);
        assert_eq!(good.observe.duration, Some(Duration::from_millis(1500)));
    }
}
