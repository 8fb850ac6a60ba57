//! The demo with observers that do not observe: one that says what it is
//! told to, and one that only knows what the receiver's own clock read.

use super::*;
use crate::lab::needs_root;
use crate::lab::scenario::Outcome;
use crate::pipeline::Pipeline;
use crate::report::{Culprit, Distribution};
use crate::source::Tables;
use crate::source::synthetic::{self, Plan, Spread, Synthetic};

/// A distribution of so many values with these p50, p99, p99.9 and maximum
/// (0: too few to say).
pub(super) fn distribution_of(count: u64, [p50, p99, p99_9, max]: [u64; 4]) -> Distribution {
    let known = |ns| (ns > 0).then_some(ns);
    Distribution {
        count,
        p50_ns: known(p50),
        p99_ns: known(p99),
        p99_9_ns: known(p99_9),
        max_ns: known(max),
        ..Distribution::default()
    }
}

/// A report with a culprit and the total that the receiver's own clock gave.
pub(super) fn report(blame: Option<Blame>, outcome: Option<&Outcome>) -> Report {
    let empty = Pipeline::new(synthetic::meta()).finish(Tables::empty(synthetic::START_NS));
    let mut report = Report::clone(&empty.total);
    report.findings.clear();
    report.culprit = blame.map(|component| Culprit {
        component,
        quantile: Some(0.999),
        share: Some(0.9),
        cause: "because".into(),
    });
    if let Some(outcome) = outcome {
        report.counts.sent = Some(outcome.sent.sent);
        report.counts.delivered = outcome.received.total.unique;
        if let Some(total) = &outcome.received.from_offer {
            let at = |q| total.quantile(q).unwrap_or(0);
            let max = total.max().and_then(|ns| ns.try_into().ok()).unwrap_or(0);
            report.components.total.distribution =
                distribution_of(total.count(), [at(0.5), at(0.99), at(0.999), max]);
        }
    }
    report
}

fn played(name: Known, found: Option<Blame>) -> Played {
    Played::judge(name, report(found, None))
}

/// Says what is to be found, and keeps what it was told.
struct Prompted<'a> {
    say: &'a dyn Fn(&'static str) -> Result<Blame, ObserveError>,
    watched: Vec<Watch>,
    outcomes: Vec<Outcome>,
}

impl<'a> Prompted<'a> {
    fn new(say: &'a dyn Fn(&'static str) -> Result<Blame, ObserveError>) -> Self {
        Self { say, watched: Vec::new(), outcomes: Vec::new() }
    }
}

impl Observe for Prompted<'_> {
    fn start(&mut self, watch: &Watch) -> Result<(), ObserveError> {
        self.watched.push(watch.clone());
        (self.say)(watch.scenario).map(drop)
    }

    fn finish(&mut self, outcome: &Outcome) -> Result<Report, ObserveError> {
        let scenario = self.watched.last().unwrap().scenario;
        self.outcomes.push(outcome.clone());
        Ok(report(Some((self.say)(scenario)?), Some(outcome)))
    }
}

fn right(scenario: &str) -> Blame {
    Known::ALL.into_iter().find(|k| k.name() == scenario).unwrap().expected()
}

#[test]
fn exit_codes() {
    let demo = |scenarios, interrupted, failure| Demo { schema: SCHEMA, scenarios, interrupted, failure };
    let good = || played(Known::Shaper, Some(Blame::Shaper));
    assert_eq!(demo(vec![good()], false, None).exit_code(), 0);
    assert_eq!(demo(vec![good(), played(Known::Quiet, Some(Blame::Wire))], false, None).exit_code(), 1);
    assert_eq!(demo(vec![good()], true, None).exit_code(), 2);
    let failed = |source| DemoError::Observe { scenario: "quiet", source };
    assert_eq!(demo(vec![], false, Some(failed(ObserveError::permission("no")))).exit_code(), 4);
    assert_eq!(demo(vec![], false, Some(failed(ObserveError::invalid("no")))).exit_code(), 2);
}

/// An observer that saw nothing has not found that nobody is to blame.
#[test]
fn too_little_seen_is_not_quiet() {
    assert!(played(Known::Quiet, Some(Blame::None)).ok);
    assert!(played(Known::Quiet, Some(Blame::HostNoise)).ok);
    assert!(!played(Known::Quiet, None).ok);
    assert!(!played(Known::Shaper, Some(Blame::HostNoise)).ok);
}

#[test]
fn the_tail_of_three_is_ten_times_that_of_quiet_and_nothing_else_fills() {
    needs_root!();
    let say = |scenario| Ok(right(scenario));
    let mut observer = Prompted::new(&say);
    let demo = play(&Known::ALL, 2, &mut observer, &Stop::new(), &mut |_| Ok(())).unwrap();
    assert!(demo.failure.is_none(), "{:?}", demo.failure);
    assert_eq!((demo.found(), demo.exit_code()), (4, 0));
    let p99 = |i: usize| observer.outcomes[i].received.from_offer.as_ref().unwrap().quantile(0.99).unwrap();
    let all: Vec<u64> = (0..4).map(p99).collect();
    assert!(all[1..].iter().all(|p99| *p99 >= 10 * all[0]), "p99 in ns: {all:?}");
    for (watch, outcome) in observer.watched.iter().zip(&observer.outcomes) {
        assert_eq!(watch.run, outcome.sent.run);
        assert_eq!(outcome.unaccounted(), 0, "{watch:?}");
        let drops = outcome.receiver_udp.rcvbuf_errors;
        assert_eq!(drops > 0, watch.scenario == "receiver", "{watch:?}: {drops} dropped at the socket");
        assert_eq!(outcome.way_out.drops, 0, "{watch:?}");
        assert_eq!(outcome.sent.blocked, 0, "{watch:?}: the send buffer was full");
    }
}

#[test]
fn a_failure_keeps_what_was_found_before() {
    needs_root!();
    let say = |scenario| match scenario {
        "receiver" => Err(ObserveError::permission("attaching was refused")),
        _ => Ok(right(scenario)),
    };
    let known = [Known::Shaper, Known::Receiver, Known::Quiet];
    let mut begun = Vec::new();
    let mut show = |event: Event<'_>| {
        if let Event::Begins { known, number, of, .. } = event {
            begun.push((known, number, of));
        }
        Ok(())
    };
    let demo = play(&known, 1, &mut Prompted::new(&say), &Stop::new(), &mut show).unwrap();
    assert_eq!(begun, [(Known::Shaper, 1, 3)]);
    assert_eq!((demo.scenarios.len(), demo.exit_code()), (1, 4));
    assert_eq!(demo.failure.unwrap().to_string(), "scenario receiver: attaching was refused");
}

#[test]
fn a_stopped_demo_reports_what_is_done() {
    needs_root!();
    let stop = Stop::new();
    let say = |scenario: &'static str| {
        if scenario == "quiet" {
            stop.set();
        }
        Ok(right(scenario))
    };
    let known = [Known::Shaper, Known::Quiet, Known::Receiver];
    let demo = play(&known, 1, &mut Prompted::new(&say), &stop, &mut |_| Ok(())).unwrap();
    assert_eq!((demo.scenarios.len(), demo.exit_code()), (1, 2));
    assert!(demo.scenarios[0].ok);
    let demo = play(&known, 1, &mut Prompted::new(&say), &stop, &mut |_| Ok(())).unwrap();
    assert_eq!((demo.scenarios.len(), demo.exit_code()), (0, 2));
}

/// The schema in docs/, with the report's that it refers to.
fn violations(demo: &serde_json::Value) -> Vec<String> {
    let schema = |name: &str| -> serde_json::Value {
        let path = format!("{}/../docs/{name}", env!("CARGO_MANIFEST_DIR"));
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    let report = schema("report.schema.json");
    let uri = report["$id"].as_str().unwrap().to_owned();
    let registry = jsonschema::Registry::new().add(uri, report).unwrap().prepare().unwrap();
    let validator =
        jsonschema::options().with_registry(&registry).build(&schema("demo.schema.json")).unwrap();
    validator.iter_errors(demo).map(|e| e.to_string()).collect()
}

#[test]
fn the_json_is_what_its_schema_says() {
    let plan = Plan { shaper: Spread::Ramp(300_000_000), ..Plan::default() };
    let observed = Pipeline::run(&mut Synthetic::new(plan)).unwrap();
    let shaper = Played::judge(Known::Shaper, Report::clone(&observed.total));
    assert_eq!((shaper.found, shaper.ok), (Some(Blame::Shaper), true));
    let scenarios =
        vec![shaper, played(Known::Quiet, None), played(Known::SenderQueue, Some(Blame::HostNoise))];
    let demo = Demo { schema: SCHEMA, scenarios, interrupted: true, failure: None };
    let json = serde_json::to_value(&demo).unwrap();
    assert_eq!(violations(&json), [""; 0]);

    let broken: [fn(&mut serde_json::Value); 6] = [
        |v| v["schema"] = "observer-demo/2".into(),
        |v| v["more"] = 1.into(),
        |v| v["scenarios"][0]["found"] = "nobody".into(),
        |v| v["scenarios"][1]["expected"] = serde_json::Value::Null,
        |v| v["scenarios"][0]["report"]["verdict"] = "fine".into(),
        |v| drop(v["scenarios"][2].as_object_mut().unwrap().remove("ok")),
    ];
    for (i, change) in broken.into_iter().enumerate() {
        let mut json = json.clone();
        change(&mut json);
        assert_ne!(violations(&json), [""; 0], "change {i} passed");
    }
}

#[test]
fn json_is_one_line_at_the_end_and_nothing_else() {
    needs_root!();
    let say = |scenario| Ok(right(scenario));
    let args = cli::DemoArgs {
        scenarios: vec![Known::Shaper],
        seconds: 2,
        json: true,
        tui: false,
        svg: None,
        screen: Default::default(),
    };
    let mut out = Vec::new();
    let demo = cli::run(&args, &mut Prompted::new(&say), &Stop::new(), &mut out, false).unwrap();
    assert_eq!(demo.exit_code(), 0);
    let text = String::from_utf8(out).unwrap();
    assert_eq!((text.matches('\n').count(), text.ends_with('\n')), (1, true));
    assert_eq!(violations(&serde_json::from_str(&text).unwrap()), [""; 0]);
}
