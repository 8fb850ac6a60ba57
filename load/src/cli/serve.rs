//! `load recv --control`: one run after another, each announced by its sender.

use std::io::Write;

use load::control::{Service, Token};
use load::display::Display;
use load::{Progress, Stop, Verdict};
use serde_json::json;

use super::args::{RecvArgs, listen};
use super::recv::DatagramLog;
use super::{Failure, completed, print, print_json, text};

/// Serves senders until stopped, or one with `--once`. A report per run; a
/// connection that led to no run is a line on stderr.
pub(crate) fn run(args: &RecvArgs, control: &str, token: Token, stop: &Stop) -> Result<Verdict, Failure> {
    let mut log = args.reader.log.as_deref().map(DatagramLog::create).transpose()?;
    let service = Service::bind(listen(control)?, token, &args.config()?)?;
    let say = |line: String| {
        let _ = writeln!(std::io::stderr(), "{line}");
    };
    say(format!("listening on {}, control on {}", service.local_addr(), service.control_addr()));
    let mut worst = Verdict::Passed;
    while !stop.is_set() {
        let progress = Progress::new();
        let display = Display::start(&progress);
        let session = service.session(stop, &progress, |d| {
            if let Some(log) = &mut log {
                log.add(d);
            }
        });
        drop(display);
        let session = match session {
            Ok(Some(session)) => session,
            Ok(None) => break,
            Err(_) if stop.is_set() => break,
            Err(e) if e.is_the_peers() => {
                say(format!("load: {e}"));
                continue;
            }
            Err(e) => return Err(e.into()),
        };
        if let Some(trouble) = &session.trouble {
            say(format!("load: {trouble}"));
        }
        let verdict = completed(session.trouble.is_some());
        worst = worst.max(verdict);
        if args.json {
            print_json(&json!({
                "schema": "load-recv/1", "verdict": verdict, "peer": session.peer, "recv": session.report,
            }))?;
        } else {
            print(&format!("run of {}\n{}", session.peer, text::recv(&session.report)))?;
        }
        if args.once {
            break;
        }
    }
    if let Some(log) = log {
        log.finish()?;
    }
    Ok(worst)
}
