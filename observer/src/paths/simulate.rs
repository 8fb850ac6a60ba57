//! Paths of known rate, for tests: a sender's train through a token bucket
//! and a queue, with what a real timer and a real receiver add.

use observer_ebpf::abi::JourneyRecord;
use observer_ebpf::stamp::Stamp;

use crate::source::synthetic;

/// A path and how it is probed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) stream: u16,
    /// Rate r, bits per second.
    pub(super) bit_s: f64,
    /// Bucket b, bytes, full before every train; 0 is a plain link.
    pub(super) bucket: f64,
    /// Bytes of a datagram on the wire.
    pub(super) bytes: u32,
    /// Datagrams in a train.
    pub(super) train: u64,
    /// Each one is late by up to this, ns.
    pub(super) jitter_ns: f64,
    /// Share of datagrams behind which others' traffic of the same size goes.
    pub(super) cross: f64,
}

impl Path {
    pub(super) fn new(stream: u16, bit_s: f64) -> Self {
        Self { stream, bit_s, bucket: 0.0, bytes: 342, train: 300, jitter_ns: 0.0, cross: 0.0 }
    }
}

/// The journeys of `rounds` trains over `path`, one every second.
pub(super) fn probe(path: Path, rounds: u64, seed: u64) -> Vec<JourneyRecord> {
    /// The link behind the bucket, bytes per ns: 10 Gbit/s.
    const LINK: f64 = 1.25;
    let mut rng = fastrand::Rng::with_seed(seed ^ u64::from(path.stream));
    let byte_ns = 8e9 / path.bit_s;
    let mut records = Vec::new();
    for round in 0..rounds {
        let start = 1e10 + round as f64 * 1e9;
        let (mut free, mut tokens, mut last) = (start, path.bucket, start);
        for i in 0..path.train {
            let bytes = f64::from(path.bytes);
            let mut cost = bytes;
            if rng.f64() < path.cross {
                cost += bytes;
            }
            let paid = cost.min(tokens);
            tokens -= paid;
            free += (cost - paid) * byte_ns + bytes / LINK;
            // One after the other, however late.
            last = (free + rng.f64() * path.jitter_ns).max(last + 1.0);
            let seq = round * path.train + i;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a test's times")]
            let rx_ns = last as u64;
            records.push(JourneyRecord {
                stream_seq: Stamp::new(9, path.stream, seq, 0, 0).stream_seq,
                intended_ns: i64::try_from(round).unwrap() * 1_000_000_000,
                rx_ns,
                l2_bytes: path.bytes,
                ..synthetic::journey(9, path.stream, seq)
            });
        }
    }
    records
}
