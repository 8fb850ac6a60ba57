//! A daemon's socket and those who attach to it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use observer::attach::server::CLIENTS;
use observer::attach::{Access, AttachError, Remote, Server};
use observer::pipeline::Pipeline;
use observer::report::Kind;
use observer::source::synthetic::{Plan, Synthetic};
use observer::source::{Batch, Progress, Source};
use observer::surroundings::Update;
use observer::tui::{Fed, Feed};
use tokio::sync::watch;

mod support;

/// One picture per 8,192 datagrams; the last one final.
fn pictures(n: u64) -> Vec<Update> {
    let mut source = Synthetic::new(Plan { datagrams: n * 8_192, streams: 64, ..Plan::default() });
    let mut pipeline = Pipeline::new(source.meta().clone());
    let mut batch = Batch::default();
    let mut pictures = Vec::new();
    loop {
        batch.clear();
        let progress = source.poll(&mut batch).unwrap();
        pipeline.batch(&batch);
        let tables = source.tables(progress == Progress::End).unwrap();
        let at_ns = tables.at_ns;
        if progress == Progress::End {
            pictures.push(pipeline.finish(tables).into());
            return pictures;
        }
        pipeline.tables(tables);
        pictures.push(pipeline.interval(at_ns).into());
    }
}

struct Daemon {
    directory: tempfile::TempDir,
    publish: watch::Sender<Option<Update>>,
    server: Server,
}

impl Daemon {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (publish, updates) = watch::channel(None);
        let server =
            Server::start(&directory.path().join("socket"), &Access::Owner, "shop-db-2", updates).unwrap();
        Self { directory, publish, server }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("socket")
    }
}

/// The next news of a feed.
fn wait(feed: &mut Remote) -> Fed {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match feed.next() {
            Fed::Nothing if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            fed => return fed,
        }
    }
}

fn picture(feed: &mut Remote) -> Update {
    match wait(feed) {
        Fed::Update(update) => update,
        other => panic!("no picture: {other:?}"),
    }
}

#[test]
fn several_clients_see_what_the_daemon_sees_and_a_late_one_the_last_minutes() {
    let daemon = Daemon::start();
    let mut early = Remote::connect(&daemon.path()).unwrap();
    assert_eq!(early.scene(), "shop-db-2");
    let pictures = pictures(4);
    for sent in &pictures[..3] {
        daemon.publish.send_replace(Some(sent.clone()));
        let seen = picture(&mut early);
        assert_eq!(seen.snapshot.interval, sent.snapshot.interval);
        assert_eq!(seen.snapshot.timeline, sent.snapshot.timeline);
    }
    let mut late = Remote::connect(&daemon.path()).unwrap();
    let seen = picture(&mut late);
    assert_eq!(seen.snapshot.timeline.len(), 3, "what was before it came");
    assert_eq!(seen.snapshot.slowest, pictures[2].snapshot.slowest);
    assert!(!late.mark(), "a client only looks on");

    let path = daemon.path();
    daemon.server.finish(pictures[3].clone());
    for client in [&mut early, &mut late] {
        assert_eq!(picture(client).snapshot.total.kind, Kind::Final);
        assert!(matches!(wait(client), Fed::Ended(why) if why.contains("ended")));
    }
    assert!(!path.exists(), "the socket is gone with its daemon");
}

#[test]
fn a_client_that_reads_nothing_holds_up_nobody() {
    let daemon = Daemon::start();
    let stuck = UnixStream::connect(daemon.path()).unwrap();
    let mut reading = Remote::connect(&daemon.path()).unwrap();
    let pictures = pictures(3);
    for sent in pictures[..2].iter().cycle().take(20) {
        // Each is some hundred kilobytes: far more than a socket holds.
        daemon.publish.send_replace(Some(sent.clone()));
        assert_eq!(picture(&mut reading).snapshot.number, sent.snapshot.number);
    }
    let started = Instant::now();
    daemon.server.finish(pictures[2].clone());
    assert!(started.elapsed() < Duration::from_secs(5), "nor its end");
    drop(stuck);
}

#[test]
fn there_is_room_for_so_many_and_again_when_one_leaves() {
    let daemon = Daemon::start();
    let mut clients: Vec<Remote> = (0..CLIENTS).map(|_| Remote::connect(&daemon.path()).unwrap()).collect();
    let refused = Remote::connect(&daemon.path()).unwrap_err();
    assert!(refused.to_string().contains("too many"), "{refused}");
    clients.pop();
    let end = Instant::now() + Duration::from_secs(10);
    while Remote::connect(&daemon.path()).is_err() {
        assert!(Instant::now() < end, "the place stays taken");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn only_the_owner_may_unless_a_group_is_named() {
    let daemon = Daemon::start();
    assert_eq!(fs::metadata(daemon.path()).unwrap().permissions().mode() & 0o777, 0o700);
    let mine = fs::metadata(daemon.directory.path()).unwrap().gid();
    let path = daemon.directory.path().join("group");
    let (_publish, updates) = watch::channel(None);
    let server = Server::start(&path, &Access::Group(mine.to_string()), "", updates.clone()).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    drop(server);
    let nobody = Access::Group("no such group".to_owned());
    assert!(matches!(Server::start(&path, &nobody, "", updates), Err(AttachError::NoGroup(_))));
    assert!(!path.exists());
}

fn taken(path: &Path) -> String {
    let (_publish, updates) = watch::channel(None);
    Server::start(path, &Access::Owner, "", updates).unwrap_err().to_string()
}

#[test]
fn a_place_that_is_taken_is_left_alone_and_one_left_behind_is_used() {
    let daemon = Daemon::start();
    assert!(taken(&daemon.path()).contains("another process listens"));
    Remote::connect(&daemon.path()).unwrap();
    let file = daemon.directory.path().join("file");
    fs::write(&file, "mine").unwrap();
    assert!(taken(&file).contains("no socket"));
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    // As after SIGKILL: the file is there, and nobody behind it.
    let left = daemon.directory.path().join("left");
    drop(UnixListener::bind(&left).unwrap());
    let (_publish, updates) = watch::channel(None);
    let server = Server::start(&left, &Access::Owner, "again", updates).unwrap();
    assert_eq!(Remote::connect(&left).unwrap().scene(), "again");
    drop(server);
}

#[test]
fn what_is_no_observer_is_said_to_be_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let e = Remote::connect(&path).unwrap_err();
    assert!(matches!(e, AttachError::Nobody { .. }) && e.to_string().contains("--listen"), "{e}");
    for (said, why) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "expected"),
        (b"{\"hello\":{\"protocol\":\"observer-attach/9\",\"scene\":\"\"}}\n", "observer-attach/9"),
        (b"{\"moments\":[]}\n", "hello"),
        (b"", "hangs up"),
    ] {
        let listener = UnixListener::bind(&path).unwrap();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(said).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let e = Remote::connect(&path).unwrap_err().to_string();
        assert!(e.contains(why), "{e}");
        answering.join().unwrap();
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn the_end_of_a_daemon_in_the_middle_of_a_picture_is_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let hello = "{\"hello\":{\"protocol\":\"observer-attach/1\",\"scene\":\"x\"}}\n{\"picture\":{\"snap";
        stream.write_all(hello.as_bytes()).unwrap();
    });
    let mut remote = Remote::connect(&path).unwrap();
    serving.join().unwrap();
    assert!(matches!(wait(&mut remote), Fed::Ended(why) if why.contains("ended")));
    // Asked again, it says so again.
    assert!(matches!(remote.next(), Fed::Ended(_)));
    drop(Arc::new(remote));
}

/// As root in the tests: another user is a real one.
#[test]
fn another_user_may_attach_by_the_group_and_without_it_is_refused() {
    needs_root!();
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let observer = directory.path().join("observer");
    fs::copy(env!("CARGO_BIN_EXE_observer"), &observer).unwrap();
    fs::set_permissions(&observer, fs::Permissions::from_mode(0o755)).unwrap();
    let (_publish, updates) = watch::channel(None);
    let (open, shut) = (directory.path().join("open"), directory.path().join("shut"));
    let _open = Server::start(&open, &Access::Group(NOBODY.to_string()), "", updates.clone()).unwrap();
    let _shut = Server::start(&shut, &Access::Owner, "", updates).unwrap();
    let attach = |path: &Path| {
        let output =
            Command::new(&observer).arg("attach").arg(path).uid(NOBODY).gid(NOBODY).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = attach(&shut);
    assert!(code == Some(4) && said.contains("may not attach"), "{code:?} {said}");
    // It is let in, and then has no terminal to show anything on.
    let (code, said) = attach(&open);
    assert!(code == Some(3) && said.contains("terminal"), "{code:?} {said}");
}
