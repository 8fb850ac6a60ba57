//! `load both`: a receiver thread and a sender in one process, over loopback.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use load::{Progress, RecvConfig, Stop, Verdict, pair, verdict};
use serde_json::json;

use super::args::BothArgs;
use super::recv::DatagramLog;
use super::{Failure, print, print_json, text};
use load::display::Display;

/// Runs both ends, prints both reports and gives the verdict.
pub(crate) fn run(args: &BothArgs, stop: &Stop) -> Result<Verdict, Failure> {
    args.load.check()?;
    let ip: IpAddr = if args.ipv6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
    let mut recv = RecvConfig::new(SocketAddr::new(ip, 0));
    args.reader.apply(&mut recv);
    recv.call = args.read_call.into();
    recv.batch = args.read_batch;
    recv.pin = args.read_pin;
    recv.keep = args.load.size;
    let mut log = args.reader.log.as_deref().map(DatagramLog::create).transpose()?;
    let progress = Progress::new();
    let display = Display::start(&progress);
    let report = pair::run(
        &recv,
        |target| args.load.config(target),
        stop,
        &progress,
        |d| {
            if let Some(log) = &mut log {
                log.add(d);
            }
        },
    )?;
    drop(display);
    let logged = log.map_or(Ok(()), DatagramLog::finish);
    let findings = verdict::judge(&report.sent, Some(&report.received), report.host.as_ref());
    let verdict = verdict::worst(&findings);
    if args.json {
        print_json(&json!({
            "schema": "load-both/1", "verdict": verdict, "findings": findings, "host": report.host,
            "send": report.sent, "recv": report.received,
        }))?;
    } else {
        let (sent, received) = (text::send(&report.sent), text::recv(&report.received));
        print(&format!("{sent}{received}{}", text::verdict(&findings)))?;
    }
    logged?;
    Ok(verdict)
}
