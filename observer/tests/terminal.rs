//! The terminal UI in a real terminal emulator (tmux): what is read on it, and
//! that the terminal is as it was on every way out.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use aya::programs::loaded_programs;
use observer::kernel::attach::AttachOptions;
use observer::session::Session;
use observer::source::synthetic::{Plan, Synthetic};
use observer::trace::drive;
use observer::trace::record::{RecordOptions, Recorder};
use observer::tui::{self, Fed, Feed, Theme};
use rustix::process::{Pid, Signal, kill_process};

mod support;

const OBSERVER: &str = env!("CARGO_BIN_EXE_observer");
/// For whatever has nothing to wait for but a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// Ends the test early, and says so, where there is no tmux; in CI there is.
macro_rules! needs_tmux {
    () => {
        match Command::new("tmux").arg("-V").output() {
            Ok(_) => {}
            Err(_) if std::env::var("CI").as_deref() != Ok("true") => {
                eprintln!("SKIPPED: needs tmux");
                return;
            }
            Err(e) => panic!("tmux: {e}"),
        }
    };
}

/// A terminal with a shell that runs one command and notes how that ended.
struct Terminal {
    socket: String,
    notes: tempfile::TempDir,
}

impl Terminal {
    /// `command` is the shell's; its process id is noted as its own.
    fn run(columns: u16, rows: u16, command: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let socket = format!("observer-test-{}-{number}", std::process::id());
        let notes = tempfile::tempdir().unwrap();
        let at = notes.path().display();
        let script = format!(
            "stty -g > {at}/before; sh -c 'echo $$ > {at}/pid; exec {command}'; echo $? > {at}/code; \
             stty -g > {at}/after; echo > {at}/over; sleep 300"
        );
        let started = Command::new("tmux")
            .args(["-u", "-L", &socket, "-f", "/dev/null", "new-session", "-d"])
            .args(["-x", &columns.to_string(), "-y", &rows.to_string(), &script])
            .env("LC_ALL", "C.UTF-8")
            .env("OBSERVER_TEST_CHILD", "1")
            .env("RUST_BACKTRACE", "0")
            .status()
            .unwrap();
        assert!(started.success());
        Self { socket, notes }
    }

    fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux").args(["-u", "-L", &self.socket]).args(args).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn shown(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// Waits until `what` holds of what is shown; the time it took.
    fn until(&self, within: Duration, what: impl Fn(&str) -> bool) -> Duration {
        let started = Instant::now();
        loop {
            let shown = self.shown();
            if what(&shown) {
                return started.elapsed();
            }
            assert!(started.elapsed() < within, "after {within:?} there is\n{shown}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn note(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.notes.path().join(name)).ok().map(|t| t.trim().to_owned())
    }

    fn pid(&self) -> u32 {
        self.note("pid").unwrap().parse().unwrap()
    }

    /// Waits for the end; its exit code, with the terminal as it was before.
    fn over(&self, way: &str) -> String {
        let end = Instant::now() + PATIENCE;
        while self.note("over").is_none() {
            assert!(Instant::now() < end, "{way}: it does not end\n{}", self.shown());
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(self.note("before"), self.note("after"), "{way}: the line's settings");
        let modes = self.tmux(&["display", "-p", "#{alternate_on} #{cursor_flag} #{mouse_any_flag}"]);
        assert_eq!(modes.trim(), "0 1 0", "{way}: alternate screen, cursor, mouse");
        self.note("code").unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// Ids of the programs that a process holds.
fn programs_of(pid: u32) -> HashSet<u32> {
    let infos = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    infos
        .filter_map(|info| fs::read_to_string(info.ok()?.path()).ok())
        .filter_map(|info| info.lines().find_map(|l| l.strip_prefix("prog_id:")?.trim().parse().ok()))
        .collect()
}

fn all_gone(programs: &HashSet<u32>, way: &str) {
    let end = Instant::now() + PATIENCE;
    while loaded_programs().filter_map(Result::ok).any(|p| programs.contains(&p.id())) {
        assert!(Instant::now() < end, "{way}: something is still attached");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

/// Something has been drawn, and everything is attached.
fn drawn(shown: &str) -> bool {
    shown.contains("tail:") && shown.contains("live")
}

#[test]
fn each_scenario_of_the_demo_names_its_culprit_within_five_seconds() {
    needs_tmux!();
    needs_root!();
    for (scenario, culprits) in [
        ("quiet", &["NO TAIL", "HOST NOISE"][..]),
        ("sender-queue", &["SENDER QUEUE"]),
        ("shaper", &["SHAPER"]),
        ("receiver", &["RECEIVER"]),
    ] {
        let terminal =
            Terminal::run(120, 40, &format!("{OBSERVER} demo --tui --scenario {scenario} --seconds 8"));
        let begins = format!("demo: {scenario}");
        terminal.until(PATIENCE, |shown| shown.contains(&begins));
        let names = |shown: &str| {
            let line = shown.lines().find(|l| l.starts_with("tail:")).unwrap_or("");
            culprits.iter().any(|c| line.contains(c))
        };
        let took = terminal.until(Duration::from_secs(5), names);
        println!("{scenario}: named after {took:?}");
        terminal.press("q");
        // It was cut short, so it judges nothing.
        assert_eq!(terminal.over(scenario), "2");
    }
}

#[test]
fn the_terminal_is_as_it_was_and_nothing_attached_on_every_way_out() {
    needs_tmux!();
    needs_root!();
    type Way = (&'static str, fn(&Terminal));
    let ways: [Way; 5] = [
        ("q", |t| t.press("q")),
        ("ctrl-c", |t| t.press("C-c")),
        ("SIGTERM", |t| signal(t.pid(), Signal::TERM)),
        ("SIGINT", |t| signal(t.pid(), Signal::INT)),
        ("SIGHUP", |t| signal(t.pid(), Signal::HUP)),
    ];
    for (way, leave) in ways {
        let terminal = Terminal::run(100, 30, &format!("{OBSERVER} --tui --interval 200ms"));
        terminal.until(PATIENCE, drawn);
        let programs = programs_of(terminal.pid());
        assert!(programs.len() >= 10, "it observes with {} programs", programs.len());
        leave(&terminal);
        let code = terminal.over(way);
        // Nothing was sent here: the report is invalid, or somebody else's load
        // was seen and it passed.
        assert!(["0", "2"].contains(&code.as_str()), "{way}: {code}");
        assert!(terminal.shown().contains("verdict"), "{way}: no report\n{}", terminal.shown());
        all_gone(&programs, way);
    }
}

#[test]
fn a_terminal_that_is_closed_ends_it_with_nothing_attached() {
    needs_tmux!();
    needs_root!();
    let terminal = Terminal::run(100, 30, &format!("{OBSERVER} --tui --interval 200ms"));
    terminal.until(PATIENCE, drawn);
    let pid = terminal.pid();
    let programs = programs_of(pid);
    terminal.tmux(&["kill-session"]);
    let end = Instant::now() + PATIENCE;
    while Path::new(&format!("/proc/{pid}/exe")).exists() {
        assert!(Instant::now() < end, "it goes on without a terminal");
        std::thread::sleep(Duration::from_millis(20));
    }
    all_gone(&programs, "closed");
}

/// Needs nothing but a terminal: no privileges, no kernel.
#[test]
fn a_trace_plays_and_ends_with_its_report() {
    needs_tmux!();
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("t");
    let options = RecordOptions { dir: at.clone(), ..RecordOptions::default() };
    let plan = Plan { datagrams: 60_000, gap_ns: 10_000, ..Plan::default() };
    drive::record(&mut Synthetic::new(plan), Recorder::create(options).unwrap(), 100_000_000).unwrap();
    let terminal = Terminal::run(100, 30, &format!("{OBSERVER} report {} --tui --speed 2", at.display()));
    terminal.until(PATIENCE, |shown| shown.contains("tail:") && shown.contains("the trace is over"));
    terminal.press("q");
    assert_eq!(terminal.over("q"), "0");
    assert!(terminal.shown().contains("verdict"), "{}", terminal.shown());
}

/// A feed that panics in the middle of things.
struct Panics(u32);

impl Feed for Panics {
    fn next(&mut self) -> Fed {
        self.0 += 1;
        assert!(self.0 < 40, "injected by a test");
        Fed::Nothing
    }
}

/// The same test, run again inside the terminal, is the one that panics.
#[test]
fn a_panic_leaves_a_readable_message_on_a_sane_terminal_and_nothing_attached() {
    needs_tmux!();
    if std::env::var_os("OBSERVER_TEST_CHILD").is_some() {
        let _session = Session::start(&AttachOptions::default(), Duration::from_millis(200)).unwrap();
        let options = tui::Options {
            scene: "about to panic".to_owned(),
            theme: Theme::FULL,
            refresh: Duration::from_millis(100),
            duration: None,
            stop: Arc::default(),
        };
        let _ = tui::run(&options, &mut Panics(0));
        return;
    }
    needs_root!();
    let test = std::env::current_exe().unwrap();
    let name = "a_panic_leaves_a_readable_message_on_a_sane_terminal_and_nothing_attached";
    let terminal = Terminal::run(100, 30, &format!("{} --exact {name} --nocapture", test.display()));
    terminal.until(PATIENCE, |shown| shown.contains("about to panic"));
    let programs = programs_of(terminal.pid());
    assert!(programs.len() >= 10, "it observes with {} programs", programs.len());
    assert_eq!(terminal.over("panic"), "101");
    assert!(terminal.shown().contains("injected by a test"), "{}", terminal.shown());
    all_gone(&programs, "panic");
}

#[test]
fn a_terminal_that_changes_its_size_is_drawn_anew() {
    needs_tmux!();
    needs_root!();
    let terminal = Terminal::run(120, 40, &format!("{OBSERVER} --tui --interval 200ms"));
    terminal.until(PATIENCE, |shown| drawn(shown) && shown.contains("time line"));
    terminal.tmux(&["resize-window", "-x", "40", "-y", "12"]);
    terminal.until(PATIENCE, |shown| shown.contains("tail:") && !shown.contains("time line"));
    terminal.tmux(&["resize-window", "-x", "30", "-y", "6"]);
    terminal.until(PATIENCE, |shown| shown.contains("needed"));
    terminal.tmux(&["resize-window", "-x", "120", "-y", "40"]);
    terminal.until(PATIENCE, |shown| shown.contains("time line"));
    for (key, what) in
        [("7", "net:net_dev_queue"), ("?", "keys"), ("?", "net:net_dev_queue"), ("5", "flows by")]
    {
        terminal.press(key);
        terminal.until(PATIENCE, |shown| shown.contains(what));
    }
    terminal.press("Space");
    terminal.until(PATIENCE, |shown| shown.contains("FROZEN"));
    terminal.press("q");
    terminal.over("q");
}

struct Daemon {
    child: Child,
    directory: tempfile::TempDir,
}

impl Daemon {
    fn start(group: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let socket = directory.path().join("socket");
        let child = Command::new(OBSERVER)
            .args(["--json", "--interval", "200ms", "--listen-group", group, "--listen"])
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let end = Instant::now() + PATIENCE;
        while !socket.exists() {
            assert!(Instant::now() < end, "the daemon does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { child, directory }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn two_users_without_privileges_watch_one_daemon_until_it_ends() {
    needs_tmux!();
    needs_root!();
    let mut daemon = Daemon::start("65534");
    let copy = daemon.directory.path().join("observer");
    fs::copy(OBSERVER, &copy).unwrap();
    fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let attach = format!(
        "setpriv --reuid 65534 --regid 65534 --clear-groups {} attach {}",
        copy.display(),
        daemon.socket().display()
    );
    let both = [Terminal::run(120, 40, &attach), Terminal::run(80, 24, &attach)];
    for terminal in &both {
        terminal.until(PATIENCE, drawn);
    }
    both[0].press("r");
    both[0].until(PATIENCE, |shown| shown.contains("counts start over"));
    signal(daemon.child.id(), Signal::TERM);
    daemon.child.wait().unwrap();
    assert!(!daemon.socket().exists());
    for terminal in &both {
        terminal.until(PATIENCE, |shown| shown.contains("ENDED") && shown.contains("the daemon has ended"));
        terminal.press("q");
        assert_eq!(terminal.over("attached"), "0");
    }
}

#[test]
fn without_a_terminal_it_is_exit_3_and_says_so_before_anything_is_attached() {
    for args in [&["--tui"][..], &["demo", "--tui"]] {
        let output = Command::new(OBSERVER).args(args).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("needs a terminal") && said.lines().count() == 1, "{said}");
    }
}
