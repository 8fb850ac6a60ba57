//! `--record`: an observation that is written down.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use observer::trace::record::{RecordOptions, Recorder, Status};
use observer::trace::trigger::Trigger;
use observer::view::units::count;

/// Options of recording.
#[derive(Clone, Debug, Args)]
pub(crate) struct RecordArgs {
    /// Write a trace into this directory, which must be new or empty
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,
    /// Keep only this much of the past; `observer trigger DIR` preserves it
    #[arg(long, value_name = "TIME", requires = "record", value_parser = window)]
    flight_recorder: Option<Duration>,
    /// Preserve the flight recorder's window when an interval is like this, as
    /// in 'total_p99 > 5ms'; may be given several times
    #[arg(long = "trigger", value_name = "EXPR", requires = "flight_recorder")]
    triggers: Vec<Trigger>,
}

fn window(text: &str) -> Result<Duration, String> {
    let time = super::duration(text)?;
    if time < Duration::from_secs(5) { Err("must be 5s or longer".to_owned()) } else { Ok(time) }
}

/// A recording beside an observation.
pub(crate) struct Recording {
    dir: PathBuf,
    status: Option<Arc<Status>>,
    failed: bool,
}

impl RecordArgs {
    /// What was asked for, started; and the recorder for the session, unless
    /// it cannot be.
    pub(crate) fn start(&self, interval: Duration) -> (Option<Recording>, Option<Recorder>) {
        let Some(dir) = &self.record else { return (None, None) };
        let recorder = Recorder::create(RecordOptions {
            window: self.flight_recorder,
            triggers: self.triggers.clone(),
            ..RecordOptions::here(dir.clone(), interval)
        });
        let mut recording = Recording { dir: dir.clone(), status: None, failed: false };
        match recorder {
            Ok(recorder) => {
                recording.status = Some(recorder.status());
                (Some(recording), Some(recorder))
            }
            Err(e) => {
                eprintln!("observer: nothing is recorded, the observation goes on: {e}");
                recording.failed = true;
                (Some(recording), None)
            }
        }
    }
}

impl Recording {
    /// Tells what is new.
    pub(crate) fn tell(&self) {
        for news in self.status.iter().flat_map(|s| s.news()) {
            eprintln!("observer: {news}");
        }
    }

    /// Tells what came of it; whether there is a trace of everything.
    pub(crate) fn finish(&self) -> bool {
        self.tell();
        let Some(status) = &self.status else { return false };
        let of = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
        let (packets, bytes, unrecorded) = (of(&status.packets), of(&status.bytes), of(&status.unrecorded));
        let each = if packets > 0 {
            #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
            let (bytes, cpu) = (bytes as f64 / packets as f64, of(&status.cpu_ns) as f64 / packets as f64);
            format!(", {bytes:.1} bytes and {cpu:.0} ns of CPU each")
        } else {
            String::new()
        };
        let lost =
            if unrecorded > 0 { format!("; {} could not be", count(unrecorded)) } else { String::new() };
        eprintln!("recorded {} datagrams in {}{each}{lost}", count(packets), self.dir.display());
        !self.failed && status.failed().is_none()
    }
}
