//! The observer on the running kernel as a watcher of workloads: a session
//! per run, which follows that run alone.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use load::watch::{Ends, Watch, WatchError, Watched};
use load::workload::Workload;

use super::accounts::{Account, Marks};
use super::{drain_rate, judge, seen};
use crate::kernel::attach::{AttachOptions, NamedRun};
use crate::session::{Session, SessionError};
use crate::trace::TraceError;
use crate::trace::record::{RecordOptions, Recorder, Status};

/// Nobody looks at the intervals; they only bound what the tables hold back.
const INTERVAL: Duration = Duration::from_secs(1);

/// Attaches for each run, and detaches after it.
pub struct Live {
    options: AttachOptions,
    exit_code: fn(&SessionError) -> u8,
    running: Option<(Session, Marks)>,
    record: Option<PathBuf>,
    recorded: Vec<(PathBuf, Result<Arc<Status>, TraceError>)>,
}

impl Live {
    /// A watcher that attaches with `options`; `exit_code` is what a failure
    /// of the session means for the process.
    pub fn new(options: AttachOptions, exit_code: fn(&SessionError) -> u8) -> Self {
        Self { options, exit_code, running: None, record: None, recorded: Vec::new() }
    }

    /// Records each run into a directory of its own in `dir`, from now on:
    /// `001-NAME`, `002-NAME`, …
    pub fn record_into(&mut self, dir: PathBuf) {
        self.record = Some(dir);
    }

    /// What was not recorded, and why: no failure of a run.
    pub fn unrecorded(&self) -> Vec<String> {
        let why = |(dir, status): &(PathBuf, Result<Arc<Status>, TraceError>)| {
            let why = match status {
                Ok(status) => status.failed()?,
                Err(e) => e.to_string(),
            };
            Some(format!("{} is not recorded to its end: {why}", dir.display()))
        };
        self.recorded.iter().filter_map(why).collect()
    }

    /// The recorder of the run that begins.
    fn recorder(&mut self, name: &str) -> Option<Recorder> {
        let clean = |c: char| if c.is_alphanumeric() || c == '-' { c } else { '_' };
        let name: String = name.chars().map(clean).collect();
        let to = self.record.as_ref()?.join(format!("{:03}-{name}", self.recorded.len() + 1));
        let made = Recorder::create(RecordOptions::here(to.clone(), INTERVAL));
        let (recorder, status) = match made {
            Ok(recorder) => {
                let status = recorder.status();
                (Some(recorder), Ok(status))
            }
            Err(e) => (None, Err(e)),
        };
        self.recorded.push((to, status));
        recorder
    }

    fn failed(&self, e: SessionError) -> WatchError {
        WatchError { exit_code: (self.exit_code)(&e), source: Box::new(e) }
    }
}

impl Watch for Live {
    fn begin(&mut self, workload: &Workload, run: u32) -> Result<(), WatchError> {
        // One that was not ended, because its load failed, is over.
        self.running = None;
        let options = AttachOptions { runs: vec![NamedRun::ours(run)], ..self.options.clone() };
        let recorder = self.recorder(&workload.name);
        let session = Session::start_recorded(&options, INTERVAL, Box::new(|_| {}), recorder)
            .map_err(|e| self.failed(e))?;
        self.running = Some((session, Marks::now()));
        Ok(())
    }

    fn measure_from(&mut self, from_ns: i64) {
        if let Some((session, _)) = &self.running {
            session.measure_from(from_ns);
        }
    }

    fn end(&mut self, workload: &Workload, ends: Ends<'_>) -> Result<Watched, WatchError> {
        let Some((session, marks)) = self.running.take() else {
            let never_begun = SessionError::Reader("was never started for this run".to_owned());
            return Err(self.failed(never_begun));
        };
        // What is still on its way has half a second to arrive, or to be dropped.
        let snapshot = session.finish().map_err(|e| self.failed(e))?;
        let account = Account::of(&ends, marks.until_now());
        let report = snapshot.total.as_ref();
        let mut findings = judge::findings(&workload.expect, report, &account, ends.findings);
        findings.extend(drain_rate::findings(workload, report));
        seen::watched(&workload.expect, report, findings)
            .map_err(|e| self.failed(SessionError::Reader(format!("made a report that is no JSON: {e}"))))
    }
}
