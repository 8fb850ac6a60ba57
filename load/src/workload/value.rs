//! Single values of a workload file: a TOML value with its place in, a figure
//! out, or a refusal that says what it is, what it should be, and where.

use std::ops::Range;
use std::time::Duration;

use toml::{Spanned, Value};

use crate::engine::LONGEST_SLEEP;
use crate::socket::Buffer;
use crate::units;

/// A value and its place.
pub(super) type V = Spanned<Value>;

/// Where in the file, and why.
pub(super) struct Refusal {
    pub(super) at: Range<usize>,
    pub(super) why: String,
}

pub(super) fn refuse<T>(at: Range<usize>, why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { at, why: why.into() })
}

pub(super) fn string<'a>(v: &'a V, what: &str, form: &str) -> Result<&'a str, Refusal> {
    match v.get_ref() {
        Value::String(s) => Ok(s),
        other => refuse(v.span(), format!("{} is not {what}; write {form}", kind_of(other))),
    }
}

pub(super) fn kind_of(v: &Value) -> &'static str {
    match v {
        Value::String(_) => "text",
        Value::Integer(_) => "a bare number",
        Value::Float(_) => "a bare fraction",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}

/// A duration for which a thread of the run stands still.
pub(super) fn short_duration(v: &V) -> Result<Duration, Refusal> {
    let d = duration(v)?;
    if d > LONGEST_SLEEP {
        refuse(v.span(), format!("{d:?} is too long; at most {LONGEST_SLEEP:?} is possible"))
    } else {
        Ok(d)
    }
}

/// True or false.
pub(super) fn yes(v: &V) -> Result<bool, Refusal> {
    match v.get_ref() {
        Value::Boolean(b) => Ok(*b),
        other => refuse(v.span(), format!("{} where true or false is wanted", kind_of(other))),
    }
}

pub(super) fn duration(v: &V) -> Result<Duration, Refusal> {
    let text = string(v, "a duration: its unit is missing", "it as in \"10s\" or \"100ms\"")?;
    units::duration(text).or_else(|e| refuse(v.span(), e.to_string()))
}

pub(super) fn positive_duration(v: &V) -> Result<Duration, Refusal> {
    let d = duration(v)?;
    if d.is_zero() { refuse(v.span(), "a duration of 0; give one above 0") } else { Ok(d) }
}

pub(super) fn rate(v: &V) -> Result<f64, Refusal> {
    per_second(string(v, "a rate: its unit is missing", "it as in \"20k/s\"")?, v.span())
}

pub(super) fn per_second(text: &str, at: Range<usize>) -> Result<f64, Refusal> {
    if !text.trim_end().ends_with("/s") {
        return refuse(at, format!("{text:?} is not a rate: its unit is missing; write it as in \"20k/s\""));
    }
    units::rate(text).or_else(|e| refuse(at, e.to_string()))
}

/// A number in quotes has a unit: `5000` or `"5k"`, not `"5000"`.
fn not_quoted(v: &V) -> Result<(), Refusal> {
    match v.get_ref() {
        Value::String(s) if !s.is_empty() && s.chars().all(|c| c.is_ascii_digit()) => {
            refuse(v.span(), format!("{s:?} is a bare number in quotes; write {s}"))
        }
        _ => Ok(()),
    }
}

pub(super) fn count(v: &V) -> Result<u64, Refusal> {
    not_quoted(v)?;
    let n = match v.get_ref() {
        Value::Integer(n) => u64::try_from(*n).ok(),
        Value::String(s) => Some(units::count(s).or_else(|e| refuse(v.span(), e.to_string()))?),
        _ => None,
    };
    match n {
        Some(n) if n > 0 => Ok(n),
        _ => refuse(v.span(), "a count is a whole number above 0, as in 5000 or \"90k\""),
    }
}

pub(super) fn uint(
    v: &Option<V>,
    default: usize,
    least: usize,
    most: usize,
    what: &str,
) -> Result<usize, Refusal> {
    let Some(v) = v else { return Ok(default) };
    not_quoted(v)?;
    let n = match v.get_ref() {
        Value::Integer(n) => usize::try_from(*n).ok(),
        Value::String(s) => Some(units::size(s).or_else(|e| refuse(v.span(), e.to_string()))?),
        _ => None,
    };
    match n {
        Some(n) if (least..=most).contains(&n) => Ok(n),
        _ => refuse(v.span(), format!("this is {what}, a whole number from {least} to {most}")),
    }
}

pub(super) fn buffer(v: &Option<V>) -> Result<Buffer, Refusal> {
    match v.as_ref().map(|v| (v.get_ref(), v)) {
        None => Ok(Buffer::Large),
        Some((Value::String(s), _)) if s == "large" => Ok(Buffer::Large),
        Some((Value::String(s), _)) if s == "kernel" => Ok(Buffer::Kernel),
        Some(_) => {
            Ok(Buffer::Bytes(uint(v, 0, 1, 1 << 30, "a buffer in bytes, or \"large\" or \"kernel\"")?))
        }
    }
}

pub(super) fn cpus(v: &Option<V>) -> Result<Vec<usize>, Refusal> {
    let Some(v) = v else { return Ok(Vec::new()) };
    let list: Option<Option<Vec<usize>>> = v.get_ref().as_array().map(|l| {
        l.iter().map(|c| c.as_integer().and_then(|c| usize::try_from(c).ok()).filter(|c| *c < 1024)).collect()
    });
    match list {
        Some(Some(cpus)) => match cpus.iter().find(|cpu| !crate::thread::may_use(**cpu)) {
            Some(cpu) => refuse(
                v.span(),
                format!("CPU {cpu} is none that this process may use; `taskset -p $$` lists them"),
            ),
            None => Ok(cpus),
        },
        _ => refuse(v.span(), "pin is a list of CPU numbers, as in [0, 1]"),
    }
}
