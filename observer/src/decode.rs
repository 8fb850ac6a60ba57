//! Bytes to records: the first step after a ring or a trace.
//!
//! A record is known by its first byte and must have exactly the length of
//! its kind. Anything else is counted as malformed and goes no further.

use observer_ebpf::abi::{
    Detail, FlowRecord, JourneyRecord, Plain, RecordKind, WaitKind, WaitRecord, value_of,
};

use crate::source::Batch;

/// Appends the record in `bytes` to `batch`, or counts it as malformed.
pub fn record(bytes: &[u8], batch: &mut Batch) {
    let understood = match bytes.first().copied().and_then(RecordKind::from_u8) {
        Some(RecordKind::Delivered | RecordKind::Dropped | RecordKind::Unresolved) => {
            keep(plain::<JourneyRecord>(bytes), known_detail, &mut batch.journeys)
        }
        Some(RecordKind::Flow) => keep(plain::<FlowRecord>(bytes), known_flow, &mut batch.flows),
        Some(RecordKind::Wait) => keep(plain::<WaitRecord>(bytes), known_wait, &mut batch.waits),
        None => false,
    };
    if !understood {
        batch.malformed = batch.malformed.saturating_add(1);
    }
}

fn keep<T>(record: Option<T>, valid: fn(&T) -> bool, to: &mut Vec<T>) -> bool {
    match record.filter(valid) {
        Some(record) => {
            to.push(record);
            true
        }
        None => false,
    }
}

fn known_detail(record: &JourneyRecord) -> bool {
    Detail::from_u8(record.detail).is_some()
}

fn known_flow(record: &FlowRecord) -> bool {
    matches!(record.side, 1..=3) && matches!(record.ip_version, 0 | 4 | 6)
}

/// A wait that ends before it begins is no wait.
fn known_wait(record: &WaitRecord) -> bool {
    WaitKind::from_u8(record.wait).is_some() && record.from_ns <= record.to_ns
}

/// Copies a record out of `bytes`, which need not be aligned. `None` if the
/// length is another than the type's.
fn plain<T: Plain>(bytes: &[u8]) -> Option<T> {
    if bytes.len() == size_of::<T>() { value_of(bytes) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::synthetic;
    use observer_ebpf::abi::bytes_of;
    use proptest::prelude::*;

    #[test]
    fn records_survive_the_way_through_bytes() {
        let journey = synthetic::journey(7, 3, 9);
        let wait = WaitRecord {
            kind: RecordKind::Wait as u8,
            wait: WaitKind::RunQueue as u8,
            pad: 0,
            tid: 4,
            from_ns: 5,
            to_ns: 6,
        };
        let flow = synthetic::flow(7, 3, 1);
        // Odd addresses: a ring promises eight-byte alignment, a trace does not.
        let mut buffer = vec![0_u8];
        let mut batch = Batch::default();
        for bytes in [bytes_of(&journey), bytes_of(&wait), bytes_of(&flow)] {
            buffer.truncate(1);
            buffer.extend_from_slice(bytes);
            record(&buffer[1..], &mut batch);
        }
        assert_eq!((batch.journeys, batch.waits, batch.flows), (vec![journey], vec![wait], vec![flow]));
        assert_eq!(batch.malformed, 0);
    }

    #[test]
    fn a_wait_of_negative_length_is_malformed() {
        let wait = WaitRecord { kind: 5, wait: 1, pad: 0, tid: 4, from_ns: 6, to_ns: 5 };
        let mut batch = Batch::default();
        record(bytes_of(&wait), &mut batch);
        assert_eq!((batch.waits.len(), batch.malformed), (0, 1));
    }

    proptest! {
        #[test]
        fn any_bytes_become_one_record_or_one_malformed(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0_u8..8, fit in 0_usize..4,
        ) {
            let mut bytes = bytes;
            bytes.resize([bytes.len(), 168, 88, 24][fit], 1);
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            let mut batch = Batch::default();
            record(&bytes, &mut batch);
            let kept = batch.journeys.len() + batch.flows.len() + batch.waits.len();
            prop_assert_eq!(kept as u64 + batch.malformed, 1);
        }
    }
}
