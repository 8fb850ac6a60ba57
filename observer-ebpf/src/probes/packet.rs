//! Finding the stamp in a packet's headers.
//!
//! One copy of the first bytes from the network header on serves IPv4 without
//! options and IPv6 without extension headers, which is what a load test
//! sends; IPv4 options and a stamp at another offset cost a second copy.
//! Addresses and lengths come from the kernel's packet descriptor, never from
//! the packet, and a copy that runs past the linear part ends in memory of
//! the same allocation (`skb_shared_info` follows the data).

use core::mem::MaybeUninit;

use observer_ebpf::stamp::{STAMP_LEN, Stamp};

use super::{
    kernel::{self, Object},
    settings::constant,
};

const ETH_P_IP: u16 = 0x0800_u16.to_be();
const ETH_P_IPV6: u16 = 0x86DD_u16.to_be();
const UDP: u32 = 17;
const UDP_HEADER: u32 = 8;
/// Bytes copied at once: IPv6 + UDP + stamp, as 32-bit words because the
/// stack wants aligned loads and IPv4 puts the stamp at 28.
const WORDS: usize = 20;

/// The start of a UDP packet. Nothing in it is initialized until a packet is
/// copied over it: with as much as one constant byte the compiler clears all
/// of it, byte by byte, which costs more than the copy.
pub(super) struct Headers {
    words: MaybeUninit<[u32; WORDS]>,
}

/// What a packet turned out to be.
pub(super) enum Packet {
    /// A UDP datagram with a stamp.
    Stamped(Stamp),
    /// A UDP datagram without one, or too short for one.
    Unstamped,
    /// Its stamp lies in page fragments.
    Paged,
    /// Not UDP, or a later fragment.
    Other,
    /// Could not be read.
    Unreadable,
}

impl Headers {
    /// Word `i` of the packet; only after the packet was found to be UDP.
    #[inline(always)]
    fn word(&self, i: usize) -> u32 {
        // SAFETY: `parse` copied all words before it found anything, and the
        // verifier refuses a read of stack that was not written.
        unsafe { (*self.words.as_ptr())[i] }
    }

    /// 4 or 6.
    #[inline(always)]
    pub(super) fn version(&self) -> u8 {
        (self.word(0) as u8) >> 4
    }

    /// Source and destination port, host byte order.
    #[inline(always)]
    pub(super) fn ports(&self) -> (u16, u16) {
        let word = u32::from_be(self.word(if self.version() == 4 { 5 } else { 10 }));
        ((word >> 16) as u16, word as u16)
    }

    /// Source and destination address, network byte order, IPv4 in the first
    /// four bytes.
    #[inline(always)]
    pub(super) fn addresses(&self) -> ([u32; 4], [u32; 4]) {
        let w = |i| self.word(i);
        if self.version() == 4 {
            ([w(3), 0, 0, 0], [w(4), 0, 0, 0])
        } else {
            ([w(2), w(3), w(4), w(5)], [w(6), w(7), w(8), w(9)])
        }
    }
}

/// Looks at the packet behind `skb`, whose network header `skb` itself knows:
/// on the way out, and at drops.
#[inline(always)]
pub(super) fn at_network_header(skb: Object, headers: &mut Headers) -> Packet {
    let encapsulated =
        skb.load::<u8>(constant!(OFFSETS.skb_encap)) & constant!(OFFSETS.skb_encap_mask) as u8 != 0;
    let l3 = if encapsulated {
        skb.load::<u16>(constant!(OFFSETS.skb_inner_network_header))
    } else {
        skb.load::<u16>(constant!(OFFSETS.skb_network_header))
    };
    parse(skb, u32::from(l3), headers)
}

/// Looks at the packet behind `skb`, whose data begins at the network header:
/// on the way in.
#[inline(always)]
pub(super) fn at_data(skb: Object, headers: &mut Headers) -> Packet {
    let head = skb.load::<u64>(constant!(OFFSETS.skb_head));
    let data = skb.load::<u64>(constant!(OFFSETS.skb_data));
    parse(skb, data.wrapping_sub(head) as u32, headers)
}

#[inline(always)]
fn parse(skb: Object, l3: u32, headers: &mut Headers) -> Packet {
    let protocol = skb.load::<u16>(constant!(OFFSETS.skb_protocol));
    if protocol != ETH_P_IP && protocol != ETH_P_IPV6 {
        return Packet::Other;
    }
    let start = skb.load::<u64>(constant!(OFFSETS.skb_head)).wrapping_add(u64::from(l3));
    if !kernel::copy_into(&mut headers.words, start) {
        return Packet::Unreadable;
    }
    // SAFETY: just copied.
    let words = unsafe { &*headers.words.as_ptr() };
    let first = u32::from_be(words[0]);
    let version = first >> 28;
    let ip_len = match version {
        4 => {
            let fragment_offset = u32::from_be(words[1]) & 0x1fff;
            if (u32::from_be(words[2]) >> 16) & 0xff != UDP || fragment_offset != 0 {
                return Packet::Other;
            }
            ((first >> 24) & 0xf) * 4
        }
        6 => {
            if (u32::from_be(words[1]) >> 8) & 0xff != UDP {
                return Packet::Other;
            }
            40
        }
        _ => return Packet::Other,
    };

    let offset = ip_len + UDP_HEADER + constant!(SETTINGS.stamp_offset);
    let linear_end = skb.load::<u32>(constant!(OFFSETS.skb_tail));
    if linear_end < l3 + offset + STAMP_LEN as u32 {
        let paged = skb.load::<u32>(constant!(OFFSETS.skb_data_len)) != 0;
        return if paged { Packet::Paged } else { Packet::Unstamped };
    }
    let stamp = if offset == 28 {
        from_words([words[7], words[8], words[9], words[10], words[11], words[12], words[13], words[14]])
    } else if offset == 48 {
        from_words([words[12], words[13], words[14], words[15], words[16], words[17], words[18], words[19]])
    } else {
        match kernel::copy::<[u64; 4]>(start + u64::from(offset)) {
            Some(w) => Stamp::from_words(&w),
            None => return Packet::Unreadable,
        }
    };
    match stamp {
        Some(stamp) => Packet::Stamped(stamp),
        None => Packet::Unstamped,
    }
}

#[inline(always)]
fn from_words(w: [u32; 8]) -> Option<Stamp> {
    let join = |lo: u32, hi: u32| u64::from(lo) | u64::from(hi) << 32;
    Stamp::from_words(&[join(w[0], w[1]), join(w[2], w[3]), join(w[4], w[5]), join(w[6], w[7])])
}

/// Headers to fill in.
#[inline(always)]
pub(super) fn headers() -> Headers {
    Headers { words: MaybeUninit::uninit() }
}

/// Where the stamp would be in a packet that the cgroup program sees from its
/// network header on, by the version that `protocol` (network order) names:
/// offset of the UDP payload for headers without options. `None`: not IP.
#[inline(always)]
pub(super) fn payload_offset(protocol: u32) -> Option<u32> {
    if protocol == u32::from(ETH_P_IP) {
        Some(20 + UDP_HEADER)
    } else if protocol == u32::from(ETH_P_IPV6) {
        Some(40 + UDP_HEADER)
    } else {
        None
    }
}
