//! Every option, its help and its value's syntax, in one place.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use load::control::Token;
use load::pattern::Pattern;
use load::units;
use load::{Buffer, CatchUp, Engine, Idle, ReadCall, RecvConfig, Schedule, SendCall, SendConfig};

use super::Failure;

const EXAMPLES: &str = "\
Examples:
  load both --rate 20k --duration 10s           both ends in this process, over loopback
  load run examples/ladder.toml --report out    a suite with objectives, judged
  load recv :9000                               receive until Ctrl-C
  load send 10.0.0.2:9000 --rate 50k            constant rate for 10 s
  load recv :9000 --control :9001 --token-file token
  load send 10.0.0.2:9000 --rate 50k --control 10.0.0.2:9001 --token-file token
                                                the same, judged by what arrived
  load send 10.0.0.2:9000 --burst 90k --dispatch 1.7M --engine driver
                                                one burst through a ring and one Sender thread
  load send 10.0.0.2:9000 --unthrottled --gso 16 --size 1400

Exit codes: 0 passed (warnings included), 1 failed, 2 invalid (the load asked for was not
offered) or interrupted, 3 bad usage, 4 no permission or target.";

/// A UDP load generator that says when it did not offer the load.
#[derive(Debug, Parser)]
#[command(name = "load", version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Offer a load to a target.
    Send(SendArgs),
    /// Receive a load and account for it.
    Recv(RecvArgs),
    /// Send and receive in this process, over loopback.
    Both(BothArgs),
    /// Run a workload file: a load or a suite, with objectives and a verdict.
    Run(super::run::RunArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// Where to, as ADDRESS:PORT or NAME:PORT.
    pub(crate) target: String,
    /// Local address, as ADDRESS:PORT (port 0: any).
    #[arg(long, value_name = "ADDR")]
    pub(crate) bind: Option<SocketAddr>,
    /// Start when the wall clock shows so many seconds since 1970 (1767225600.5): several
    /// senders at the same time.
    #[arg(long, value_name = "TIME", conflicts_with = "control", value_parser = start_at)]
    pub(crate) start_at: Option<i64>,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// Print the report as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// The control connection with the other host, which brings the two halves of a run
    /// together; for `recv` where to listen for it.
    #[arg(long, value_name = "HOST:PORT", requires = "token_file")]
    pub(crate) control: Option<String>,
    /// File with the token that both hosts share (16 bytes or more); it is never sent.
    #[arg(long, value_name = "FILE", requires = "control")]
    token_file: Option<PathBuf>,
}

impl ControlArgs {
    /// The address and the token, where a control connection is asked for.
    pub(crate) fn read(&self) -> Result<Option<(&str, Token)>, Failure> {
        let Some((address, file)) = self.control.as_deref().zip(self.token_file.as_deref()) else {
            return Ok(None);
        };
        Ok(Some((address, Token::read(file)?)))
    }
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("schedule").args(["rate", "unthrottled", "burst", "poisson", "pattern"]))]
#[command(group = ArgGroup::new("grouped").args(["burst", "pattern"]).multiple(true))]
pub(crate) struct LoadArgs {
    /// Constant rate, datagrams per second (50k, 1.6M/s). Default 1k.
    #[arg(long, value_parser = units::rate, value_name = "RATE")]
    rate: Option<f64>,
    /// Exponential intervals with this mean rate.
    #[arg(long, value_parser = units::rate, value_name = "RATE")]
    poisson: Option<f64>,
    /// No schedule, as fast as possible; the latency means nothing then.
    #[arg(long)]
    unthrottled: bool,
    /// Bursts of this many datagrams.
    #[arg(long, value_parser = units::count, value_name = "N")]
    burst: Option<u64>,
    /// Rate inside a burst; without it, all at once.
    #[arg(long, value_parser = units::rate, value_name = "RATE", requires = "burst")]
    dispatch: Option<f64>,
    /// From one burst to the next; without it, a single burst.
    #[arg(long, value_parser = units::duration, value_name = "TIME", requires = "grouped")]
    every: Option<Duration>,
    /// How many bursts.
    #[arg(long, value_parser = units::count, value_name = "N", requires = "every")]
    bursts: Option<u64>,
    /// Probe the path instead of filling it: pairs, or trains, of datagrams sent all at once
    /// (`observer paths` measures by them). --every and --bursts say how often.
    #[arg(long, value_enum, value_name = "PATTERN")]
    pattern: Option<PatternArg>,
    /// Datagrams in a train. Default 300.
    #[arg(long, value_parser = units::count, value_name = "N", requires = "pattern")]
    train: Option<u64>,
    /// Send at --rate for the first time, be silent for the second, and so on.
    #[arg(long, value_parser = on_off, value_name = "ON:OFF", requires = "rate")]
    on_off: Option<(Duration, Duration)>,
    /// What to do with slots that are late.
    #[arg(long, value_enum, default_value_t)]
    catch_up: CatchUpArg,
    /// Stop after this many datagrams.
    #[arg(long, value_parser = units::count, value_name = "N")]
    count: Option<u64>,
    /// Stop after this long. Default 10s where nothing else ends the run.
    #[arg(long, value_parser = units::duration, value_name = "TIME")]
    duration: Option<Duration>,
    /// Leave this much of the start out of the figures.
    #[arg(long, value_parser = units::duration, value_name = "TIME", default_value = "0")]
    warmup: Duration,
    /// Payload, bytes: 32 (the stamp) to what the path's MTU carries.
    #[arg(long, value_parser = units::size, value_name = "BYTES", default_value = "160")]
    pub(crate) size: usize,
    /// Publisher threads, one stream each.
    #[arg(long, default_value_t = 1, value_name = "N")]
    streams: u16,
    /// How datagrams get to the kernel: direct (publishers call sendmmsg) or
    /// driver (publishers offer into a ring, one Sender thread drains it).
    #[arg(long, value_enum, default_value_t)]
    engine: EngineArg,
    /// Most messages in one call.
    #[arg(long, default_value_t = 64, value_name = "N")]
    batch: usize,
    /// Datagrams the driver's ring holds. Default 131072.
    #[arg(long, value_parser = units::size, value_name = "N")]
    ring: Option<usize>,
    /// What the driver's Sender does when the ring is empty: busy-spin, yield (default) or
    /// sleep:TIME.
    #[arg(long, value_parser = idle, value_name = "HOW")]
    idle: Option<Idle>,
    /// The system call that sends.
    #[arg(long, value_enum, default_value_t)]
    call: SendCallArg,
    /// Do not connect the socket: every datagram carries its address.
    #[arg(long)]
    unconnected: bool,
    /// Datagrams in one message by UDP GSO.
    #[arg(long, default_value_t = 1, value_name = "N")]
    gso: usize,
    /// Send buffer: large, kernel (its default) or bytes (4MiB).
    #[arg(long, value_parser = buffer, default_value = "large", value_name = "SIZE")]
    sndbuf: Buffer,
    /// How long before its time a publisher stops sleeping and spins. More is punctual and
    /// burns a CPU; 0 only sleeps. Default 120us, with --realtime 20us.
    #[arg(long, value_parser = units::duration, value_name = "TIME")]
    spin: Option<Duration>,
    /// Real-time priority for the sending threads (needs CAP_SYS_NICE): other work on the
    /// machine does not make them late.
    #[arg(long)]
    realtime: bool,
    /// CPUs for the threads, the driver's Sender first (0,1).
    #[arg(long, value_delimiter = ',', value_name = "CPUS")]
    pin: Vec<usize>,
    /// Run id in the stamps, decimal or 0x… Default: random.
    #[arg(long, value_parser = units::run_id, value_name = "ID")]
    run_id: Option<u32>,
}

impl LoadArgs {
    /// Refuses options that go with another value of a third one.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let refuse = |why: &str| Err(Failure::Usage(why.to_owned()));
        match (self.engine, self.ring, self.idle) {
            (EngineArg::Direct, Some(_), _) => return refuse("--ring goes with --engine driver"),
            (EngineArg::Direct, _, Some(_)) => return refuse("--idle goes with --engine driver"),
            _ => {}
        }
        match (self.pattern, self.train) {
            (Some(PatternArg::Pairs), Some(_)) => {
                refuse("a pair has two datagrams; --train goes with --pattern trains")
            }
            (Some(PatternArg::Trains), Some(0 | 1)) => refuse("a train has 2 datagrams or more"),
            _ => Ok(()),
        }
    }

    /// The configuration these options ask for.
    pub(crate) fn config(&self, target: SocketAddr) -> SendConfig {
        let mut c = SendConfig::new(target);
        c.connect = !self.unconnected;
        c.run = self.run_id.unwrap_or(c.run);
        c.streams = self.streams;
        c.size = self.size;
        c.engine = match self.engine {
            EngineArg::Direct => Engine::Direct { batch: self.batch },
            EngineArg::Driver => Engine::Driver {
                ring: self.ring.unwrap_or(1 << 17),
                batch: self.batch,
                idle: self.idle.unwrap_or_default(),
            },
        };
        c.call = self.call.into();
        c.segments = self.gso;
        c.schedule = self.schedule();
        c.catch_up = self.catch_up.into();
        c.count = self.count;
        c.duration = self.duration;
        if c.count.is_none() && c.duration.is_none() && c.schedule.length_ns().is_none() {
            c.duration = Some(Duration::from_secs(10));
        }
        c.warmup = self.warmup;
        c.sndbuf = self.sndbuf;
        c.realtime = self.realtime;
        if self.realtime {
            c.spin_ns = load::clock::REALTIME_SPIN_NS;
        }
        if let Some(spin) = self.spin {
            c.spin_ns = i64::try_from(spin.as_nanos()).unwrap_or(i64::MAX);
        }
        c.pin.clone_from(&self.pin);
        c
    }

    fn schedule(&self) -> Schedule {
        if self.unthrottled {
            return Schedule::Unthrottled;
        }
        if let Some(pattern) = self.pattern {
            return Pattern::from(pattern).schedule(self.train, self.every, self.bursts);
        }
        if let Some(size) = self.burst {
            return Schedule::Bursts {
                size,
                dispatch: self.dispatch,
                every: self.every,
                repeat: self.bursts,
            };
        }
        if let Some(rate) = self.poisson {
            return Schedule::Poisson { rate, seed: u64::from(self.run_id.unwrap_or(1)) };
        }
        let rate = self.rate.unwrap_or(1000.0);
        match self.on_off {
            Some((on, off)) => Schedule::OnOff { rate, on, off },
            None => Schedule::Constant { rate },
        }
    }
}

/// The patterns by name.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PatternArg {
    /// Two at once, 60 times, 10 ms apart.
    Pairs,
    /// 300 at once, 4 times, a second apart.
    Trains,
}

impl From<PatternArg> for Pattern {
    fn from(arg: PatternArg) -> Self {
        match arg {
            PatternArg::Pairs => Self::Pairs,
            PatternArg::Trains => Self::Trains,
        }
    }
}

/// A wall-clock time, as ns of CLOCK_MONOTONIC.
fn start_at(text: &str) -> Result<i64, String> {
    let unix_s: f64 = text.parse().map_err(|_| "write seconds since 1970, as in 1767225600.5".to_owned())?;
    let at = load::pattern::monotonic_at(unix_s).unwrap_or(i64::MIN);
    let ahead = at.saturating_sub(load::clock::now_ns());
    if (0..=HOUR_NS).contains(&ahead) {
        Ok(at)
    } else {
        Err("that is not within the coming hour; write seconds since 1970, as `date +%s` prints".to_owned())
    }
}

const HOUR_NS: i64 = 3_600_000_000_000;

#[derive(Debug, Args)]
pub(crate) struct RecvArgs {
    /// Where to listen, as ADDRESS:PORT, :PORT or PORT.
    pub(crate) bind: String,
    /// Hear only this sender.
    #[arg(long, value_name = "ADDR")]
    pub(crate) from: Option<SocketAddr>,
    /// Follow only this run.
    #[arg(long, conflicts_with = "control", value_parser = units::run_id, value_name = "ID")]
    pub(crate) run_id: Option<u32>,
    /// Stop after this many different datagrams.
    #[arg(long, conflicts_with = "control", value_parser = some_count, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Stop after this long.
    #[arg(long, conflicts_with = "control", value_parser = some_time, value_name = "TIME")]
    pub(crate) duration: Option<Duration>,
    /// Stop when nothing came for this long, once something has.
    #[arg(long, conflicts_with = "control", value_parser = some_time, value_name = "TIME")]
    pub(crate) until_idle: Option<Duration>,
    /// The system call that reads.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) call: ReadCallArg,
    /// Most messages in one call.
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub(crate) batch: usize,
    /// CPU for the reading thread.
    #[arg(long, value_name = "CPU")]
    pub(crate) pin: Option<usize>,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    /// With --control: finish after the first run.
    #[arg(long, requires = "control")]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) reader: ReaderArgs,
    /// Print the report as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReaderArgs {
    /// Receive buffer: large, kernel (its default) or bytes (4MiB).
    #[arg(long, value_parser = buffer, default_value = "large", value_name = "SIZE")]
    rcvbuf: Buffer,
    /// Let the kernel hand over several datagrams as one message (UDP GRO).
    #[arg(long)]
    gro: bool,
    /// After the last datagram, look again without sleeping for this long.
    #[arg(long, value_parser = units::duration, default_value = "0", value_name = "TIME")]
    read_spin: Duration,
    /// Where the queue is empty, sleep this long instead of waiting in the kernel: the
    /// highest rates, at the price of so much latency (50us).
    #[arg(long, value_parser = units::duration, default_value = "0", value_name = "TIME")]
    poll: Duration,
    /// Pause after every read call: a slow receiver.
    #[arg(long, value_parser = units::duration, default_value = "0", value_name = "TIME")]
    read_delay: Duration,
    /// Stand still once: AT after the first datagram, FOR so long.
    #[arg(long, value_parser = stall, value_name = "AT:FOR")]
    stall: Option<(Duration, Duration)>,
    /// Write every datagram's times to this file (CSV, ns of CLOCK_MONOTONIC).
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
}

impl ReaderArgs {
    /// Sets what these options ask for.
    pub(crate) fn apply(&self, c: &mut RecvConfig) {
        c.rcvbuf = self.rcvbuf;
        c.gro = self.gro;
        c.spin = self.read_spin;
        c.poll = self.poll;
        c.read_delay = self.read_delay;
        c.stall = self.stall;
    }
}

impl RecvArgs {
    /// The configuration these options ask for.
    pub(crate) fn config(&self) -> Result<RecvConfig, Failure> {
        let mut c = RecvConfig::new(listen(&self.bind)?);
        self.reader.apply(&mut c);
        c.connect = self.from;
        c.run = self.run_id;
        c.count = self.count;
        c.duration = self.duration;
        c.idle = self.until_idle;
        c.call = self.call.into();
        c.batch = self.batch;
        c.pin = self.pin;
        Ok(c)
    }
}

#[derive(Debug, Args)]
pub(crate) struct BothArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// Over IPv6.
    #[arg(short = '6', long)]
    pub(crate) ipv6: bool,
    /// The system call that reads.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) read_call: ReadCallArg,
    /// Most messages in one read call.
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub(crate) read_batch: usize,
    /// CPU for the reading thread.
    #[arg(long, value_name = "CPU")]
    pub(crate) read_pin: Option<usize>,
    #[command(flatten)]
    pub(crate) reader: ReaderArgs,
    /// Print the report as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum EngineArg {
    #[default]
    Direct,
    Driver,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum CatchUpArg {
    /// Offer them at once.
    #[default]
    Burst,
    /// Offer them at no more than twice the rate.
    Capped,
    /// Give them up, and count them.
    Skip,
}

impl From<CatchUpArg> for CatchUp {
    fn from(a: CatchUpArg) -> Self {
        match a {
            CatchUpArg::Burst => Self::Burst,
            CatchUpArg::Capped => Self::Capped,
            CatchUpArg::Skip => Self::Skip,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum SendCallArg {
    #[default]
    Sendmmsg,
    Sendmsg,
    Sendto,
    Write,
}

impl From<SendCallArg> for SendCall {
    fn from(a: SendCallArg) -> Self {
        match a {
            SendCallArg::Sendmmsg => Self::Sendmmsg,
            SendCallArg::Sendmsg => Self::Sendmsg,
            SendCallArg::Sendto => Self::Sendto,
            SendCallArg::Write => Self::Write,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum ReadCallArg {
    #[default]
    Recvmmsg,
    Recvmsg,
    Recvfrom,
    Read,
}

impl From<ReadCallArg> for ReadCall {
    fn from(a: ReadCallArg) -> Self {
        match a {
            ReadCallArg::Recvmmsg => Self::Recvmmsg,
            ReadCallArg::Recvmsg => Self::Recvmsg,
            ReadCallArg::Recvfrom => Self::Recvfrom,
            ReadCallArg::Read => Self::Read,
        }
    }
}

fn buffer(text: &str) -> Result<Buffer, String> {
    match text {
        "large" => Ok(Buffer::Large),
        "kernel" | "default" => Ok(Buffer::Kernel),
        _ => units::size(text).map(Buffer::Bytes).map_err(|e| format!("{e}; or large, or kernel")),
    }
}

fn idle(text: &str) -> Result<Idle, String> {
    match text {
        "busy-spin" => Ok(Idle::BusySpin),
        "yield" => Ok(Idle::Yield),
        _ => match text.strip_prefix("sleep:").map(units::duration) {
            Some(Ok(d)) if !d.is_zero() => Ok(Idle::Sleep(d)),
            Some(Err(e)) => Err(e.to_string()),
            _ => Err(format!("{text:?} is none of busy-spin, yield, sleep:TIME (as in sleep:50us)")),
        },
    }
}

fn two(text: &str, names: &str) -> Result<(Duration, Duration), String> {
    let (a, b) = text.split_once(':').ok_or(format!("write {names}, two durations and a colon"))?;
    let one = |t| units::duration(t).map_err(|e| e.to_string());
    Ok((one(a)?, one(b)?))
}

fn some_count(text: &str) -> Result<u64, String> {
    match units::count(text) {
        Ok(0) => Err("0 is nothing to wait for; leave it out to run until stopped".into()),
        other => other.map_err(|e| e.to_string()),
    }
}

fn some_time(text: &str) -> Result<Duration, String> {
    match units::duration(text) {
        Ok(d) if d.is_zero() => {
            Err("no time is nothing to wait for; leave it out to run until stopped".into())
        }
        other => other.map_err(|e| e.to_string()),
    }
}

fn on_off(text: &str) -> Result<(Duration, Duration), String> {
    two(text, "ON:OFF, as in 100ms:900ms")
}

fn stall(text: &str) -> Result<(Duration, Duration), String> {
    two(text, "AT:FOR, as in 2s:200ms")
}

/// The address of a target given as ADDRESS:PORT or NAME:PORT.
pub(crate) fn resolve(target: &str) -> Result<SocketAddr, Failure> {
    if let Ok(addr) = target.parse() {
        return Ok(addr);
    }
    let parts = target.rsplit_once(':').filter(|(name, _)| !name.is_empty());
    if let Some((name, port)) = parts
        && !port.is_empty()
        && port.bytes().all(|b| b.is_ascii_digit())
        && port.parse::<u16>().is_err()
    {
        return Err(Failure::Usage(format!("{port:?} is not a port, 1 to 65535; write {name}:9000")));
    }
    let named = parts.filter(|(_, port)| port.parse::<u16>().is_ok());
    if named.is_none() || target.starts_with('[') {
        return Err(Failure::Usage(format!(
            "{target:?} is not a target; write ADDRESS:PORT or NAME:PORT, as in 10.0.0.2:9000 or [fd00::2]:9000"
        )));
    }
    match target.to_socket_addrs().map(|mut a| a.next()) {
        Ok(Some(addr)) => Ok(addr),
        Ok(None) => Err(Failure::System(format!("{target} has no address"))),
        Err(e) => Err(Failure::System(format!("cannot find the address of {target}: {e}"))),
    }
}

/// The local address given as ADDRESS:PORT, :PORT or PORT.
pub(crate) fn listen(bind: &str) -> Result<SocketAddr, Failure> {
    let port = bind.strip_prefix(':').unwrap_or(bind);
    if let Ok(port) = port.parse::<u16>() {
        return Ok(SocketAddr::from(([0, 0, 0, 0], port)));
    }
    bind.parse().map_err(|_| {
        Failure::Usage(format!(
            "{bind:?} is not a local address; write ADDRESS:PORT, :PORT or PORT, as in :9000"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn addresses_are_read_in_every_form() {
        assert_eq!(listen(":9000").unwrap().to_string(), "0.0.0.0:9000");
        assert_eq!(listen("9000").unwrap().to_string(), "0.0.0.0:9000");
        assert_eq!(listen("[::1]:9").unwrap().to_string(), "[::1]:9");
        assert!(matches!(listen("host:9"), Err(Failure::Usage(_))));
        assert_eq!(resolve("[::1]:9").unwrap().to_string(), "[::1]:9");
        for bad in ["", ":9", "10.0.0.1", "10.0.0.1:99999", "[::1]"] {
            assert!(matches!(resolve(bad), Err(Failure::Usage(_))), "{bad}");
        }
    }

    #[test]
    fn a_run_without_a_bound_gets_one() {
        let config = |line: &[&str]| {
            let cli = Cli::try_parse_from([&["load", "send", "127.0.0.1:9"], line].concat()).unwrap();
            let Command::Send(a) = cli.command else { panic!() };
            a.load.config("127.0.0.1:9".parse().unwrap())
        };
        assert_eq!(config(&["--rate", "5k"]).duration, Some(Duration::from_secs(10)));
        assert_eq!(config(&["--burst", "5k"]).duration, None);
        assert_eq!(config(&["--count", "5k"]).duration, None);
        assert_eq!(
            config(&["--rate", "1k", "--on-off", "100ms:1s"]).schedule,
            Schedule::OnOff { rate: 1e3, on: Duration::from_millis(100), off: Duration::from_secs(1) }
        );
    }

    #[test]
    fn options_of_another_engine_or_pattern_are_refused() {
        for (line, right) in [
            ("--idle yield", false),
            ("--ring 5", false),
            ("--engine driver --ring 5 --idle busy-spin", true),
            ("--pattern pairs --train 5", false),
            ("--pattern trains --train 1", false),
            ("--pattern trains --train 2", true),
        ] {
            let words = ["load", "send", "127.0.0.1:9"].into_iter().chain(line.split(' '));
            let Command::Send(a) = Cli::try_parse_from(words).unwrap().command else { panic!() };
            assert_eq!(a.load.check().is_ok(), right, "{line}");
        }
    }

    #[test]
    fn contradictions_and_units_are_refused() {
        for line in [
            "--rate 5k --unthrottled",
            "--dispatch 5k",
            "--bursts 3 --burst 5",
            "--duration 10",
            "--rate 10ms",
            "--idle sleep:5",
            "--on-off 1s:1s",
            "--sndbuf big",
        ] {
            let words = ["load", "send", "127.0.0.1:9"].into_iter().chain(line.split(' '));
            assert!(Cli::try_parse_from(words).is_err(), "{line}");
        }
    }
}
