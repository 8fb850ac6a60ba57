//! `observer run` as a user meets it, on real packets over loopback: exit
//! codes, who is named, what is written.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test, in helpers too")]

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

mod support;

fn observer(line: &str) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_observer"));
    c.args(line.split_whitespace());
    c
}

/// Runs a workload file; with its exit code, its JSON document.
fn run(text: &str) -> (i32, Value) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("workload.toml");
    std::fs::write(&file, text).unwrap();
    let out = observer(&format!("run {} --json", file.display())).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let report: Value = serde_json::from_slice(&out.stdout).map_err(|e| format!("{e}: {said}")).unwrap();
    keeps_to_its_schemas(&report);
    (out.status.code().unwrap(), report)
}

fn keeps_to_its_schemas(report: &Value) {
    let errors = |schema: &str, document: &Value| -> Vec<String> {
        let schema = serde_json::from_str(schema).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        validator.iter_errors(document).map(|e| format!("{e} at {}", e.instance_path())).collect()
    };
    let wrong = errors(include_str!("../../docs/load-report.schema.json"), report);
    assert!(wrong.is_empty(), "{wrong:#?}");
    for w in report["workloads"].as_array().unwrap() {
        let wrong = errors(include_str!("../../docs/report.schema.json"), &w["observer"]);
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

fn finding<'a>(workload: &'a Value, check: &str) -> Option<&'a Value> {
    workload["findings"].as_array().unwrap().iter().find(|f| f["check"] == check)
}

/// Whether the host kept the threads from their CPUs.
fn is_spoilt(workload: &Value) -> bool {
    let invalid = |check| finding(workload, check).is_some_and(|f| f["level"] == "invalid");
    ["generator-kept-up", "host-was-quiet"].into_iter().any(invalid)
}

/// Every datagram in every account, and the warm-up in no distribution. The
/// machine may be busy: then the verdict may say so, and nothing else.
#[test]
fn a_load_that_holds_passes_with_every_account_in_agreement() {
    needs_root!();
    let (code, report) = run("[schedule]\nrate = \"2k/s\"\nduration = \"3s\"\nwarmup = \"1s\"\n\
         [expect]\ntotal_p50 = \"< 1s\"\nreceiver_p99 = \"< 1s\"\nwire_p50 = \"< 1s\"\n\
         sender_queue_max = \"< 10s\"\nloss = \"< 1%\"\n");
    let w = &report["workloads"][0];
    assert!(finding(w, "counts-reconcile").is_none(), "{}", w["findings"]);
    assert!(finding(w, "objective").is_none(), "{}", w["findings"]);
    let counts = &w["observer"]["counts"];
    assert_eq!(w["send"]["sent"], counts["sent"]);
    assert!(counts["sent"].as_u64().unwrap() > 3_000, "{counts}");
    assert_eq!(counts["delivered"], w["recv"]["total"]["unique"]);
    assert_eq!(w["observer"]["by_run"][0]["run"], w["send"]["run"]);
    let measured = w["observer"]["components"]["total"]["count"].as_u64().unwrap();
    assert_eq!(measured, w["recv"]["measured"].as_u64().unwrap(), "the warm-up is left out of both");
    assert!(measured * 5 < counts["sent"].as_u64().unwrap() * 4, "{measured} of {counts}");
    // Only a host that kept the threads from their CPUs may spoil it.
    assert!(code == 0 || (code == 2 && is_spoilt(w)), "{}", w["findings"]);
}

/// Two runs and their warm-ups, each in a trace of its own.
#[test]
fn a_run_can_be_recorded_and_is_reported_on_again() {
    needs_root!();
    let dir = tempfile::tempdir().unwrap();
    let (file, traces) = (dir.path().join("w.toml"), dir.path().join("traces"));
    let text = "[schedule]\nrate = \"2k/s\"\nduration = \"2s\"\nwarmup = \"500ms\"\n\
                [[workload]]\nname = \"first one\"\n[[workload]]\nname = \"b\"\n";
    std::fs::write(&file, text).unwrap();
    let line = format!("run {} --json --record {}", file.display(), traces.display());
    let out = observer(&line).output().unwrap();
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    for (i, name) in ["001-first_one", "002-b"].into_iter().enumerate() {
        let seen = &report["workloads"][i]["observer"];
        let line = format!("report {} --json", traces.join(name).display());
        for line in [line.clone(), line + " --from-records"] {
            let again: Value = serde_json::from_slice(&observer(&line).output().unwrap().stdout).unwrap();
            let figures = [
                "components",
                "counts",
                "tail",
                "send_lag",
                "flows",
                "limiter",
                "sender_queue",
                "receiver_queue",
            ];
            for figure in figures {
                assert_eq!(seen[figure], again[figure], "{figure} of {line}");
            }
        }
    }
    // Nothing is overwritten, and the runs are none the worse for it.
    let out =
        observer(&format!("run {} --json --record {}", file.display(), traces.display())).output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("001-first_one") && said.contains("nothing is overwritten"), "{said}");
    assert!(matches!(out.status.code(), Some(2 | 3)), "{:?}", out.status);
}

#[test]
fn what_cannot_be_offered_is_invalid_with_exit_code_2() {
    needs_root!();
    let (code, report) = run("[schedule]\nrate = \"50M/s\"\nduration = \"500ms\"\n");
    let w = &report["workloads"][0];
    assert_eq!((code, &w["verdict"]), (2, &"invalid".into()));
    let kept_up = finding(w, "generator-kept-up").unwrap();
    assert!(kept_up["means"].as_str().unwrap().contains("the ceiling is the generator's"));
    assert_eq!(w["findings"][0]["level"], "invalid", "worst first");
}

/// A reader that looks every 100 ms lets datagrams wait half of that.
#[test]
fn a_receiver_objective_that_fails_names_the_receiver() {
    needs_root!();
    let (code, report) = run("[target]\npoll = \"100ms\"\n[schedule]\nrate = \"2k/s\"\nduration = \"3s\"\n\
         [expect]\nreceiver_p99 = \"< 40ms\"\ntotal_p99 = \"< 40ms\"\n");
    let w = &report["workloads"][0];
    let missed: Vec<&Value> =
        w["findings"].as_array().unwrap().iter().filter(|f| f["check"] == "objective").collect();
    assert_eq!(missed.len(), 2, "{}", w["findings"]);
    for f in missed {
        assert!(f["detail"].as_str().unwrap().contains("culprit receiver"), "{f}");
    }
    assert!(code == 1 || (code == 2 && is_spoilt(w)), "{}", w["findings"]);
}

#[test]
fn a_full_receive_buffer_is_counted_alike_by_socket_kernel_and_observer() {
    needs_root!();
    let (_, report) =
        run("[target]\npoll = \"100ms\"\nrcvbuf = 16384\n[schedule]\nrate = \"5k/s\"\nduration = \"2s\"\n\
         [expect]\nloss = \"< 1%\"\n");
    let w = &report["workloads"][0];
    let dropped = w["observer"]["counts"]["dropped"]["SOCKET_RCVBUFF"].as_u64().unwrap();
    assert_eq!(Some(dropped), w["recv"]["socket_drops"].as_u64());
    assert!(dropped > 100, "{dropped}");
    assert!(finding(w, "counts-reconcile").is_none(), "{}", w["findings"]);
    assert_eq!(finding(w, "receiver-kept-up").unwrap()["level"], "failed");
}

#[test]
fn an_interrupted_suite_writes_its_report_and_exits_2() {
    needs_root!();
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("suite.toml"), dir.path().join("out"));
    let text = "[schedule]\nrate = \"1k/s\"\nduration = \"60s\"\n[[workload]]\nname = \"a\"\n[[workload]]\nname = \"b\"\n";
    std::fs::write(&file, text).unwrap();
    let line = format!("run {} --json --report {} --format md,json,html,hlog", file.display(), out.display());
    let child = observer(&line).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(4));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    let result = child.wait_with_output().unwrap();
    assert_eq!(result.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&result.stdout).unwrap();
    assert_eq!(
        (&report["not_run"], &report["workloads"][0]["name"]),
        (&serde_json::json!(["b"]), &"a".into())
    );
    assert_eq!(report["workloads"][0]["observer"]["schema"], "observer-report/1");
    for extension in ["md", "json", "html", "hlog"] {
        assert!(out.join(format!("report.{extension}")).metadata().unwrap().len() > 100, "{extension}");
    }
}

#[test]
fn what_is_wrong_is_one_line_and_an_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("w.toml");
    for (text, hint) in [
        ("[schedule]\nrate = \"1k\"\n", "w.toml:2"),
        (
            "[schedule]\nrate = \"1k/s\"\nduration = \"1s\"\n[expect]\nwire_p99_99 = \"< 1ms\"\n",
            "wire_p99_99 cannot be judged",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let out = observer(&format!("run {}", file.display())).output().unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!((out.status.code(), said.lines().count()), (Some(3), 1), "{said}");
        assert!(said.contains(hint) && out.stdout.is_empty(), "{said}");
    }
    for line in ["run", "run /nowhere.toml", "run f --format md", "run f --report d --format pdf"] {
        assert_eq!(observer(line).output().unwrap().status.code(), Some(3), "{line}");
    }
}

#[test]
fn without_privilege_it_is_one_line_and_4() {
    needs_root!();
    let dir = tempfile::tempdir().unwrap();
    // Where nobody may read it, the file would be what is refused.
    let copy = dir.path().join("observer");
    std::fs::copy(env!("CARGO_BIN_EXE_observer"), &copy).unwrap();
    std::fs::write(dir.path().join("w.toml"), "[schedule]\nrate = \"1k/s\"\nduration = \"1s\"\n").unwrap();
    for (path, mode) in
        [(dir.path().to_owned(), 0o755), (copy.clone(), 0o755), (dir.path().join("w.toml"), 0o644)]
    {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    }
    let out = Command::new(&copy)
        .args(["run", "w.toml"])
        .current_dir(dir.path())
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!((out.status.code(), said.lines().count()), (Some(4), 1), "{said}");
    assert!(said.contains("run as root") && out.stdout.is_empty(), "{said}");
}
