//! `load both`: a receiver thread and a sender in one process, over loopback.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use load::host::CpuTime;
use load::{Progress, Receiver, RecvConfig, Stop, Verdict, verdict};
use serde_json::json;

use super::args::BothArgs;
use super::progress::Display;
use super::recv::DatagramLog;
use super::{Failure, print, print_json, text};

/// After the last datagram was sent, the receiver waits this long for more.
const DRAIN: Duration = Duration::from_millis(300);

/// Runs both ends, prints both reports and gives the verdict.
pub(crate) fn run(args: &BothArgs, stop: &Stop) -> Result<Verdict, Failure> {
    let ip: IpAddr = if args.ipv6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
    let mut recv = RecvConfig::new(SocketAddr::new(ip, 0));
    args.reader.apply(&mut recv);
    recv.call = args.read_call.into();
    recv.batch = args.read_batch;
    recv.pin = args.read_pin;
    recv.keep = args.load.size;
    let mut log = args.reader.log.as_deref().map(DatagramLog::create).transpose()?;
    // Bound to learn its port before the sender is configured.
    let target = Receiver::bind(&recv)?;
    let mut config = args.load.config(target.local_addr());
    config.check()?;
    let start = load::clock::now_ns() + 20_000_000;
    config.start_at_ns = Some(start);
    let warm = i64::try_from(config.warmup.as_nanos()).unwrap_or(i64::MAX);
    let receiver = target.measuring(config.run, start.saturating_add(warm));
    let progress = Progress::new();
    let display = Display::start(&progress);
    let before = CpuTime::now();
    let over = Stop::new();
    let (sent, received) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            receiver.run_with(&over, &progress, |d| {
                if let Some(log) = &mut log {
                    log.add(d);
                }
            })
        });
        let sent = load::send_with(&config, stop, &progress);
        let expected = sent.as_ref().map_or(0, |r| r.sent);
        // Until everything is there, or nothing comes any more.
        let (mut seen, mut since) = (progress.received(), std::time::Instant::now());
        while sent.is_ok() && progress.received() < expected && since.elapsed() < DRAIN {
            std::thread::sleep(Duration::from_millis(5));
            if progress.received() != seen {
                (seen, since) = (progress.received(), std::time::Instant::now());
            }
        }
        over.set();
        let received = match reader.join() {
            Ok(r) => r,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        (sent, received)
    });
    drop(display);
    let (sent, received) = (sent?, received?);
    if let Some(log) = log {
        log.finish()?;
    }
    let host = before.zip(CpuTime::now()).map(|(a, b)| a.until(b));
    let findings = verdict::judge(&sent, Some(&received), host.as_ref());
    let verdict = verdict::worst(&findings);
    if args.json {
        print_json(&json!({
            "schema": "load-both/1", "verdict": verdict, "findings": findings, "host": host,
            "send": sent, "recv": received,
        }))?;
    } else {
        print(&format!("{}{}{}", text::send(&sent), text::recv(&received), text::verdict(&findings)))?;
    }
    Ok(verdict)
}
