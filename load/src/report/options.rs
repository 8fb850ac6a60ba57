//! What `load run` and `observer run` ask about their report, in one place.

use std::path::PathBuf;

use clap::Args;

use super::{Format, Report, WriteError, text, write};

/// How a report is printed, and where it is written.
#[derive(Debug, Args)]
pub struct ReportOptions {
    /// Print the report as one line of JSON
    #[arg(long)]
    json: bool,
    /// Write report files into this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Which report files to write
    #[arg(long, value_enum, value_delimiter = ',', default_value = "md,json", requires = "report")]
    format: Vec<Format>,
}

impl ReportOptions {
    /// What is to be printed.
    ///
    /// # Errors
    /// A report that JSON cannot hold.
    pub fn printed(&self, report: &Report) -> serde_json::Result<String> {
        if self.json { serde_json::to_string(report).map(|line| line + "\n") } else { Ok(text(report)) }
    }

    /// Makes the directory for the files asked for, and sees that they can be
    /// written there: what a run measured must not be lost for want of it.
    ///
    /// # Errors
    /// As [`write`].
    pub fn prepare(&self) -> Result<(), WriteError> {
        self.report.as_deref().map_or(Ok(()), super::prepare)
    }

    /// Writes the files asked for, if any.
    ///
    /// # Errors
    /// As [`write`].
    pub fn write(&self, report: &Report) -> Result<(), WriteError> {
        self.report.as_deref().map_or(Ok(()), |dir| write(report, dir, &self.format))
    }
}
