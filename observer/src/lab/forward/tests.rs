//! Forwarders between two namespaces: that everything crosses, and that what
//! is held back comes when and as much at a time as the rule says.

use std::net::UdpSocket;
use std::time::Duration;

use super::*;
use crate::lab::scenario::PORT;
use crate::lab::{Lab, LabConfig, RECEIVER_V4, needs_root};

/// Of a payload, on the wire of the lab.
const HEADERS: u64 = 42;

fn lab(rule: Rule) -> Lab {
    Lab::build(&LabConfig { forward: Some(ForwardConfig::new(rule)), ..LabConfig::default() }).unwrap()
}

/// Sends `count` datagrams of `payload` bytes, `every` apart, while a reader
/// notes when each arrives: (number, ns).
fn send(lab: &Lab, count: u32, payload: usize, every: Duration) -> Vec<(u32, u64)> {
    let bind = || {
        let socket = UdpSocket::bind((RECEIVER_V4, PORT)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20).unwrap();
        socket
    };
    let socket = lab.receiver().namespace.enter(bind).unwrap();
    let reader = std::thread::spawn(move || {
        priority::raise(priority::Role::Observer);
        let mut seen = Vec::new();
        let mut buffer = [0; 2048];
        while seen.len() < count as usize {
            let Ok(length) = socket.recv(&mut buffer) else { break };
            let now = monotonic_ns();
            assert_eq!(length, payload);
            seen.push((u32::from_le_bytes(*buffer.first_chunk().unwrap()), now));
        }
        seen
    });
    let transmit = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let mut bytes = vec![0; payload];
        for i in 0..count {
            bytes[..4].copy_from_slice(&i.to_le_bytes());
            socket.send_to(&bytes, (RECEIVER_V4, PORT)).unwrap();
            if !every.is_zero() {
                std::thread::sleep(every);
            }
        }
    };
    lab.sender().namespace.enter(transmit).unwrap();
    reader.join().unwrap()
}

/// Start and number of arrivals between gaps above `gap_ns`.
fn groups(seen: &[(u32, u64)], gap_ns: u64) -> Vec<(u64, u64)> {
    seen.chunk_by(|a, b| b.1 - a.1 <= gap_ns).map(|g| (g[0].1, g.len() as u64)).collect()
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

#[test]
fn everything_crosses_in_order_and_is_accounted_for() {
    needs_root!();
    let lab = lab(Rule::Pass);
    let seen = send(&lab, 2_000, 100, Duration::ZERO);
    assert!(seen.iter().map(|s| s.0).eq(0..2_000), "in order and whole");
    let account = lab.forwarder().unwrap().account();
    // A multicast listener report or two may come along.
    assert!((2_000..=2_004).contains(&account.packets), "{account:?}");
    assert!(account.bytes >= 2_000 * (100 + HEADERS), "{account:?}");
    assert_eq!((account.dropped, account.waits), (0, 0));
    // And the other way round.
    let echo = lab.receiver().namespace.enter(|| UdpSocket::bind((RECEIVER_V4, PORT)).unwrap()).unwrap();
    let ask = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket.send_to(b"there?", (RECEIVER_V4, PORT)).unwrap();
        let mut buffer = [0; 16];
        let (length, from) = echo.recv_from(&mut buffer).unwrap();
        echo.send_to(&buffer[..length], from).unwrap();
        socket.recv(&mut buffer).unwrap()
    };
    assert_eq!(lab.sender().namespace.enter(ask).unwrap(), 6);
}

/// The period within a tick of the kernel's timer, 4 ms at 250 Hz, and the
/// quantum within a packet: what an estimator can be held to.
#[test]
fn credit_comes_a_quantum_per_period() {
    needs_root!();
    const PAYLOAD: u64 = 1_200;
    for (bit_per_s, windows) in [(10_000_000, 8), (100_000_000, 5)] {
        let config = CreditConfig::of_rate(bit_per_s);
        let lab = lab(Rule::Credit(config));
        let l2 = PAYLOAD + HEADERS;
        let count = u32::try_from(config.quantum_bytes * windows / l2).unwrap();
        let seen = send(&lab, count, 1_200, Duration::ZERO);
        let account = lab.forwarder().unwrap().account();
        assert_eq!(seen.len() as u64, u64::from(count), "{account:?}");
        let groups = groups(&seen, 10_000_000);
        // The first group has the credit of the window in progress as well;
        // the last one is what was left.
        let whole = &groups[1..groups.len() - 1];
        assert!(whole.len() >= 3, "{groups:?}");
        let period = median(whole.windows(2).map(|w| w[1].0 - w[0].0).collect());
        let packets = median(whole.iter().map(|g| g.1).collect());
        eprintln!("{bit_per_s} bit/s: {period} ns, {} bytes a time, {account:?}", packets * l2);
        assert!(period.abs_diff(50_000_000) < 4_000_000, "{period} ns, {account:?}");
        assert!((packets * l2).abs_diff(config.quantum_bytes) <= l2, "{packets} packets, {account:?}");
        assert!(account.waits + 1 >= groups.len() as u64, "{account:?} {groups:?}");
    }
}

#[test]
fn a_forwarder_that_stands_still_leaves_gaps_and_loses_nothing() {
    needs_root!();
    let config = StallConfig { every: Duration::from_millis(100), lasts: Duration::from_millis(40) };
    let lab = lab(Rule::Stall(config));
    let seen = send(&lab, 400, 100, Duration::from_millis(1));
    assert_eq!(seen.len(), 400);
    let gaps: Vec<u64> = seen.windows(2).map(|w| w[1].1 - w[0].1).filter(|gap| *gap > 20_000_000).collect();
    assert!(gaps.len() >= 3, "{gaps:?}");
    let gap = median(gaps);
    // What came just before is up to a sending interval older.
    assert!((36_000_000..60_000_000).contains(&gap), "{gap}");
}

#[test]
fn a_full_queue_drops_and_counts() {
    needs_root!();
    let config = CreditConfig { quantum_bytes: 20 * 142, period: Duration::from_millis(100) };
    let forward = ForwardConfig { rule: Rule::Credit(config), queue_packets: 30 };
    let lab = Lab::build(&LabConfig { forward: Some(forward), ..LabConfig::default() }).unwrap();
    let seen = send(&lab, 500, 100, Duration::ZERO);
    let account = lab.forwarder().unwrap().account();
    assert!(account.dropped > 0 && seen.len() < 500, "{account:?}");
    let accounted = account.packets + account.dropped;
    assert!((500..=504).contains(&accounted), "{account:?}");
}

#[test]
fn the_pair_is_named_and_forwarders_end_with_the_lab() {
    needs_root!();
    let lab = lab(Rule::Pass);
    let pair = lab.pair().unwrap().unwrap();
    assert_eq!(u64::from(pair.entry.netns), lab.sender().namespace.inode());
    assert_eq!(u64::from(pair.exit.netns), lab.receiver().namespace.inode());
    assert!(pair.entry.ifindex > 1 && pair.exit.ifindex > 1);
    let sender = lab.sender().namespace.clone();
    drop(lab);
    let left = sender.enter(|| crate::filter::interface_index(crate::lab::LINK)).unwrap();
    assert_eq!(left, None, "the device is gone with its descriptor");
    assert_eq!(Lab::build(&LabConfig::default()).unwrap().pair().unwrap(), None);
}
