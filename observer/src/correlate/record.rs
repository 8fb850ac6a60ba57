//! The kernel side's journey record in serde's terms: its own crate knows no
//! serde, since the BPF programs are built from it.

use observer_ebpf::abi::JourneyRecord;
use serde::{Deserialize, Serialize};

/// Field by field a [`JourneyRecord`]; the compiler refuses a difference.
#[derive(Serialize, Deserialize)]
#[serde(remote = "JourneyRecord")]
pub(super) struct Record {
    kind: u8,
    detail: u8,
    flags: u16,
    run: u32,
    stream_seq: u64,
    intended_ns: i64,
    offer_ns: i64,
    syscall_ns: u64,
    dev_queue_ns: u64,
    dequeue_ns: u64,
    xmit_ns: u64,
    rx_ns: u64,
    sock_enqueue_ns: u64,
    app_dequeue_ns: u64,
    drop_ns: u64,
    shaper_ns: u64,
    slowest_hop_ns: u64,
    slowest_qdisc_ns: u64,
    hop_start_ns: u64,
    drop_location: u64,
    slowest_ifindex: u32,
    ifindex: u32,
    l2_bytes: u32,
    drop_reason: u32,
    tx_tid: u32,
    rx_tid: u32,
    hops: u16,
    batch_pos: u16,
    run_index: u16,
    pad: u16,
}

#[cfg(test)]
mod tests {
    use crate::correlate::Correlator;
    use crate::source::synthetic;

    #[test]
    fn a_journey_survives_being_written_and_read() {
        let journey = Correlator::default().journey(&synthetic::journey(7, 1, 3));
        let text = serde_json::to_string(&journey).unwrap();
        assert_eq!(serde_json::from_str::<super::super::Journey>(&text).unwrap(), journey);
    }
}
