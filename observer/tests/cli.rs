//! The command from outside: one clear line for each thing that can be wrong,
//! the right exit code, and nothing left behind however it ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::HashSet,
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use aya::programs::loaded_programs;
use rustix::process::{Pid, Signal, kill_process};

mod support;

const OBSERVER: &str = env!("CARGO_BIN_EXE_observer");

fn observer(args: &[&str]) -> Output {
    Command::new(OBSERVER).args(args).stdin(Stdio::null()).output().unwrap()
}

/// Exit code and the only line on standard error.
fn refused(output: &Output) -> (i32, String) {
    let error = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(error.lines().count(), 1, "more than a line: {error}");
    assert!(output.stdout.is_empty());
    (output.status.code().unwrap(), error)
}

/// Ids of the programs that a process holds.
fn programs_of(child: &Child) -> HashSet<u32> {
    let infos = std::fs::read_dir(format!("/proc/{}/fdinfo", child.id())).unwrap();
    infos
        .filter_map(|info| std::fs::read_to_string(info.ok()?.path()).ok())
        .filter_map(|info| info.lines().find_map(|l| l.strip_prefix("prog_id:")?.trim().parse().ok()))
        .collect()
}

/// Whether the kernel has let go of all of `programs`: that happens a moment
/// after their last descriptor is closed.
fn gone(programs: &HashSet<u32>) -> bool {
    let end = Instant::now() + Duration::from_secs(5);
    while loaded_programs().filter_map(Result::ok).any(|p| programs.contains(&p.id())) {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// An observation that has said it observes.
fn started(args: &[&str]) -> Child {
    let mut child = Command::new(OBSERVER)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("observing "), "{line}");
    child
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn pairs_and_paths_that_cannot_be_are_refused() {
    let refused_with = |args: &[&str]| refused(&observer(args));
    let (code, error) = refused_with(&["--pair", "lo"]);
    assert!(code == 3 && error.contains("ENTRY:EXIT"), "{code} {error}");
    let (code, error) = refused_with(&["--pair", "lo:nosuchdevice"]);
    assert!(code == 4 && error.contains("nosuchdevice"), "{code} {error}");
    let (code, error) = refused_with(&["paths", "--netns", "nowhere"]);
    assert!(code == 4 && error.contains("nowhere"), "{code} {error}");
    assert_eq!(observer(&["paths", "--duration", "0s"]).status.code(), Some(3));
}

/// Watches a port that nobody uses: nothing to measure by is no success.
#[test]
fn without_trains_paths_is_invalid_and_says_what_would_help() {
    needs_root!();
    let output = observer(&["paths", "--port", "9", "--duration", "200ms"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("load send --pattern trains"), "{text}");
}

#[test]
fn bad_usage_is_exit_3() {
    for args in [&["--port", "0"][..], &["--duration", "5"], &["--nonsense"], &["demo", "--scenario", "x"]] {
        let output = observer(args);
        assert_eq!(output.status.code(), Some(3), "{args:?}");
        assert!(!output.stderr.is_empty());
    }
    assert_eq!(observer(&["--help"]).status.code(), Some(0));
    assert_eq!(observer(&["--version"]).status.code(), Some(0));
}

#[test]
fn what_does_not_exist_is_exit_4_with_advice() {
    for (args, says) in [
        (&["--dev", "no-such-device"][..], "no network device no-such-device; `ip link` lists them"),
        (&["--netns", "no-such-namespace"], "no network namespace no-such-namespace"),
        (&["--pid", "4194305"], "no process 4194305"),
        (&["--cgroup", "no/such/cgroup"], "no cgroup no/such/cgroup"),
    ] {
        let (code, line) = refused(&observer(args));
        assert_eq!(code, 4, "{line}");
        assert!(line.contains(says), "{line}");
    }
}

#[test]
fn without_privileges_it_is_exit_4_and_says_which() {
    needs_root!();
    // Where an unprivileged user may execute it.
    let copy = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    std::fs::copy(OBSERVER, &copy).unwrap();
    std::fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for args in [&["--duration", "1s"][..], &["demo"]] {
        let output = Command::new(&copy).args(args).uid(65534).gid(65534).output().unwrap();
        let (code, line) = refused(&output);
        assert_eq!(code, 4, "{line}");
        assert!(line.contains("root"), "{line}");
    }
    let output = Command::new("setpriv")
        .args(["--bounding-set", "-perfmon,-sys_admin", "--inh-caps", "-perfmon,-sys_admin"])
        .arg(&copy)
        .args(["--duration", "1s"])
        .output()
        .unwrap();
    let (code, line) = refused(&output);
    assert_eq!((code, line.contains("CAP_PERFMON")), (4, true), "{line}");
}

#[test]
fn without_type_information_it_is_exit_4_and_says_what_is_needed() {
    needs_root!();
    let hidden = format!("mount -t tmpfs none /sys/kernel/btf && exec {OBSERVER} --duration 1s");
    let output = Command::new("unshare").args(["--mount", "sh", "-c", &hidden]).output().unwrap();
    let (code, line) = refused(&output);
    assert_eq!(code, 4, "{line}");
    assert!(line.contains("CONFIG_DEBUG_INFO_BTF"), "{line}");
}

#[test]
fn nothing_stays_attached_however_it_ends() {
    needs_root!();
    for end_with in [Signal::KILL, Signal::INT, Signal::TERM, Signal::HUP] {
        let mut child = started(&["--json"]);
        let programs = programs_of(&child);
        assert!(programs.len() >= 10, "it observes with {} programs", programs.len());
        signal(&child, end_with);
        let status = child.wait().unwrap();
        assert!(gone(&programs), "{end_with:?} leaves something attached");
        let mut reports = String::new();
        child.stdout.take().unwrap().read_to_string(&mut reports).unwrap();
        if end_with != Signal::KILL {
            assert!(status.code().is_some(), "it ends by itself on {end_with:?}");
            let last: serde_json::Value = serde_json::from_str(reports.lines().last().unwrap()).unwrap();
            assert_eq!((&last["schema"], &last["kind"]), (&"observer-report/1".into(), &"final".into()));
        }
    }
}

#[test]
fn a_bounded_observation_reports_lines_that_fit_the_schema_and_its_cost() {
    needs_root!();
    let schema: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string("../docs/report.schema.json").unwrap()).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let child = started(&["--json", "--cost", "--port", "9078", "--duration", "2500ms"]);
    let load = load::SendConfig {
        count: Some(2_000),
        schedule: load::Schedule::Constant { rate: 2_000.0 },
        ..load::SendConfig::new("127.0.0.1:9078".parse().unwrap())
    };
    let receiver = load::Receiver::bind(&load::RecvConfig::new(load.target)).unwrap();
    let stop = load::Stop::new();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| receiver.run(&stop).unwrap());
        load::send(&load, &load::Stop::new()).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        stop.set();
        reading.join().unwrap();
    });
    let output = child.wait_with_output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let mut kinds = Vec::new();
    for line in lines.lines() {
        let report: serde_json::Value = serde_json::from_str(line).unwrap();
        let errors: Vec<_> = schema.iter_errors(&report).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{errors:#?}");
        kinds.push(report["kind"].as_str().unwrap().to_owned());
    }
    assert_eq!(kinds, ["interval", "interval", "final"]);
    let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(last["counts"]["delivered"], 2_000, "{}", last["counts"]);
    let cost = |point: &str| {
        let hooks = last["hooks"].as_array().unwrap();
        hooks.iter().filter(|h| h["point"] == point).filter_map(|h| h["ns_per_call"].as_f64()).next()
    };
    for point in ["dev_queue", "xmit", "rx", "app_dequeue"] {
        assert!(cost(point).is_some_and(|ns| ns > 10.0 && ns < 100_000.0), "{point}: {:?}", cost(point));
    }
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    needs_root!();
    let mut child = started(&["--json", "--interval", "100ms"]);
    let programs = programs_of(&child);
    drop(child.stdout.take());
    let status = child.wait().unwrap();
    assert!(status.code().is_some_and(|c| c == 0 || c == 2), "{status:?}");
    assert!(gone(&programs));
}
