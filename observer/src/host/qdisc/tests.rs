//! Messages built by hand, any bytes at all, and a namespace with tbf and htb.

use std::{fs::File, process::Command};

use netlink_packet_core::{DefaultNla, Emitable};
use proptest::prelude::*;

use super::{
    decode::{self, NEW_CLASS, NEW_QDISC, Tick},
    netlink::{Answer, ask},
    *,
};
use crate::lab::{Namespace, needs_root};

fn nla(kind: u16, value: &[u8]) -> Vec<u8> {
    let attribute = DefaultNla::new(kind, value.to_vec());
    let mut bytes = vec![0; attribute.buffer_len()];
    attribute.emit(&mut bytes);
    bytes
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

/// A ratespec of `byte_s` with `overhead`.
fn spec(byte_s: u32, overhead: u16) -> Vec<u8> {
    let mut bytes = vec![0, 1];
    bytes.extend(overhead.to_ne_bytes());
    bytes.extend(words(&[0, byte_s]));
    bytes
}

fn body(handle: u32, parent: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = words(&[0, 7, handle, parent, 0]);
    bytes.extend(attributes.concat());
    bytes
}

fn stats2(packets: u32, wide: Option<u64>) -> Vec<u8> {
    let mut basic = 5_000_000_000_u64.to_ne_bytes().to_vec();
    basic.extend(words(&[packets, 0]));
    let mut all = [nla(1, &basic), nla(3, &words(&[4, 606, 3, 2, 9]))].concat();
    if let Some(wide) = wide {
        all.extend(nla(8, &wide.to_ne_bytes()));
    }
    nla(7, &all)
}

const COUNTED: Counters = Counters {
    bytes: 5_000_000_000,
    packets: 20,
    drops: 3,
    overlimits: 9,
    requeues: 2,
    backlog_bytes: 606,
    backlog_packets: 4,
};

#[test]
fn a_tbf_with_a_peak_rate() {
    // 262,144 bytes at 12.5 MB/s are 20.97152 ms, 327,680 ticks.
    let parms = [spec(12_500_000, 24), spec(25_000_000, 0), words(&[1_000_000, 327_680, 940])].concat();
    let options = nla(2, &nla(1, &parms));
    let bytes = body(0x8001_0000, u32::MAX, &[nla(1, b"tbf\0"), options, stats2(20, None)]);
    let tbf = decode::message(NEW_QDISC, &bytes, Tick::USUAL).unwrap();
    assert_eq!((tbf.kind.as_str(), tbf.role, tbf.ifindex), ("tbf", Role::Qdisc, 7));
    assert_eq!((tbf.handle.to_string(), tbf.parent.to_string()), ("8001:".to_owned(), "root".to_owned()));
    let config = Config {
        rate_bit_s: Some(100_000_000),
        burst_bytes: Some(262_144),
        peak_bit_s: Some(200_000_000),
        // 940 ticks of 64 ns at 25 MB/s.
        peak_burst_bytes: Some(1_504),
        limit_bytes: Some(1_000_000),
        limit_packets: None,
        overhead_bytes: Some(24),
    };
    assert_eq!((tbf.config, tbf.counters), (config, COUNTED));
    assert!(tbf.is_limiter());
}

#[test]
fn rates_and_counts_beyond_32_bits() {
    let parms = [spec(u32::MAX, 0), spec(0, 0), words(&[1, 1_000, 0])].concat();
    let wide = nla(4, &12_500_000_000_u64.to_ne_bytes());
    let options = nla(2, &[nla(1, &parms), wide].concat());
    let bytes = body(1, 2, &[nla(1, b"tbf\0"), options, stats2(20, Some(1 << 33))]);
    let tbf = decode::message(NEW_QDISC, &bytes, Tick::USUAL).unwrap();
    assert_eq!(tbf.config.rate_bit_s, Some(100_000_000_000));
    // 64 µs at 12.5 GB/s.
    assert_eq!(tbf.config.burst_bytes, Some(800_000));
    assert_eq!(tbf.config.peak_bit_s, None);
    assert_eq!(tbf.counters.packets, 1 << 33);
}

#[test]
fn an_htb_class_and_old_counters() {
    let parms = [spec(1_250_000, 0), spec(12_500_000, 0), words(&[200_000, 20_000, 0, 0, 3])].concat();
    let options = nla(2, &nla(1, &parms));
    let mut old = 5_000_000_000_u64.to_ne_bytes().to_vec();
    old.extend(words(&[20, 3, 9, 0, 0, 4, 606, 0]));
    let bytes = body(0x1_0010, 0x1_0000, &[nla(1, b"htb\0"), options, nla(3, &old)]);
    let class = decode::message(NEW_CLASS, &bytes, Tick::USUAL).unwrap();
    assert_eq!((class.role, class.handle.to_string()), (Role::Class, "1:10".to_owned()));
    assert_eq!(class.config.rate_bit_s, Some(10_000_000));
    assert_eq!(class.config.burst_bytes, Some(16_000));
    assert_eq!(class.config.peak_bit_s, Some(100_000_000));
    assert_eq!(class.config.peak_burst_bytes, Some(16_000));
    assert_eq!(class.counters, Counters { requeues: 0, ..COUNTED });
}

#[test]
fn plain_queues_have_limits_and_no_rate() {
    let fifo = |kind: &[u8], options: &[u8]| {
        let bytes = body(1, 2, &[nla(1, kind), nla(2, options)]);
        decode::message(NEW_QDISC, &bytes, Tick::USUAL).unwrap().config
    };
    let limit = words(&[1_000]);
    assert_eq!(fifo(b"bfifo\0", &limit), Config { limit_bytes: Some(1_000), ..Config::default() });
    assert_eq!(fifo(b"pfifo\0", &limit).limit_packets, Some(1_000));
    assert_eq!(fifo(b"fq_codel\0", &nla(2, &limit)).limit_packets, Some(1_000));
    assert_eq!(fifo(b"fq\0", &nla(1, &limit)).limit_packets, Some(1_000));
    assert_eq!(fifo(b"noqueue\0", &[]), Config::default());
    // The qdisc htb itself has no rate; its classes have.
    assert_eq!(fifo(b"htb\0", &nla(1, &[9; 44])), Config::default());
}

#[test]
fn ticks_are_what_the_kernel_says() {
    assert_eq!(Tick::parse("000003e8 00000040 000f4240 3b9aca00\n"), Some(Tick::USUAL));
    for text in ["", "000003e8", "x y", "00000001 00000040 0 0", "000003e8 00000000 0 0"] {
        assert_eq!(Tick::parse(text), None, "{text}");
    }
}

#[test]
fn entries_survive_json() {
    let qdisc = Qdisc {
        device: "eth0".to_owned(),
        ifindex: 2,
        role: Role::Class,
        kind: "htb".to_owned(),
        handle: Handle(0x1_0010),
        parent: Handle::ROOT,
        config: Config { rate_bit_s: Some(8), ..Config::default() },
        counters: COUNTED,
    };
    let json = serde_json::to_string(&qdisc).unwrap();
    assert!(json.contains(r#""handle":"1:10","parent":"root""#), "{json}");
    assert_eq!(serde_json::from_str::<Qdisc>(&json).unwrap(), qdisc);
}

#[test]
fn an_error_of_the_kernel_is_an_error() {
    let mut message = ask(decode::NEW_QDISC, 9, 0);
    message[4..6].copy_from_slice(&2_u16.to_ne_bytes());
    message[16..20].copy_from_slice(&(-1_i32).to_ne_bytes());
    let e = Answer::default().take(&message, 9, Tick::USUAL).unwrap_err();
    assert_eq!(e.raw_os_error(), Some(1));
    // Another request's answer is not ours.
    Answer::default().take(&message, 8, Tick::USUAL).unwrap();
}

proptest! {
    #[test]
    fn handles_are_read_as_they_are_written(number: u32) {
        let handle = Handle(number);
        prop_assert_eq!(handle.to_string().parse::<Handle>(), Ok(handle));
    }

    #[test]
    fn no_text_makes_handles_panic(text in ".{0,12}") {
        let _ = text.parse::<Handle>();
    }

    #[test]
    fn any_bytes_are_an_answer_or_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in prop::sample::select(vec![2_u16, 3, 36, 40]),
        length in 0_u32..320, aligned: bool,
    ) {
        let mut bytes = bytes;
        if bytes.len() >= 16 {
            let length = if aligned { u32::try_from(bytes.len()).unwrap() } else { length };
            bytes[0..4].copy_from_slice(&length.to_ne_bytes());
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes[8..12].copy_from_slice(&1_u32.to_ne_bytes());
        }
        let _ = Answer::default().take(&bytes, 1, Tick::USUAL);
    }

    /// A good message with bytes changed and its end cut off: whatever comes
    /// out, what lies before the damage is read.
    #[test]
    fn a_damaged_message_does_no_harm(
        kind in prop::sample::select(vec!["tbf", "htb", "fq", "bfifo"]),
        hits in proptest::collection::vec((20_usize..200, any::<u8>()), 0..6), cut in 0_usize..220,
    ) {
        let parms = [spec(1, 2), spec(3, 4), words(&[5, 6, 7, 8, 9])].concat();
        let name = format!("{kind}\0");
        let mut bytes = body(3, 4, &[nla(1, name.as_bytes()), nla(2, &nla(1, &parms)), stats2(1, Some(2))]);
        for (at, value) in hits {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(cut);
        for message_type in [NEW_QDISC, NEW_CLASS] {
            let read = decode::message(message_type, &bytes, Tick::USUAL);
            prop_assert_eq!(read.is_some(), bytes.len() >= 20);
            if let Some(read) = read {
                prop_assert_eq!((read.ifindex, read.handle, read.parent), (7, Handle(3), Handle(4)));
            }
        }
    }

    #[test]
    fn what_was_configured_is_what_is_read(byte_s in 1_u32.., ticks: u32, limit: u32) {
        let parms = [spec(byte_s, 0), spec(0, 0), words(&[limit, ticks, 0])].concat();
        let bytes = body(1, 2, &[nla(1, b"tbf\0"), nla(2, &nla(1, &parms))]);
        let config = decode::message(NEW_QDISC, &bytes, Tick::USUAL).unwrap().config;
        prop_assert_eq!(config.rate_bit_s, Some(u64::from(byte_s) * 8));
        prop_assert_eq!(config.limit_bytes, Some(u64::from(limit)));
        let exact = f64::from(ticks) * 64e-9 * f64::from(byte_s);
        #[expect(clippy::cast_precision_loss, reason = "a test's tolerance")]
        let read = config.burst_bytes.unwrap() as f64;
        prop_assert!((exact - read).abs() <= 1.0 + exact * 1e-12, "{exact} {read}");
    }
}

/// Without the counters, which move.
fn shapes(all: &[Qdisc]) -> Vec<Qdisc> {
    all.iter().map(|q| Qdisc { counters: Counters::default(), ..q.clone() }).collect()
}

fn run(host: &Namespace, command: &str) {
    let mut words = command.split_whitespace();
    let program = words.next().unwrap();
    let output = host.enter(|| Command::new(program).args(words).output()).unwrap().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_namespace_with_tbf_and_htb() {
    needs_root!();
    let host = Namespace::create("qdiscs").unwrap();
    for command in [
        "ip link add name one type veth peer name two",
        "ip link set one up",
        "ip link set two up",
        "tc qdisc add dev one root handle 5: tbf rate 100mbit burst 262144b limit 1000000b",
        "tc qdisc add dev two root handle 1: htb default 10",
        "tc class add dev two parent 1: classid 1:1 htb rate 100mbit burst 64kb",
        "tc class add dev two parent 1:1 classid 1:10 htb rate 10mbit ceil 20mbit burst 16kb cburst 32kb",
        "tc qdisc add dev two parent 1:10 handle 10: pfifo limit 50",
    ] {
        run(&host, command);
    }
    let file = File::open(host.path()).unwrap();
    let all = of_namespace(&file).unwrap();
    assert_eq!(shapes(&all), shapes(&host.enter(here).unwrap().unwrap()), "two ways, one answer");
    let find = |device: &str, handle: &str, role: Role| {
        let handle: Handle = handle.parse().unwrap();
        let entry = all.iter().find(|q| q.device == device && q.handle == handle && q.role == role);
        entry.unwrap_or_else(|| panic!("no {device} {handle} in {all:?}"))
    };
    // The kernel counts in ns on the way in, in ticks on the way out.
    let near = |burst: Option<u64>, bytes: u64, slack_ns: u64, byte_s: u64| {
        let slack = byte_s * slack_ns / 1_000_000_000 + 2;
        assert!(burst.unwrap().abs_diff(bytes) <= slack, "{burst:?} is not {bytes}");
    };
    /// `tc` gives tbf its bucket in bytes, but htb in whole µs.
    const TBF: u64 = 64;
    const HTB: u64 = 1_064;

    let tbf = find("one", "5:", Role::Qdisc);
    assert_eq!((tbf.kind.as_str(), tbf.parent), ("tbf", Handle::ROOT));
    assert_eq!(tbf.config.rate_bit_s, Some(100_000_000));
    assert_eq!(tbf.config.limit_bytes, Some(1_000_000));
    near(tbf.config.burst_bytes, 262_144, TBF, 12_500_000);

    let htb = find("two", "1:", Role::Qdisc);
    assert_eq!((htb.kind.as_str(), htb.config), ("htb", Config::default()));
    let outer = find("two", "1:1", Role::Class);
    assert_eq!((outer.config.rate_bit_s, outer.config.peak_bit_s), (Some(100_000_000), Some(100_000_000)));
    near(outer.config.burst_bytes, 65_536, HTB, 12_500_000);
    let inner = find("two", "1:10", Role::Class);
    assert_eq!(inner.parent, Handle(0x1_0001));
    assert_eq!((inner.config.rate_bit_s, inner.config.peak_bit_s), (Some(10_000_000), Some(20_000_000)));
    near(inner.config.burst_bytes, 16_384, HTB, 1_250_000);
    near(inner.config.peak_burst_bytes, 32_768, HTB, 2_500_000);
    let leaf = find("two", "10:", Role::Qdisc);
    assert_eq!((leaf.config.limit_packets, leaf.parent), (Some(50), Handle(0x1_0010)));

    // A namespace made here has its lo, without a queue.
    let empty = Namespace::create("bare").unwrap().enter(here).unwrap().unwrap();
    assert!(empty.iter().all(|q| q.kind == "noqueue"), "{empty:?}");
}

#[test]
fn counters_move_with_the_traffic() {
    use crate::lab::{Lab, LabConfig, Tbf};
    needs_root!();
    let shaper = Tbf { rate_bit_per_s: 8_000_000, burst_bytes: 2_000, limit_bytes: 4_000 };
    let lab = Lab::build(&LabConfig { shaper: Some(shaper), ..LabConfig::default() }).unwrap();
    let to = (lab.receiver().v4, 9);
    lab.sender()
        .namespace
        .enter(|| {
            let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
            for _ in 0..50 {
                socket.send_to(&[0; 1000], to).unwrap();
            }
        })
        .unwrap();
    let all = lab.sender().namespace.enter(here).unwrap().unwrap();
    let tbf = all.iter().find(|q| q.device == crate::lab::LINK).unwrap();
    let c = tbf.counters;
    assert!(c.overlimits > 0 && c.drops > 0, "{c:?}");
    // What `tc` counts is what netlink tells.
    let seen = lab.way_out().unwrap();
    assert_eq!((c.drops, tbf.handle.to_string()), (seen.drops, seen.handle));
    // Nothing is lost between the counters but what leaves meanwhile, and a
    // multicast report or two.
    let accounted = c.packets + c.backlog_packets + c.drops;
    assert!((50..=54).contains(&accounted), "{c:?}");
    assert_eq!(shapes(&of_process(std::process::id()).unwrap()), shapes(&here().unwrap()));
}

#[test]
fn a_process_that_is_gone_is_said_so() {
    let e = of_process(u32::MAX).unwrap_err();
    assert!(e.to_string().contains("process 4294967295"), "{e}");
}
