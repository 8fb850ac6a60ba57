//! A recorded arrival pattern, from a file: what `schedule.replay = "FILE"`
//! offers again.
//!
//! Either the datagram log that `load recv --log FILE` writes, whose column
//! `received_ns` is the pattern, or one offset from the start to a line, with
//! its unit (`0`, `1ms`, `1500us`). Blank lines and those that begin with `#`
//! say nothing. Files come from anywhere: what is read is bounded.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::num::duration_ns;
use crate::units;

/// Most arrivals: 80 MB of offsets.
const MOST: usize = 10_000_000;
/// Longest line; a log's have about 80 bytes.
const LONGEST: u64 = 4_096;
/// The log's column with the pattern.
const COLUMN: &str = "received_ns";

/// The offsets from the first arrival, ns, ascending.
///
/// # Errors
///
/// A sentence with the file, the line, and what would be right.
pub(super) fn read(path: &Path) -> Result<Vec<u64>, String> {
    let name = path.display();
    let cannot = |e: &dyn std::fmt::Display| format!("cannot read the arrivals in {name}: {e}");
    // A device might never end, and opening a pipe might never return.
    if !path.metadata().map_err(|e| cannot(&e))?.is_file() {
        return Err(cannot(&"it is not a regular file"));
    }
    let file = File::open(path).map_err(|e| cannot(&e))?;
    parse(BufReader::new(file)).map_err(|e| format!("{name}{e}"))
}

/// As [`read`]; the sentence goes on after the name of the file.
fn parse(mut from: impl BufRead) -> Result<Vec<u64>, String> {
    let mut offsets: Vec<u64> = Vec::new();
    let (mut column, mut first) = (None, None);
    let mut line = String::new();
    for number in 1_u64.. {
        line.clear();
        let read = from.by_ref().take(LONGEST).read_line(&mut line).map_err(|e| format!(": {e}"))?;
        if read == 0 {
            break;
        }
        let at = |why: &str| Err(format!(", line {number}: {why}"));
        let text = line.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if offsets.is_empty() && column.is_none() {
            column = text.split(',').position(|c| c.trim() == COLUMN);
            if column.is_some() {
                continue;
            }
        }
        let ns = match column {
            Some(column) => {
                let value = text.split(',').nth(column).and_then(|v| v.trim().parse::<i64>().ok());
                let Some(value) = value else { return at("no time in the column received_ns") };
                let Ok(since) = u64::try_from(value.saturating_sub(*first.get_or_insert(value))) else {
                    return at("it arrived before the first");
                };
                since
            }
            None => match units::duration(text) {
                Ok(d) => duration_ns(d).unsigned_abs(),
                Err(e) => {
                    return at(&format!("{e}; write an offset to a line, or give a log of load recv --log"));
                }
            },
        };
        if offsets.last().is_some_and(|last| ns < *last) {
            return at("it goes back in time: offsets ascend");
        }
        if offsets.len() == MOST {
            return at(&format!("more than {MOST} arrivals; replay a part of them"));
        }
        offsets.push(ns);
    }
    if offsets.is_empty() { Err(": there are no arrivals in it".to_owned()) } else { Ok(offsets) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> Result<Vec<u64>, String> {
        parse(text.as_bytes())
    }

    #[test]
    fn a_log_and_a_list_give_offsets() {
        let log = "run,stream,seq,intended_ns,offer_ns,received_ns,bytes,arrival\n\
                   1,0,0,5,6,1000,160,New\n1,0,1,5,6,1000,160,New\n\n1,0,2,5,6,4500,160,New\n";
        assert_eq!(of(log), Ok(vec![0, 0, 3_500]));
        assert_eq!(of("# mine\n0\n 1ms\n1500us"), Ok(vec![0, 1_000_000, 1_500_000]));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, why) in [
            ("", "there are no arrivals"),
            ("0\n5\n", "line 2: "),
            ("1ms\n0\n", "line 2: it goes back in time"),
            ("a,received_ns\n1,x\n", "line 2: no time in the column"),
            ("received_ns\n5\n4\n", "line 3: it arrived before the first"),
            ("0\nhello\n", "line 2: "),
        ] {
            let said = of(text).unwrap_err();
            assert!(said.contains(why), "{text:?}: {said}");
        }
        assert!(parse(&[0xff, 0xfe, b'\n'][..]).is_err(), "no text");
        assert!(read(Path::new("/dev/zero")).unwrap_err().contains("regular file"));
    }

    proptest! {
        #[test]
        fn any_text_is_offsets_in_order_or_a_sentence(text in "[0-9a-z,._\n# ]{0,200}") {
            if let Ok(offsets) = of(&text) {
                prop_assert!(!offsets.is_empty() && offsets.is_sorted());
            }
        }
    }
}
