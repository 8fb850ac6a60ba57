//! What the two ends say to each other, as JSON, and how a histogram travels:
//! its buckets, so that the sender has every quantile the receiver has.

use serde::{Deserialize, Serialize};

use super::clock_id::ClockId;
use crate::hist::{LatencyHistogram, Parts};
use crate::recv::RecvReport;

/// From the sender to the receiver.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "say", deny_unknown_fields)]
pub(super) enum Request {
    /// A run is to come.
    Announce {
        /// Its id.
        run: u32,
        /// How long it should take, ms; null where nothing says.
        length_ms: Option<u64>,
        /// The clock in its stamps.
        clock: Option<ClockId>,
    },
    /// It begins.
    Start {
        /// Datagrams offered from here on are measured, ns of the sender's clock.
        measure_from_ns: i64,
    },
    /// It is over.
    Finished {
        /// Datagrams the kernel took.
        sent: u64,
    },
}

/// From the receiver to the sender.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "say", deny_unknown_fields)]
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack of whoever reads it")]
pub(super) enum Answer {
    /// The socket is bound: datagrams may come.
    Ready,
    /// The run cannot be received.
    Refused {
        /// Why not.
        why: String,
    },
    /// What came.
    Report {
        /// Counts; its histograms follow apart, since in reports they are summaries.
        report: Box<RecvReport>,
        /// From the offer; null where there is none.
        from_offer: Option<Parts>,
        /// From the intended time; null where there is none.
        from_intended: Option<Parts>,
    },
}

impl Answer {
    /// The answer that carries this report.
    pub(super) fn report(report: &RecvReport) -> Self {
        let parts = |h: &Option<LatencyHistogram>| h.as_ref().map(LatencyHistogram::to_parts);
        Self::Report {
            from_offer: parts(&report.from_offer),
            from_intended: parts(&report.from_intended),
            report: Box::new(report.clone()),
        }
    }
}

/// The report of an answer's parts.
///
/// # Errors
/// What is wrong with a histogram.
pub(super) fn received(
    mut report: RecvReport,
    from_offer: Option<Parts>,
    from_intended: Option<Parts>,
) -> Result<RecvReport, String> {
    report.from_offer = from_offer.map(LatencyHistogram::from_parts).transpose()?;
    report.from_intended = from_intended.map(LatencyHistogram::from_parts).transpose()?;
    Ok(report)
}
