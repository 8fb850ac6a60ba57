//! The flows' sockets, from `/proc/<thread>/net/udp` and `udp6`: the table of
//! the network namespace in which that thread is.
//!
//! In: the flows of a report. Out: a [`Socket`] for each end on this host that
//! is still there. At most [`NAMESPACES`] tables of at most [`TABLE_BYTES`]
//! are read, however many flows there are.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Side, Socket};
use crate::report::{Endpoint, FlowReport};

/// Network namespaces looked into.
pub const NAMESPACES: usize = 8;
/// Most that is read of one table: some 30,000 sockets.
pub const TABLE_BYTES: u64 = 4 << 20;
/// Most sockets told of.
pub const SOCKETS: usize = 64;

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Local address.
    pub local: SocketAddr,
    /// Bytes charged to the send buffer.
    pub tx_bytes: u64,
    /// Bytes charged to the receive buffer.
    pub rx_bytes: u64,
    /// Datagrams refused.
    pub drops: u64,
    /// The socket's inode.
    pub inode: u64,
}

/// The end of a flow to be looked up.
struct Wanted<'a> {
    side: Side,
    address: SocketAddr,
    end: &'a Endpoint,
}

/// Looks up the sockets of `flows`; `None` if no table could be read.
pub fn read(flows: &[FlowReport]) -> Option<Vec<Socket>> {
    let mut by_namespace: BTreeMap<u32, Vec<Wanted<'_>>> = BTreeMap::new();
    for wanted in flows.iter().flat_map(ends) {
        if by_namespace.len() < NAMESPACES || by_namespace.contains_key(&wanted.end.netns) {
            by_namespace.entry(wanted.end.netns).or_default().push(wanted);
        }
    }
    let mut sockets: BTreeMap<(Side, u64), Socket> = BTreeMap::new();
    let mut any = false;
    for wanted in by_namespace.values() {
        // Any thread of the namespace will do; the first may have ended.
        let Some(table) = wanted.iter().find_map(|w| table(w.end.tid.or(w.end.pid)?)) else { continue };
        any = true;
        for w in wanted {
            for row in table.iter().filter(|row| is_of(row, w)) {
                if sockets.len() < SOCKETS {
                    sockets.entry((w.side, row.inode)).or_insert_with(|| socket(w, row));
                }
            }
        }
    }
    any.then(|| sockets.into_values().collect())
}

fn ends(flow: &FlowReport) -> impl Iterator<Item = Wanted<'_>> {
    let key = &flow.key;
    let both = [(Side::Sender, &key.source, &key.sender), (Side::Receiver, &key.destination, &key.receiver)];
    both.into_iter().filter_map(|(side, address, end)| {
        Some(Wanted { side, address: address.as_ref()?.parse().ok()?, end: end.as_ref()? })
    })
}

/// A socket bound to every address is the one, and so is one bound to this.
fn is_of(row: &Row, wanted: &Wanted<'_>) -> bool {
    row.local.port() == wanted.address.port()
        && (row.local.ip().is_unspecified() || canonical(row.local.ip()) == canonical(wanted.address.ip()))
}

fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

fn socket(wanted: &Wanted<'_>, row: &Row) -> Socket {
    let queued = match wanted.side {
        Side::Sender => row.tx_bytes,
        Side::Receiver => row.rx_bytes,
    };
    Socket {
        side: wanted.side,
        local: row.local.to_string(),
        pid: wanted.end.pid,
        comm: wanted.end.comm.clone(),
        netns: wanted.end.netns,
        queued_bytes: queued,
        peak_bytes: queued,
        buffer_bytes: wanted.end.buffer_bytes.into(),
        drops: row.drops,
        inode: row.inode,
    }
}

/// Both tables of the namespace of thread `tid`; `None` if neither is there.
fn table(tid: u32) -> Option<Vec<Row>> {
    let file = |name: &str| -> Option<String> {
        let file = File::open(format!("/proc/{tid}/net/{name}")).ok()?;
        let mut text = String::new();
        file.take(TABLE_BYTES).read_to_string(&mut text).ok()?;
        Some(text)
    };
    let (four, six) = (file("udp"), file("udp6"));
    if four.is_none() && six.is_none() {
        return None;
    }
    let rows = |text: Option<String>| text.map_or_else(Vec::new, |t| parse(&t));
    Some([rows(four), rows(six)].concat())
}

/// The rows of a table. Lines that are none (the heading, a last line cut
/// short) are left out.
pub fn parse(table: &str) -> Vec<Row> {
    table.lines().filter_map(row).collect()
}

// sl local rem st tx:rx tr:when retrnsmt uid timeout inode ref pointer drops
fn row(line: &str) -> Option<Row> {
    let mut fields = line.split_whitespace();
    let local = address(fields.nth(1)?)?;
    let (tx, rx) = fields.nth(2)?.split_once(':')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (tx_bytes, rx_bytes) = (hex(tx)?, hex(rx)?);
    let inode = fields.nth(4)?.parse().ok()?;
    let drops = fields.nth(2)?.parse().ok()?;
    Some(Row { local, tx_bytes, rx_bytes, drops, inode })
}

/// `0100007F:2375`: words of 32 bits as the CPU has them, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |text: &str| u32::from_str_radix(text, 16).map(u32::to_ne_bytes).ok();
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(ip)?).into(),
        32 if ip.is_ascii() => {
            let mut bytes = [0; 16];
            for (i, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(ip.get(i * 8..i * 8 + 8)?)?);
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::FlowKey;
    use proptest::prelude::*;

    const TABLE: &str = "\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  103: 0100007F:2375 00000000:0000 07 00000000:0003A980 00:00000000 00000000     0        0 61234 2 0000000000000000 1204
  104: 00000000:9C40 0200000A:2375 01 00000300:00000000 00:00000000 00000000     0        0 61235 2 0000000000000000 0
  105: 0000007F:23";

    #[test]
    #[cfg(target_endian = "little")]
    fn a_table_is_read_line_by_line() {
        let rows = parse(TABLE);
        assert_eq!(rows.len(), 2, "neither the heading nor the line cut short");
        assert_eq!(rows[0].local, "127.0.0.1:9077".parse().unwrap());
        assert_eq!((rows[0].rx_bytes, rows[0].drops, rows[0].inode), (0x3a980, 1204, 61234));
        assert_eq!((rows[1].tx_bytes, rows[1].drops), (768, 0));
        let six = "1: 00000000000000000000000001000000:0035 0:0 07 0:A 00:0 0 0 0 9 2 0 3";
        let rows = parse(six);
        assert_eq!(rows[0].local, "[::1]:53".parse().unwrap());
        assert_eq!((rows[0].rx_bytes, rows[0].inode, rows[0].drops), (10, 9, 3));
    }

    #[test]
    fn the_socket_of_this_very_test_is_found_with_what_waits_in_it() {
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = receiver.local_addr().unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(&[7; 1000], to).unwrap();
        let end = Endpoint {
            pid: Some(std::process::id()),
            tid: None,
            comm: "test".into(),
            netns: 1,
            buffer_bytes: 212_992,
        };
        let key = FlowKey { destination: Some(to.to_string()), receiver: Some(end), ..FlowKey::default() };
        let flow = FlowReport { key, counts: Default::default(), components: Default::default() };
        let sockets = read(&[flow]).unwrap();
        assert_eq!(sockets.len(), 1);
        assert_eq!((sockets[0].side, &sockets[0].local), (Side::Receiver, &to.to_string()));
        assert!(sockets[0].queued_bytes >= 1_000, "{sockets:?}");
    }

    #[test]
    fn flows_that_are_elsewhere_are_not_known() {
        assert_eq!(read(&[]), None);
        let key = FlowKey { destination: Some("10.0.0.1:1".into()), ..FlowKey::default() };
        let flow = FlowReport { key, counts: Default::default(), components: Default::default() };
        assert_eq!(read(&[flow]), None);
    }

    proptest! {
        #[test]
        fn no_table_is_too_strange(text in "(?s).{0,300}", line in "[ 0-9A-Fa-f:]{0,200}") {
            parse(&text);
            parse(&line);
        }
    }
}
