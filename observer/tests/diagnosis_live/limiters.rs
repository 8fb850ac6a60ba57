//! Limiters of known truth on the way: token buckets, a credit limiter, none,
//! and a sender that stands still. What the report says of each, and what send
//! and receive times alone say.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use load::{Buffer, Engine, SendConfig};
use observer::diagnose::limiter::Limiter;
use observer::diagnose::sender::SenderCause;
use observer::lab::LabConfig;
use observer::lab::forward::credit::CreditConfig;
use observer::lab::forward::{ForwardConfig, Rule};
use observer::lab::htb::Htb;
use observer::lab::scenario::Scenario;
use observer::model::one_sided;
use observer::model::two_sided::{self, Estimate, Kind, Passage, THROTTLED_NS};

use super::support::observed::{Observed, play};
use super::support::sheet::Sheet;
use super::{constant, descheduled, in_bursts, shaped};
use crate::needs_root;

/// Payload and headers: 1,200 + 8 + 20 + 14.
const L2: f64 = 1_242.0;
/// A tick of the timer that gives credit, s: netback counts in jiffies, 4 ms
/// on kernels of 250 Hz.
const TICK_S: f64 = 4e-3;

/// A token bucket, as the kernel has it.
#[derive(Clone, Copy)]
struct Truth {
    rate_bit_s: f64,
    burst_bytes: f64,
}

/// A tbf under 1.3 times its rate, for as long as it takes to empty its
/// bucket and a second more.
fn overloaded(mbit: u64, kib: u64) -> Scenario {
    let r = mbit as f64 * 125e3;
    let seconds = (kib << 10) as f64 / (0.3 * r) + 1.0;
    let rate = 1.3 * r / L2;
    shaped(mbit, kib, constant(rate, whole(rate * seconds), 1_200))
}

/// The same with a class of htb.
fn overloaded_htb(mbit: u64, kib: u64) -> Scenario {
    let htb = Htb { rate_bit_per_s: mbit * 1_000_000, burst_bytes: kib << 10, limit_packets: 100_000 };
    let scenario = overloaded(mbit, kib);
    Scenario { lab: LabConfig { htb: Some(htb), ..LabConfig::default() }, ..scenario }
}

/// A burst of ten and a half quanta into a forwarder with Xen's rule.
fn credited(mbit: u64) -> (Scenario, CreditConfig) {
    let credit = CreditConfig::of_rate(mbit * 1_000_000);
    let count = whole(10.5 * credit.quantum_bytes as f64 / L2);
    let scenario = in_bursts(count, 1_000, count, 1_200);
    let forward = Some(ForwardConfig::new(Rule::Credit(credit)));
    (Scenario { lab: LabConfig { forward, ..LabConfig::default() }, ..scenario }, credit)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of datagrams")]
fn whole(x: f64) -> u64 {
    x as u64
}

fn limiter(played: &Observed) -> Limiter {
    played.snapshot.total.limiter.clone().unwrap()
}

/// What the kernel made of a tbf.
fn tbf(played: &Observed) -> Truth {
    let has = played.outcome.way_out.options;
    Truth { rate_bit_s: 8.0 * has.rate_byte_per_s as f64, burst_bytes: has.burst_bytes as f64 }
}

/// The same of an htb, which only netlink tells. It lets a datagram go while
/// any token is left, whatever it takes: at once passes one more than b.
fn htb(played: &Observed) -> Truth {
    let has = limiter(played).configured.unwrap();
    assert_eq!(has.kind, "htb");
    Truth { rate_bit_s: has.rate_bit_s.unwrap() as f64, burst_bytes: has.burst_bytes.unwrap() as f64 + L2 }
}

/// From send and receive times alone.
fn from_afar(played: &Observed) -> one_sided::OneSided {
    let mut p: Vec<Passage> = played
        .records
        .iter()
        .filter(|r| r.dev_queue_ns != 0 && r.rx_ns != 0)
        .map(|r| Passage::new(r.dev_queue_ns, r.rx_ns, r.l2_bytes))
        .collect();
    p.sort_by_key(|x| x.exit_ns);
    one_sided::estimate(&p, true)
}

/// From the two devices of a pair: handed to the one, received from the other.
fn through_the_pair(played: &Observed) -> Estimate {
    let mut p: Vec<Passage> = played
        .records
        .iter()
        .filter(|r| r.xmit_ns != 0 && r.rx_ns != 0)
        .map(|r| Passage::new(r.xmit_ns, r.rx_ns, r.l2_bytes))
        .collect();
    p.sort_by_key(|x| x.exit_ns);
    two_sided::estimate(&p, true, THROTTLED_NS)
}

/// How far an estimate is off.
struct Off {
    kind: Kind,
    /// As a share.
    rate: Option<f64>,
    /// Bytes.
    burst: Option<f64>,
    /// Whether the true bucket is in the interval.
    inside: Option<bool>,
    lost: Option<f64>,
}

impl Off {
    fn of_report(l: &Limiter, has: Truth) -> Self {
        Self {
            kind: l.kind,
            rate: l.rate_bit_s.map(|r| r / has.rate_bit_s - 1.0),
            burst: l.burst_bytes.map(|b| b - has.burst_bytes),
            inside: l.interval.burst_bytes.map(|i| i.contains(has.burst_bytes)),
            lost: l.tokens_lost.map(|t| t.lost_share),
        }
    }

    fn of_estimate(e: &Estimate, has: Truth) -> Self {
        Self {
            kind: e.kind,
            rate: e.rate_bit_s.map(|r| r / has.rate_bit_s - 1.0),
            burst: e.burst_bytes.map(|b| b - has.burst_bytes),
            inside: e.burst_interval.map(|i| i.contains(has.burst_bytes)),
            lost: e.tokens_lost.map(|t| t.lost_share),
        }
    }

    /// The rate within `rate`, and the bucket as `bucket` says; or tokens lost.
    fn holds(&self, rate: f64, bucket: impl Fn(&Self) -> bool) -> bool {
        let near = self.rate.is_some_and(|r| r.abs() <= rate) && bucket(self);
        self.kind == Kind::Tbf && (near || self.lost.is_some())
    }

    /// Two-sided: r within 0.5 %, b within 2 % or a datagram, `slack` times.
    fn holds_here(&self, has: Truth, slack: f64) -> bool {
        let within = slack * (0.02 * has.burst_bytes).max(L2);
        self.holds(slack * 0.005, |o| o.burst.is_some_and(|b| b.abs() <= within))
    }

    /// One-sided: r within 2 %, b in the interval.
    fn holds_from_afar(&self, slack: f64) -> bool {
        self.holds(slack * 0.02, |o| o.inside == Some(true))
    }
}

#[test]
fn token_buckets_are_what_the_kernel_has() {
    needs_root!();
    for (mbit, kib, is_htb) in [(10, 64, false), (50, 256, false), (20, 32, true)] {
        let scenario = if is_htb { overloaded_htb(mbit, kib) } else { overloaded(mbit, kib) };
        let played = play(&scenario);
        let l = limiter(&played);
        let configured = l.configured.as_ref().unwrap();
        let kind = if is_htb { "htb" } else { "tbf" };
        assert_eq!((configured.kind.as_str(), configured.rate_bit_s), (kind, Some(mbit * 1_000_000)));
        let has = if is_htb { htb(&played) } else { tbf(&played) };
        // Twice the bounds that the series holds on a quiet machine.
        assert!(Off::of_report(&l, has).holds_here(has, 2.0), "{mbit} {kib}: {l:?}");
        let afar = from_afar(&played).estimate;
        assert!(Off::of_estimate(&afar, has).holds_from_afar(2.0), "{mbit} {kib}, from afar: {afar:?}");
    }
}

/// Named as a pair, two devices show the rule between them: in the report, and
/// to the estimator alone.
#[test]
fn credit_by_windows_is_told_with_its_period_and_quantum() {
    needs_root!();
    for mbit in [10, 100] {
        let (scenario, credit) = credited(mbit);
        let played = play(&scenario);
        let (l, e) = (limiter(&played), through_the_pair(&played));
        for (kind, period, quantum) in
            [(l.kind, l.period_s, l.quantum_bytes), (e.kind, e.period_s, e.quantum_bytes)]
        {
            assert_eq!(kind, Kind::Credit, "{l:?} {e:?}");
            assert!((period.unwrap() - credit.period.as_secs_f64()).abs() <= TICK_S, "{l:?}");
            assert!((quantum.unwrap() - credit.quantum_bytes as f64).abs() <= L2, "{l:?}");
        }
        assert!(l.advice.contains("bursts wait for the next window"), "{l:?}");
    }
}

#[test]
fn an_unshaped_path_has_no_limiter() {
    needs_root!();
    let l = limiter(&play(&constant(5_000.0, 10_000, 160)));
    assert!(matches!(l.kind, Kind::None | Kind::SenderStall), "{l:?}");
}

/// D̂ ≈ r/L, and the limiter is named.
#[test]
fn a_sender_blocked_behind_a_limiter_is_the_limiters_doing() {
    needs_root!();
    let scenario = shaped(20, 32, in_bursts(2_000, 1_500, 2_000, 1_200));
    let load = SendConfig { engine: Engine::DRIVER, sndbuf: Buffer::Kernel, ..scenario.load };
    let played = play(&Scenario { load, ..scenario });
    let report = &played.snapshot.total;
    let q = report.sender_queue.as_ref().unwrap();
    assert_eq!(q.cause, SenderCause::Limiter, "{q:?}");
    assert_eq!(report.culprit_name(), "shaper", "{:?}", report.culprit);
    let named = report.findings.iter().any(|f| f.check.starts_with("limiter-"));
    assert!(named, "{:#?}", report.findings);
}

/// Two threads that burn the CPUs until they are dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..2 {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(stop)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The runs of each set-up, the third on a busy machine.
const RUNS: [&str; 3] = ["quiet 1", "quiet 2", "busy"];

fn runs(set_up: &str) -> impl Iterator<Item = String> {
    RUNS.iter().map(move |run| format!("{set_up}, {run}"))
}

fn played(scenario: &Scenario, run: &str) -> Observed {
    let _busy = run.ends_with("busy").then(Busy::start);
    play(scenario)
}

fn percent(x: Option<f64>) -> String {
    x.map_or_else(|| "—".to_owned(), |x| format!("{:+.3} %", x * 100.0))
}

fn lost(x: Option<f64>) -> String {
    x.map_or_else(|| "no".to_owned(), |x| format!("{:.1} %", x * 100.0))
}

const BUCKETS: &str = "\
## Token buckets

Over veth, 1,200 B, offered at 1.3 times the rate. At the qdisc (two-sided): r within 0.5 %, b within 2 % or a
datagram, or tokens lost (htb lets the datagram go that overdraws its bucket: b and one more). From send and receive times (one-sided): r within 2 %, b in the printed interval, or
tokens lost.

| set-up | kind | rate off | bucket off, B | tokens lost | one-sided: rate off | b in its interval | tokens lost | holds two-sided | holds |
|---|---|---:|---:|---|---:|---|---|---|---|
";
const CREDIT: &str = "\
## Credit by windows

A forwarder between two TAP devices with the rule of Xen's netback, T = 50 ms, named as a pair: T within a tick of
4 ms and Q within a datagram, in the report and by the estimator on the points at the two devices.

| set-up | kind | T off, ms | Q off, B | r off | estimator: kind | T off, ms | Q off, B | holds |
|---|---|---:|---:|---:|---|---:|---:|---|
";
const NONE: &str = "\
## No limiter

A process stopped for 25 of each 125 ms is a sender that stands still; a plain veth has no limiter.

| set-up | kind | stall share | limiter falsely seen | holds |
|---|---|---:|---:|---|
";
const UNSHAPED: u32 = 20;

/// One token bucket, played and put down.
fn bucket(sheet: &mut Sheet, set_up: &str, scenario: &Scenario, truth: fn(&Observed) -> Truth) {
    for run in runs(set_up).filter(|run| sheet.wants(run)).collect::<Vec<_>>() {
        let played = played(scenario, &run);
        let has = truth(&played);
        let l = limiter(&played);
        let (here, afar) = (Off::of_report(&l, has), Off::of_estimate(&from_afar(&played).estimate, has));
        let two = here.holds_here(has, 1.0);
        let cells = [
            here.kind.name().to_owned(),
            percent(here.rate),
            here.burst.map_or_else(|| "—".to_owned(), |b| format!("{b:+.0}")),
            lost(here.lost),
            percent(afar.rate),
            afar.inside.map_or("—", |i| if i { "yes" } else { "no" }).to_owned(),
            lost(afar.lost),
            if two { "yes" } else { "no" }.to_owned(),
        ];
        let one = afar.holds_from_afar(1.0);
        if !two || !one {
            eprintln!("{l:?}\n{:?}", from_afar(&played));
        }
        sheet.put(&run, &cells, two && one);
    }
}

#[test]
#[ignore = "minutes: cargo xtask bench limiter"]
fn series_of_limiters() {
    needs_root!();
    let tbfs: Vec<(u64, u64)> =
        [10, 50, 200].into_iter().flat_map(|r| [16, 64, 256].map(|b| (r, b))).collect();
    let htbs = [(20, 32), (100, 64)];
    let credits = [10, 100];
    let named = |kind: &str, (mbit, kib): (u64, u64)| format!("{kind} {mbit} Mbit/s, {kib} KiB");
    let mut sheet = Sheet::new(
        "Limiters, measured\n\n`cargo xtask bench limiter`: three runs each, the third beside two threads that burn the CPUs.",
    );
    let all = tbfs.iter().map(|b| named("tbf", *b)).chain(htbs.iter().map(|b| named("htb", *b)));
    sheet.table(BUCKETS, all.flat_map(|s| runs(&s).collect::<Vec<_>>()));
    sheet.table(CREDIT, credits.iter().flat_map(|m| runs(&format!("credit {m} Mbit/s")).collect::<Vec<_>>()));
    let stalls: Vec<String> = runs("descheduled sender").collect();
    sheet.table(NONE, stalls.iter().cloned().chain(["unshaped".to_owned()]));

    for b in tbfs {
        bucket(&mut sheet, &named("tbf", b), &overloaded(b.0, b.1), tbf);
    }
    for b in htbs {
        bucket(&mut sheet, &named("htb", b), &overloaded_htb(b.0, b.1), htb);
    }
    for mbit in credits {
        let (scenario, credit) = credited(mbit);
        for run in runs(&format!("credit {mbit} Mbit/s")).filter(|run| sheet.wants(run)).collect::<Vec<_>>() {
            let played = played(&scenario, &run);
            let (l, e) = (limiter(&played), through_the_pair(&played));
            let period = |t: Option<f64>| t.map(|t| t - credit.period.as_secs_f64());
            let quantum = |q: Option<f64>| q.map(|q| q - credit.quantum_bytes as f64);
            let off = |t: Option<f64>, q: Option<f64>| (period(t), quantum(q));
            let (here, by_points) = (off(l.period_s, l.quantum_bytes), off(e.period_s, e.quantum_bytes));
            let near = |kind: Kind, (t, q): (Option<f64>, Option<f64>)| {
                kind == Kind::Credit
                    && t.is_some_and(|t| t.abs() <= TICK_S)
                    && q.is_some_and(|q| q.abs() <= L2)
            };
            let ms = |t: Option<f64>| t.map_or_else(|| "—".to_owned(), |t| format!("{:+.3}", t * 1e3));
            let bytes = |q: Option<f64>| q.map_or_else(|| "—".to_owned(), |q| format!("{q:+.0}"));
            let holds = near(l.kind, here) && near(e.kind, by_points);
            if !holds {
                eprintln!("{l:?}\n{e:?}");
            }
            let rate = l.rate_bit_s.map(|r| r / (mbit as f64 * 1e6) - 1.0);
            let cells = [
                l.kind.name().to_owned(),
                ms(here.0),
                bytes(here.1),
                percent(rate),
                e.kind.name().to_owned(),
                ms(by_points.0),
                bytes(by_points.1),
            ];
            sheet.put(&run, &cells, holds);
        }
    }
    for run in stalls.iter().filter(|run| sheet.wants(run)).cloned().collect::<Vec<_>>() {
        let l = {
            let _busy = run.ends_with("busy").then(Busy::start);
            descheduled().total.limiter.clone().unwrap()
        };
        let held = l.kind == Kind::SenderStall;
        if !held {
            eprintln!("{l:?}");
        }
        let cells = [l.kind.name().to_owned(), percent(Some(l.stall_share)), "—".to_owned()];
        sheet.put(&run, &cells, held);
    }
    if sheet.wants("unshaped") {
        let mut kinds = Vec::new();
        for i in 0..UNSHAPED {
            eprintln!("unshaped, {} of {UNSHAPED}", i + 1);
            kinds.push(limiter(&play(&constant(5_000.0, 5_000, 160))).kind);
        }
        let seen = kinds.iter().filter(|k| matches!(k, Kind::Tbf | Kind::Credit | Kind::Unknown)).count();
        kinds.dedup();
        let names: Vec<_> = kinds.iter().map(|k| k.name()).collect();
        let cells = [names.join(", "), "—".to_owned(), format!("{seen} of {UNSHAPED}")];
        sheet.put("unshaped", &cells, seen == 0);
    }
    println!("{}", sheet.text());
}
