//! Hostile traces: whatever a file holds, reading it ends in an answer or in
//! an error, and in bounded memory.
//!
//! A small trace is mutated over and over: bits, bytes and lengths of its
//! Parquet files, with the checksums put right again so that the damage gets
//! past them; and its JSON, byte by byte and value by value. Five seconds by
//! default; `TRACE_FUZZ_SECONDS` makes it longer.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use observer::{
    source::synthetic::{Plan, Synthetic},
    trace::{
        Selection, Trace, TraceError, answer, compare, drive, export,
        record::{RecordOptions, Recorder},
    },
};
use serde_json::Value;

const SECONDS: u64 = 5;
/// Memory that reading a trace of some kilobytes may take, whatever it says.
const MOST_KB: u64 = 1_000_000;

/// Reads everything in every way there is.
fn read(dir: &Path) -> Result<(), TraceError> {
    let mut trace = Trace::open(dir)?;
    let everything = Selection::default();
    let fast = answer::report(&trace, &everything, &mut |_, _| {}).map(drop);
    let slow = answer::from_records(&trace, &everything, &mut |_, _| {}).map(drop);
    let some = Selection { size: Some("100..300".parse().unwrap()), ..Selection::default() };
    let selected = answer::report(&trace, &some, &mut |_, _| {}).map(drop);
    let compared = compare::read(&trace, &mut |_, _| {}).map(drop);
    // An output error cannot be: it goes to memory that is there.
    let _ = export::hlog::export(&trace, &mut std::io::sink(), &mut |_| {});
    let _ = export::pcapng::export(&trace, &everything, 1_000, &mut std::io::sink(), &mut |_| {});
    let _ = export::perfetto::export(&trace, &everything, 1_000, &mut std::io::sink(), &mut |_| {});
    let left = trace.skip_damaged().and_then(|()| trace.missing().map(drop));
    fast.and(slow).and(selected).and(compared).and(left)
}

/// Numbers that programs trip over.
const ODD: [&str; 12] = [
    "0",
    "-1",
    "1",
    "255",
    "65536",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "1e300",
    "null",
    "\"x\"",
];

/// Replaces, removes or repeats one value somewhere in `json`.
fn mutate_value(json: &mut Value, rng: &mut fastrand::Rng) {
    match json {
        Value::Object(map) if !map.is_empty() && rng.u8(..8) > 0 => {
            let key = map.keys().nth(rng.usize(..map.len())).unwrap().clone();
            if rng.u8(..12) == 0 {
                map.remove(&key);
            } else if let Some(value) = map.get_mut(&key) {
                mutate_value(value, rng);
            }
        }
        Value::Array(list) if !list.is_empty() && rng.u8(..8) > 0 => {
            let at = rng.usize(..list.len());
            match rng.u8(..12) {
                0 => drop(list.remove(at)),
                1 => {
                    let again = list[at].clone();
                    list.push(again);
                }
                _ => mutate_value(&mut list[at], rng),
            }
        }
        value => *value = serde_json::from_str(ODD[rng.usize(..ODD.len())]).unwrap(),
    }
}

fn mutate_bytes(bytes: &mut Vec<u8>, rng: &mut fastrand::Rng) {
    for _ in 0..rng.usize(1..4) {
        if bytes.is_empty() {
            return;
        }
        let at = rng.usize(..bytes.len());
        match rng.u8(..6) {
            0 => bytes[at] ^= 1 << rng.u8(..8),
            1 => bytes[at] = rng.u8(..),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, rng.u8(..)),
            // Near the end, where Parquet keeps what it says of itself.
            4 => {
                let from_end = rng.usize(..bytes.len().min(2_000));
                let at = bytes.len() - 1 - from_end;
                bytes[at] = rng.u8(..);
            }
            _ => {
                let end = (at + rng.usize(1..16)).min(bytes.len());
                bytes[at..end].fill(if rng.bool() { 0xff } else { 0 });
            }
        }
    }
}

/// Puts the checksum and length of a mutated file right.
fn put_right(segment: &Path, what: &str, bytes: &[u8]) {
    let mut json: Value = serde_json::from_slice(&fs::read(segment).unwrap()).unwrap();
    json["files"][what]["bytes"] = bytes.len().into();
    json["files"][what]["crc32"] = crc32fast::hash(bytes).into();
    fs::write(segment, json.to_string()).unwrap();
}

fn peak_kb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn no_trace_makes_the_reader_panic_or_take_all_memory() {
    let seconds = std::env::var("TRACE_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(SECONDS);
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan {
        datagrams: 600,
        streams: 2,
        run_queue_percent: 5,
        blocked_percent: 5,
        drop_every: 50,
        ..Plan::default()
    };
    let options = RecordOptions { dir: dir.path().to_owned(), ..RecordOptions::default() };
    drive::record(&mut Synthetic::new(plan), Recorder::create(options).unwrap(), 1_000_000_000).unwrap();
    read(dir.path()).unwrap();
    let files: Vec<(PathBuf, Vec<u8>)> = fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .map(|path| (path.clone(), fs::read(&path).unwrap()))
        .collect();
    let segment = dir.path().join("segment-000000.json");

    let seed = fastrand::u64(..);
    let mut rng = fastrand::Rng::with_seed(seed);
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut tried, mut refused) = (0_u64, 0_u64);
    while Instant::now() < until {
        let (path, whole) = &files[rng.usize(..files.len())];
        let json = path.extension().is_some_and(|e| e == "json");
        let mut bytes = whole.clone();
        if json && rng.bool() {
            let mut value = serde_json::from_slice(whole).unwrap();
            (0..rng.usize(1..4)).for_each(|_| mutate_value(&mut value, &mut rng));
            bytes = value.to_string().into_bytes();
        } else {
            mutate_bytes(&mut bytes, &mut rng);
        }
        fs::write(path, &bytes).unwrap();
        if !json && rng.u8(..8) > 0 {
            let what = path.file_name().unwrap().to_str().unwrap().split('-').next().unwrap();
            put_right(&segment, what, &bytes);
        }
        // Its own guard against the Parquet library's panics is quiet only if
        // nobody else sees them.
        let read = catch_unwind(AssertUnwindSafe(|| read(dir.path())));
        assert!(read.is_ok(), "seed {seed}, try {tried}, {}", path.display());
        refused += u64::from(read.unwrap().is_err());
        tried += 1;
        for (path, whole) in &files {
            fs::write(path, whole).unwrap();
        }
    }
    eprintln!("{tried} traces, {refused} refused, at most {} MB", peak_kb() / 1_000);
    assert!(tried > 2 && refused > tried / 4, "{refused} of {tried}");
    assert!(peak_kb() < MOST_KB, "{} kB", peak_kb());
}
