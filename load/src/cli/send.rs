//! `load send`.

use load::control::{self, RemoteReport};
use load::host::CpuTime;
use load::{Progress, Stop, Verdict, verdict};
use serde_json::json;

use super::args::{SendArgs, resolve};
use super::{Failure, print, print_json, text};
use load::display::Display;

/// Sends, prints the report (of both ends, where there is a control
/// connection), and gives its verdict.
pub(crate) fn run(args: &SendArgs, stop: &Stop) -> Result<Verdict, Failure> {
    args.load.check()?;
    let mut config = args.load.config(resolve(&args.target)?);
    config.bind = args.bind;
    config.start_at_ns = args.start_at;
    let control = args.control.read()?;
    let progress = Progress::new();
    let display = Display::start(&progress);
    let (sent, received, host) = match control {
        Some((address, token)) => {
            let RemoteReport { sent, received, host } =
                control::run(address, &token, &config, stop, &progress, |_| {})?;
            (sent, Some(received), host)
        }
        None => {
            let before = CpuTime::now();
            let sent = load::send_with(&config, stop, &progress)?;
            (sent, None, before.zip(CpuTime::now()).map(|(a, b)| a.until(b)))
        }
    };
    drop(display);
    let (received, trouble) = match received.transpose() {
        Ok(received) => (received, None),
        Err(trouble) => (None, Some(trouble)),
    };
    let mut findings = verdict::judge(&sent, received.as_ref(), host.as_ref());
    if let Some(trouble) = trouble {
        findings.insert(0, verdict::receiver_unknown(&trouble));
    }
    let verdict = verdict::worst(&findings);
    if args.json {
        print_json(&json!({
            "schema": "load-send/1", "verdict": verdict, "findings": findings, "host": host,
            "send": sent, "recv": received,
        }))?;
    } else {
        let received = received.as_ref().map(text::recv).unwrap_or_default();
        print(&format!("{}{received}{}", text::send(&sent), text::verdict(&findings)))?;
    }
    Ok(verdict)
}
