//! Batches of a source → a [`Report`]: journeys with the names of their flows.

use crate::correlate::FlowBook;
use crate::source::{Batch, Progress, Source, SourceError};

use super::{Collector, Report};

/// Takes in what a source yields, live (as a session's tap) or from a trace.
#[derive(Debug, Default)]
pub struct Gatherer {
    collector: Collector,
    flows: FlowBook,
}

impl Gatherer {
    /// Takes in one batch.
    pub fn batch(&mut self, batch: &Batch) {
        for flow in &batch.flows {
            self.flows.add(flow);
        }
        for journey in &batch.journeys {
            self.collector.journey(journey);
        }
    }

    /// What everything so far tells.
    pub fn finish(self) -> Report {
        let flows = self.flows;
        self.collector.finish(|id| flows.key(id))
    }

    /// Reads a source that ends (a trace) to its end.
    ///
    /// # Errors
    ///
    /// When the source breaks.
    pub fn run(source: &mut impl Source) -> Result<Report, SourceError> {
        let mut gatherer = Self::default();
        let mut batch = Batch::default();
        loop {
            batch.clear();
            let progress = source.poll(&mut batch)?;
            gatherer.batch(&batch);
            if progress == Progress::End {
                return Ok(gatherer.finish());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulate::{Path, probe};
    use super::*;
    use crate::source::synthetic;

    #[test]
    fn flows_are_named_and_journeys_counted() {
        let mut gatherer = Gatherer::default();
        let journeys = probe(Path { train: 30, ..Path::new(3, 1e7) }, 2, 1);
        gatherer.batch(&Batch { journeys, flows: vec![synthetic::flow(9, 3, 1)], ..Batch::default() });
        let report = gatherer.finish();
        assert_eq!(report.paths[0].flow.source.as_deref(), Some("10.0.0.1:40003"));
        assert_eq!((report.paths[0].arrivals, report.cost.datagrams), (60, 60));
    }
}
