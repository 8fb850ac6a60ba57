//! The observer on the running kernel as a watcher of workloads: a session
//! per run, which follows that run alone.

use std::time::Duration;

use load::watch::{Ends, Watch, WatchError, Watched};
use load::workload::Workload;

use super::accounts::{Account, Marks};
use super::{judge, seen};
use crate::kernel::attach::{AttachOptions, NamedRun};
use crate::session::{Session, SessionError};

/// Nobody looks at the intervals; they only bound what the tables hold back.
const INTERVAL: Duration = Duration::from_secs(1);

/// Attaches for each run, and detaches after it.
pub struct Live {
    options: AttachOptions,
    exit_code: fn(&SessionError) -> u8,
    running: Option<(Session, Marks)>,
}

impl Live {
    /// A watcher that attaches with `options`; `exit_code` is what a failure
    /// of the session means for the process.
    pub fn new(options: AttachOptions, exit_code: fn(&SessionError) -> u8) -> Self {
        Self { options, exit_code, running: None }
    }

    fn failed(&self, e: SessionError) -> WatchError {
        WatchError { exit_code: (self.exit_code)(&e), source: Box::new(e) }
    }
}

impl Watch for Live {
    fn begin(&mut self, _: &Workload, run: u32) -> Result<(), WatchError> {
        // One that was not ended, because its load failed, is over.
        self.running = None;
        let options = AttachOptions { runs: vec![NamedRun::ours(run)], ..self.options.clone() };
        let session = Session::start(&options, INTERVAL).map_err(|e| self.failed(e))?;
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
        let findings = judge::findings(&workload.expect, report, &account, ends.findings);
        seen::watched(&workload.expect, report, findings)
            .map_err(|e| self.failed(SessionError::Reader(format!("made a report that is no JSON: {e}"))))
    }
}
