//! A packet per datagram, for Wireshark. The payload was never recorded, so
//! Ethernet, IP and UDP headers are synthesized from what is known of the
//! flow, followed by the stamp; the section's comment declares it, and each
//! packet's comment tells its journey.
//!
//! Blocks as in draft-ietf-opsawg-pcapng: section header, one interface with
//! nanosecond resolution, enhanced packets. Time stamps are those of xmit (or
//! the first point after it that was seen), on the host's wall clock.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use observer_ebpf::abi::flag;
use observer_ebpf::stamp::Stamp;

use super::{ExportError, Exported, Format, each};
use crate::component::Component;
use crate::correlate::{FlowBook, Journey, Outcome, sequence, stream};
use crate::trace::meta::Meta;
use crate::trace::{Selection, Trace};
use crate::view::units::duration;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const ETHERNET: u16 = 1;
const COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
/// Nanoseconds: 10^-9.
const NANO: u8 = 9;

/// Writes the selected datagrams of `trace`.
///
/// # Errors
///
/// What is wrong with the trace or the output.
pub fn export(
    trace: &Trace,
    selection: &Selection,
    limit: u64,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<Exported, ExportError> {
    let mut format = Pcapng { meta: trace.meta.clone() };
    each(trace, selection, limit, &mut format, out, progress)
}

struct Pcapng {
    meta: Meta,
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = value.get(..usize::from(u16::MAX).min(value.len())).unwrap_or_default();
    body.extend(code.to_le_bytes());
    body.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
    body.extend(value);
    pad(body);
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

fn block(out: &mut dyn Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len() + 12).map_err(io::Error::other)?.to_le_bytes();
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&length)?;
    out.write_all(body)?;
    out.write_all(&length)
}

impl Format for Pcapng {
    fn begin(&mut self, _: &Trace, out: &mut dyn Write) -> io::Result<()> {
        let mut body = Vec::new();
        body.extend(BYTE_ORDER.to_le_bytes());
        body.extend(1_u16.to_le_bytes());
        body.extend(0_u16.to_le_bytes());
        body.extend(u64::MAX.to_le_bytes());
        let comment = format!(
            "From a trace of {} on {}: headers are synthesized and the payload is not there but for the stamp; \
             comments tell each datagram's journey.",
            self.meta.created_by, self.meta.host
        );
        option(&mut body, COMMENT, comment.as_bytes());
        option(&mut body, 0, &[]);
        block(out, SECTION, &body)?;
        let mut body = Vec::new();
        body.extend(ETHERNET.to_le_bytes());
        body.extend(0_u16.to_le_bytes());
        body.extend(0_u32.to_le_bytes());
        option(&mut body, IF_NAME, b"observer");
        option(&mut body, IF_TSRESOL, &[NANO]);
        option(&mut body, 0, &[]);
        block(out, INTERFACE, &body)
    }

    fn journey(&mut self, j: &Journey, flows: &FlowBook, out: &mut dyn Write) -> io::Result<()> {
        let r = &j.record;
        let points = [r.xmit_ns, r.dequeue_ns, r.dev_queue_ns, r.rx_ns, r.app_dequeue_ns, r.drop_ns];
        let at = points.into_iter().find(|ns| *ns != 0).unwrap_or(0);
        let wall = self.meta.wall_ns(at);
        let packet = packet(j, flows);
        let captured = u32::try_from(packet.len()).map_err(io::Error::other)?;
        let mut body = Vec::with_capacity(packet.len() + 256);
        body.extend(0_u32.to_le_bytes());
        let [a, b, c, d, e, f, g, h] = wall.to_le_bytes();
        // The upper half first.
        body.extend([e, f, g, h, a, b, c, d]);
        body.extend(captured.to_le_bytes());
        body.extend(captured.max(r.l2_bytes).to_le_bytes());
        body.extend(&packet);
        pad(&mut body);
        option(&mut body, COMMENT, self.comment(j).as_bytes());
        option(&mut body, 0, &[]);
        block(out, PACKET, &body)
    }

    fn end(&mut self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

impl Pcapng {
    fn comment(&self, j: &Journey) -> String {
        let r = &j.record;
        let mut said = vec![match j.outcome {
            Outcome::Delivered => "delivered".to_owned(),
            Outcome::Dropped => format!("dropped: {}", self.meta.source().reason(r.drop_reason)),
            Outcome::Unresolved => "unresolved".to_owned(),
        }];
        said.push(format!("run {:#x} stream {} seq {}", r.run, stream(r), sequence(r)));
        for component in Component::ALL {
            said.extend(j.stages.component(component).map(|ns| format!("{component} {}", duration(ns))));
        }
        said.extend(j.stages.total.map(|ns| format!("total {}", duration(ns))));
        said.join(", ")
    }
}

/// Ethernet, IP and UDP headers, and the stamp.
fn packet(j: &Journey, flows: &FlowBook) -> Vec<u8> {
    let r = &j.record;
    let key = flows.key(j.flow);
    let end = |text: &Option<String>| text.as_deref().and_then(|t| t.parse::<SocketAddr>().ok());
    let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let (from, to) = (end(&key.source).unwrap_or(unknown), end(&key.destination).unwrap_or(unknown));
    let v6 = r.flags & flag::V6 != 0 || from.is_ipv6();
    let stamp = Stamp::new(r.run, stream(r), sequence(r), r.intended_ns, r.offer_ns);
    let stamp = stamp.to_bytes();
    let headers = 14 + if v6 { 40 } else { 20 };
    let least = u32::try_from(8 + stamp.len()).unwrap_or(40);
    let udp = u16::try_from(r.l2_bytes.saturating_sub(headers).max(least)).unwrap_or(u16::MAX);
    let mut p = Vec::with_capacity(128);
    // Locally administered addresses: nobody's.
    p.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    p.extend(if v6 { [0x86, 0xdd] } else { [0x08, 0x00] });
    if v6 {
        let octets = |a: IpAddr| match a {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        p.extend([0x60, 0, 0, 0]);
        p.extend(udp.to_be_bytes());
        p.extend([17, 64]);
        p.extend(octets(from.ip()));
        p.extend(octets(to.ip()));
    } else {
        let octets = |a: IpAddr| match a {
            IpAddr::V4(v4) => v4.octets(),
            IpAddr::V6(_) => [0; 4],
        };
        let mut ip = vec![0x45, 0];
        ip.extend(udp.saturating_add(20).to_be_bytes());
        ip.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        ip.extend(octets(from.ip()));
        ip.extend(octets(to.ip()));
        let sum = checksum(&ip).to_be_bytes();
        ip[10..12].copy_from_slice(&sum);
        p.extend(ip);
    }
    p.extend(from.port().to_be_bytes());
    p.extend(to.port().to_be_bytes());
    p.extend(udp.to_be_bytes());
    // No checksum: it would be of a payload that is not there.
    p.extend([0, 0]);
    p.extend(stamp);
    p
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks(2).map(|c| u32::from(c[0]) << 8 | u32::from(c.get(1).copied().unwrap_or(0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    #[expect(clippy::cast_possible_truncation, reason = "just folded into 16 bits")]
    let folded = sum as u16;
    !folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_its_checksum_sums_to_nothing() {
        let ip =
            [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
        assert_eq!(checksum(&ip), 0);
    }
}
