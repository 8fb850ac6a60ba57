//! The snippets of docs/stamp.md, run, and what they write read back with the
//! parser the eBPF programs use. Documentation that is wrong is worse than
//! none: an application would stamp, and never be seen.

#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use observer_ebpf::stamp::{SEQ_MAX, STAMP_LEN, Stamp};

/// The Rust snippet, compiled as it stands.
mod snippet {
    include!("snippet.rs");

    /// The snippet, for the tests outside this module.
    pub(super) fn write(payload: &mut [u8], run: u32, stream: u16, seq: u64, intended_ns: i64) -> bool {
        write_stamp(payload, run, stream, seq, intended_ns)
    }

    /// The snippet's clock.
    pub(super) fn now() -> i64 {
        now_ns()
    }
}

const DOCUMENT: &str = include_str!("../../../docs/stamp.md");

/// Values with every byte different, so that a swapped or cut one shows; the
/// intended time is negative, so that a lost sign shows.
const RUN: u32 = 0x8182_8384;
const STREAM: u16 = 0x9192;
const SEQ: u64 = 0xA1A2_A3A4_A5A6;
const INTENDED: i64 = -0x0102_0304_0506_0708;

/// The code block of DOCUMENT in `language`.
fn block(language: &str) -> &'static str {
    let opening = format!("```{language}\n");
    let (_, rest) = DOCUMENT.split_once(&opening).expect("docs/stamp.md has a snippet in this language");
    let (code, rest) = rest.split_once("```").expect("the snippet ends");
    assert!(!rest.contains(&opening), "two snippets in {language}: which one is meant?");
    code
}

/// Runs `command`; its standard output, or `None`, with a line that says so,
/// if there is no such program here.
fn output(command: &mut Command) -> Option<Vec<u8>> {
    let out = match command.output() {
        Ok(out) => out,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("SKIPPED: no {} here", command.get_program().display());
            return None;
        }
        Err(error) => panic!("{command:?}: {error}"),
    };
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    Some(out.stdout)
}

/// Reads a stamp made between two clock readings back and compares it.
fn assert_stamp(bytes: &[u8], before: i64, after: i64) {
    assert_eq!(bytes.len(), STAMP_LEN);
    let stamp = Stamp::parse(bytes).expect("observer knows it for a stamp");
    assert_eq!((stamp.run, stamp.stream(), stamp.seq()), (RUN, STREAM, SEQ));
    assert_eq!(stamp.intended_ns, INTENDED);
    assert!((before..=after).contains(&stamp.offer_ns), "{before} <= {} <= {after}", stamp.offer_ns);
}

#[test]
fn c() {
    let dir = tempfile::tempdir().unwrap();
    let main = format!(
        "#include <stdio.h>\nint main(void) {{ uint8_t p[{STAMP_LEN}]; write_stamp(p, {RUN}u, {STREAM}, {SEQ}u, \
         {INTENDED}); return fwrite(p, 1, sizeof p, stdout) != sizeof p; }}\n"
    );
    let (source, program) = (dir.path().join("stamp.c"), dir.path().join("stamp"));
    std::fs::write(&source, block("c").to_owned() + &main).unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(&source);
    if output(&mut compile).is_none() {
        return;
    }
    let before = snippet::now();
    let bytes = output(&mut Command::new(&program)).unwrap();
    assert_stamp(&bytes, before, snippet::now());
}

#[test]
fn python() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("stamp.py");
    let main = format!("\nimport sys\nsys.stdout.buffer.write(stamp({RUN}, {STREAM}, {SEQ}, {INTENDED}))\n");
    std::fs::write(&source, block("python").to_owned() + &main).unwrap();
    let before = snippet::now();
    let Some(bytes) = output(Command::new("python3").arg(&source)) else { return };
    assert_stamp(&bytes, before, snippet::now());
}

#[test]
fn rust() {
    assert_eq!(block("rust"), include_str!("snippet.rs"), "the documented snippet is the one compiled here");
    let mut payload = [0xEE; STAMP_LEN + 1];
    let before = snippet::now();
    assert!(snippet::write(&mut payload, RUN, STREAM, SEQ, INTENDED));
    assert_stamp(&payload[..STAMP_LEN], before, snippet::now());
    assert_eq!(payload[STAMP_LEN], 0xEE);
    assert!(!snippet::write(&mut payload[..STAMP_LEN - 1], RUN, STREAM, SEQ, INTENDED));
}

#[test]
fn the_tables_offsets_are_those_of_the_code() {
    // Each field alone, all bits set: the bytes it changes are its place.
    let zero = Stamp::new(0, 0, 0, 0, 0).to_bytes();
    let place = |stamp: Stamp| {
        let bytes = stamp.to_bytes();
        let changed: Vec<usize> = (0..STAMP_LEN).filter(|i| bytes[*i] != zero[*i]).collect();
        (changed[0], changed.len())
    };
    let fields = [
        ("run", place(Stamp::new(u32::MAX, 0, 0, 0, 0))),
        ("stream, sequence", place(Stamp::new(0, u16::MAX, SEQ_MAX, 0, 0))),
        ("intended", place(Stamp::new(0, 0, 0, -1, 0))),
        ("offer", place(Stamp::new(0, 0, 0, 0, -1))),
    ];
    for (name, (offset, size)) in fields {
        let row = format!("| {offset} | {size} | {name} |");
        assert!(DOCUMENT.contains(&row), "docs/stamp.md has no row {row}");
    }
    let magic = zero[..4].iter().map(|b| format!("{b:02X}")).collect::<Vec<_>>().join(" ");
    assert!(DOCUMENT.contains(&format!("| 0 | 4 | magic | `{magic}`")));
    assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/stamp.rs").is_file(), "the document links to it");
}
