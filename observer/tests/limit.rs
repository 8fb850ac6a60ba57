//! A token bucket of known rate, found by `observer run`: a ladder passes
//! below it and not above it, and a ramp ends at it. The namespace is the
//! test's own; its loopback device carries the bucket.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test, in helpers too")]

use std::process::Command;

use observer::lab::Namespace;
use serde_json::Value;

mod support;

const RATE_BIT_PER_S: f64 = 50e6;
const PAYLOAD: usize = 1_200;
/// With UDP, IPv4 and Ethernet headers, which a token bucket counts.
const BYTES: f64 = PAYLOAD as f64 + 8.0 + 20.0 + 14.0;
const DATAGRAMS_PER_S: f64 = RATE_BIT_PER_S / 8.0 / BYTES;

fn command(host: &Namespace, program: &str, args: &[&str]) -> std::process::Output {
    host.enter(|| Command::new(program).args(args).output().unwrap()).unwrap()
}

fn limited() -> Namespace {
    let host = Namespace::create("limited").unwrap();
    let tbf = "qdisc add dev lo root tbf rate 50mbit burst 32kb limit 8mb";
    for (program, line) in [("ip", "link set dev lo up"), ("tc", tbf)] {
        let args: Vec<&str> = line.split(' ').collect();
        let out = command(&host, program, &args);
        assert!(out.status.success(), "{program} {line}: {}", String::from_utf8_lossy(&out.stderr));
    }
    host
}

/// Runs a workload file on `host`; its exit code, and its workloads.
fn run(host: &Namespace, text: &str) -> (i32, Vec<Value>) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("workload.toml");
    std::fs::write(&file, text).unwrap();
    let out = command(host, env!("CARGO_BIN_EXE_observer"), &["run", file.to_str().unwrap(), "--json"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let report: Value = serde_json::from_slice(&out.stdout).map_err(|e| format!("{e}: {said}")).unwrap();
    (out.status.code().unwrap(), report["workloads"].as_array().unwrap().clone())
}

/// A hypervisor that takes the CPUs away makes any run invalid: it says
/// nothing about the limit, and is repeated.
fn disturbed(w: &Value) -> bool {
    let found = |check: &str| {
        let f = w["findings"].as_array().unwrap().iter().find(|f| f["check"] == check);
        f.is_some_and(|f| f["level"] == "invalid")
    };
    found("host-was-quiet") || found("generator-kept-up") || w["ramp"]["stop"] == "host-noise"
}

const ATTEMPTS: usize = 4;

#[test]
fn a_ladder_passes_below_a_limit_and_fails_above_it_by_the_shaper() {
    needs_root!();
    let host = limited();
    let (below, above) = (0.8 * DATAGRAMS_PER_S, 1.25 * DATAGRAMS_PER_S);
    let file = format!(
        "[target]\nsize = {PAYLOAD}\n[schedule]\nduration = \"3s\"\nwarmup = \"500ms\"\n\
         [expect]\nshaper_p99 = \"< 100ms\"\n\
         [[workload]]\nname = \"below\"\nschedule.rate = \"{below:.0}/s\"\n\
         [[workload]]\nname = \"above\"\nschedule.rate = \"{above:.0}/s\"\n"
    );
    for attempt in 1.. {
        let (code, workloads) = run(&host, &file);
        let [below, above] = &workloads[..] else { panic!("{workloads:?}") };
        if attempt < ATTEMPTS && (disturbed(below) || disturbed(above)) {
            continue;
        }
        // Warnings (a short run) are passes.
        assert!(["passed", "warning"].contains(&below["verdict"].as_str().unwrap()), "{}", below["findings"]);
        assert_eq!(above["verdict"], "failed", "{}", above["findings"]);
        let missed =
            above["findings"].as_array().unwrap().iter().find(|f| f["check"] == "objective").unwrap();
        assert!(missed["detail"].as_str().unwrap().contains("culprit shaper"), "{missed}");
        let delivered = above["delivered_per_s"].as_f64().unwrap();
        assert!((delivered / DATAGRAMS_PER_S - 1.0).abs() < 0.03, "{delivered} of {DATAGRAMS_PER_S}");
        assert_eq!(code, 1);
        break;
    }
}

#[test]
fn a_ramp_finds_a_limit_within_three_percent() {
    needs_root!();
    let host = limited();
    let (start, step) = (0.65 * DATAGRAMS_PER_S, 0.2 * DATAGRAMS_PER_S);
    let file = format!(
        "[target]\nsize = {PAYLOAD}\n[schedule]\nwarmup = \"500ms\"\n[expect]\nshaper_p99 = \"< 20ms\"\n\
         [ramp]\nstart = \"{start:.0}/s\"\nstep = \"{step:.0}/s\"\nstep_for = \"3s\"\nrefine = 3\nmax = \"20k/s\"\n"
    );
    let mut found = Vec::new();
    for _ in 0..ATTEMPTS {
        let (_, workloads) = run(&host, &file);
        let ramp = workloads[0]["ramp"].clone();
        let best = ramp["best_per_s"].as_f64().unwrap_or(0.0);
        let stop = ramp["stop"].as_str().unwrap().to_owned();
        if (best / DATAGRAMS_PER_S - 1.0).abs() < 0.03
            && ["limiter-engaged", "latency-budget"].contains(&&*stop)
        {
            return;
        }
        // Only a step that the machine spoilt excuses another try.
        let spoilt = ["host-noise", "generator-ceiling", "receiver-behind"];
        let steps = ramp["steps"].as_array().unwrap();
        let noise = steps.iter().any(|s| s["stop"].as_str().is_some_and(|s| spoilt.contains(&s)));
        assert!(noise || disturbed(&workloads[0]), "{DATAGRAMS_PER_S}: {ramp}");
        found.push(ramp);
    }
    panic!("not found in {ATTEMPTS} ramps on this machine: {found:#?}");
}
