//! Figures with units, as people write them: `50k`, `1.6M/s`, `100ms`, `10s`,
//! `4MiB`. A figure without its unit, or with another's, is refused with what
//! would be right.

use std::time::Duration;

use crate::schedule::{MAX_RATE, MIN_RATE};

/// Text that is not the figure it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {what}: {why}; write {example}")]
pub struct UnitError {
    text: String,
    what: &'static str,
    why: &'static str,
    example: &'static str,
}

const RATE: (&str, &str) = ("rate", "a number per second, as in 500, 50k, 1.6M/s");
const TIME: (&str, &str) = ("duration", "a number and its unit, as in 250us, 100ms, 10s, 2m");
const SIZE: (&str, &str) = ("size", "a number of bytes, as in 160, 1472B, 64k, 4MiB");
const COUNT: (&str, &str) = ("count", "a whole number, as in 5000, 90k, 2M");

fn error(text: &str, (what, example): (&'static str, &'static str), why: &'static str) -> UnitError {
    let mut text: String = text.chars().take(60).collect();
    text.retain(|c| !c.is_control());
    UnitError { text, what, why, example }
}

/// The number at the start of `text` and the unit behind it.
fn split<'a>(text: &'a str, of: (&'static str, &'static str)) -> Result<(f64, &'a str), UnitError> {
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let number = number.replace('_', "");
    if number.is_empty() {
        let why = if trimmed.starts_with('-') { "it is negative" } else { "it does not begin with a number" };
        return Err(error(text, of, why));
    }
    let value: f64 = number.parse().map_err(|_| error(text, of, "its number is malformed"))?;
    Ok((value, unit.trim_start()))
}

/// A rate, per second: `500`, `50k`, `1.6M`, `1.6M/s`, `2G/s`.
///
/// # Errors
/// [`UnitError`] for anything else, and outside 0.001/s to 1G/s.
pub fn rate(text: &str) -> Result<f64, UnitError> {
    let (value, unit) = split(text, RATE)?;
    let scale = match unit.strip_suffix("/s").unwrap_or(unit).trim_end() {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "m" => return Err(error(text, RATE, "`m` is not million, `M` is")),
        _ => return Err(error(text, RATE, "its unit is unknown")),
    };
    let rate = value * scale;
    if (MIN_RATE..=MAX_RATE).contains(&rate) {
        Ok(rate)
    } else {
        Err(error(text, RATE, "it must be from 0.001/s to 1G/s"))
    }
}

/// A duration: `250ns`, `250us`, `100ms`, `10s`, `2m`, `1h`. A bare 0 is the
/// only figure that needs no unit.
///
/// # Errors
/// [`UnitError`] for anything else, and for more than a year.
pub fn duration(text: &str) -> Result<Duration, UnitError> {
    let (value, unit) = split(text, TIME)?;
    let scale = match unit {
        "ns" => 1e-9,
        "us" | "µs" | "μs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "" if value == 0.0 => 1.0,
        "" => return Err(error(text, TIME, "its unit is missing")),
        _ => return Err(error(text, TIME, "its unit is unknown")),
    };
    let seconds = value * scale;
    if seconds > 366.0 * 86_400.0 {
        return Err(error(text, TIME, "it is longer than a year"));
    }
    // Rounded to whole nanoseconds: 0.1 s in binary is not a tenth.
    Ok(Duration::from_nanos(crate::num::round_u64(seconds * 1e9)))
}

/// A run id: 1 to 4294967295, decimal or `0x` and hexadecimal, as reports
/// print it.
///
/// # Errors
/// A sentence for anything else; 0 stands for "no run" in the programs.
pub fn run_id(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    match parsed {
        Ok(0) | Err(_) => Err("a run id is a number from 1 to 4294967295, decimal or 0x…".to_owned()),
        Ok(id) => Ok(id),
    }
}

/// A number of bytes: `160`, `1472B`, `64k` (= 64,000), `64KiB`, `4MiB`.
///
/// # Errors
/// [`UnitError`] for anything else, and for fractions of a byte.
pub fn size(text: &str) -> Result<usize, UnitError> {
    let (value, unit) = split(text, SIZE)?;
    let scale = match unit {
        "" | "B" => 1.0,
        "k" | "kB" => 1e3,
        "M" | "MB" => 1e6,
        "KiB" | "Ki" => 1024.0,
        "MiB" | "Mi" => 1_048_576.0,
        _ => return Err(error(text, SIZE, "its unit is unknown")),
    };
    whole(value * scale)
        .and_then(|n| usize::try_from(n).ok())
        .ok_or_else(|| error(text, SIZE, "it is not a whole number of bytes below 2^53"))
}

/// A number of things: `5000`, `90k`, `2M`.
///
/// # Errors
/// [`UnitError`] for anything else, and for fractions.
pub fn count(text: &str) -> Result<u64, UnitError> {
    let (value, unit) = split(text, COUNT)?;
    let scale = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return Err(error(text, COUNT, "its unit is unknown")),
    };
    whole(value * scale).ok_or_else(|| error(text, COUNT, "it is not a whole number below 2^53"))
}

fn whole(value: f64) -> Option<u64> {
    (value.fract() == 0.0 && value < 9_007_199_254_740_992.0).then(|| crate::num::round_u64(value))
}

/// Writes a duration given in ns with three digits and a fitting unit.
pub fn show_ns(ns: i64) -> String {
    let magnitude = ns.unsigned_abs() as f64;
    let (value, unit) = match magnitude {
        m if m < 1e3 => (m, "ns"),
        m if m < 1e6 => (m / 1e3, "µs"),
        m if m < 1e9 => (m / 1e6, "ms"),
        m => (m / 1e9, "s"),
    };
    let digits = if value >= 100.0 || unit == "ns" {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{}{value:.digits$} {unit}", if ns < 0 { "-" } else { "" })
}

/// Writes a whole number with thousands separated.
pub fn show_count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn figures_read_as_people_write_them() {
        assert_eq!(rate("50k"), Ok(50_000.0));
        assert_eq!(rate("1.6M/s"), Ok(1_600_000.0));
        assert_eq!(rate(" 20_000 /s "), Ok(20_000.0));
        assert_eq!(duration("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(duration("0.1 s"), Ok(Duration::from_millis(100)));
        assert_eq!(duration("250µs"), Ok(Duration::from_micros(250)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(size("4MiB"), Ok(4 << 20));
        assert_eq!(size("1472B"), Ok(1472));
        assert_eq!(count("90k"), Ok(90_000));
    }

    #[test]
    fn a_missing_or_wrong_unit_is_refused_with_what_would_be_right() {
        for (refusal, hint) in [
            (duration("10").unwrap_err().to_string(), "unit is missing"),
            (duration("10/s").unwrap_err().to_string(), "100ms"),
            (duration("-1s").unwrap_err().to_string(), "negative"),
            (duration("1e999s").unwrap_err().to_string(), "unknown"),
            (duration("99999999h").unwrap_err().to_string(), "a year"),
            (rate("5m/s").unwrap_err().to_string(), "`M` is"),
            (rate("0").unwrap_err().to_string(), "from 0.001/s"),
            (rate("0.0000001").unwrap_err().to_string(), "from 0.001/s"),
            (rate("100ms").unwrap_err().to_string(), "50k"),
            (rate("fast").unwrap_err().to_string(), "number"),
            (size("1.5").unwrap_err().to_string(), "whole"),
            (size("1..5").unwrap_err().to_string(), "malformed"),
            (count("3.5").unwrap_err().to_string(), "whole"),
            (count("").unwrap_err().to_string(), "number"),
        ] {
            assert!(refusal.contains(hint), "{refusal}");
        }
    }

    #[test]
    fn figures_are_written_with_three_digits() {
        assert_eq!(
            [0, 999, 1_500, 377_190_000, -20_400].map(show_ns),
            ["0 ns", "999 ns", "1.50 µs", "377 ms", "-20.4 µs"]
        );
        assert_eq!([0, 999, 1_000, 1_234_567].map(show_count), ["0", "999", "1,000", "1,234,567"]);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(s in "\\PC{0,20}") {
            let _ = (rate(&s), duration(&s), size(&s), count(&s));
        }

        #[test]
        fn milliseconds_are_exact(ms in 0u64..10_000_000) {
            prop_assert_eq!(duration(&format!("{ms}ms")), Ok(Duration::from_millis(ms)));
        }
    }
}
