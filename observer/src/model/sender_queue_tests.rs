use super::*;
use crate::model::simulate::{TokenBucket, burst, fifo, peak_backlog};
use proptest::prelude::*;

const N: u64 = 90_000;

fn near(found: f64, expected: f64, within: f64) {
    assert!((found - expected).abs() <= within, "{found}, not {expected}");
}

#[test]
fn targets_permit_what_the_table_says() {
    // T ms, D·T and P_max for D = 1.6 M, the same for 1.3 M; ∞ is None.
    let typical = [
        (0.5, 800, Some(1_614_349.78)),
        (1.0, 1_600, Some(1_628_959.28)),
        (5.0, 8_000, Some(1_756_097.56)),
        (10.0, 16_000, Some(1_945_945.95)),
        (25.0, 40_000, Some(2_880_000.0)),
        (50.0, 80_000, Some(14_400_000.0)),
        (56.25, 90_000, None),
        (60.0, 96_000, None),
    ];
    let conservative = [
        (0.5, 650, Some(1_309_457.19)),
        (1.0, 1_300, Some(1_319_052.99)),
        (5.0, 6_500, Some(1_401_197.60)),
        (10.0, 13_000, Some(1_519_480.52)),
        (25.0, 32_500, Some(2_034_782.61)),
    ];
    for (drain, rows) in [(1.6e6, &typical[..]), (1.3e6, &conservative[..])] {
        for (ms, at_once, p_max) in rows {
            let answer = Burst::new(drain, N).answer(ms / 1e3).unwrap();
            assert_eq!(answer.burst_within_target, *at_once, "{ms} ms");
            assert!(answer.feasible);
            match (answer.p_max_per_s, p_max) {
                (None, None) => assert_eq!(answer.spread_s, Some(0.0)),
                (Some(found), Some(expected)) => {
                    near(found, *expected, 0.005);
                    near(answer.spread_s.unwrap(), N as f64 / found, 1e-12);
                }
                other => panic!("{ms} ms: {other:?}"),
            }
        }
    }
}

#[test]
fn dispatch_rates_wait_what_the_table_says() {
    let rows = [
        (1.7e6, 3.30882),
        (2e6, 11.25),
        (3.2e6, 28.125),
        (10e6, 47.25),
        (50e6, 54.45),
        (1.6e6, 0.0),
        (1e6, 0.0),
    ];
    for (dispatch, ms) in rows {
        let b = Burst { dispatch_per_s: Some(dispatch), ..Burst::new(1.6e6, N) };
        let answer = b.answer(1e-3).unwrap();
        near(answer.max_wait_s * 1e3, ms, 5e-6);
        near(answer.peak_backlog, 1.6e6 * ms / 1e3, 0.01);
    }
    let at_once = Burst::new(1.6e6, N).answer(1e-3).unwrap();
    near(at_once.max_wait_s, 0.05625, 1e-12);
    near(at_once.p50_wait_s, 0.028125, 1e-12);
    near(at_once.p99_wait_s, 0.99 * 0.05625, 1e-12);
    // The discrete model, exactly.
    let arrivals = burst(90_000, 1.0 / 1.7e6);
    let last = fifo(&arrivals, 1.0 / 1.6e6).last().unwrap() - arrivals.last().unwrap();
    near(last * 1e3, 3.30941, 5e-6);
}

#[test]
fn background_in_the_same_fifo_takes_from_the_growth_not_from_the_service() {
    let b = Burst { dispatch_per_s: Some(10e6), background_per_s: 0.4e6, ..Burst::new(1.6e6, 9_000) };
    near(b.answer(1e-3).unwrap().max_wait_s * 1e3, 4.95, 1e-9);
    assert_eq!(Burst { background_per_s: 1.6e6, ..b }.answer(1e-3), Err(ModelError::Saturated));
}

#[test]
fn a_sleeping_sender_takes_its_start_from_the_target() {
    let b = Burst { start_latency_s: 4e-3, ..Burst::new(1.6e6, N) };
    let answer = b.answer(5e-3).unwrap();
    near(answer.p_max_per_s.unwrap(), 1_628_959.28, 0.005);
    near(answer.max_wait_s, 0.06025, 1e-12);
    for target in [1e-3, 4e-3] {
        let answer = b.answer(target).unwrap();
        assert!(!answer.feasible);
        assert_eq!((answer.p_max_per_s, answer.spread_s, answer.burst_within_target), (Some(0.0), None, 0));
    }
}

#[test]
fn repeated_bursts_must_be_drained_before_the_next() {
    let b = |f| Burst { repeats_per_s: Some(f), ..Burst::new(1.6e6, N) }.answer(1e-3).unwrap().stable;
    assert_eq!((b(17.7), b(17.8)), (Some(true), Some(false)));
    assert_eq!(Burst::new(1.6e6, N).answer(1e-3).unwrap().stable, None);
}

#[test]
fn large_messages_are_gated_by_the_link() {
    near(effective_drain(1.6e6, 10e9, 202.0), 1.6e6, 0.0);
    near(effective_drain(1.6e6, 10e9, 1_514.0), 825_627.48, 0.01);
}

#[test]
fn advice_is_rounded_to_the_safe_side() {
    assert_eq!(round_down(1_628_959.28, 3), 1_620_000.0);
    assert_eq!(round_up(0.05525, 2), 0.056);
    assert_eq!((round_down(1.6e6, 3), round_up(0.05, 2)), (1.6e6, 0.05));
    assert_eq!((round_down(999.9, 3), round_up(0.0999, 2)), (999.0, 0.1));
    assert_eq!(round_down(0.0, 3), 0.0);
}

#[test]
fn figures_without_sense_are_refused() {
    let ok = Burst::new(1.6e6, N);
    let bucket = Bucket { rate_byte_s: 1e6, burst_bytes: 1_000.0, packet_bytes: 1_242.0 };
    for bad in [
        Burst { drain_per_s: 0.0, ..ok },
        Burst { drain_per_s: f64::NAN, ..ok },
        Burst { size: 0, ..ok },
        Burst { dispatch_per_s: Some(0.0), ..ok },
        Burst { start_latency_s: -1.0, ..ok },
        Burst { background_per_s: f64::INFINITY, ..ok },
        Burst { repeats_per_s: Some(-1.0), ..ok },
        Burst { bucket: Some(bucket), ..ok },
    ] {
        assert!(matches!(bad.answer(1e-3), Err(ModelError::Figure { .. })), "{bad:?}");
    }
    assert!(ok.answer(0.0).is_err());
}

/// The longest sojourn of the burst in front of Sender and bucket, simulated.
fn simulated(b: &Burst) -> f64 {
    let n = usize::try_from(b.size).unwrap();
    let arrivals = burst(n, b.interval_s());
    let sent = fifo(&arrivals, 1.0 / b.drain_per_s);
    let left = match b.bucket {
        None => sent,
        Some(t) => {
            let entries: Vec<_> = sent.iter().map(|s| (*s, t.packet_bytes)).collect();
            TokenBucket { rate_byte_s: t.rate_byte_s, burst_bytes: t.burst_bytes }.exits(&entries, || 0.0)
        }
    };
    left.iter().zip(&arrivals).map(|(d, a)| d - a).fold(0.0, f64::max)
}

proptest! {
    #[test]
    fn the_model_is_the_simulation_within_one_message(
        n in 1_u64..5_000, drain in 1e3_f64..1e7, factor in 0.2_f64..20.0, at_once: bool,
    ) {
        let dispatch_per_s = (!at_once).then_some(drain * factor);
        let b = Burst { dispatch_per_s, ..Burst::new(drain, n) };
        let answer = b.answer(1e-3).unwrap();
        let one = 1.0 / drain;
        prop_assert!((simulated(&b) - answer.max_wait_s).abs() <= one * 1.000_001,
            "{} and {}", simulated(&b), answer.max_wait_s);
        let arrivals = burst(usize::try_from(n).unwrap(), b.interval_s());
        let backlog = peak_backlog(&arrivals, &fifo(&arrivals, one)) as f64;
        // Nothing has left before the first service ends: D/P more.
        let within = 1.0 + drain * b.interval_s().min(one) + 1e-6;
        prop_assert!((backlog - answer.peak_backlog).abs() <= within, "{backlog} and {}", answer.peak_backlog);
    }

    #[test]
    fn background_is_the_simulation_within_a_few_messages(
        n in 100_u64..3_000, load in 0.05_f64..0.8, factor in 1.5_f64..20.0,
    ) {
        // The background comes evenly, for as long as the burst lasts.
        let (drain, dispatch) = (1e6, 1e6 * factor);
        let b = Burst { dispatch_per_s: Some(dispatch), background_per_s: drain * load, ..Burst::new(drain, n) };
        let own = burst(usize::try_from(n).unwrap(), 1.0 / dispatch);
        let until = own.last().unwrap();
        let mut all: Vec<(f64, bool)> = own.iter().map(|a| (*a, true)).collect();
        let others = whole(until * drain * load) + 1;
        all.extend((0..others).map(|i| (i as f64 / (drain * load), false)));
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let times: Vec<f64> = all.iter().map(|a| a.0).collect();
        let worst = fifo(&times, 1.0 / drain).iter().zip(&all).filter(|(_, a)| a.1)
            .map(|(d, a)| d - a.0).fold(0.0, f64::max);
        let model = b.answer(1e-3).unwrap().max_wait_s;
        prop_assert!((worst - model).abs() <= 3.0 / drain, "{worst} and {model}");
    }

    #[test]
    fn sender_and_bucket_in_a_row_are_the_simulation_within_one_message(
        n in 2_u64..3_000, drain in 1e4_f64..1e6, factor in 0.3_f64..20.0, rate in 0.1_f64..3.0, burst_packets in 1.0_f64..2_000.0,
    ) {
        let bytes = 1_242.0;
        let bucket = Bucket { rate_byte_s: drain * bytes * rate, burst_bytes: burst_packets * bytes, packet_bytes: bytes };
        let b = Burst { dispatch_per_s: Some(drain * factor), bucket: Some(bucket), ..Burst::new(drain, n) };
        let answer = b.answer(1e-3).unwrap();
        let one = 1.0 / drain + bytes / bucket.rate_byte_s;
        prop_assert!((simulated(&b) - answer.max_wait_s).abs() <= one * 1.000_001,
            "{} and {}", simulated(&b), answer.max_wait_s);
    }

    #[test]
    fn a_burst_dispatched_as_advised_meets_the_target(
        n in 2_u64..3_000, drain in 1e4_f64..1e6, share in 0.01_f64..1.5, with_bucket: bool, rate in 0.2_f64..2.0,
    ) {
        let bytes = 1_242.0;
        let bucket = Bucket { rate_byte_s: drain * bytes * rate, burst_bytes: 20.0 * bytes, packet_bytes: bytes };
        let b = Burst { bucket: with_bucket.then_some(bucket), ..Burst::new(drain, n) };
        let target = share * n as f64 / drain;
        let answer = b.answer(target).unwrap();
        let paced = Burst { dispatch_per_s: answer.p_max_per_s.map(|p| round_down(p, 3)), ..b };
        // The simulation counts the service of the last one as well.
        let one = 1.0 / drain + if with_bucket { bytes / bucket.rate_byte_s } else { 0.0 };
        prop_assert!(simulated(&paced) <= target + one * 1.000_001, "{} for {target}", simulated(&paced));
        if let Some(p_max) = answer.p_max_per_s.filter(|p| *p * 1.05 > drain.min(drain * rate)) {
            let faster = Burst { dispatch_per_s: Some(p_max * 1.05), ..b };
            let waits = faster.answer(target).unwrap().max_wait_s;
            prop_assert!(waits > target * (1.0 - 1e-9), "{waits} at a faster pace, for {target}");
        }
        if answer.burst_within_target > 0 {
            let at_once = Burst { size: answer.burst_within_target.min(5_000), ..b };
            prop_assert!(at_once.answer(target).unwrap().max_wait_s <= target * (1.0 + 1e-9));
        }
    }

    #[test]
    fn rounding_goes_one_way_and_not_far(x in 1e-9_f64..1e12) {
        let (down, up) = (round_down(x, 3), round_up(x, 2));
        prop_assert!(down <= x * (1.0 + 1e-8) && down > x * 0.99, "{down} for {x}");
        prop_assert!(up >= x * (1.0 - 1e-8) && up < x * 1.1 + 1e-18, "{up} for {x}");
    }
}
