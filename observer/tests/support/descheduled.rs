//! A load sent by a process of its own, which is taken off its CPU by turns.
//!
//! A stopped process stops whole, so the sender must not be the test: the test
//! program starts itself anew, to run the one test that calls
//! [`send_if_asked`] and nothing else.

use std::{
    env,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use load::{Buffer, Progress, Receiver, RecvConfig, Schedule, SendConfig, Stop};
use observer::{
    kernel::attach::{AttachOptions, NamedRun},
    lab::{
        Lab, LabConfig,
        deschedule::Deschedule,
        forward::stall::StallConfig,
        priority::{Role, raise},
        scenario::target,
    },
    snapshot::Snapshot,
};

use super::observed::recorded;

/// What the process is to send: run, rate and count.
const ASKED: &str = "OBSERVER_TEST_SENDER";

/// Sends, if this process was started to; false in any other.
pub(crate) fn send_if_asked() -> bool {
    let Ok(asked) = env::var(ASKED) else { return false };
    let mut figures = asked.split(' ').map(|word| word.parse::<u32>().unwrap());
    let mut next = || figures.next().unwrap();
    let load = SendConfig {
        run: next(),
        schedule: Schedule::Constant { rate: next().into() },
        count: Some(next().into()),
        sndbuf: Buffer::Bytes(4 << 20),
        spin_ns: 0,
        ..SendConfig::new(target())
    };
    raise(Role::Sender);
    load::send(&load, &Stop::new()).unwrap();
    true
}

/// `count` datagrams at `rate` over a plain link, from a process that stands
/// still by turns. `test` is the test that calls [`send_if_asked`].
pub(crate) fn play(test: &str, rate: u32, count: u32, stalls: StallConfig) -> Arc<Snapshot> {
    let lab = Lab::build(&LabConfig::default()).unwrap();
    let bound = lab.receiver().namespace.enter(|| Receiver::bind(&RecvConfig::new(target()))).unwrap();
    let receiver = bound.unwrap();
    let (finished, progress) = (Stop::new(), Progress::new());
    let reading = {
        let (finished, progress) = (finished.clone(), progress.clone());
        let read = move || {
            raise(Role::Reader);
            receiver.run_with(&finished, &progress, |_| ())
        };
        lab.receiver().namespace.spawn(read).unwrap()
    };
    let run = load::new_run();
    let options = AttachOptions { runs: vec![NamedRun { id: run, owner: None }], ..AttachOptions::default() };
    let (session, _records) = recorded(&options);
    // A process started by a thread inside is inside as well.
    let start = || {
        Command::new(env::current_exe().unwrap())
            .args(["--exact", test])
            .env(ASKED, format!("{run} {rate} {count}"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut sender = lab.sender().namespace.enter(start).unwrap();
    let turns = Deschedule::start(sender.id(), stalls).unwrap();
    let patience = Instant::now() + Duration::from_secs(30);
    while progress.received() < count.into() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(20));
    }
    finished.set();
    let received = reading.join().unwrap().unwrap().unwrap();
    // It may have ended by itself before.
    let _ = turns.finish();
    assert!(sender.wait().unwrap().success());
    assert_eq!(received.total.unique, u64::from(count));
    session.finish().unwrap()
}
