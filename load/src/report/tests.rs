//! Reports of a made-up suite.

use super::*;
use crate::engine::SendReport;
use crate::hist::LatencyHistogram;
use crate::verdict::{Finding, Verdict};

fn outcome(name: &str, verdict: Verdict, samples: i64) -> Outcome {
    let mut h = LatencyHistogram::new();
    (0..samples).for_each(|i| h.record(10_000 + i * 10));
    let level = verdict;
    let finding = Finding {
        check: "generator-kept-up",
        level,
        observed: "a < b & c | d".into(),
        means: "m".into(),
        detail: "d".into(),
    };
    Outcome {
        name: name.into(),
        verdict,
        offered_per_s: Some(20_000.0),
        sent_per_s: Some(19_999.6),
        delivered_per_s: Some(19_000.0),
        loss: Some(0.05),
        send_lag: h.summary(),
        latency: Some(h.summary()),
        total: None,
        findings: if level == Verdict::Passed { vec![] } else { vec![finding] },
        ramp: None,
        send: SendReport::for_test(20_000.0),
        missed: Vec::new(),
        watched: None,
        recv: Some(crate::recv::RecvReport::for_test(h)),
    }
}

fn suite() -> Report {
    Report::new(
        vec![
            outcome("good", Verdict::Passed, 5_000),
            outcome("few", Verdict::Passed, 99),
            outcome("<b>|bad", Verdict::Invalid, 5_000),
        ],
        vec![],
    )
}

#[test]
fn an_invalid_run_and_too_few_samples_quote_no_latency() {
    let md = markdown(&suite());
    let line = |name: &str| md.lines().find(|l| l.contains(name)).unwrap().to_owned();
    assert_eq!(
        line("| good"),
        "| good | PASSED | 20,000/s | 20,000/s | 19,000/s | 35.0 µs | 59.5 µs | 5.000 % | — |"
    );
    assert!(line("| few").contains("| 10.5 µs | — | 5.000 %"), "{}", line("| few"));
    assert!(line("bad").contains("| — | — | 5.000 % | generator-kept-up |"));
    assert!(md.starts_with("# Load report: INVALID"));
}

#[test]
fn a_quantile_is_shown_with_its_interval() {
    let mut h = LatencyHistogram::batched();
    (0..5_000_i64).for_each(|i| h.record(40_000 + i % 7 * 100));
    let mut o = outcome("batched", Verdict::Passed, 5_000);
    o.latency = Some(h.summary());
    let report = Report::new(vec![o], vec![]);
    let line = markdown(&report).lines().find(|l| l.contains("batched")).unwrap().to_owned();
    // 25 batches of 200: enough for the median, not for p99.
    assert_eq!(line.matches(" ± ").count(), 1, "{line}");
    assert!(line.contains("| 40.6 µs |"), "{line}");
}

#[test]
fn names_do_not_become_markup() {
    let report = suite();
    assert!(markdown(&report).contains("&lt;b&gt;\\|bad"));
    let page = html::html(&report);
    assert!(page.contains("&lt;b&gt;|bad") && !page.contains("<b>"));
    assert!(page.contains("a &lt; b &amp; c"));
}

#[test]
fn the_page_stands_alone_and_plots_what_is_sound() {
    let page = html::html(&suite());
    assert!(!page.contains("http") && !page.contains("<script"));
    // The second has too few samples for the p99 of the ladder's curve.
    assert_eq!(page.matches("<polyline").count(), 2, "two curves by quantile");
    let ladder =
        Report::new(vec![outcome("a", Verdict::Passed, 5_000), outcome("b", Verdict::Passed, 5_000)], vec![]);
    assert_eq!(html::html(&ladder).matches("<polyline").count(), 3, "and one by rate");
    assert!(!page.contains("NaN") && !page.contains("inf"));
}

#[test]
fn the_interval_log_is_read_back() {
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    let text = hlog::hlog(&suite()).unwrap();
    let mut tags = Vec::new();
    for entry in IntervalLogIterator::new(text.as_bytes()) {
        if let LogEntry::Interval(h) = entry.unwrap() {
            tags.push(h.tag().unwrap().as_str().to_owned());
            let raw = base64_decode(h.encoded_histogram());
            let back: hdrhistogram::Histogram<u64> =
                Deserializer::new().deserialize(&mut raw.as_slice()).unwrap();
            assert!(back.len() == 5_000 || back.len() == 99);
        }
    }
    assert_eq!(tags, ["good", "few", "_b__bad"]);
}

/// Plain base64, enough to look into a log.
fn base64_decode(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => u32::from(c - b'A'),
        b'a'..=b'z' => u32::from(c - b'a') + 26,
        b'0'..=b'9' => u32::from(c - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        _ => 0,
    };
    let mut out = Vec::new();
    for chunk in text.as_bytes().chunks(4) {
        let word = chunk.iter().fold(0, |w, c| w << 6 | value(*c));
        out.extend_from_slice(&word.to_be_bytes()[1..]);
    }
    out
}

#[test]
fn the_json_document_keeps_to_its_schema() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../docs/load-report.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let good = serde_json::to_value(suite()).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(&good).map(|e| format!("{e} at {}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    let mut bad = good;
    bad["workloads"][0]["verdict"] = "fine".into();
    assert!(!validator.is_valid(&bad));
}

#[test]
fn what_a_watcher_saw_is_shown_unless_the_run_is_invalid() {
    use crate::watch::{Seen, Watched};
    use crate::workload::expect::Component;
    let watched = |verdict| {
        let quantiles = [Some(1_000), Some(2_000), Some(5_100_000), None];
        let seen =
            vec![Seen { component: Component::Receiver, count: 5_000, quantiles, max_ns: Some(6_000_000) }];
        let report = serde_json::json!({"schema": "observer-report/1", "components": {}, "counts": {}, "culprit": null});
        let culprit = Some("receiver: 97 % | of it".into());
        let watched = Some(Watched { seen, culprit, report, ..Watched::default() });
        Report::new(vec![Outcome { watched, ..outcome("a", verdict, 5_000) }], vec![])
    };
    let sound = watched(Verdict::Passed);
    let (md, page, plain) = (markdown(&sound), html::html(&sound), text(&sound));
    assert!(md.contains("| receiver | 5,000 | 1.00 µs | 2.00 µs | 5.10 ms | — | 6.00 ms |"), "{md}");
    assert!(md.contains("Culprit: receiver: 97 % \\| of it."), "{md}");
    assert!(page.contains("<td>receiver</td><td>5,000</td>") && page.contains("<p>Culprit: receiver"));
    assert!(plain.contains("culprit: receiver: 97 %") && plain.contains("5.10 ms"), "{plain}");
    let invalid = watched(Verdict::Invalid);
    for shown in [markdown(&invalid), html::html(&invalid), text(&invalid)] {
        assert!(!shown.contains("5.10 ms"), "{shown}");
    }
    // The document has it all the same, and keeps to its schema.
    let json = serde_json::to_value(&invalid).unwrap();
    assert_eq!(json["workloads"][0]["observer"]["schema"], "observer-report/1");
    let schema = serde_json::from_str(include_str!("../../../docs/load-report.schema.json")).unwrap();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&json));
    assert!(serde_json::to_value(suite()).unwrap()["workloads"][0].get("observer").is_none());
}

#[test]
fn an_unfinished_suite_is_invalid() {
    let report = Report::new(vec![outcome("a", Verdict::Passed, 9)], vec!["b".into()]);
    assert_eq!(report.verdict, Verdict::Invalid);
    assert!(markdown(&report).contains("Not run"));
    assert!(table(&report).lines().all(|l| !l.ends_with(' ')));
}
