//! What a workload file may say, and sixty ways to get it wrong.

use proptest::prelude::*;

use super::*;

fn one(text: &str) -> Workload {
    parse("t.toml", text).unwrap().remove(0)
}

#[test]
fn probing_patterns_are_rows_of_trains() {
    let schedule = |lines: &str| {
        parse("f", &format!("[target]\naddress = \"loopback\"\n[schedule]\n{lines}"))
            .map(|w| w[0].schedule.clone())
    };
    let every = Some(Duration::from_millis(500));
    assert_eq!(
        schedule("pattern = \"trains\"\ntrain = 50\nevery = \"500ms\"\nbursts = 3").unwrap(),
        Schedule::Bursts { size: 50, dispatch: None, every, repeat: Some(3) }
    );
    assert!(matches!(
        schedule("pattern = \"pairs\"").unwrap(),
        Schedule::Bursts { size: 2, repeat: Some(60), .. }
    ));
    for (lines, why) in [
        ("pattern = \"chirps\"", "not a pattern"),
        ("pattern = \"pairs\"\ntrain = 5", "two datagrams"),
        ("rate = \"1k/s\"\ntrain = 5", "belongs to `pattern`"),
        ("pattern = \"pairs\"\nburst = 5", "both"),
        ("pattern = \"trains\"\ntrain = 0", "above 0"),
    ] {
        let e = schedule(lines).unwrap_err().to_string();
        assert!(e.contains(why), "{lines}: {e}");
    }
}

#[test]
fn a_single_workload_needs_only_a_schedule() {
    let w = one("[schedule]\nrate = \"20k/s\"\nduration = \"30s\"\n");
    assert_eq!(w.schedule, Schedule::Constant { rate: 20_000.0 });
    assert_eq!((w.size, w.streams, w.duration), (160, 1, Some(Duration::from_secs(30))));
    assert_eq!(w.target, Target::Local("127.0.0.1:0".parse().unwrap()));
}

#[test]
fn a_suite_inherits_what_it_does_not_say() {
    let suite = parse(
        "t.toml",
        r#"
[target]
size = 500
[schedule]
rate = "10k/s"
duration = "20s"
warmup = "3s"
[expect]
total_p99 = "< 5ms"
loss = "< 1%"
[[workload]]
name = "a"
[[workload]]
name = "b"
target.streams = 4
schedule.rate = "20k/s"
expect.total_p99 = "< 9ms"
[[workload]]
name = "c"
schedule = { burst = "90k", dispatch = "1.7M/s" }
"#,
    )
    .unwrap();
    assert_eq!(suite.len(), 3);
    assert!(suite.iter().all(|w| w.size == 500 && w.warmup == Duration::from_secs(3)));
    assert_eq!(suite[0].schedule.interval_ns(), Some(100_000.0));
    assert_eq!((suite[1].streams, suite[1].schedule.interval_ns()), (4, Some(50_000.0)));
    assert_eq!(suite[1].expect.len(), 2);
    assert!(suite[1].expect.iter().any(|e| e.bound == 9e6) && suite[0].expect.iter().any(|e| e.bound == 5e6));
    assert!(matches!(suite[2].schedule, Schedule::Bursts { size: 90_000, every: None, .. }));
}

#[test]
fn a_ramp_sets_the_rate() {
    let w = one(
        "[ramp]\nstart = \"10k/s\"\nstep = \"5k/s\"\nstep_for = \"2s\"\nrefine = 3\n[schedule]\nwarmup = \"1s\"\n",
    );
    let ramp = w.ramp.unwrap();
    assert_eq!((ramp.start, ramp.step, ramp.refine), (10_000.0, 5_000.0, 3));
    assert_eq!(w.at_rate(15_000.0, ramp.step_for).duration, Some(Duration::from_secs(3)));
}

/// Each with its line and a word of the reason.
const REFUSED: &[(&str, usize, &str)] = &[
    ("", 1, "no schedule"),
    ("[schedule]\n", 1, "no schedule"),
    ("[schedul]\nrate = \"1k/s\"", 1, "unknown field"),
    ("[schedule]\nrat = \"1k/s\"", 2, "unknown field"),
    ("[schedule]\nrate = 20000\nduration = \"1s\"", 2, "unit is missing"),
    ("[schedule]\nrate = \"20000\"\nduration = \"1s\"", 2, "unit is missing"),
    ("[schedule]\nrate = \"20k\"\nduration = \"1s\"", 2, "unit is missing"),
    ("[schedule]\nrate = \"20m/s\"\nduration = \"1s\"", 2, "`M` is"),
    ("[schedule]\nrate = \"-5/s\"\nduration = \"1s\"", 2, "negative"),
    ("[schedule]\nrate = \"0/s\"\nduration = \"1s\"", 2, "from 0.001/s"),
    ("[schedule]\nrate = \"9e99/s\"\nduration = \"1s\"", 2, "unit"),
    ("[schedule]\nrate = \"99999999M/s\"\nduration = \"1s\"", 2, "to 1G/s"),
    ("[schedule]\nrate = true\nduration = \"1s\"", 2, "true or false"),
    ("[schedule]\nrate = [\"1k/s\"]\nduration = \"1s\"", 2, "a list"),
    ("[schedule]\nrate = \"1k/s\"", 1, "nothing ends"),
    ("[schedule]\nrate = \"1k/s\"\nduration = 10", 3, "unit is missing"),
    ("[schedule]\nrate = \"1k/s\"\nduration = 1.5", 3, "unit is missing"),
    ("[schedule]\nrate = \"1k/s\"\nduration = \"10\"", 3, "unit is missing"),
    ("[schedule]\nrate = \"1k/s\"\nduration = \"ten s\"", 3, "number"),
    ("[schedule]\nrate = \"1k/s\"\nduration = \"0s\"", 3, "above 0"),
    ("[schedule]\nrate = \"1k/s\"\nduration = \"-1s\"", 3, "negative"),
    ("[schedule]\nrate = \"1k/s\"\nduration = \"99999999h\"", 3, "a year"),
    ("[schedule]\nrate = \"1k/s\"\nduration = 1979-05-27", 3, "a date"),
    ("[schedule]\nrate = \"1k/s\"\nduration = \"2s\"\nwarmup = \"2s\"", 4, "warm-up"),
    ("[schedule]\nrate = \"1k/s\"\nrate = \"2k/s\"", 3, "duplicate"),
    ("[schedule]\nrate = \"1k/s\"\nunthrottled = true\nduration = \"1s\"", 3, "both"),
    ("[schedule]\nunthrottled = false\nduration = \"1s\"", 2, "unthrottled = true"),
    ("[schedule]\nrate = \"1k/s\"\ndispatch = \"1M/s\"\nduration = \"1s\"", 3, "belongs to"),
    ("[schedule]\nrate = \"1k/s\"\non = \"1s\"\nduration = \"1s\"", 3, "go together"),
    ("[schedule]\nrate = \"1k/s\"\ncount = 0", 3, "above 0"),
    ("[schedule]\nrate = \"1k/s\"\ncount = -4", 3, "whole number"),
    ("[schedule]\nrate = \"1k/s\"\ncount = \"1.5\"", 3, "whole number"),
    ("[schedule]\nrate = \"1k/s\"\ncount = 99999999999999999999", 3, ""),
    ("[schedule]\nburst = 0", 2, "above 0"),
    ("[schedule]\nburst = 5\nbursts = 3", 2, "time between"),
    ("[schedule]\nburst = \"5k\"\ndispatch = \"1k/s\"\nevery = \"1s\"\nduration = \"9s\"", 2, "longer than"),
    ("[schedule]\nsteps = \"1k/s\"", 2, "not a list"),
    ("[schedule]\nsteps = [[\"1k/s\"]]", 2, "a rate and a duration"),
    ("[schedule]\nsteps = [[\"1k/s\", 5]]", 2, "a rate and a duration"),
    ("[schedule]\nsteps = []", 2, "no steps"),
    ("[schedule]\nreplay = [\"2ms\", \"1ms\"]", 2, "back in time"),
    ("[schedule]\nreplay = [1, 2]", 2, "has a unit"),
    ("[schedule]\nrate = \"1k/s\"\nduration = \"1s\"\ncatch_up = \"fast\"", 4, "catch-up policy"),
    ("[target]\nsize = 31\n[schedule]\nrate = \"1k/s\"\nduration = \"1s\"", 2, "from 32"),
    ("[target]\nsize = \"70k\"\n[schedule]\nrate = \"1k/s\"\nduration = \"1s\"", 2, "to 65507"),
    ("[target]\nstreams = 0\n[schedule]\nrate = \"1k/s\"\nduration = \"1s\"", 2, "streams"),
    ("[target]\naddress = \"10.0.0.1\"\n[schedule]\nrate = \"1k/s\"\nduration = \"1s\"", 2, "not an address"),
    ("[target]\naddress = 9000\n[schedule]\nrate = \"1k/s\"\nduration = \"1s\"", 2, "a bare number"),
    ("[target]\nengine = \"turbo\"\n[schedule]\nrate = \"1k/s\"\nduration = \"1s\"", 2, "not an engine"),
    ("[target]\nring = 5\n[schedule]\nrate = \"1k/s\"\nduration = \"1s\"", 2, "driver"),
    ("[target]\ngso = 64\nsize = 1400\n[schedule]\nrate = \"1k/s\"\nduration = \"1s\"", 4, "65507"),
    (
        "[target]\ncontrol = \"10.0.0.2:9001\"\n[schedule]\nrate = \"1k/s\"\nduration = \"1s\"",
        2,
        "go together",
    ),
    (
        "[target]\ncontrol = \"10.0.0.2:9001\"\ntoken_file = \"t\"\n[schedule]\nrate = \"1k/s\"\nduration = \"1s\"",
        2,
        "in this process",
    ),
    ("[target]\nrealtime = 1\n[schedule]\nrate = \"1k/s\"\nduration = \"1s\"", 2, "true or false is wanted"),
    ("[target]\npin = \"0\"\n[schedule]\nrate = \"1k/s\"\nduration = \"1s\"", 2, "list of CPU"),
    (
        "[schedule]\nrate = \"1k/s\"\nduration = \"1s\"\n[expect]\ntotal_p98 = \"< 1ms\"",
        5,
        "unknown objective",
    ),
    ("[schedule]\nrate = \"1k/s\"\nduration = \"1s\"\n[expect]\ntotal_p99 = \"1ms\"", 5, "begin with"),
    ("[schedule]\nrate = \"1k/s\"\nduration = \"1s\"\n[expect]\ntotal_p99 = 5", 5, "not text"),
    ("[schedule]\nrate = \"1k/s\"\nduration = \"1s\"\n[expect]\nloss = \"> 1%\"", 5, "upper bound"),
    ("[ramp]\nstart = \"1k/s\"", 1, "without `step`"),
    (
        "[ramp]\nstart = \"1k/s\"\nstep = \"1k/s\"\nstep_for = \"1s\"\n[schedule]\nrate = \"1k/s\"",
        6,
        "beside a [ramp]",
    ),
    ("[ramp]\nstart = \"9k/s\"\nstep = \"1k/s\"\nstep_for = \"1s\"\nmax = \"1k/s\"", 1, "below the start"),
    ("[ramp]\nstart = \"1k/s\"\nstep = \"1k/s\"\nstep_for = \"1s\"\nrefine = 99", 5, "bisections"),
    ("[[workload]]\nschedule.rate = \"1k/s\"", 1, "without a name"),
    (
        "[[workload]]\nname = \"a\"\nschedule = {rate = \"1k/s\", count = 1}\n[[workload]]\nname = \"a\"",
        5,
        "two workloads",
    ),
    ("name = \"a\\u0007\"\n[schedule]\nrate = \"1k/s\"\ncount = 1", 2, "printable"),
    ("[schedule\nrate = 1", 1, ""),
    ("schedule = 5", 1, "expected a table: [schedule]"),
    ("schedule = [1, 2]", 1, "expected a table: [schedule]"),
    ("target = 99999999999999999999", 1, ""),
    ("[target]\npoll = \"1000h\"\n[schedule]\nrate = \"1k/s\"\nduration = \"1s\"", 2, "at most 1s"),
    (
        "[target]\nengine = \"driver\"\nidle = \"sleep:1000h\"\n[schedule]\nrate = \"1k/s\"\nduration = \"1s\"",
        3,
        "at most 1s",
    ),
    ("[target]\nsize = \"160\"\n[schedule]\nrate = \"1k/s\"\nduration = \"1s\"", 2, "in quotes; write 160"),
    ("[target]\npin = [999]\n[schedule]\nrate = \"1k/s\"\nduration = \"1s\"", 2, "CPU 999"),
    (
        "[target]\naddress = \"10.0.0.1:9\"\ncontrol = \"10.0.0.1:10\"\ntoken_file = \"/no/such/token\"\n[schedule]\nrate = \"1k/s\"\nduration = \"1s\"",
        4,
        "/no/such/token",
    ),
    (
        "[target]\naddress = \"10.0.0.1:99999\"\n[schedule]\nrate = \"1k/s\"\nduration = \"1s\"",
        2,
        "\"99999\" in \"10.0.0.1:99999\" is not a port",
    ),
    ("[schedule]\nrate = \"0.0000000001/s\"\nduration = \"1s\"", 2, "from 0.001/s"),
    ("[schedule]\nrate = \"0.01/s\"\nduration = \"5s\"", 2, "only the first datagram"),
    ("[schedule]\nrate = \"1G/s\"\nduration = \"1000h\"", 2, "sequence numbers"),
    ("[schedule]\nburst = 9223372036854775807\nevery = \"1s\"\nbursts = 5", 2, "sequence numbers"),
    ("[schedule]\nsteps = [[\"1k/s\", \"1s\"]]\nduration = \"5s\"", 3, "ends after 1s"),
    ("[schedule]\npattern = \"trains\"\ntrain = 1", 3, "2 datagrams or more"),
    (
        "[schedule]\nrate = \"1k/s\"\nduration = \"1s\"\n[expect]\nthroughput = \"> 5k/s\"",
        5,
        "offers 1,000/s at most",
    ),
];

#[test]
fn every_mistake_is_refused_with_its_line_and_reason() {
    for (text, line, reason) in REFUSED {
        let e = parse("bad.toml", text).expect_err(text);
        assert!(e.why.contains(reason), "{text:?}\n  {e}");
        assert_eq!(e.line, *line, "{text:?}\n  {e}");
        let shown = e.to_string();
        assert!(shown.starts_with("bad.toml:") && !shown.contains('\n'), "{shown}");
        let inside = ["struct ", "i128", "Raw", "enum ", "with 1"];
        assert!(!inside.iter().any(|word| shown.contains(word)), "{shown}");
    }
    assert!(REFUSED.len() >= 60);
}

proptest! {
    #[test]
    fn any_text_is_survived(text in "(\\[(schedule|target|expect|ramp|\\[workload\\])\\]\n|(rate|duration|count|burst|steps|size|loss|start|step|name) = (\"[-<>0-9kM/s.%]{0,8}\"|-?[0-9]{1,20}|\\[[\"0-9,s]{0,9}\\]|true)\n|\\PC{0,9}\n){0,9}") {
        if let Err(e) = parse("f", &text) {
            prop_assert!(e.line >= 1 && e.line <= text.matches('\n').count() + 1);
            prop_assert!(!e.why.is_empty());
        }
    }
}

/// Ten minutes by default; `FUZZ_SECONDS` says otherwise:
/// `cargo test --release -p load --lib fuzz -- --ignored --nocapture`
#[test]
#[ignore = "takes ten minutes"]
fn fuzz_by_changing_files_that_are_understood() {
    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(600);
    let seeds: Vec<&[u8]> = [
        &include_bytes!("../../../../examples/ladder.toml")[..],
        include_bytes!("../../../../examples/ramp.toml"),
        include_bytes!("../../../../examples/absurd.toml"),
    ]
    .into_iter()
    .chain(REFUSED.iter().map(|(text, ..)| text.as_bytes()))
    .collect();
    let mut rng = fastrand::Rng::new();
    let (begin, mut files, mut understood) = (std::time::Instant::now(), 0_u64, 0_u64);
    while begin.elapsed().as_secs() < seconds {
        let mut bytes = rng.choice(&seeds).map(|s| s.to_vec()).unwrap_or_default();
        for _ in 0..rng.usize(1..8) {
            let (at, end) = (rng.usize(..=bytes.len()), rng.usize(..=bytes.len()));
            match rng.u8(..5) {
                // A piece of another file, a piece less, a piece twice, a byte, a large number.
                0 => {
                    let other = rng.choice(&seeds).copied().unwrap_or_default();
                    let from = rng.usize(..=other.len());
                    let piece = &other[from..rng.usize(from..=other.len()).min(from + 40)];
                    bytes.splice(at..at, piece.iter().copied());
                }
                1 => drop(bytes.drain(at.min(end)..at.max(end).min(at.min(end) + 20))),
                2 => {
                    let piece = bytes[at.min(end)..at.max(end).min(at.min(end) + 40)].to_vec();
                    bytes.splice(at..at, piece);
                }
                3 => bytes.insert(at, rng.u8(..)),
                _ => {
                    let number = (rng.u64(..) >> rng.u32(..64)).to_string();
                    bytes.splice(at..at, number.into_bytes());
                }
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        files += 1;
        match parse("f", &text) {
            Ok(workloads) => understood += u64::from(!workloads.is_empty()),
            Err(e) => {
                assert!(e.line >= 1 && e.line <= text.matches('\n').count() + 1, "{e}\n{text}");
                assert!(!e.why.is_empty() && !e.to_string().contains('\n'), "{e}\n{text}");
            }
        }
    }
    println!("{files} files in {seconds} s, {understood} of them understood");
    assert!(understood > 0 && understood < files);
}
