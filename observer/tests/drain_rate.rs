//! The recipe `kind = "drain-rate"` on real packets, as a user runs it: where
//! the server's rate is known its D is that rate, and N/max is not.
//!
//! The server is a tbf: a Sender blocked behind it drains r/L, which the
//! report says is the limiter's doing. `cargo xtask bench drain` plays the
//! whole recipe and writes down how it went.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test, in helpers too")]

use std::fmt::Write as _;
use std::process::Command;

use observer::lab::Namespace;
use serde_json::Value;

mod support;

/// Payload and headers: 1,200 + 8 + 20 + 14.
const L2: f64 = 1_242.0;

fn tool(line: &str) {
    let mut words = line.split_whitespace();
    let out = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
}

/// `observer run` of a workload file; its JSON document.
fn run(text: &str) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let (file, reports) = (dir.path().join("drain.toml"), dir.path().join("out"));
    std::fs::write(&file, text).unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_observer"))
        .args(["run", "--json", "--format", "md,html,json", "--report"])
        .args([&reports, &file])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let report: Value = serde_json::from_slice(&out.stdout).map_err(|e| format!("{e}: {said}")).unwrap();
    let schema = serde_json::from_str(include_str!("../../docs/load-report.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let wrong: Vec<String> = validator.iter_errors(&report).map(|e| e.to_string()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for name in ["report.md", "report.html"] {
        let page = std::fs::read_to_string(reports.join(name)).unwrap();
        assert!(page.contains("D conservative"), "{name}: {page}");
    }
    report
}

/// The recipe over a loopback whose way out is a tbf of `mbit`, with P = 2 D.
///
/// What the send buffer and the bucket hold goes at once: less than the first
/// tenth of the burst, which no estimate takes. A small buffer, since a blocked
/// sender is let go on when half of it is free, and a burst begins and ends
/// somewhere in such a step; a large bucket, which a late timer does not fill.
fn behind_a_tbf(mbit: f64, burst: u64) -> Value {
    let host = Namespace::create("drain").unwrap();
    let d = mbit * 1e6 / 8.0 / L2;
    // Drained in N/D, and a third of that idle.
    let every = burst as f64 / d * 1.33;
    let text = format!(
        "kind = \"drain-rate\"\nname = \"tbf\"\n[target]\nsize = 1200\nidle = \"yield\"\nsndbuf = 32768\n[schedule]\n\
         burst = {burst}\ndispatch = \"{:.0}/s\"\nevery = \"{:.0}ms\"\nbursts = 10\n",
        2.0 * d,
        every * 1e3
    );
    let rate = format!("{:.0}kbit", mbit * 1e3);
    host.enter(|| {
        tool("ip link set dev lo up");
        // No packet of many, and a bucket that outlasts a late timer.
        tool("ip link set dev lo mtu 1500");
        tool(&format!("tc qdisc replace dev lo root tbf rate {rate} burst 256kb limit 16mb"));
        run(&text)
    })
    .unwrap()
}

fn figure(case: &Value, name: &str) -> f64 {
    case["measured"][name].as_f64().unwrap_or(f64::NAN)
}

#[test]
fn the_recipe_finds_the_servers_rate_and_n_over_max_does_not() {
    needs_root!();
    let report = behind_a_tbf(100.0, 4_000);
    let (case, w) = (&report["drain_rates"][0], &report["workloads"][0]);
    assert_eq!(
        (&case["recipe"], &case["idle"], &case["size_bytes"]),
        (&"tbf".into(), &"yield".into(), &1_200.into())
    );
    let d = 100e6 / 8.0 / L2;
    let off = |name: &str| figure(case, name) / d - 1.0;
    eprintln!("D off by {:+.4}, N/max by {:+.3}: {case}", off("typical_per_s"), off("n_over_max_per_s"));
    assert!(off("typical_per_s").abs() < 0.01, "{case}\n{}", w["findings"]);
    // 1/(1 - D/P) = 2.
    assert!((0.8..1.3).contains(&off("n_over_max_per_s")), "{case}");
    assert!(off("conservative_per_s") < 0.1, "{case}");
    let interval = case["measured"]["typical_interval"].as_array().unwrap();
    assert!(interval[0].as_f64() <= interval[1].as_f64() && figure(case, "bursts") >= 10.0, "{case}");
    // And whose rate that is.
    let said = w["findings"].as_array().unwrap().iter().find(|f| f["check"] == "drain-rate").unwrap();
    assert!(said["observed"].as_str().unwrap().contains("blocked on a full send buffer"), "{said}");
    let l = &w["observer"]["limiter"];
    assert_eq!(l["configured"]["kind"], "tbf", "{l}");
}

#[test]
#[ignore = "minutes: cargo xtask bench drain"]
fn series_of_drain_rates() {
    needs_root!();
    let mut text = String::from(
        "# Drain rates, measured\n\n`cargo xtask bench drain`.\n\n## Where the server's rate is known\n\n\
         A tbf on loopback is the server, P = 2 D: D = r/L within 1 %, and N/max, by arithmetic, +100 %.\n\n\
         | server | D, /s | D typical off | by Theil–Sen | N/max off | holds |\n|---|---:|---:|---:|---:|---|\n",
    );
    for (mbit, burst) in [(50.0, 4_000), (100.0, 8_000), (200.0, 16_000)] {
        eprintln!("tbf of {mbit} Mbit/s");
        let report = behind_a_tbf(mbit, burst);
        let case = &report["drain_rates"][0];
        let d = mbit * 1e6 / 8.0 / L2;
        let off = |name: &str| (figure(case, name) / d - 1.0) * 100.0;
        let _ = writeln!(
            text,
            "| tbf {mbit} Mbit/s | {d:.0} | {:+.3} % | {:+.3} % | {:+.0} % | {} |",
            off("typical_per_s"),
            off("theil_sen_per_s"),
            off("n_over_max_per_s"),
            if off("typical_per_s").abs() <= 1.0 { "yes" } else { "no" }
        );
    }
    text.push_str(
        "\n## The driver engine\n\n`observer run examples/drain-rate.toml`: bursts of 16,000 over loopback, twelve of \
         each. By span and by\nTheil–Sen D agrees within 3 % as medians over the bursts.\n\n\
         | size | idle | bursts | D typical, /s | 95 % | by Theil–Sen | apart | D conservative, /s | N/max, /s | P, /s | longest wait, ms | by the model | agree |\n\
         |---:|---|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    let report = run(include_str!("../../examples/drain-rate.toml"));
    let (mut agree, mut all) = (0, 0);
    for case in report["drain_rates"].as_array().unwrap() {
        let f = |name: &str| figure(case, name);
        let apart = f("theil_sen_per_s") / f("typical_per_s") - 1.0;
        let ends: Vec<String> = case["measured"]["typical_interval"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|x| Some(format!("{:.0}", x.as_f64()?)))
            .collect();
        all += 1;
        agree += u32::from(apart.abs() <= 0.03);
        let _ = writeln!(
            text,
            "| {} B | {} | {} | {:.0} | {} | {:.0} | {:+.2} % | {:.0} | {:.0} | {:.0} | {:.1} | {:.1} | {} |",
            case["size_bytes"],
            case["idle"].as_str().unwrap(),
            f("bursts"),
            f("typical_per_s"),
            ends.join("–"),
            f("theil_sen_per_s"),
            apart * 100.0,
            f("conservative_per_s"),
            f("n_over_max_per_s"),
            f("dispatch_per_s"),
            f("max_wait_s") * 1e3,
            f("model_wait_s") * 1e3,
            if apart.abs() <= 0.03 { "yes" } else { "no" }
        );
    }
    let _ = write!(text, "\nAgree in {agree} of {all}.\n");
    println!("{text}");
    if let Ok(path) = std::env::var("SERIES_OUT") {
        std::fs::write(path, text).unwrap();
    }
}
