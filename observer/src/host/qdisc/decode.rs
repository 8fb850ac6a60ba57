//! The kernel's messages about qdiscs and classes → [`Qdisc`]s.
//!
//! `netlink-packet-core` takes messages and attributes apart; what is inside
//! (`struct tc_tbf_qopt`, `struct tc_htb_opt` and the like of
//! `linux/pkt_sched.h`) is decoded here, since no library does. Everything is
//! in the machine's byte order. An attribute that is absent, too short or not
//! understood leaves its field empty; a message that is none is skipped.

use netlink_packet_core::NlasIterator;

use super::{Config, Counters, Handle, Qdisc, Role};

/// `RTM_NEWQDISC`
pub(super) const NEW_QDISC: u16 = 36;
/// `RTM_NEWTCLASS`
pub(super) const NEW_CLASS: u16 = 40;

/// Bytes of `struct tcmsg`.
const TCMSG: usize = 20;

/// `TCA_*`
mod attribute {
    pub(super) const KIND: u16 = 1;
    pub(super) const OPTIONS: u16 = 2;
    pub(super) const STATS: u16 = 3;
    pub(super) const STATS2: u16 = 7;
}

/// How long the kernel's tick of a token bucket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tick {
    ns: u64,
}

impl Tick {
    /// 64 ns on every kernel since 2.6.31; older or exotic ones say
    /// otherwise in /proc/net/psched.
    pub(super) const USUAL: Self = Self { ns: 64 };

    /// Reads /proc/net/psched: four hexadecimal numbers, of which the first
    /// two are ns per µs and ns per tick.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace().map(|w| u64::from_str_radix(w, 16));
        let (per_us, ns) = (words.next()?.ok()?, words.next()?.ok()?);
        // What follows assumes that time is counted in ns.
        (per_us == 1_000 && (1..=1_000_000).contains(&ns)).then_some(Self { ns })
    }

    /// What a bucket of `ticks` holds at `rate` bytes per second.
    fn bytes(self, ticks: u32, rate: u64) -> u64 {
        let bytes = u128::from(ticks) * u128::from(self.ns) * u128::from(rate) / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// The body of one message of kind `message_type`; `None` if it tells of
/// neither a qdisc nor a class. The device's name is left empty.
pub(super) fn message(message_type: u16, body: &[u8], tick: Tick) -> Option<Qdisc> {
    let role = match message_type {
        NEW_QDISC => Role::Qdisc,
        NEW_CLASS => Role::Class,
        _ => return None,
    };
    let mut entry = Qdisc {
        role,
        // struct tcmsg: family and padding, ifindex, handle, parent, info.
        ifindex: word(body, 4)?,
        handle: Handle(word(body, 8)?),
        parent: Handle(word(body, 12)?),
        ..Qdisc::default()
    };
    let mut options: &[u8] = &[];
    let (mut old, mut new) = (None, None);
    for (kind, value) in attributes(body.get(TCMSG..)?) {
        match kind {
            attribute::KIND => entry.kind = text(value),
            attribute::OPTIONS => options = value,
            attribute::STATS => old = counters(value),
            attribute::STATS2 => new = counters2(value),
            _ => {}
        }
    }
    entry.counters = new.or(old).unwrap_or_default();
    entry.config = config(&entry.kind, role, options, tick);
    Some(entry)
}

/// The attributes in `bytes`, as (kind, value), up to the first broken one.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes).map_while(Result::ok).filter_map(|nla| {
        let (kind, length) = (nla.kind(), usize::from(nla.length()));
        Some((kind, nla.into_inner().get(4..length)?))
    })
}

fn find(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|b| u16::from_ne_bytes(*b))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|b| u64::from_ne_bytes(*b))
}

/// The kernel's names are ASCII; whatever else comes is made printable.
fn text(bytes: &[u8]) -> String {
    let name = bytes.split(|b| *b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).chars().filter(|c| !c.is_control()).collect()
}

/// `struct tc_stats`, of kernels and kinds without `TCA_STATS2`.
fn counters(b: &[u8]) -> Option<Counters> {
    let at = |i| word(b, i).map(u64::from);
    Some(Counters {
        bytes: long(b, 0)?,
        packets: at(8)?,
        drops: at(12)?,
        overlimits: at(16)?,
        requeues: 0,
        backlog_packets: at(28)?,
        backlog_bytes: at(32)?,
    })
}

/// `TCA_STATS2`: `gnet_stats_basic`, `gnet_stats_queue`, and the packets in
/// 64 bits where 32 are too few (since 5.5).
fn counters2(b: &[u8]) -> Option<Counters> {
    const BASIC: u16 = 1;
    const QUEUE: u16 = 3;
    const PKT64: u16 = 8;
    let (basic, queue) = (find(b, BASIC)?, find(b, QUEUE)?);
    let at = |i| word(queue, i).map(u64::from);
    let packets = match find(b, PKT64).and_then(|p| long(p, 0)) {
        Some(packets) => packets,
        None => u64::from(word(basic, 8)?),
    };
    Some(Counters {
        bytes: long(basic, 0)?,
        packets,
        backlog_packets: at(0)?,
        backlog_bytes: at(4)?,
        drops: at(8)?,
        requeues: at(12)?,
        overlimits: at(16)?,
    })
}

fn config(kind: &str, role: Role, options: &[u8], tick: Tick) -> Config {
    let limit = |bytes: Option<&[u8]>| bytes.and_then(|b| word(b, 0)).map(u64::from);
    match (kind, role) {
        ("tbf", Role::Qdisc) => tbf(options, tick).unwrap_or_default(),
        ("htb", Role::Class) => htb_class(options, tick).unwrap_or_default(),
        // struct tc_fifo_qopt is the whole of the options.
        ("bfifo", Role::Qdisc) => Config { limit_bytes: limit(Some(options)), ..Config::default() },
        ("pfifo" | "pfifo_head_drop", Role::Qdisc) => {
            Config { limit_packets: limit(Some(options)), ..Config::default() }
        }
        // TCA_FQ_CODEL_LIMIT, TCA_FQ_PLIMIT
        ("fq_codel", Role::Qdisc) => Config { limit_packets: limit(find(options, 2)), ..Config::default() },
        ("fq", Role::Qdisc) => Config { limit_packets: limit(find(options, 1)), ..Config::default() },
        _ => Config::default(),
    }
}

/// `struct tc_ratespec`: the rate in bytes per second (with `wide`, the
/// 64-bit value that replaces it at 2^32 and above) and the overhead.
fn rate(spec: &[u8], wide: Option<&[u8]>) -> Option<(u64, u64)> {
    let narrow = u64::from(word(spec, 8)?);
    let rate = wide.and_then(|w| long(w, 0)).unwrap_or(narrow);
    Some((rate, u64::from(half(spec, 2)?)))
}

/// A rate of 0 is none.
fn bit_s(byte_s: u64) -> Option<u64> {
    (byte_s > 0).then(|| byte_s.saturating_mul(8))
}

/// `struct tc_tbf_qopt`: two ratespecs (12 bytes each), limit, buffer, mtu;
/// the last two in ticks at the rate and at the peak rate.
fn tbf(options: &[u8], tick: Tick) -> Option<Config> {
    const PARMS: u16 = 1;
    const RATE64: u16 = 4;
    const PRATE64: u16 = 5;
    let parms = find(options, PARMS)?;
    let (byte_s, overhead) = rate(parms, find(options, RATE64))?;
    let (peak_byte_s, _) = rate(parms.get(12..)?, find(options, PRATE64))?;
    let (limit, buffer, mtu) = (word(parms, 24)?, word(parms, 28)?, word(parms, 32)?);
    Some(Config {
        rate_bit_s: bit_s(byte_s),
        burst_bytes: Some(tick.bytes(buffer, byte_s)),
        peak_bit_s: bit_s(peak_byte_s),
        peak_burst_bytes: bit_s(peak_byte_s).map(|_| tick.bytes(mtu, peak_byte_s)),
        limit_bytes: Some(u64::from(limit)),
        limit_packets: None,
        overhead_bytes: Some(overhead),
    })
}

/// `struct tc_htb_opt`: rate and ceil (12 bytes each), buffer and cbuffer in
/// ticks at the one and the other, then quantum, level, prio.
fn htb_class(options: &[u8], tick: Tick) -> Option<Config> {
    const PARMS: u16 = 1;
    const RATE64: u16 = 6;
    const CEIL64: u16 = 7;
    let parms = find(options, PARMS)?;
    let (byte_s, overhead) = rate(parms, find(options, RATE64))?;
    let (ceil_byte_s, _) = rate(parms.get(12..)?, find(options, CEIL64))?;
    let (buffer, cbuffer) = (word(parms, 24)?, word(parms, 28)?);
    Some(Config {
        rate_bit_s: bit_s(byte_s),
        burst_bytes: Some(tick.bytes(buffer, byte_s)),
        peak_bit_s: bit_s(ceil_byte_s),
        peak_burst_bytes: Some(tick.bytes(cbuffer, ceil_byte_s)),
        limit_bytes: None,
        limit_packets: None,
        overhead_bytes: Some(overhead),
    })
}
