//! Both ends over loopback, and everybody who is not the other end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::*;
use crate::progress::Progress;
use crate::recv::{NoLatency, RecvConfig};
use crate::stop::Stop;
use crate::{Schedule, SendConfig};

const TOKEN: &[u8] = b"a token of both hosts";

fn token() -> Token {
    Token::new(TOKEN).unwrap()
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A service on a thread: `sessions` of them, and what became of each.
struct Host {
    control: SocketAddr,
    data: SocketAddr,
    thread: JoinHandle<Vec<Result<Session, ServeError>>>,
}

fn host(sessions: usize) -> Host {
    let service = Service::bind(any(), token(), &RecvConfig::new(any())).unwrap();
    let (control, data) = (service.control_addr(), service.local_addr());
    let thread = std::thread::spawn(move || {
        (0..sessions)
            .map(|_| {
                service
                    .session(&Stop::new(), &Progress::new(), |_| {})
                    .map(|s| s.expect("only a stop ends the waiting"))
            })
            .collect()
    });
    Host { control, data, thread }
}

fn load(data: SocketAddr) -> SendConfig {
    let mut c = SendConfig::new(data);
    c.schedule = Schedule::Constant { rate: 10_000.0 };
    c.count = Some(2_000);
    c
}

fn offer(host: &Host) -> Result<RemoteReport, RemoteError> {
    run(&host.control.to_string(), &token(), &load(host.data), &Stop::new(), &Progress::new(), |_| {})
}

/// How the sessions of a host ended that met one stranger.
fn met(stranger: impl FnOnce(TcpStream)) -> (String, Duration) {
    let host = host(2);
    let begin = Instant::now();
    stranger(TcpStream::connect(host.control).unwrap());
    let waited = begin.elapsed();
    // Whatever it did, the next one is served.
    let good = offer(&host).unwrap();
    assert_eq!(good.received.unwrap().total.unique, 2_000);
    let mut sessions = host.thread.join().unwrap();
    assert!(sessions.remove(1).unwrap().trouble.is_none());
    (sessions.remove(0).unwrap_err().to_string(), waited)
}

fn greet(stream: &mut TcpStream) {
    let mut hello = [0; 48];
    stream.read_exact(&mut hello).unwrap();
    stream.write_all(&hello).unwrap();
}

fn rest(stream: &mut TcpStream) {
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn the_senders_report_is_the_receivers() {
    let host = host(2);
    for _ in 0..2 {
        let RemoteReport { sent, received, .. } = offer(&host).unwrap();
        let received = received.unwrap();
        assert_eq!((sent.sent, received.total.unique, received.total.lost), (2_000, 2_000, 0));
        assert_eq!((received.measured, received.interrupted), (2_000, false));
        assert_eq!(received.from_intended.as_ref().unwrap().count(), 2_000);
        assert!(received.from_offer.unwrap().quantile(0.99).is_some());
    }
    for session in host.thread.join().unwrap() {
        let session = session.unwrap();
        assert!(session.trouble.is_none());
        assert_eq!(session.report.total.unique, 2_000);
    }
}

#[test]
fn another_clock_has_counts_and_no_latency() {
    let service = Service::bind(any(), token(), &RecvConfig::new(any())).unwrap();
    let (control, data) = (service.control_addr(), service.local_addr());
    let serving = std::thread::spawn(move || service.session(&Stop::new(), &Progress::new(), |_| {}));
    let stop = Stop::new();
    let patience = channel::Patience::new(ANSWER, "", &stop);
    let stream = TcpStream::connect(control).unwrap();
    let mut c = channel::Channel::open(stream, control, token::Role::Sender, &token(), patience).unwrap();
    let mut config = load(data);
    config.count = Some(100);
    c.write(&message::Request::Announce { run: config.run, length_ms: None, clock: None }, patience).unwrap();
    assert!(matches!(c.read(MAX_REQUEST, patience).unwrap(), message::Answer::Ready));
    c.write(&message::Request::Start { measure_from_ns: 0 }, patience).unwrap();
    crate::send(&config, &stop).unwrap();
    c.write(&message::Request::Finished { sent: 100 }, patience).unwrap();
    let message::Answer::Report { report, from_offer, .. } = c.read(MAX_REPORT, patience).unwrap() else {
        panic!("no report")
    };
    assert_eq!((report.total.unique, report.no_latency), (100, Some(NoLatency::AnotherClock)));
    assert!(from_offer.is_none());
    assert!(serving.join().unwrap().unwrap().unwrap().trouble.is_none());
}

#[test]
fn a_sender_with_another_token_is_let_go() {
    let host = host(2);
    let other = Token::new(b"a token of somebody else").unwrap();
    let refused =
        run(&host.control.to_string(), &other, &load(host.data), &Stop::new(), &Progress::new(), |_| {});
    assert!(refused.unwrap_err().to_string().contains("same token"));
    assert_eq!(offer(&host).unwrap().sent.sent, 2_000);
    let first = host.thread.join().unwrap().remove(0);
    assert!(matches!(first, Err(ServeError::Control(ControlError::Unauthenticated { .. }))));
}

#[test]
fn a_receiver_with_another_token_is_not_believed() {
    let listener = std::net::TcpListener::bind(any()).unwrap();
    let control = listener.local_addr().unwrap();
    let fake = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&[&b"load-control/1\r\n"[..], &[1; 32]].concat()).unwrap();
        let content = br#"{"say":"ready"}"#;
        stream.write_all(&[&15u32.to_be_bytes()[..], &[0; 32], content].concat()).unwrap();
        rest(&mut stream);
    });
    let e = run(&control.to_string(), &token(), &load(control), &Stop::new(), &Progress::new(), |_| {})
        .unwrap_err();
    assert!(matches!(e, RemoteError::Control(ControlError::Unauthenticated { .. })), "{e}");
    fake.join().unwrap();
}

#[test]
fn garbage_is_refused() {
    let (why, _) = met(|mut s| {
        s.write_all(&[b'G'; 48]).unwrap();
        rest(&mut s);
    });
    assert!(why.contains("does not speak"), "{why}");
}

#[test]
fn a_frame_that_is_too_long_is_refused_by_its_length() {
    for length in [MAX_REQUEST + 1, u32::MAX as usize] {
        let (why, _) = met(|mut s| {
            greet(&mut s);
            s.write_all(&u32::try_from(length).unwrap().to_be_bytes()).unwrap();
            rest(&mut s);
        });
        assert!(why.contains(&format!("{length} B; at most 1024")), "{why}");
    }
}

#[test]
fn a_frame_of_zeroes_proves_nothing() {
    let (why, _) = met(|mut s| {
        greet(&mut s);
        s.write_all(&[0; 36]).unwrap();
        rest(&mut s);
    });
    assert!(why.contains("another token"), "{why}");
}

#[test]
fn one_who_drips_is_let_go_when_the_time_is_up() {
    let (why, waited) = met(|mut s| {
        greet(&mut s);
        s.write_all(&100u32.to_be_bytes()).unwrap();
        // A byte every 100 ms would keep a timeout per read happy for ever.
        while s.write_all(&[0]).is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    assert!(why.contains("said nothing for 3 s"), "{why}");
    assert!(waited > Duration::from_millis(2_500) && waited < Duration::from_secs(20), "{waited:?}");
}

#[test]
fn one_who_leaves_at_once_is_forgotten() {
    let (why, _) = met(drop);
    assert!(why.contains("closed the control connection"), "{why}");
}

#[test]
fn a_sender_that_vanishes_in_its_run_leaves_its_counts_with_the_receiver() {
    let host = host(2);
    let stop = Stop::new();
    let patience = channel::Patience::new(ANSWER, "", &stop);
    let stream = TcpStream::connect(host.control).unwrap();
    let mut c =
        channel::Channel::open(stream, host.control, token::Role::Sender, &token(), patience).unwrap();
    let config = load(host.data);
    c.write(&message::Request::Announce { run: config.run, length_ms: None, clock: None }, patience).unwrap();
    assert!(matches!(c.read(MAX_REQUEST, patience).unwrap(), message::Answer::Ready));
    c.write(&message::Request::Start { measure_from_ns: 0 }, patience).unwrap();
    crate::send(&config, &stop).unwrap();
    // Time to read what is queued: a vanished sender is not waited for.
    std::thread::sleep(Duration::from_millis(300));
    drop(c);
    assert!(offer(&host).unwrap().received.is_ok());
    let first = host.thread.join().unwrap().remove(0).unwrap();
    assert!(matches!(first.trouble, Some(ControlError::Closed { .. })), "{:?}", first.trouble);
    assert!(first.report.interrupted && first.report.total.unique == 2_000);
}

#[test]
fn a_receiver_that_vanishes_costs_only_its_half() {
    let service = Service::bind(any(), token(), &RecvConfig::new(any())).unwrap();
    let (control, data) = (service.control_addr(), service.local_addr());
    let stop = Stop::new();
    let serving = {
        let stop = stop.clone();
        std::thread::spawn(move || {
            let session = service.session(&stop, &Progress::new(), |_| {});
            // And nothing listens any more.
            drop(service);
            session
        })
    };
    let mut config = load(data);
    config.count = Some(10_000);
    let sender = std::thread::spawn(move || {
        run(&control.to_string(), &token(), &config, &Stop::new(), &Progress::new(), |_| {}).unwrap()
    });
    std::thread::sleep(Duration::from_millis(300));
    stop.set();
    let session = serving.join().unwrap().unwrap().unwrap();
    assert!(matches!(session.trouble, Some(ControlError::Stopped { .. })) && session.report.interrupted);
    let report = sender.join().unwrap();
    assert_eq!(report.sent.offered, 10_000);
    let trouble = report.received.unwrap_err();
    assert!(matches!(trouble, ControlError::Closed { .. }), "{trouble}");
    let finding = crate::verdict::receiver_unknown(&trouble);
    assert_eq!((finding.check, finding.level), ("receiver-reported", crate::Verdict::Invalid));
}

#[test]
fn nobody_there_is_said_at_once() {
    let gone = std::net::TcpListener::bind(any()).unwrap().local_addr().unwrap();
    let e =
        run(&gone.to_string(), &token(), &load(gone), &Stop::new(), &Progress::new(), |_| {}).unwrap_err();
    assert!(e.to_string().contains("is `load recv --control` running there?"), "{e}");
    for bad in ["nowhere", "10.0.0.1", ":::"] {
        let e = run(bad, &token(), &load(gone), &Stop::new(), &Progress::new(), |_| {}).unwrap_err();
        assert!(e.to_string().contains("HOST:PORT"), "{e}");
    }
}
