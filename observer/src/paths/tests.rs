//! Paths of known rate, in simulation and in network namespaces.

use proptest::prelude::*;

use super::dispersion::Method;
use super::simulate::{Path, probe};
use super::*;
use crate::source::synthetic;

fn key(id: u64) -> FlowKey {
    let (run, stream) = crate::correlate::flows::run_and_stream(id);
    FlowKey { run, stream, ..FlowKey::default() }
}

fn two(a: Path, b: Path, rounds: u64, seed: u64) -> Report {
    analyse(probe(a, rounds, seed).into_iter().chain(probe(b, rounds, seed)), key)
}

fn off(value: f64, truth: f64) -> f64 {
    (value / truth - 1.0).abs()
}

#[test]
fn asnd_of_known_ratios_and_the_references_reading() {
    for (ratio, peak) in [(10.0, 11), (2.4, 3), (1.0, 2), (9.0, 10)] {
        let report = two(Path::new(1, 1e7 * ratio), Path::new(2, 1e7), 4, 1);
        let r = &report.ratios[0];
        assert!(off(r.capacity_ratio, ratio) < 0.05, "{ratio}: {r:?}");
        assert!(off(r.mean_asnd - 1.0, ratio) < 0.05, "{r:?}");
        assert!(r.interval.0 <= ratio && ratio <= r.interval.1, "{r:?}");
        // By arithmetic the peak is at 1 + k; the reference calls it k.
        assert_eq!(r.peak_asnd, peak, "{r:?}");
        if ratio > 1.0 {
            assert_eq!((r.fast.stream, r.slow.stream), (1, 2));
        }
        let seen: u64 = r.histogram.iter().map(|s| s.count).sum();
        let mean = r.histogram.iter().map(|s| s.asnd * s.count).sum::<u64>() as f64 / seen as f64;
        assert!((mean - r.mean_asnd).abs() < 1e-9, "{mean} {r:?}");
    }
}

#[test]
fn sizes_of_datagrams_may_differ() {
    // 10 : 1 in bytes is 5 : 1 in datagrams of twice the size.
    let fast = Path { bytes: 684, ..Path::new(1, 1e8) };
    let r = &two(fast, Path::new(2, 1e7), 4, 1).ratios[0];
    assert!(off(r.capacity_ratio, 10.0) < 0.05 && off(r.mean_asnd, 6.0) < 0.05, "{r:?}");
}

#[test]
fn a_clean_path_has_its_train_rate() {
    let report = analyse(probe(Path { train: 30, ..Path::new(1, 2.5e7) }, 8, 3), key);
    let c = report.paths[0].capacity.as_ref().unwrap();
    assert_eq!(c.method, Method::Train);
    // The link of 10 Gbit/s behind it adds 0.25 %.
    assert!(off(c.rate_bit_s, 2.5e7) < 0.005, "{c:?}");
    let (low, high) = c.interval_bit_s.unwrap();
    assert!(low <= c.rate_bit_s && c.rate_bit_s <= high);
    assert_eq!((report.paths[0].trains, c.long_trains, c.pairs), (8, 8, 8 * 29));
    assert_eq!(report.cost.probe_bytes, 8 * 30 * 342);
}

#[test]
fn among_other_traffic_the_mode_is_right_and_the_train_rate_is_not() {
    let path = Path { cross: 0.45, jitter_ns: 500.0, ..Path::new(1, 2e7) };
    let report = analyse(probe(path, 8, 5), key);
    let c = report.paths[0].capacity.as_ref().unwrap();
    assert!(c.train_bit_s.unwrap() < 1.5e7, "{c:?}");
    assert_eq!((c.method, c.interval_bit_s), (Method::Mode, None));
    assert!(off(c.rate_bit_s, 2e7) < 0.02, "{c:?}");
    // Pairs that had others between them are a mode too, and rejected.
    assert!(c.modes.iter().any(|m| off(m.rate_bit_s, 1e7) < 0.05), "{c:?}");
}

#[test]
fn a_full_bucket_in_front_is_not_the_capacity() {
    let path = Path { bucket: 20_000.0, jitter_ns: 30_000.0, ..Path::new(1, 1e7) };
    let c = analyse(probe(path, 6, 5), key).paths[0].capacity.clone().unwrap();
    assert!(off(c.rate_bit_s, 1e7) < 0.02, "{c:?}");
}

#[test]
fn pairs_alone_give_a_mode() {
    let c = analyse(probe(Path { train: 2, ..Path::new(1, 5e7) }, 60, 5), key).paths[0].capacity.clone();
    let c = c.unwrap();
    assert_eq!((c.method, c.train_bit_s, c.long_trains), (Method::Mode, None, 0));
    assert!(off(c.rate_bit_s, 5e7) < 0.01, "{c:?}");
}

#[test]
fn without_trains_nothing_is_said() {
    let mut single = probe(Path { train: 2, ..Path::new(1, 5e7) }, 60, 5);
    single.retain(|r| r.stream_seq.is_multiple_of(2));
    let report = analyse(single, key);
    assert!(report.is_empty(), "{report:?}");
    assert_eq!((report.paths[0].capacity.clone(), report.cost.probe_bytes), (None, 0));
    // Two trains that never met are not compared.
    let late = probe(Path::new(2, 1e7), 1, 1).into_iter().map(|mut r| {
        r.rx_ns += 1_000_000_000_000;
        r
    });
    let report = analyse(probe(Path::new(1, 1e7), 1, 1).into_iter().chain(late), key);
    assert_eq!(report.ratios, []);
    assert!(analyse([], key).is_empty());
}

#[test]
fn reports_match_their_schema() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../docs/paths.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let clean = two(Path::new(1, 1e7), Path::new(2, 1e6), 7, 1);
    assert!(clean.paths[0].capacity.as_ref().unwrap().interval_bit_s.is_some() && !clean.ratios.is_empty());
    let mut nulls = clean.clone();
    nulls.paths[0].capacity = None;
    for report in [clean, nulls, analyse([], key)] {
        let value = serde_json::to_value(&report).unwrap();
        let errors: Vec<String> = validator.iter_errors(&value).map(|e| e.to_string()).collect();
        assert_eq!(errors, Vec::<String>::new());
        assert_eq!(serde_json::from_value::<Report>(value).unwrap(), report);
    }
    let mut wrong = serde_json::to_value(two(Path::new(1, 1e7), Path::new(2, 1e6), 1, 1)).unwrap();
    wrong["paths"][0]["capacity"]["rate_bit_s"] = "fast".into();
    assert!(!validator.is_valid(&wrong));
}

#[test]
fn what_did_not_arrive_costs_and_does_not_count() {
    let mut records = probe(Path { train: 30, ..Path::new(1, 2.5e7) }, 4, 3);
    let all = records.len() as u64;
    for lost in records.iter_mut().step_by(10) {
        lost.kind = observer_ebpf::abi::RecordKind::Dropped as u8;
        lost.rx_ns = 0;
    }
    let report = analyse(records, key);
    assert_eq!((report.cost.datagrams, report.cost.bytes), (all, all * 342));
    assert_eq!(report.paths[0].arrivals, all - all.div_ceil(10));
    assert!(off(report.paths[0].capacity.as_ref().unwrap().rate_bit_s, 2.5e7 * 0.9) < 0.15);
}

#[test]
fn arrivals_are_taken_from_records() {
    let four = Arrival::of(&synthetic::journey(1, 2, 3)).unwrap();
    assert_eq!((four.seq, four.l2_bytes, four.payload_bytes), (3, 202, 160));
    let six = JourneyRecord { flags: flag::V6, l2_bytes: 222, ..synthetic::journey(1, 2, 3) };
    assert_eq!(Arrival::of(&six).unwrap().payload_bytes, 160);
    let unseen = JourneyRecord { kind: RecordKind::Unresolved as u8, ..six };
    assert_eq!(Arrival::of(&unseen), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The figures that a probing of less than a megabyte must give, whatever
    /// the ratio, a bucket, and timers that are late.
    #[test]
    fn ratios_and_capacities_within_five_percent(
        ratio in 1.0..12.0_f64, slow in 1e6..2e7_f64, bucket in 0.0..6_000.0_f64, late in 0.0..0.5_f64, seed: u64,
    ) {
        let path = |stream, bit_s: f64| Path {
            bucket,
            // Up to half of the time a datagram takes.
            jitter_ns: late * 342.0 * 8e9 / bit_s,
            ..Path::new(stream, bit_s)
        };
        let report = two(path(1, slow * ratio), path(2, slow), 4, seed);
        prop_assert!(report.cost.bytes < 1_000_000);
        let r = &report.ratios[0];
        prop_assert!(off(r.capacity_ratio, ratio) < 0.05 || ratio < 1.05, "{:?}", r);
        for (stream, truth) in [(1, slow * ratio), (2, slow)] {
            let found = report.paths.iter().find(|p| p.flow.stream == stream).unwrap();
            let c = found.capacity.as_ref().unwrap();
            prop_assert!(off(c.rate_bit_s, truth) < 0.05, "{} {:?}", truth, c.rate_bit_s);
        }
    }

    #[test]
    fn any_records_are_analysed_without_panic(
        raw in proptest::collection::vec((0_u64..300, 0_i64..4, any::<u64>(), any::<u32>(), 0_u16..3), 0..300),
    ) {
        let records = raw.into_iter().map(|(seq, intended_ns, rx_ns, l2_bytes, stream)| JourneyRecord {
            intended_ns, rx_ns, l2_bytes, ..synthetic::journey(1, stream, seq)
        });
        let report = analyse(records, key);
        let json = serde_json::to_string(&report).unwrap();
        prop_assert!(!json.contains("NaN"));
        let _ = (text::report(&report), html::page(&report));
    }
}
