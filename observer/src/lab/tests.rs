//! The lab for real: built, used and gone again. Needs root.

use std::env;
use std::fs;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::*;

const TBF: Tbf = Tbf { rate_bit_per_s: 100_000_000, burst_bytes: 262_144, limit_bytes: 1_000_000 };

/// Sends `count` datagrams from one host to the other and reads them.
fn exchange(lab: &Lab, ipv6: bool, count: usize) {
    let to = lab.receiver().address(ipv6).unwrap();
    let reader = lab.receiver().namespace.enter(|| UdpSocket::bind((to, 0)).unwrap()).unwrap();
    reader.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let port = reader.local_addr().unwrap().port();
    let from = lab.sender().address(ipv6).unwrap();
    let sent = lab.sender().namespace.enter(|| {
        let socket = UdpSocket::bind((from, 0)).unwrap();
        (0..count).map(|_| socket.send_to(&[7; 100], (to, port)).unwrap()).sum::<usize>()
    });
    assert_eq!(sent.unwrap(), 100 * count);
    for read in 0..count {
        let (bytes, peer) = reader.recv_from(&mut [0; 200]).unwrap_or_else(|e| {
            let udp = [lab.sender(), lab.receiver()].map(|h| UdpCounters::read(&h.namespace));
            panic!("{read} of {count} read, IPv6 {ipv6}: {e}; {udp:?}, {:?}", lab.way_out())
        });
        assert_eq!((bytes, peer.ip()), (100, from));
    }
}

#[test]
fn datagrams_cross_in_both_families_and_the_kernel_counts_them() {
    needs_root!();
    for bridge in [false, true] {
        let lab = Lab::build(&LabConfig { bridge, segment: true, mtu: Some(1400), ..LabConfig::default() })
            .unwrap();
        let before = UdpCounters::read(&lab.receiver().namespace).unwrap();
        let families: &[bool] = if lab.sender().v6.is_some() { &[false, true] } else { &[false] };
        for &ipv6 in families {
            exchange(&lab, ipv6, 10);
        }
        let count = 10 * u64::try_from(families.len()).unwrap();
        let read = UdpCounters::read(&lab.receiver().namespace).unwrap().since(&before);
        assert_eq!(read, UdpCounters { in_datagrams: count, ..UdpCounters::default() });
        let sent = UdpCounters::read(&lab.sender().namespace).unwrap();
        assert_eq!(sent.out_datagrams, count);
        assert_eq!(lab.way_out().unwrap().kind, "noqueue");
    }
}

#[test]
fn the_shaper_is_on_the_way_and_reads_back() {
    needs_root!();
    for bridge in [false, true] {
        let lab = Lab::build(&LabConfig { shaper: Some(TBF), bridge, ..LabConfig::default() }).unwrap();
        exchange(&lab, false, 10);
        let qdisc = lab.way_out().unwrap();
        assert_eq!((qdisc.kind.as_str(), qdisc.options.rate_byte_per_s), ("tbf", 12_500_000));
        // tc rounds to its clock ticks: 64 ns, less than one byte here.
        assert!(qdisc.options.burst_bytes.abs_diff(262_144) < 16, "{qdisc:?}");
        // 100 bytes of payload, 28 of UDP and IP, 14 of Ethernet; and 90
        // for each multicast listener report that came by.
        let reports = qdisc.packets.checked_sub(10).unwrap();
        assert_eq!((qdisc.bytes, qdisc.drops), (1_420 + 90 * reports, 0));
        lab.shape(&Tbf { rate_bit_per_s: 8_000_000, ..TBF }).unwrap();
        assert_eq!(lab.way_out().unwrap().options.rate_byte_per_s, 1_000_000);
    }
}

#[test]
fn a_refused_configuration_leaves_nothing_and_says_why() {
    needs_root!();
    let e = Lab::build(&LabConfig { mtu: Some(1), ..LabConfig::default() }).unwrap_err();
    assert!(e.to_string().contains("mtu"), "{e}");
}

/// A device in a third namespace whose other end is on the lab's sender: the
/// kernel removes it when it takes the sender's namespace down, and only then.
struct Witness(Namespace);

impl Witness {
    fn new() -> Self {
        Self(Namespace::create("witness").unwrap())
    }

    fn attach(path: &str, lab: &Lab) {
        let pair = ["link", "add", "probe1", "type", "veth", "peer", "name", "probe0", "netns", path];
        lab.sender().ip(&pair).unwrap();
    }

    fn sees_the_lab(&self) -> bool {
        self.0.enter(|| fs::read_to_string("/proc/thread-self/net/dev").unwrap().contains("probe0")).unwrap()
    }

    fn wait_until(&self, there: bool) {
        let patience = Instant::now() + Duration::from_secs(30);
        while self.sees_the_lab() != there {
            assert!(
                Instant::now() < patience,
                "the lab is {}",
                if there { "not there" } else { "still there" }
            );
            sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn dropping_the_lab_takes_its_namespaces_down() {
    needs_root!();
    let witness = Witness::new();
    let lab = Lab::build(&LabConfig { shaper: Some(TBF), ..LabConfig::default() }).unwrap();
    Witness::attach(&witness.0.path().to_string_lossy(), &lab);
    assert!(witness.sees_the_lab());
    drop(lab);
    witness.wait_until(false);
}

#[test]
fn a_panic_takes_the_namespaces_down() {
    needs_root!();
    let witness = Witness::new();
    let path = witness.0.path();
    let thread = std::thread::spawn(move || {
        let lab = Lab::build(&LabConfig::default()).unwrap();
        Witness::attach(&path.to_string_lossy(), &lab);
        panic!("while a lab is up");
    });
    assert!(thread.join().is_err());
    witness.wait_until(false);
}

/// Where the process that is to be killed finds its witness.
const VICTIM: &str = "OBSERVER_TEST_LAB_WITNESS";

#[test]
fn killing_the_process_takes_its_namespaces_down() {
    if let Ok(path) = env::var(VICTIM) {
        let lab = Lab::build(&LabConfig { shaper: Some(TBF), ..LabConfig::default() }).unwrap();
        Witness::attach(&path, &lab);
        sleep(Duration::from_secs(60));
        return;
    }
    needs_root!();
    let witness = Witness::new();
    let mut victim = Command::new(env::current_exe().unwrap())
        .args(["--exact", "lab::tests::killing_the_process_takes_its_namespaces_down"])
        .env(VICTIM, witness.0.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    witness.wait_until(true);
    victim.kill().unwrap();
    victim.wait().unwrap();
    witness.wait_until(false);
}
