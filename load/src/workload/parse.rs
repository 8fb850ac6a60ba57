//! TOML to [`Workload`]s. Values keep their place in the file until they are
//! understood, so that every refusal names the line.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use toml::{Spanned, Value};

use super::arrivals;
use super::expect::{Expectation, Metric};
use super::value::{
    Refusal, V, buffer, count, cpus, duration, per_second, positive_duration, rate, refuse, short_duration,
    string, uint, yes,
};
use super::{Ramp, Target, Workload};
use crate::batch::MAX_BATCH;
use crate::control::Token;
use crate::engine::{Engine, Idle, LONGEST_SLEEP};
use crate::num::round_u64;
use crate::pace::CatchUp;
use crate::pattern::Pattern;
use crate::schedule::{Schedule, Step};
use crate::units::{self, show_count};

/// Most workloads in one file.
const MOST: usize = 1000;
/// Most steps of a schedule.
const MOST_STEPS: usize = 10_000;

/// A workload file that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {why}")]
pub struct FileError {
    /// Its name.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a workload file")]
struct File {
    name: Option<Spanned<String>>,
    target: Option<Spanned<RawTarget>>,
    schedule: Option<Spanned<RawSchedule>>,
    expect: Option<toml::map::Map<String, Value>>,
    ramp: Option<Spanned<RawRamp>>,
    #[serde(default)]
    workload: Vec<Spanned<RawWorkload>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table: [[workload]] and its keys below")]
struct RawWorkload {
    name: Option<Spanned<String>>,
    target: Option<Spanned<RawTarget>>,
    schedule: Option<Spanned<RawSchedule>>,
    expect: Option<toml::map::Map<String, Value>>,
    ramp: Option<Spanned<RawRamp>>,
}

macro_rules! section {
    ($name:ident, $form:literal, { $($field:ident),* $(,)? }) => {
        #[derive(Clone, Default, Deserialize)]
        #[serde(deny_unknown_fields, expecting = $form)]
        struct $name { $($field: Option<V>),* }

        impl $name {
            /// What is not said here is taken from `base`.
            fn or(&self, base: &Self) -> Self {
                Self { $($field: self.$field.clone().or_else(|| base.$field.clone())),* }
            }
        }
    };
}

section!(RawTarget, "a table: [target] and its keys below", {
    address,
    control,
    token_file,
    size,
    streams,
    engine,
    batch,
    ring,
    idle,
    gso,
    sndbuf,
    rcvbuf,
    poll,
    pin,
    realtime,
});
section!(RawSchedule, "a table: [schedule] and its keys below", {
    rate,
    poisson,
    burst,
    dispatch,
    every,
    bursts,
    pattern,
    train,
    on,
    off,
    steps,
    unthrottled,
    replay,
    seed,
    catch_up,
    count,
    duration,
    warmup,
});
section!(RawRamp, "a table: [ramp] and its keys below", { start, step, step_for, refine, max });

/// The kinds of schedule of which one must be chosen.
const KINDS: &str = "rate, poisson, burst, pattern, steps, replay or unthrottled";

/// Reads a workload file; `name` is only used in errors.
///
/// # Errors
/// [`FileError`] for the first thing that is not understood.
pub fn parse(name: &str, text: &str) -> Result<Vec<Workload>, FileError> {
    let refusal = match toml::from_str::<File>(text) {
        Ok(file) => match workloads(&file, text) {
            Ok(w) => return Ok(w),
            Err(refusal) => refusal,
        },
        Err(e) => Refusal { at: e.span().unwrap_or(0..0), why: plainly(e.message()) },
    };
    let before = text.get(..refusal.at.start.min(text.len())).unwrap_or(text);
    Err(FileError { file: name.to_owned(), line: before.matches('\n').count() + 1, why: refusal.why })
}

/// The parser's words on one line, without those about Rust's types.
fn plainly(message: &str) -> String {
    let words: Vec<_> = message.split_whitespace().collect();
    words
        .join(" ")
        .replace(" as i128", "")
        .replace(" as u128", "")
        .replace("expected a sequence", "expected a list")
}

fn workloads(file: &File, text: &str) -> Result<Vec<Workload>, Refusal> {
    let target = file.target.as_ref().map(|t| t.get_ref().clone()).unwrap_or_default();
    let schedule = file.schedule.as_ref().map(|s| s.get_ref().clone()).unwrap_or_default();
    let ramp = file.ramp.as_ref().map(|r| r.get_ref().clone());
    let ramp_at = file.ramp.as_ref().map(Spanned::span);
    if file.workload.len() > MOST {
        return refuse(0..0, format!("{} workloads; at most {MOST} are accepted", file.workload.len()));
    }
    if file.workload.is_empty() {
        let name = file.name.as_ref().map_or("workload", |n| n.get_ref().as_str());
        let at = file.schedule.as_ref().map_or(0..0, Spanned::span);
        let expect = expectations(file.expect.as_ref(), None, text)?;
        let w = workload(name, at, &target, &schedule, ramp.zip(ramp_at), expect)?;
        agrees(&w, schedule.duration.as_ref(), text)?;
        return Ok(vec![w]);
    }
    let mut out: Vec<Workload> = Vec::with_capacity(file.workload.len());
    for entry in &file.workload {
        let (raw, at) = (entry.get_ref(), entry.span());
        let Some(name) = &raw.name else {
            return refuse(at, "a workload without a name; add name = \"...\"");
        };
        if out.iter().any(|w| w.name == *name.get_ref()) {
            return refuse(
                name.span(),
                format!("two workloads are named {:?}; choose another", name.get_ref()),
            );
        }
        let target = raw.target.as_ref().map_or_else(|| target.clone(), |t| t.get_ref().or(&target));
        // A schedule of another kind replaces the inherited one, but not its bounds.
        let inherits_bounds = |own: &RawSchedule| own.kind().is_some() && own.duration.is_none();
        let inherited = raw.schedule.as_ref().is_some_and(|own| inherits_bounds(own.get_ref()));
        let schedule = match &raw.schedule {
            None => schedule.clone(),
            Some(own) => {
                let base = if own.get_ref().kind().is_some() { schedule.bounds() } else { schedule.clone() };
                own.get_ref().or(&base)
            }
        };
        let ramp = match (&raw.ramp, &ramp) {
            (Some(own), base) => {
                Some((own.get_ref().or(base.as_ref().unwrap_or(&RawRamp::default())), own.span()))
            }
            (None, Some(base)) => Some((base.clone(), ramp_at.clone().unwrap_or(0..0))),
            (None, None) => None,
        };
        let expect = expectations(file.expect.as_ref(), raw.expect.as_ref(), text)?;
        let w = workload(name.get_ref(), at, &target, &schedule, ramp, expect)?;
        agrees(&w, schedule.duration.as_ref().filter(|_| !inherited), text)?;
        out.push(w);
    }
    Ok(out)
}

fn workload(
    name: &str,
    at: Range<usize>,
    target: &RawTarget,
    schedule: &RawSchedule,
    ramp: Option<(RawRamp, Range<usize>)>,
    expect: Vec<Expectation>,
) -> Result<Workload, Refusal> {
    let label: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
    if label.is_empty() || label != name {
        return refuse(at, "a name must be 1 to 80 printable characters");
    }
    let ramp = ramp.map(|(r, at)| r.read(at)).transpose()?;
    let mut w = Workload {
        name: label,
        target: target.address()?,
        size: uint(&target.size, 160, 32, 65_507, "a payload in bytes")?,
        streams: 1,
        engine: target.engine()?,
        segments: uint(&target.gso, 1, 1, 64, "datagrams per GSO message")?,
        sndbuf: buffer(&target.sndbuf)?,
        rcvbuf: buffer(&target.rcvbuf)?,
        poll: target.poll.as_ref().map_or(Ok(Duration::ZERO), short_duration)?,
        pin: cpus(&target.pin)?,
        realtime: target.realtime.as_ref().map_or(Ok(false), yes)?,
        control: target.control()?,
        schedule: Schedule::Unthrottled,
        catch_up: schedule.catch_up()?,
        count: schedule.count.as_ref().map(count).transpose()?,
        duration: schedule.duration.as_ref().map(positive_duration).transpose()?,
        warmup: schedule.warmup.as_ref().map_or(Ok(Duration::ZERO), duration)?,
        expect,
        ramp,
    };
    w.streams = u16::try_from(uint(&target.streams, 1, 1, 1024, "streams")?).unwrap_or(1);
    match (&w.ramp, schedule.kind()) {
        (Some(_), Some((kind, span))) => {
            return refuse(
                span,
                format!("`{kind}` beside a [ramp], which sets the rate itself; keep one of them"),
            );
        }
        (Some(r), None) => {
            if let Some(d) = schedule.duration.as_ref().or(schedule.count.as_ref()) {
                return refuse(
                    d.span(),
                    "a [ramp] has step_for instead of a duration or count; keep one of them",
                );
            }
            w.schedule = Schedule::Constant { rate: r.start };
            w.duration = Some(w.warmup.saturating_add(r.step_for));
        }
        (None, _) => w.schedule = schedule.read(at.clone())?,
    }
    if w.segments > 1 && w.segments * w.size > 65_507 {
        return refuse(
            at,
            format!("gso = {} times size = {} is more than 65507 B; lower one", w.segments, w.size),
        );
    }
    if w.duration.is_none() && w.count.is_none() && w.schedule.length_ns().is_none() {
        return refuse(
            at,
            "nothing ends this workload; add a duration, as in duration = \"30s\", or a count",
        );
    }
    if let Some(d) = w.duration.filter(|d| *d <= w.warmup) {
        let at = schedule.warmup.as_ref().map_or(at.clone(), Spanned::span);
        return refuse(at, format!("a warm-up of {:?} leaves nothing of the {d:?} to measure", w.warmup));
    }
    let at = schedule.kind().map_or(at, |(_, at)| at);
    match w.config(SocketAddr::from(([127, 0, 0, 1], 9))).check() {
        Ok(()) => Ok(w),
        Err(e) => refuse(at, e.to_string()),
    }
}

/// Whether this is `HOST:PORT`; if not, why not.
fn host_and_port(text: &str, form: &str) -> Result<(), String> {
    let Some((host, port)) = text.rsplit_once(':').filter(|(host, _)| !host.is_empty() && host.len() < 256)
    else {
        return Err(format!("{text:?} is not an address; write {form}"));
    };
    match port.parse::<u16>() {
        Ok(port) if port > 0 => Ok(()),
        _ => Err(format!("{port:?} in {text:?} is not a port, 1 to 65535 (host {host:?}); write {form}")),
    }
}

/// Whether the parts fit together: the schedule with the duration given beside
/// it, and with what is expected of it.
fn agrees(w: &Workload, duration: Option<&V>, text: &str) -> Result<(), Refusal> {
    if let (Some(v), Some(own), Some(d)) = (duration, w.schedule.length_ns(), w.duration)
        && crate::num::duration_ns(d).unsigned_abs() > own
    {
        let ends = Duration::from_nanos(own);
        return refuse(
            v.span(),
            format!("the schedule itself ends after {ends:?}; leave the duration of {d:?} out"),
        );
    }
    // A recorded pattern has denser parts than its mean.
    let most = w.schedule.interval_ns().filter(|_| !matches!(w.schedule, Schedule::Replay { .. }));
    let asked = w.expect.iter().find(|e| e.metric == Metric::Throughput);
    match most.map(|interval| 1e9 / interval).zip(asked) {
        Some((most, e)) if w.ramp.is_none() && e.bound > most * 1.000_001 => refuse(
            place_of(text, "throughput"),
            format!(
                "{:?} offers {}/s at most, so its throughput cannot be {e}; raise the rate or lower the objective",
                w.name,
                show_count(round_u64(most))
            ),
        ),
        _ => Ok(()),
    }
}

impl RawTarget {
    fn address(&self) -> Result<Target, Refusal> {
        let Some(v) = &self.address else { return Ok(Target::Local(SocketAddr::from(([127, 0, 0, 1], 0)))) };
        let text = string(v, "an address", "\"loopback\" or \"10.0.0.2:9000\"")?;
        match text {
            "loopback" => Ok(Target::Local(SocketAddr::from(([127, 0, 0, 1], 0)))),
            "loopback6" => Ok(Target::Local(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 0)))),
            _ => host_and_port(text, "\"loopback\" or \"10.0.0.2:9000\"")
                .map(|()| Target::Remote(text.to_owned()))
                .or_else(|why| refuse(v.span(), why)),
        }
    }

    /// The control connection's address and token file.
    fn control(&self) -> Result<Option<(String, PathBuf)>, Refusal> {
        let (control, file) = match (&self.control, &self.token_file) {
            (None, None) => return Ok(None),
            (Some(control), Some(file)) => (control, file),
            (Some(v), None) | (None, Some(v)) => {
                return refuse(v.span(), "`control` and `token_file` go together; give both");
            }
        };
        if !matches!(self.address()?, Target::Remote(_)) {
            return refuse(control.span(), "a receiver in this process needs no `control`; leave it out");
        }
        let address = string(control, "an address", "\"10.0.0.2:9001\"")?;
        host_and_port(address, "\"10.0.0.2:9001\"").or_else(|why| refuse(control.span(), why))?;
        let path = PathBuf::from(string(file, "a file", "\"token\"")?);
        // Read again when it is needed; here, so that the line can be named.
        Token::read(&path).or_else(|e| refuse(file.span(), e.to_string()))?;
        Ok(Some((address.to_owned(), path)))
    }

    fn engine(&self) -> Result<Engine, Refusal> {
        let batch = uint(&self.batch, 64, 1, MAX_BATCH, "messages per call")?;
        let kind = match &self.engine {
            None => "direct",
            Some(v) => string(v, "an engine", "\"direct\" or \"driver\"")?,
        };
        match kind {
            "direct" => match self.ring.as_ref().or(self.idle.as_ref()) {
                Some(v) => refuse(v.span(), "only engine = \"driver\" has a ring and a Sender that idles"),
                None => Ok(Engine::Direct { batch }),
            },
            "driver" => Ok(Engine::Driver {
                ring: uint(&self.ring, 1 << 17, 1, 1 << 26, "datagrams in the ring")?,
                batch,
                idle: self.idle()?,
            }),
            other => refuse(
                self.engine.as_ref().map_or(0..0, Spanned::span),
                format!("{other:?} is not an engine; write \"direct\" or \"driver\""),
            ),
        }
    }

    fn idle(&self) -> Result<Idle, Refusal> {
        let Some(v) = &self.idle else { return Ok(Idle::Yield) };
        const FORMS: &str = "\"busy-spin\", \"yield\" or \"sleep:50us\"";
        match string(v, "an idle strategy", FORMS)? {
            "busy-spin" => Ok(Idle::BusySpin),
            "yield" => Ok(Idle::Yield),
            text => match text.strip_prefix("sleep:").map(units::duration) {
                Some(Ok(d)) if d > LONGEST_SLEEP => {
                    refuse(v.span(), format!("{d:?} is too long; at most {LONGEST_SLEEP:?} is possible"))
                }
                Some(Ok(d)) if !d.is_zero() => Ok(Idle::Sleep(d)),
                _ => refuse(v.span(), format!("{text:?} is not an idle strategy; write {FORMS}")),
            },
        }
    }
}

impl RawSchedule {
    /// The kind chosen, and where.
    fn kind(&self) -> Option<(&'static str, Range<usize>)> {
        self.kinds().next()
    }

    fn kinds(&self) -> impl Iterator<Item = (&'static str, Range<usize>)> {
        [
            ("rate", &self.rate),
            ("poisson", &self.poisson),
            ("burst", &self.burst),
            ("pattern", &self.pattern),
            ("steps", &self.steps),
            ("replay", &self.replay),
            ("unthrottled", &self.unthrottled),
        ]
        .into_iter()
        .filter_map(|(name, v)| Some((name, v.as_ref()?.span())))
    }

    /// Only what is independent of the kind.
    fn bounds(&self) -> Self {
        Self {
            catch_up: self.catch_up.clone(),
            count: self.count.clone(),
            duration: self.duration.clone(),
            warmup: self.warmup.clone(),
            ..Self::default()
        }
    }

    fn catch_up(&self) -> Result<CatchUp, Refusal> {
        let Some(v) = &self.catch_up else { return Ok(CatchUp::Burst) };
        const FORMS: &str = "\"burst\", \"capped\" or \"skip\"";
        match string(v, "a catch-up policy", FORMS)? {
            "burst" => Ok(CatchUp::Burst),
            "capped" => Ok(CatchUp::Capped),
            "skip" => Ok(CatchUp::Skip),
            other => refuse(v.span(), format!("{other:?} is not a catch-up policy; write {FORMS}")),
        }
    }

    fn read(&self, at: Range<usize>) -> Result<Schedule, Refusal> {
        let mut kinds = self.kinds();
        let Some((kind, span)) = kinds.next() else {
            return refuse(at, format!("no schedule; give one of {KINDS}, as in rate = \"20k/s\""));
        };
        if let Some((second, at)) = kinds.next() {
            return refuse(at, format!("both `{kind}` and `{second}`; a schedule is one of {KINDS}"));
        }
        let only = |wanted: &[&str], v: &Option<V>, name: &str| match v {
            Some(v) if !wanted.contains(&kind) => {
                refuse(v.span(), format!("`{name}` belongs to `{}`, not to `{kind}`", wanted.join("` or `")))
            }
            _ => Ok(()),
        };
        only(&["burst"], &self.dispatch, "dispatch")?;
        only(&["burst", "pattern"], &self.every, "every")?;
        only(&["burst", "pattern"], &self.bursts, "bursts")?;
        only(&["pattern"], &self.train, "train")?;
        only(&["rate"], &self.on, "on")?;
        only(&["rate"], &self.off, "off")?;
        only(&["poisson"], &self.seed, "seed")?;
        let schedule = match kind {
            "rate" => {
                let rate = self.rate.as_ref().map_or_else(|| refuse(at, "no rate"), rate)?;
                match (&self.on, &self.off) {
                    (None, None) => Schedule::Constant { rate },
                    (Some(on), Some(off)) => Schedule::OnOff { rate, on: duration(on)?, off: duration(off)? },
                    (Some(v), None) | (None, Some(v)) => {
                        return refuse(v.span(), "`on` and `off` go together; give both");
                    }
                }
            }
            "poisson" => Schedule::Poisson {
                rate: self.poisson.as_ref().map_or_else(|| refuse(at, "no rate"), rate)?,
                seed: self.seed.as_ref().map_or(Ok(1), count)?,
            },
            "burst" => Schedule::Bursts {
                size: self.burst.as_ref().map_or_else(|| refuse(at, "no burst"), count)?,
                dispatch: self.dispatch.as_ref().map(rate).transpose()?,
                every: self.every.as_ref().map(positive_duration).transpose()?,
                repeat: self.bursts.as_ref().map(count).transpose()?,
            },
            "pattern" => self.pattern()?,
            "steps" => Schedule::Steps { steps: self.steps()? },
            "replay" => Schedule::Replay { offsets_ns: self.replay()?.into() },
            _ => match self.unthrottled.as_ref().map(|v| v.get_ref()) {
                Some(Value::Boolean(true)) => Schedule::Unthrottled,
                _ => return refuse(span, "write unthrottled = true, or leave it out and give a rate"),
            },
        };
        match schedule.check() {
            Ok(()) => Ok(schedule),
            Err(e) => refuse(span, e.to_string()),
        }
    }

    fn pattern(&self) -> Result<Schedule, Refusal> {
        const FORMS: &str = "\"pairs\" or \"trains\"";
        let Some(v) = &self.pattern else { return Ok(Pattern::Pairs.schedule(None, None, None)) };
        let name = string(v, "a pattern", FORMS)?;
        let Some(pattern) = Pattern::named(name) else {
            return refuse(v.span(), format!("{name:?} is not a pattern; write {FORMS}"));
        };
        match (&self.train, pattern) {
            (Some(v), Pattern::Pairs) => {
                refuse(v.span(), "a pair has two datagrams; `train` goes with \"trains\"")
            }
            (Some(v), _) if count(v)? < 2 => refuse(v.span(), "a train has 2 datagrams or more"),
            (size, _) => Ok(pattern.schedule(
                size.as_ref().map(count).transpose()?,
                self.every.as_ref().map(positive_duration).transpose()?,
                self.bursts.as_ref().map(count).transpose()?,
            )),
        }
    }

    fn steps(&self) -> Result<Vec<Step>, Refusal> {
        const FORM: &str = "write steps = [[\"10k/s\", \"5s\"], [\"20k/s\", \"5s\"]]";
        let Some(v) = &self.steps else { return Ok(Vec::new()) };
        let Value::Array(list) = v.get_ref() else {
            return refuse(v.span(), format!("steps is not a list; {FORM}"));
        };
        if list.len() > MOST_STEPS {
            return refuse(v.span(), format!("{} steps; at most {MOST_STEPS} are accepted", list.len()));
        }
        list.iter()
            .map(|step| match step.as_array().map(Vec::as_slice) {
                Some([Value::String(r), Value::String(d)]) => {
                    let why = |e: units::UnitError| Refusal { at: v.span(), why: e.to_string() };
                    Ok(Step { rate: per_second(r, v.span())?, lasts: units::duration(d).map_err(why)? })
                }
                _ => refuse(v.span(), format!("a step is a rate and a duration; {FORM}")),
            })
            .collect()
    }

    fn replay(&self) -> Result<Vec<u64>, Refusal> {
        const FORM: &str = "write replay = [\"0\", \"1ms\", \"1500us\"]: offsets from the start, ascending; or the name of a file with them";
        let Some(v) = &self.replay else { return Ok(Vec::new()) };
        if let Value::String(file) = v.get_ref() {
            return arrivals::read(Path::new(file)).or_else(|why| refuse(v.span(), why));
        }
        let Value::Array(list) = v.get_ref() else {
            return refuse(v.span(), format!("replay is not a list; {FORM}"));
        };
        list.iter()
            .map(|o| match o {
                Value::String(s) => match units::duration(s) {
                    Ok(d) => Ok(crate::num::duration_ns(d).unsigned_abs()),
                    Err(e) => refuse(v.span(), e.to_string()),
                },
                _ => refuse(v.span(), format!("an offset has a unit; {FORM}")),
            })
            .collect()
    }
}

impl RawRamp {
    fn read(&self, at: Range<usize>) -> Result<Ramp, Refusal> {
        let need = |v: &Option<V>, name: &str, form: &str| match v {
            Some(v) => Ok(v.clone()),
            None => refuse(at.clone(), format!("[ramp] without `{name}`; add {name} = {form}")),
        };
        let ramp = Ramp {
            start: rate(&need(&self.start, "start", "\"10k/s\"")?)?,
            step: rate(&need(&self.step, "step", "\"10k/s\"")?)?,
            step_for: positive_duration(&need(&self.step_for, "step_for", "\"10s\"")?)?,
            refine: u32::try_from(uint(&self.refine, 0, 0, 20, "bisections")?).unwrap_or(0),
            max: self.max.as_ref().map_or(Ok(crate::schedule::MAX_RATE), rate)?,
        };
        if ramp.max < ramp.start {
            return refuse(at, format!("max is {}/s, below the start at {}/s", ramp.max, ramp.start));
        }
        Ok(ramp)
    }
}

/// The file's objectives, those of the workload replacing equal names.
fn expectations(
    base: Option<&toml::map::Map<String, Value>>,
    own: Option<&toml::map::Map<String, Value>>,
    text: &str,
) -> Result<Vec<Expectation>, Refusal> {
    let mut names: Vec<(&String, &Value)> = Vec::new();
    for (name, value) in base.into_iter().flatten().chain(own.into_iter().flatten()) {
        match names.iter_mut().find(|(n, _)| *n == name) {
            Some(slot) => slot.1 = value,
            None => names.push((name, value)),
        }
    }
    names
        .into_iter()
        .map(|(name, value)| {
            // Keys carry no place: the first line that begins with the name has it.
            let at = place_of(text, name);
            let Some(metric) = Metric::parse(name) else {
                return refuse(at, format!("unknown objective `{name}`; write {}", Metric::hint()));
            };
            let Value::String(bound) = value else {
                return refuse(at, format!("the objective of {name} is not text; write it as in \"< 5ms\""));
            };
            Expectation::parse(metric, bound).or_else(|why| refuse(at, format!("{name}: {why}")))
        })
        .collect()
}

fn place_of(text: &str, key: &str) -> Range<usize> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.contains(key) && !line.trim_start().starts_with('#') {
            return at..at + line.len();
        }
        at += line.len();
    }
    0..0
}

#[cfg(test)]
mod tests;
