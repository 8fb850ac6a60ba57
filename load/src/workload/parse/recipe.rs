//! `kind = "drain-rate"`: how fast the Sender of the driver engine drains, for
//! datagrams of several sizes and idle strategies.
//!
//! In: a workload of that kind, whose `size` and `idle` may be lists. Out: a
//! [`Workload`] for each size with each idle strategy, which offers known
//! bursts; who watches them tells D, and the report has the table of all
//! ([`crate::workload::drain_rate`]). Whatever would make it another
//! measurement is refused.

use std::ops::Range;

use toml::{Spanned, Value};

use super::{MOST, RawRamp, RawSchedule, RawTarget, workload};
use crate::engine::Engine;
use crate::schedule::Schedule;
use crate::units::show_count;
use crate::workload::drain_rate::show_idle;
use crate::workload::expect::Expectation;
use crate::workload::value::{Refusal, V, refuse, string};
use crate::workload::{DRAIN_BURST, DRAIN_BURSTS, Workload};

/// Payloads where the file gives none, bytes.
const SIZES: [i64; 3] = [160, 576, 1_200];
/// Idle strategies where the file gives none.
const IDLES: [&str; 3] = ["busy-spin", "yield", "sleep:1ms"];
/// N, bursts and their distance where the file gives none: together what the
/// observer keeps of a run in full.
const BURST: i64 = 16_000;
const BURSTS: i64 = 12;
const EVERY: &str = "500ms";
/// Most sizes, and most idle strategies.
const MOST_CASES: usize = 16;

/// What a workload is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A load, as its schedule says.
    Load,
    /// The measurement of D.
    DrainRate,
}

impl Kind {
    /// What the file says, else `inherited`.
    pub(super) fn read(v: Option<&Spanned<String>>, inherited: Self) -> Result<Self, Refusal> {
        match v.map(|v| (v.get_ref().as_str(), v)) {
            None => Ok(inherited),
            Some(("load", _)) => Ok(Self::Load),
            Some(("drain-rate", _)) => Ok(Self::DrainRate),
            Some((other, v)) => refuse(
                v.span(),
                format!(
                    "{other:?} is not a kind of workload; write \"drain-rate\", or \"load\", which needs not be said"
                ),
            ),
        }
    }

    /// The name of a file's only workload, where it has none.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Load => "workload",
            Self::DrainRate => "drain-rate",
        }
    }

    /// The workloads of one entry of the file; `at` is its place.
    pub(super) fn expand(
        self,
        name: &str,
        at: Range<usize>,
        target: &RawTarget,
        schedule: &RawSchedule,
        ramp: Option<(RawRamp, Range<usize>)>,
        expect: Vec<Expectation>,
    ) -> Result<Vec<Workload>, Refusal> {
        if self == Self::Load {
            return Ok(vec![workload(name, at, target, schedule, ramp, expect)?]);
        }
        if let Some((_, at)) = ramp {
            return refuse(
                at,
                "a [ramp] beside kind = \"drain-rate\", which offers known bursts; leave it out",
            );
        }
        fitting(target, schedule)?;
        // What contradicts a default was said there.
        let said = schedule.dispatch.as_ref().map_or(at.clone(), Spanned::span);
        let or =
            |v: &Option<V>, default: Value| Some(v.clone().unwrap_or(Spanned::new(said.clone(), default)));
        let schedule = RawSchedule {
            burst: or(&schedule.burst, BURST.into()),
            bursts: or(&schedule.bursts, BURSTS.into()),
            every: or(&schedule.every, EVERY.into()),
            ..schedule.clone()
        };
        let mut cases = Vec::new();
        for size in list(&target.size, "sizes", &SIZES.map(Value::Integer), &at)? {
            for idle in list(&target.idle, "idle strategies", &IDLES.map(Value::from), &at)? {
                let engine = Some(Spanned::new(at.clone(), Value::from("driver")));
                let target =
                    RawTarget { size: Some(size.clone()), idle: Some(idle), engine, ..target.clone() };
                let mut w = workload(name, at.clone(), &target, &schedule, None, expect.clone())?;
                large_enough(&w, target.ring.as_ref(), &schedule)?;
                w.drain_rate = Some(w.name);
                w.name = format!("{name}: {} B, {}", w.size, show_idle(w.engine));
                if cases.iter().any(|c: &Workload| c.name == w.name) {
                    return refuse(
                        size.span(),
                        format!("{:?} would be measured twice; give each once", w.name),
                    );
                }
                cases.push(w);
            }
        }
        Ok(cases)
    }
}

/// Adds `new` to the file's workloads, whose names must differ.
pub(super) fn add(all: &mut Vec<Workload>, new: Vec<Workload>, at: Range<usize>) -> Result<(), Refusal> {
    if all.len() + new.len() > MOST {
        return refuse(at, format!("more than {MOST} workloads, sizes times idle strategies included"));
    }
    for w in new {
        if all.iter().any(|other| other.name == w.name) {
            return refuse(at, format!("two workloads are named {:?}; choose another", w.name));
        }
        all.push(w);
    }
    Ok(())
}

/// Refuses what the recipe sets itself, or what would measure something else.
fn fitting(target: &RawTarget, schedule: &RawSchedule) -> Result<(), Refusal> {
    const RECIPE: &str = "kind = \"drain-rate\"";
    if let Some(v) = &target.engine
        && string(v, "an engine", "\"driver\"")? != "driver"
    {
        return refuse(
            v.span(),
            format!("{RECIPE} measures the Sender of engine = \"driver\"; leave `engine` out"),
        );
    }
    if let Some(v) = &target.gso {
        return refuse(
            v.span(),
            format!("`gso` beside {RECIPE}, which follows single datagrams; leave it out"),
        );
    }
    let s = schedule;
    let others = [
        ("rate", &s.rate),
        ("poisson", &s.poisson),
        ("pattern", &s.pattern),
        ("train", &s.train),
        ("on", &s.on),
        ("off", &s.off),
        ("steps", &s.steps),
        ("unthrottled", &s.unthrottled),
        ("replay", &s.replay),
        ("seed", &s.seed),
        ("catch_up", &s.catch_up),
        ("count", &s.count),
        ("duration", &s.duration),
        ("warmup", &s.warmup),
    ];
    match others.iter().find_map(|(name, v)| Some((name, v.as_ref()?))) {
        Some((name, v)) => refuse(
            v.span(),
            format!(
                "`{name}` beside {RECIPE}, which offers known bursts; of a schedule it takes burst, dispatch, every \
                 and bursts"
            ),
        ),
        None => Ok(()),
    }
}

/// Refuses bursts from which no D could be told.
fn large_enough(w: &Workload, ring: Option<&V>, schedule: &RawSchedule) -> Result<(), Refusal> {
    let Schedule::Bursts { size, repeat, .. } = w.schedule else { return Ok(()) };
    let at = |v: &Option<V>| v.as_ref().map_or(0..0, Spanned::span);
    if size < DRAIN_BURST {
        return refuse(
            at(&schedule.burst),
            format!("a burst of {size}: a drain rate is told from {DRAIN_BURST} datagrams on"),
        );
    }
    if repeat.is_none_or(|n| n < DRAIN_BURSTS) {
        return refuse(
            at(&schedule.bursts),
            format!("too few bursts for a median with an interval; give bursts = {DRAIN_BURSTS} or more"),
        );
    }
    if let Engine::Driver { ring: holds, .. } = w.engine
        && crate::num::count(holds) < size
    {
        return refuse(
            ring.map_or_else(|| at(&schedule.burst), Spanned::span),
            format!(
                "the ring holds {} datagrams and a burst has {}: it would hold the publisher back, and that and not \
                 the Sender would be measured; give ring = {size} or more",
                show_count(crate::num::count(holds)),
                show_count(size)
            ),
        );
    }
    Ok(())
}

/// The values of a list, of a single value, or those of the recipe.
fn list(v: &Option<V>, what: &str, default: &[Value], at: &Range<usize>) -> Result<Vec<V>, Refusal> {
    let (values, at) = match v.as_ref().map(|v| (v.get_ref(), v)) {
        None => (default, at.clone()),
        Some((Value::Array(values), v)) => (values.as_slice(), v.span()),
        Some((_, v)) => return Ok(vec![v.clone()]),
    };
    if !(1..=MOST_CASES).contains(&values.len()) {
        return refuse(at, format!("a list of {} {what}; 1 to {MOST_CASES} are accepted", values.len()));
    }
    Ok(values.iter().map(|value| Spanned::new(at.clone(), value.clone())).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::parse;
    use super::*;
    use crate::engine::Idle;

    fn understood(text: &str) -> Vec<Workload> {
        parse("t.toml", text).unwrap()
    }

    #[test]
    fn the_kind_alone_is_enough() {
        let all = understood("kind = \"drain-rate\"");
        assert_eq!(all.len(), SIZES.len() * IDLES.len());
        assert_eq!(all[0].name, "drain-rate: 160 B, busy-spin");
        assert_eq!(all[8].name, "drain-rate: 1200 B, sleep 1.00 ms");
        let every = Some(Duration::from_millis(500));
        for w in &all {
            assert_eq!(w.drain_rate.as_deref(), Some("drain-rate"));
            assert_eq!(
                w.schedule,
                Schedule::Bursts { size: 16_000, dispatch: None, every, repeat: Some(12) }
            );
        }
        let idles: Vec<_> = all.iter().take(3).map(|w| w.engine).collect();
        let driver = |idle| Engine::Driver { ring: 1 << 17, batch: 64, idle };
        assert_eq!(idles, [Idle::BusySpin, Idle::Yield, Idle::Sleep(Duration::from_millis(1))].map(driver));
    }

    #[test]
    fn everything_it_takes_can_be_given() {
        let all = understood(
            "name = \"mine\"\nkind = \"drain-rate\"\n[target]\nsize = [200, \"1k\"]\nidle = \"sleep:20us\"\n\
             batch = 1\nring = 40000\nengine = \"driver\"\n[schedule]\nburst = \"9k\"\ndispatch = \"1M/s\"\n\
             every = \"1s\"\nbursts = 20\n[expect]\nsender_queue_p99 = \"< 1s\"",
        );
        assert_eq!(
            all.iter().map(|w| w.name.as_str()).collect::<Vec<_>>(),
            ["mine: 200 B, sleep 20.0 µs", "mine: 1000 B, sleep 20.0 µs"]
        );
        let every = Some(Duration::from_secs(1));
        let schedule = Schedule::Bursts { size: 9_000, dispatch: Some(1e6), every, repeat: Some(20) };
        assert_eq!((&all[1].schedule, all[1].engine.batch(), all[1].expect.len()), (&schedule, 1, 1));
    }

    /// The kind of a suite is that of its workloads; one of another kind has
    /// nothing of the schedule.
    #[test]
    fn a_suite_may_hold_both_kinds() {
        let all = understood(
            "[schedule]\nrate = \"1k/s\"\nduration = \"1s\"\n[[workload]]\nname = \"a\"\n[[workload]]\nname = \"d\"\n\
             kind = \"drain-rate\"\ntarget = { size = 160, idle = [\"yield\"] }",
        );
        assert_eq!(all.iter().map(|w| w.name.as_str()).collect::<Vec<_>>(), ["a", "d: 160 B, yield"]);
        assert_eq!((all[0].drain_rate.as_deref(), all[1].drain_rate.as_deref()), (None, Some("d")));
        let all = understood(
            "kind = \"drain-rate\"\n[target]\nidle = \"yield\"\nsize = 160\n[schedule]\nburst = 500\n[[workload]]\n\
             name = \"a\"\n[[workload]]\nname = \"b\"\ntarget.batch = 1\n[[workload]]\nname = \"c\"\nkind = \"load\"\n\
             target.engine = \"driver\"\nschedule = { rate = \"1k/s\", count = 5 }",
        );
        assert_eq!(all.len(), 3);
        assert!(all[..2].iter().all(|w| matches!(w.schedule, Schedule::Bursts { size: 500, .. })));
        assert!(matches!(all[2].schedule, Schedule::Constant { .. }) && all[2].drain_rate.is_none());
    }

    #[test]
    fn what_is_unknown_or_contradicts_it_is_refused_with_line_and_reason() {
        for (lines, line, why) in [
            ("kind = \"drain\"", 1, "write \"drain-rate\""),
            ("kind = 5", 1, "invalid type"),
            ("kind = \"drain-rate\"\n[target]\nengine = \"direct\"", 3, "leave `engine` out"),
            ("kind = \"drain-rate\"\n[target]\nengine = 5", 3, "not an engine"),
            ("kind = \"drain-rate\"\n[target]\ngso = 4", 3, "single datagrams"),
            ("kind = \"drain-rate\"\n[target]\nsizes = [5]", 3, "unknown field"),
            ("kind = \"drain-rate\"\n[target]\nsize = []", 3, "0 sizes"),
            ("kind = \"drain-rate\"\n[target]\nsize = [160, 20]", 3, "from 32"),
            ("kind = \"drain-rate\"\n[target]\nsize = [160, \"160B\"]", 3, "twice"),
            ("kind = \"drain-rate\"\n[target]\n\nidle = [\"park\"]", 4, "not an idle strategy"),
            ("kind = \"drain-rate\"\n[target]\nring = 1000", 3, "give ring = 16000"),
            ("kind = \"drain-rate\"\n[schedule]\nburst = 200000", 3, "hold the publisher back"),
            ("kind = \"drain-rate\"\n[schedule]\nburst = 99", 3, "from 100 datagrams"),
            ("kind = \"drain-rate\"\n[schedule]\nbursts = 9", 3, "bursts = 10"),
            ("kind = \"drain-rate\"\n[schedule]\nrate = \"1k/s\"", 3, "`rate` beside"),
            ("kind = \"drain-rate\"\n[schedule]\nburst = 900\nduration = \"9s\"", 4, "`duration` beside"),
            ("kind = \"drain-rate\"\n[schedule]\nwarmup = \"1s\"", 3, "it takes burst, dispatch"),
            ("kind = \"drain-rate\"\n[schedule]\nevery = \"5\"", 3, "unit is missing"),
            ("kind = \"drain-rate\"\n[schedule]\ndispatch = \"20k/s\"", 3, "longer than"),
            (
                "kind = \"drain-rate\"\n[ramp]\nstart = \"1k/s\"\nstep = \"1k/s\"\nstep_for = \"1s\"",
                2,
                "beside kind",
            ),
            ("[target]\nsize = [160]\n[schedule]\nrate = \"1k/s\"\ncount = 1", 2, "a payload"),
            (
                "kind = \"drain-rate\"\n[[workload]]\nname = \"a\"\n[[workload]]\nname = \"a\"",
                5,
                "two workloads are named",
            ),
        ] {
            let e = parse("f.toml", lines).expect_err(lines);
            assert!(e.why.contains(why), "{lines}\n{e}");
            assert_eq!(e.line, line, "{lines}\n{e}");
        }
    }

    proptest! {
        #[test]
        fn any_recipe_is_understood_or_refused(
            keys in "((size|idle|ring|batch|engine) = (\\[?\"?(yield|sleep:[0-9]{1,3}us|driver|[0-9]{1,6})\"?\\]?)\n){0,4}",
            schedule in "((burst|bursts|every|dispatch|rate|count) = (\"?[0-9]{1,6}(ms|/s|k)?\"?)\n){0,4}",
        ) {
            let text = format!("kind = \"drain-rate\"\n[target]\n{keys}[schedule]\n{schedule}");
            match parse("f", &text) {
                Ok(all) => prop_assert!(!all.is_empty() && all.iter().all(|w| w.drain_rate.is_some())),
                Err(e) => prop_assert!(!e.why.is_empty() && e.line <= 20),
            }
        }
    }
}
