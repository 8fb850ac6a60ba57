//! The stamp: 32 bytes at the start of a UDP payload that name the datagram
//! and say when the application handed it over.
//!
//! Layout, little-endian, no padding:
//!
//! | offset | size | field       | meaning                                            |
//! |-------:|-----:|-------------|----------------------------------------------------|
//! |      0 |    4 | magic       | [`MAGIC`]: three letters and the layout's version  |
//! |      4 |    4 | run         | run id, random per run, not 0                      |
//! |      8 |    8 | stream, seq | stream in the upper 16 bits, sequence in the lower 48 |
//! |     16 |    8 | intended    | when the schedule wanted it sent, ns               |
//! |     24 |    8 | offer       | when the application handed it over, ns            |
//!
//! Both times are CLOCK_MONOTONIC of the sending host. Sequences start at 0
//! in each stream and grow by one per datagram, so that the highest sequence
//! plus one is the number offered. Where there is no schedule, `intended`
//! equals `offer`.
//!
//! A stamp arrives from the network: [`Stamp::parse`] accepts any bytes, and
//! nothing in it is ever used as a length or an address.

/// Bytes a stamp occupies at the start of the payload.
pub const STAMP_LEN: usize = 32;

/// `OBS` and the layout version 1, as the first four bytes on the wire.
pub const MAGIC: u32 = u32::from_le_bytes(*b"OBS\x01");

/// Sequences are 48 bits wide: at a million datagrams per second a stream
/// wraps after nine years.
pub const SEQ_BITS: u32 = 48;

/// Largest sequence a stamp can carry.
pub const SEQ_MAX: u64 = (1 << SEQ_BITS) - 1;

/// One datagram's identity and the application's two times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Run id; 0 is not a run.
    pub run: u32,
    /// Stream in the upper 16 bits, sequence in the lower 48.
    pub stream_seq: u64,
    /// Intended time, ns of the sender's CLOCK_MONOTONIC.
    pub intended_ns: i64,
    /// Offer time, ns of the sender's CLOCK_MONOTONIC.
    pub offer_ns: i64,
}

impl Stamp {
    /// A stamp for datagram `seq` of `stream`; the sequence is taken modulo 2^48.
    #[inline(always)]
    pub const fn new(run: u32, stream: u16, seq: u64, intended_ns: i64, offer_ns: i64) -> Self {
        Self { run, stream_seq: ((stream as u64) << SEQ_BITS) | (seq & SEQ_MAX), intended_ns, offer_ns }
    }

    /// The stream this datagram belongs to.
    #[inline(always)]
    pub const fn stream(&self) -> u16 {
        (self.stream_seq >> SEQ_BITS) as u16
    }

    /// The datagram's number within its stream, from 0.
    #[inline(always)]
    pub const fn seq(&self) -> u64 {
        self.stream_seq & SEQ_MAX
    }

    /// The stamp as it travels.
    #[inline]
    pub fn to_bytes(&self) -> [u8; STAMP_LEN] {
        let mut out = [0; STAMP_LEN];
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&self.run.to_le_bytes());
        out[8..16].copy_from_slice(&self.stream_seq.to_le_bytes());
        out[16..24].copy_from_slice(&self.intended_ns.to_le_bytes());
        out[24..32].copy_from_slice(&self.offer_ns.to_le_bytes());
        out
    }

    /// Writes the stamp at the start of `payload`; false, and nothing written,
    /// if the payload is shorter than [`STAMP_LEN`].
    #[inline]
    #[must_use]
    pub fn write(&self, payload: &mut [u8]) -> bool {
        match payload.first_chunk_mut::<STAMP_LEN>() {
            Some(head) => {
                *head = self.to_bytes();
                true
            }
            None => false,
        }
    }

    /// Reads a stamp from the start of `payload`. `None` if it is too short,
    /// does not begin with [`MAGIC`], or names run 0.
    #[inline]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let head = payload.first_chunk::<STAMP_LEN>()?;
        Self::from_words(&words(head))
    }

    /// Reads a stamp from its four little-endian 64-bit words, as the eBPF
    /// programs hold it after one copy.
    #[inline(always)]
    pub const fn from_words(w: &[u64; 4]) -> Option<Self> {
        #[expect(clippy::cast_possible_truncation, reason = "the halves of a word")]
        let (magic, run) = (w[0] as u32, (w[0] >> 32) as u32);
        if magic != MAGIC || run == 0 {
            return None;
        }
        Some(Self { run, stream_seq: w[1], intended_ns: w[2].cast_signed(), offer_ns: w[3].cast_signed() })
    }
}

fn words(bytes: &[u8; STAMP_LEN]) -> [u64; 4] {
    let mut w = [0; 4];
    for (word, chunk) in w.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*chunk);
    }
    w
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn layout_is_what_the_documentation_says() {
        let bytes = Stamp::new(0x0403_0201, 0x0b0a, 0x0605_0403_0201, -2, 7).to_bytes();
        assert_eq!(&bytes[0..4], b"OBS\x01");
        assert_eq!(&bytes[4..8], &[1, 2, 3, 4]);
        assert_eq!(&bytes[8..16], &[1, 2, 3, 4, 5, 6, 0x0a, 0x0b]);
        assert_eq!(&bytes[16..24], &(-2_i64).to_le_bytes());
        assert_eq!(&bytes[24..32], &7_i64.to_le_bytes());
    }

    #[test]
    fn sequences_wrap_at_48_bits_without_touching_the_stream() {
        let s = Stamp::new(1, 9, SEQ_MAX + 1, 0, 0);
        assert_eq!((s.stream(), s.seq()), (9, 0));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(run in 1u32.., stream: u16, seq in 0..=SEQ_MAX, i: i64, o: i64) {
            let s = Stamp::new(run, stream, seq, i, o);
            let mut payload = [0xAA; 40];
            prop_assert!(s.write(&mut payload));
            prop_assert_eq!(Stamp::parse(&payload), Some(s));
            prop_assert_eq!(&payload[32..], &[0xAA; 8]);
            prop_assert_eq!((s.stream(), s.seq()), (stream, seq));
        }

        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let parsed = Stamp::parse(&bytes);
            let genuine = bytes.len() >= STAMP_LEN && bytes[..4] == *b"OBS\x01" && bytes[4..8] != [0; 4];
            prop_assert_eq!(parsed.is_some(), genuine);
        }

        #[test]
        fn a_short_payload_is_left_alone(len in 0..STAMP_LEN) {
            let mut payload = vec![7; len];
            prop_assert!(!Stamp::new(1, 0, 0, 0, 0).write(&mut payload));
            prop_assert!(payload.iter().all(|b| *b == 7));
        }
    }
}
