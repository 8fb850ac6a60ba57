//! Records → journeys: whose datagram it was, what became of it, and where
//! its time went.
//!
//! In: the batches of a source, control records first. Out: one [`Journey`]
//! per record, with the components the points allow.

pub mod flows;
pub mod pair;
mod record;
pub mod stages;
pub mod waits;

use observer_ebpf::abi::{JourneyRecord, RecordKind, flow_id};
use observer_ebpf::stamp::{SEQ_BITS, SEQ_MAX};
use serde::{Deserialize, Serialize};

pub use flows::FlowBook;
pub use stages::Stages;
pub use waits::WaitBook;

use crate::source::Batch;

/// How a journey ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// An application read it.
    Delivered,
    /// The kernel dropped it.
    Dropped,
    /// The observer gave up on it.
    Unresolved,
}

/// One datagram's journey, its points and its stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journey {
    /// Run and stream, as [`flow_id`].
    pub flow: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Where its time went.
    pub stages: Stages,
    /// The points themselves.
    #[serde(with = "record::Record")]
    pub record: JourneyRecord,
}

/// What journeys are correlated with.
#[derive(Debug, Default)]
pub struct Correlator {
    /// The flows described so far.
    pub flows: FlowBook,
    /// The waits of their threads.
    pub waits: WaitBook,
}

impl Correlator {
    /// Applies the control records of a batch; to be done before its journeys.
    pub fn control(&mut self, batch: &Batch) {
        for flow in &batch.flows {
            self.flows.add(flow);
        }
        for wait in &batch.waits {
            self.waits.add(wait);
        }
    }

    /// The journey in `record`.
    pub fn journey(&mut self, record: &JourneyRecord) -> Journey {
        let flow = flow_id(record.run, stream(record));
        let outcome = match RecordKind::from_u8(record.kind) {
            Some(RecordKind::Delivered) => Outcome::Delivered,
            Some(RecordKind::Dropped) => Outcome::Dropped,
            _ => Outcome::Unresolved,
        };
        // Where the way out was seen, the sender needs no looking up.
        let sender_here = record.dev_queue_ns != 0 || self.flows.sender_here(flow);
        let stages = stages::stages(record, &self.waits, sender_here);
        if stages.waits_forgotten {
            self.waits.count_forgotten();
        }
        Journey { flow, outcome, stages, record: *record }
    }
}

/// The sequence of a record: the lower 48 bits.
pub fn sequence(record: &JourneyRecord) -> u64 {
    record.stream_seq & SEQ_MAX
}

/// The stream of a record: the upper 16 bits.
pub fn stream(record: &JourneyRecord) -> u16 {
    (record.stream_seq >> SEQ_BITS) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::synthetic;
    use observer_ebpf::abi::flag;

    #[test]
    fn a_flow_with_a_local_sender_has_a_total_though_the_way_out_was_missed() {
        let mut correlator = Correlator::default();
        let record =
            JourneyRecord { flags: flag::RX_ONLY, dev_queue_ns: 0, hops: 0, ..synthetic::journey(7, 3, 1) };
        assert_eq!(correlator.journey(&record).stages.total, None);
        let batch = Batch { flows: vec![synthetic::flow(7, 3, 1)], ..Batch::default() };
        correlator.control(&batch);
        assert_eq!(correlator.journey(&record).stages.total, Some(10_000));
    }

    #[test]
    fn outcomes_follow_the_kind() {
        let mut correlator = Correlator::default();
        for (kind, outcome) in [(1, Outcome::Delivered), (2, Outcome::Dropped), (3, Outcome::Unresolved)] {
            let journey = correlator.journey(&JourneyRecord { kind, ..synthetic::journey(7, 3, 1) });
            assert_eq!(journey.outcome, outcome);
            assert_eq!(journey.flow, flow_id(7, 3));
        }
    }
}
