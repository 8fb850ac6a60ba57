use super::*;
use crate::model::simulate::{Credit, CreditRun, TokenBucket};
use crate::model::{nanoseconds, whole};
use proptest::prelude::*;

const L: u32 = 1_242;
/// A thousand seconds of uptime, so that nothing begins at 0.
const ORIGIN: f64 = 1_000.0;

fn passages(entries: &[f64], exits: &[f64]) -> Vec<Passage> {
    let ns = |s: f64| nanoseconds(ORIGIN + s);
    let mut all: Vec<_> = entries.iter().zip(exits).map(|(a, d)| Passage::new(ns(*a), ns(*d), L)).collect();
    all.sort_by_key(|p| p.exit_ns);
    all
}

/// `n` entries at `rate_bit_s`, from 0 on.
fn constant(n: u64, rate_bit_s: f64) -> Vec<f64> {
    (0..n).map(|i| i as f64 * f64::from(L) * 8.0 / rate_bit_s).collect()
}

fn through_bucket(entries: &[f64], bucket: TokenBucket, mut late: impl FnMut() -> f64) -> Vec<Passage> {
    let sized: Vec<_> = entries.iter().map(|a| (*a, f64::from(L))).collect();
    passages(entries, &bucket.exits(&sized, &mut late))
}

fn find(p: &[Passage]) -> Estimate {
    estimate(p, true, THROTTLED_NS)
}

#[test]
fn token_buckets_are_measured_to_half_a_percent_and_a_packet() {
    let mut rng = fastrand::Rng::with_seed(1);
    for mbit in [10.0, 50.0, 200.0] {
        for kib in [16.0, 64.0, 256.0] {
            let bucket = TokenBucket { rate_byte_s: mbit * 125e3, burst_bytes: kib * 1024.0 };
            // Two seconds at 1.3 r, timers up to 120 µs late.
            let n = whole(2.0 * 1.3 * mbit * 125e3 / f64::from(L));
            let found = find(&through_bucket(&constant(n, 1.3e6 * mbit), bucket, || rng.f64() * 120e-6));
            assert_eq!(found.kind, Kind::Tbf, "{mbit} {kib}: {found:?}");
            let rate = found.rate_bit_s.unwrap();
            assert!((rate / (mbit * 1e6) - 1.0).abs() < 5e-3, "{mbit} {kib}: {found:?}");
            let burst = found.burst_bytes.unwrap();
            let off = (burst - kib * 1024.0).abs();
            assert!(off <= f64::from(L).max(0.02 * kib * 1024.0), "{mbit} {kib}: {found:?}");
            assert!(found.burst_interval.unwrap().contains(kib * 1024.0), "{mbit} {kib}: {found:?}");
        }
    }
}

#[test]
fn bursts_with_pauses_between_are_as_good_as_a_stream() {
    let bucket = TokenBucket { rate_byte_s: 12.5e6, burst_bytes: 65_536.0 };
    let entries: Vec<f64> =
        (0..10).flat_map(|k| (0..1_000).map(move |i| f64::from(k) * 0.2 + f64::from(i) * 1e-6)).collect();
    let mut p = through_bucket(&entries, bucket, || 60e-6);
    for x in &mut p {
        (x.wanted_ns, x.offered_ns) = (x.entry_ns, x.entry_ns);
    }
    let found = find(&p);
    assert_eq!(found.kind, Kind::Tbf, "{found:?}");
    assert!((found.rate_bit_s.unwrap() / 100e6 - 1.0).abs() < 5e-3, "{found:?}");
    assert!((found.burst_bytes.unwrap() - 65_536.0).abs() <= f64::from(L), "{found:?}");
    // Joined in the middle: the first burst is not trusted, the others are.
    let found = estimate(&p[500..], false, THROTTLED_NS);
    assert!((found.burst_bytes.unwrap() - 65_536.0).abs() <= f64::from(L), "{found:?}");
}

#[test]
fn a_bucket_never_seen_full_has_no_size() {
    let bucket = TokenBucket { rate_byte_s: 12.5e6, burst_bytes: 65_536.0 };
    let p = through_bucket(&constant(40_000, 150e6), bucket, || 0.0);
    let found = estimate(&p[5_000..], false, THROTTLED_NS);
    assert_eq!((found.kind, found.burst_bytes), (Kind::Tbf, None));
    assert!((found.rate_bit_s.unwrap() / 100e6 - 1.0).abs() < 1e-3);
    assert!(found.why.contains("never seen full"), "{}", found.why);
}

#[test]
fn tokens_lost_behind_late_timers_are_said() {
    // 200 Mbit/s with 16 KiB, 0.65 ms. A timer in 200 is 2 ms late.
    let mut rng = fastrand::Rng::with_seed(2);
    let bucket = TokenBucket { rate_byte_s: 25e6, burst_bytes: 16_384.0 };
    let late = || if rng.u8(..200) == 0 { 2e-3 } else { 50e-6 };
    let found = find(&through_bucket(&constant(60_000, 260e6), bucket, late));
    assert_eq!(found.kind, Kind::Tbf, "{found:?}");
    let lost = found.tokens_lost.unwrap();
    assert!(lost.longest_gap_s > 2e-3 && lost.bucket_s < 1e-3, "{lost:?}");
    assert!(lost.throughput_bit_s < 190e6, "{lost:?}");
    assert!((found.rate_bit_s.unwrap() / 200e6 - 1.0).abs() < 0.01, "{found:?}");

    // Every timer is 1 to 5 ms late: a bucket after each, and no rate.
    let late = || 1e-3 + rng.f64() * 4e-3;
    let found = find(&through_bucket(&constant(60_000, 260e6), bucket, late));
    assert_eq!((found.kind, found.rate_bit_s), (Kind::Tbf, None), "{found:?}");
    assert!((found.burst_bytes.unwrap() - 16_384.0).abs() < f64::from(L), "{found:?}");
    assert!(found.tokens_lost.unwrap().throughput_bit_s < 60e6, "{found:?}");
}

#[test]
fn credit_limiters_are_measured_to_a_tick_and_a_packet() {
    for (mbit, quantum) in [(100.0, 625_000.0), (10.0, 62_500.0)] {
        let credit = Credit { quantum_bytes: quantum, period_s: 0.05 };
        let n = whole(3.0 * 1.4 * mbit * 125e3 / f64::from(L));
        let entries = constant(n, 1.4e6 * mbit);
        let sized: Vec<_> = entries.iter().map(|a| (*a, f64::from(L))).collect();
        // Within a window the exits are a microsecond apart.
        let mut last = 0.0_f64;
        let exits: Vec<f64> = credit
            .exits(&sized)
            .iter()
            .map(|d| {
                last = d.max(last + 1e-6);
                last
            })
            .collect();
        let found = find(&passages(&entries, &exits));
        assert_eq!(found.kind, Kind::Credit, "{mbit}: {found:?}");
        assert!((found.period_s.unwrap() - 0.05).abs() < 4e-3, "{found:?}");
        assert!((found.quantum_bytes.unwrap() - quantum).abs() <= f64::from(L), "{found:?}");
        assert!(found.rate_interval.unwrap().contains(mbit * 1e6), "{found:?}");
    }
}

#[test]
fn a_sender_that_stands_still_is_no_limiter() {
    // Every 100 ms it is gone for 30 ms, and then offers what it missed.
    let mut p = Vec::new();
    for i in 0..20_000_u64 {
        let wanted = 1_000_000_000_000 + i * 100_000;
        let gone = i % 1_000 < 300;
        let back = wanted - i % 1_000 * 100_000 + 30_000_000 + i % 1_000 * 1_000;
        let offered = if gone { back } else { wanted };
        p.push(Passage { wanted_ns: wanted, offered_ns: offered, ..Passage::new(offered, offered + 900, L) });
    }
    p.sort_by_key(|x| x.exit_ns);
    let found = find(&p);
    assert_eq!(found.kind, Kind::SenderStall, "{found:?}");
    assert!((found.stall_share - 0.3).abs() < 0.05, "{found:?}");

    // The same gaps by intention are a load in bursts.
    for x in &mut p {
        x.wanted_ns = x.offered_ns;
    }
    assert_eq!(find(&p).kind, Kind::None);

    // The whole machine stood still: what had entered leaves late as well.
    for x in &mut p {
        (x.wanted_ns, x.offered_ns) = (0, 0);
        x.exit_ns += 60_000 + x.entry_ns % 30_000;
    }
    p.sort_by_key(|x| x.exit_ns);
    p[0].exit_ns = p[0].entry_ns;
    assert_eq!(find(&p).kind, Kind::SenderStall);
}

/// A full send buffer makes entries follow exits. The gaps of a credit
/// limiter are its own nevertheless.
#[test]
fn a_closed_loop_does_not_hide_the_limiter() {
    let mut credit = CreditRun::new(Credit { quantum_bytes: 625_000.0, period_s: 0.05 }, 0.0);
    let (mut entries, mut exits) = (Vec::new(), Vec::<f64>::new());
    for i in 0..20_000_usize {
        // Room for 163 in the send buffer.
        let entry = if i < 163 { i as f64 * 1e-6 } else { exits[i - 163].max(entries[i - 1]) };
        entries.push(entry);
        let after = exits.last().map_or(0.0, |d| d + 1e-6);
        exits.push(credit.pass(entry.max(after), f64::from(L)));
    }
    let found = find(&passages(&entries, &exits));
    assert_eq!(found.kind, Kind::Credit, "{found:?}");
}

#[test]
fn unshaped_paths_have_no_limiter() {
    let mut rng = fastrand::Rng::with_seed(3);
    for noise in [0.0, 1e-4, 0.01] {
        let p: Vec<_> = (0..50_000_u64)
            .map(|i| {
                let entry = 1_000_000_000 + i * 20_000;
                // Now and then a softirq is late.
                let wait = if rng.f64() < noise { rng.u64(..3_000_000) } else { 900 + rng.u64(..800) };
                Passage {
                    wanted_ns: entry - 500,
                    offered_ns: entry - 500,
                    ..Passage::new(entry, entry + wait, L)
                }
            })
            .collect();
        let mut p = p;
        p.sort_by_key(|x| x.exit_ns);
        assert_eq!(find(&p).kind, Kind::None, "{noise}");
    }
}

#[test]
fn too_little_is_said_to_be_too_little() {
    let bucket = TokenBucket { rate_byte_s: 12.5e6, burst_bytes: 65_536.0 };
    let p = through_bucket(&vec![0.0; 150], bucket, || 0.0);
    assert_eq!(find(&p).kind, Kind::NotEnoughEvidence);
    let p = through_bucket(&vec![0.0; 220], bucket, || 0.0);
    let found = find(&p);
    assert_eq!(found.kind, Kind::NotEnoughEvidence);
    assert!(found.why.contains("after a pause"), "{}", found.why);
    assert_eq!(find(&[]).kind, Kind::NotEnoughEvidence);
}

#[test]
fn gaps_of_no_kind_are_unknown() {
    let mut rng = fastrand::Rng::with_seed(4);
    let entries = constant(40_000, 150e6);
    let mut at = 0.0;
    // Lets out what is there at random moments, as much as it likes.
    let mut exits = Vec::new();
    while exits.len() < entries.len() {
        at += 0.005 + rng.f64() * 0.2;
        let many = rng.usize(10..3_000);
        for _ in 0..many {
            if let Some(entry) = entries.get(exits.len()) {
                at = at.max(entry + 1e-4);
                exits.push(at);
            }
        }
    }
    let found = find(&passages(&entries, &exits));
    assert_eq!((found.kind, found.rate_bit_s), (Kind::Unknown, None), "{found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_bucket_under_any_overload_is_found(
        mbit in 5.0_f64..300.0, packets in 15.0_f64..300.0, over in 1.1_f64..4.0, late_us in 0.0_f64..150.0, seed: u64,
    ) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let rate = mbit * 125e3;
        let bucket = TokenBucket { rate_byte_s: rate, burst_bytes: packets * f64::from(L) };
        // Timers that are late by more than the bucket lose tokens: another test.
        prop_assume!(late_us * 1e-6 * 1.5 < packets * f64::from(L) / rate);
        let needed = packets * over / (over - 1.0) * 3.0 + 4_000.0;
        let p = through_bucket(&constant(whole(needed), over * mbit * 1e6), bucket, || rng.f64() * late_us * 1e-6);
        let found = find(&p);
        prop_assert_eq!(found.kind, Kind::Tbf);
        prop_assert!((found.rate_bit_s.unwrap() / (mbit * 1e6) - 1.0).abs() < 5e-3, "{:?}", found);
        let off = (found.burst_bytes.unwrap() - bucket.burst_bytes).abs();
        // A datagram, and what comes in while the timer is late.
        prop_assert!(off <= 0.02 * bucket.burst_bytes + f64::from(L) + rate * late_us * 1e-6, "{:?}", found);
    }

    #[test]
    fn nothing_makes_it_panic(
        raw in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u32>(), any::<u64>(), any::<u64>()), 0..600),
        fresh: bool, threshold: u64,
    ) {
        let mut p: Vec<_> = raw.into_iter()
            .map(|(a, d, bytes, w, o)| Passage { entry_ns: a, exit_ns: d, bytes, wanted_ns: w, offered_ns: o })
            .collect();
        p.sort_by_key(|x| x.exit_ns);
        let _ = estimate(&p, fresh, threshold);
    }

    #[test]
    fn nothing_plausible_makes_it_panic(
        raw in proptest::collection::vec((0_u64..1_000_000, 0_u64..5_000_000, 60_u32..1_600), 200..900), fresh: bool,
    ) {
        let mut at = 0;
        let mut p: Vec<_> = raw.into_iter().map(|(gap, wait, bytes)| { at += gap; Passage::new(at, at + wait, bytes) }).collect();
        p.sort_by_key(|x| x.exit_ns);
        let found = estimate(&p, fresh, THROTTLED_NS);
        prop_assert!((0.0..=1.0).contains(&found.gap_share));
    }
}
