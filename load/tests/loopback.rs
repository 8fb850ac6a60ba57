//! Both ends over loopback: what is offered arrives, whatever the engine, the
//! system call and the address family, and is accounted for when it does not.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test, in helpers too")]

use std::net::SocketAddr;
use std::time::Duration;

use load::*;

fn both(
    family: &str,
    recv: impl FnOnce(&mut RecvConfig),
    send: impl FnOnce(&mut SendConfig),
) -> (SendReport, RecvReport, Vec<Delivery>) {
    let bind: SocketAddr = family.parse().unwrap();
    let mut recv_config = RecvConfig::new(bind);
    recv_config.idle = Some(Duration::from_millis(500));
    recv_config.duration = Some(Duration::from_secs(60));
    recv(&mut recv_config);
    let receiver = Receiver::bind(&recv_config).unwrap();
    let mut config = SendConfig::new(receiver.local_addr());
    config.schedule = Schedule::Constant { rate: 20_000.0 };
    config.count = Some(4_000);
    send(&mut config);
    let reader = std::thread::spawn(move || {
        let mut log = Vec::new();
        let report = receiver.run_with(&Stop::new(), &Progress::new(), |d| log.push(*d)).unwrap();
        (report, log)
    });
    let sent = load::send(&config, &Stop::new()).unwrap();
    let (received, log) = reader.join().unwrap();
    (sent, received, log)
}

const V4: &str = "127.0.0.1:0";
const V6: &str = "[::1]:0";

#[test]
fn every_call_and_family_delivers_everything() {
    let sends = [SendCall::Sendmmsg, SendCall::Sendmsg, SendCall::Sendto, SendCall::Write];
    let reads = [ReadCall::Recvmmsg, ReadCall::Recvmsg, ReadCall::Recvfrom, ReadCall::Read];
    for family in [V4, V6] {
        for (call, read) in sends.into_iter().zip(reads) {
            for connect in [true, false] {
                if call == SendCall::Write && !connect {
                    continue;
                }
                let (s, r, _) = both(
                    family,
                    |c| c.call = read,
                    |c| {
                        (c.call, c.connect) = (call, connect);
                        c.count = Some(500);
                    },
                );
                let what = format!("{family} {call:?} {read:?} {connect}");
                assert_eq!((s.due, s.offered, s.sent), (500, 500, 500), "{what}");
                assert_eq!((r.total.unique, r.total.lost, r.total.duplicated), (500, 0, 0), "{what}");
                assert_eq!(r.bytes, 500 * 160, "{what}");
                assert!(!s.interrupted && !r.interrupted);
            }
        }
    }
}

#[test]
fn the_driver_engine_delivers_every_stream_in_order() {
    for idle in [Idle::BusySpin, Idle::Yield, Idle::Sleep(Duration::from_micros(50))] {
        let (s, r, log) = both(
            V4,
            |_| {},
            |c| {
                c.engine = Engine::Driver { ring: 1 << 12, batch: 32, idle };
                c.streams = 3;
                c.count = Some(9_000);
                c.schedule = Schedule::Bursts {
                    size: 3_000,
                    dispatch: None,
                    every: Some(Duration::from_millis(50)),
                    repeat: None,
                };
            },
        );
        assert_eq!((s.offered, s.sent, r.total.unique), (9_000, 9_000, 9_000));
        let ring = s.ring.unwrap();
        assert!(ring.peak > 1 && ring.peak <= 1 << 12, "{ring:?}");
        for stream in 0..3 {
            let seqs: Vec<u64> =
                log.iter().filter(|d| d.stamp.stream() == stream).map(|d| d.stamp.seq()).collect();
            assert_eq!(seqs, (0..3_000).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_ring_too_small_presses_back_and_loses_nothing() {
    let (s, r, log) = both(
        V4,
        |_| {},
        |c| {
            c.engine = Engine::Driver { ring: 16, batch: 8, idle: Idle::Sleep(Duration::from_micros(200)) };
            c.count = Some(2_000);
            c.schedule = Schedule::Bursts { size: 2_000, dispatch: None, every: None, repeat: None };
        },
    );
    assert_eq!((s.offered, s.sent, r.total.unique), (2_000, 2_000, 2_000));
    let ring = s.ring.unwrap();
    assert!(ring.back_pressured > 50 && ring.peak <= 16, "{ring:?}");
    // All were intended at once: the waiting is in the lag of the later ones.
    let first = log[0].stamp.intended_ns;
    assert!(log.iter().all(|d| d.stamp.intended_ns == first && d.stamp.offer_ns >= first));
}

#[test]
fn times_are_in_order_and_intended_times_are_the_grid() {
    let (s, r, log) = both(V4, |_| {}, |_| {});
    assert_eq!(log.len(), 4_000);
    for (i, d) in (0..).zip(&log) {
        assert_eq!(d.stamp.intended_ns, s.start_ns + 50_000 * i);
        assert!(d.stamp.intended_ns <= d.stamp.offer_ns && d.stamp.offer_ns <= d.received_ns);
    }
    assert_eq!(s.send_lag.count(), 4_000);
    let lag = log.iter().map(|d| d.stamp.offer_ns - d.stamp.intended_ns).max();
    assert_eq!(s.send_lag.max(), lag);
    let total = log.iter().map(|d| d.received_ns - d.stamp.intended_ns).max();
    assert_eq!(r.from_intended.unwrap().max(), total);
    assert!((s.offered_per_s.unwrap() - 20_000.0).abs() < 1.0, "{:?}", s.offered_per_s);
}

#[test]
fn gso_and_gro_keep_every_stamp() {
    let (s, r, _) = both(
        V4,
        |c| c.gro = true,
        |c| {
            c.segments = 8;
            c.schedule = Schedule::Bursts {
                size: 100,
                dispatch: None,
                every: Some(Duration::from_millis(2)),
                repeat: None,
            };
        },
    );
    assert_eq!((s.sent, r.total.unique, r.total.lost), (4_000, 4_000, 0));
    assert_eq!(r.bytes, 4_000 * 160);
    assert!(r.reads < 2_000, "{} reads", r.reads);
}

#[test]
fn a_small_receive_buffer_and_a_slow_reader_lose_what_the_socket_says() {
    let (s, r, _) = both(
        V4,
        |c| {
            c.rcvbuf = Buffer::Bytes(8_192);
            c.read_delay = Duration::from_millis(5);
            c.batch = 4;
        },
        |_| {},
    );
    assert_eq!(s.sent, 4_000);
    let drops = u64::from(r.socket_drops.unwrap());
    assert!(drops > 100, "{drops}");
    assert_eq!(r.total.unique + drops, 4_000);
    // Losses after the last arrival cannot be seen by sequence.
    assert!(r.total.lost <= drops);
}

#[test]
fn a_stall_of_the_reader_shows_for_every_datagram_scheduled_in_it() {
    // 20,000/s for 600 ms; the reader stands still for 200 ms of it.
    let stall = Duration::from_millis(200);
    let (s, r, log) =
        both(V4, |c| c.stall = Some((Duration::from_millis(150), stall)), |c| c.count = Some(12_000));
    assert_eq!(r.total.unique, 12_000);
    // The stall as it was: the longest time without a read.
    let gap = log.windows(2).max_by_key(|w| w[1].received_ns - w[0].received_ns).unwrap();
    let (from, to) = (gap[0].received_ns, gap[1].received_ns);
    assert!(to - from >= 200_000_000, "{}", to - from);
    // Every slot of the grid within it was offered nevertheless, and waited
    // for what was left of the stall when it was due: to − intended, and
    // then its turn among those that waited.
    let due: Vec<i64> =
        (0..12_000).map(|k| s.start_ns + 50_000 * k).filter(|t| (from..to).contains(t)).collect();
    let hit: Vec<&Delivery> = log.iter().filter(|d| (from..to).contains(&d.stamp.intended_ns)).collect();
    assert_eq!(hit.iter().map(|d| d.stamp.intended_ns).collect::<Vec<_>>(), due);
    assert!(due.len() >= 3_990, "{}", due.len());
    let drained = hit.last().unwrap().received_ns - to;
    for d in &hit {
        let latency = d.received_ns - d.stamp.intended_ns;
        let left = to - d.stamp.intended_ns;
        assert!((left..=left + drained).contains(&latency), "{latency} of {left} to {}", left + drained);
    }
    // A ramp from the whole stall to nothing: of those hit, the share that
    // waited longer than x is at least 1 − x / stall, for every x.
    for tenth in 1..10 {
        let x = (to - from) / 10 * tenth;
        let longer = hit.iter().filter(|d| d.received_ns - d.stamp.intended_ns >= x).count();
        let arithmetic = due.iter().filter(|t| to - **t >= x).count();
        assert!(longer >= arithmetic, "{longer} of {arithmetic} at {tenth}");
    }
    // And the report has the same: of 12,000, a third was hit, so that p90 is
    // the wait exceeded by 1,200 of them: seven tenths of the stall.
    let by_arithmetic = (to - from) - 1_200 * 50_000;
    let p90 = i64::try_from(r.from_intended.as_ref().unwrap().quantile(0.9).unwrap()).unwrap();
    assert!(p90 * 1001 >= by_arithmetic * 1000, "{p90} {by_arithmetic}");
    assert!(p90 <= by_arithmetic + drained + 10_000_000, "{p90} {by_arithmetic} {drained}");
}

#[test]
fn nobody_listening_is_reported_and_not_fatal() {
    let gone = Receiver::bind(&RecvConfig::new(V4.parse().unwrap())).unwrap().local_addr();
    let mut config = SendConfig::new(gone);
    config.schedule = Schedule::Unthrottled;
    config.count = Some(200);
    let report = load::send(&config, &Stop::new()).unwrap();
    assert_eq!((report.offered, report.sent), (200, 200));
    assert!(report.reported.get("ECONNREFUSED").is_some_and(|n| *n > 0), "{:?}", report.reported);
}

#[test]
fn a_stop_ends_a_run_early_and_says_so() {
    for engine in [Engine::DIRECT, Engine::DRIVER] {
        let receiver = Receiver::bind(&RecvConfig::new(V4.parse().unwrap())).unwrap();
        let mut config = SendConfig::new(receiver.local_addr());
        config.engine = engine;
        config.duration = Some(Duration::from_secs(600));
        let (stop, other) = (Stop::new(), Stop::new());
        let sender = {
            let stop = stop.clone();
            std::thread::spawn(move || load::send(&config, &stop).unwrap())
        };
        let progress = Progress::new();
        let reader = {
            let (other, progress) = (other.clone(), progress.clone());
            std::thread::spawn(move || receiver.run_with(&other, &progress, |_| {}).unwrap())
        };
        std::thread::sleep(Duration::from_millis(100));
        stop.set();
        let sent = sender.join().unwrap();
        // The reader may be waiting for a CPU.
        let begin = std::time::Instant::now();
        while progress.received() < sent.sent && begin.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
        other.set();
        let received = reader.join().unwrap();
        assert!(sent.interrupted && received.interrupted);
        assert!(sent.offered > 20 && sent.offered == received.total.unique, "{}", sent.offered);
        assert_eq!(sent.length_ns / 60_000_000_000, 0);
    }
}

#[test]
fn more_than_the_machine_can_do_obeys_the_lag_identity() {
    let receiver = Receiver::bind(&RecvConfig::new(V4.parse().unwrap())).unwrap();
    let mut config = SendConfig::new(receiver.local_addr());
    config.schedule = Schedule::Constant { rate: 20e6 };
    config.duration = Some(Duration::from_millis(500));
    let report = load::send(&config, &Stop::new()).unwrap();
    assert_eq!(report.due, 10_000_000);
    let kept = report.achieved_per_s.unwrap() / report.offered_per_s.unwrap();
    assert!(kept < 0.5, "{kept}");
    let identity = (1.0 - kept) * report.length_ns as f64;
    let lag = report.final_lag_ns.unwrap() as f64;
    assert!((lag / identity - 1.0).abs() < 0.02, "{lag} {identity}");
    assert!(report.send_lag_slope.unwrap() > 0.4);
}

#[test]
fn forged_and_foreign_datagrams_leave_the_counts_alone() {
    let receiver =
        Receiver::bind(&RecvConfig { run: Some(5), ..RecvConfig::new(V4.parse().unwrap()) }).unwrap();
    let to = receiver.local_addr();
    let stop = Stop::new();
    let reader = {
        let stop = stop.clone();
        std::thread::spawn(move || receiver.run(&stop).unwrap())
    };
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for seq in 0..100u64 {
        let stamp = observer_ebpf::stamp::Stamp::new(5, 0, seq, i64::MIN, i64::MAX);
        socket.send_to(&stamp.to_bytes(), to).unwrap();
        let other = observer_ebpf::stamp::Stamp::new(6, 9, seq << 30, 1, 2);
        socket.send_to(&other.to_bytes(), to).unwrap();
        socket.send_to(&other.to_bytes()[..31], to).unwrap();
        socket.send_to(b"", to).unwrap();
    }
    std::thread::sleep(Duration::from_millis(200));
    stop.set();
    let r = reader.join().unwrap();
    assert_eq!((r.total.unique, r.total.lost, r.foreign, r.unstamped), (100, 0, 100, 200));
    assert!(r.from_offer.is_none() && r.no_latency.is_some());
}
