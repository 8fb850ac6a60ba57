//! Judging with synthetic reports.

use load::watch::Seen;
use load::workload::expect::{Component as Of, Expectation, Measured, Metric, Point};
use load::workload::ramp::RampStop;
use load::{Finding, Verdict, workload};

use super::accounts::{Account, Moved, reconcile};
use super::{check, judge, seen};
use crate::pipeline::Pipeline;
use crate::report::Report;
use crate::source::synthetic::{Plan, QDISC_DROP, Spread, Synthetic};

fn report(plan: Plan) -> Report {
    Pipeline::run(&mut Synthetic::new(plan)).unwrap().total.as_ref().clone()
}

/// What everybody else says when nothing is wrong.
fn agreeing(r: &Report) -> Account {
    let full = r.counts.dropped.get("SOCKET_RCVBUFF").copied().unwrap_or(0);
    Account {
        sent: r.counts.sent.unwrap(),
        read: Some(r.counts.delivered),
        odd: 0,
        socket_drops: Some(full),
        moved: Moved { rcvbuf_errors: Some(full), qdisc_drops: Some(0) },
    }
}

fn expect(name: &str, text: &str) -> Expectation {
    Expectation::parse(Metric::parse(name).unwrap(), text).unwrap()
}

fn slow_receiver() -> Plan {
    Plan { receiver: Spread::Uniform(5_000, 90_000_000), drop_every: 8, ..Plan::default() }
}

fn find<'a>(all: &'a [Finding], check: &str) -> Option<&'a Finding> {
    all.iter().find(|f| f.check == check)
}

#[test]
fn objectives_are_judged_on_the_observers_components() {
    let r = report(Plan { shaper: Spread::Constant(4_000_000), ..Plan::default() });
    let watched = seen::watched(&[], &r, vec![]).unwrap();
    let at = |c, p| watched.measured(c, p).unwrap();
    let Measured::Value(p99) = at(Of::Shaper, Point::Quantile(0.99)) else { panic!() };
    assert!((3.9e6..4.2e6).contains(&p99), "{p99}");
    assert!(expect("shaper_p99", "< 5ms").judge(Measured::Value(p99)).is_none());
    assert!(expect("shaper_p99", "< 3ms").judge(Measured::Value(p99)).is_some());
    let order: Vec<Of> = watched.seen.iter().map(|s: &Seen| s.component).collect();
    assert_eq!(order, [Of::SenderQueue, Of::Shaper, Of::Wire, Of::Receiver, Of::Total]);
    assert_eq!(watched.measured(Of::Intended, Point::Max), None, "load's own");
    assert_eq!(watched.report["schema"], "observer-report/1");
}

#[test]
fn a_missed_objective_names_its_culprit_and_the_ramp_its_cause() {
    let r = report(slow_receiver());
    let objectives = [
        expect("total_p99", "< 1ms"),
        expect("receiver_p99", "< 1ms"),
        expect("loss", "< 1%"),
        expect("send_lag_p99", "< 1ms"),
    ];
    let watched = seen::watched(&objectives, &r, vec![]).unwrap();
    let why = |i: usize| watched.cause(objectives[i].metric);
    assert!(why(0).unwrap().starts_with("culprit receiver: "), "{:?}", why(0));
    assert!(why(1).unwrap().starts_with("culprit receiver, at p99: socket queue "), "{:?}", why(1));
    assert!(why(2).unwrap().starts_with("dropped SOCKET_RCVBUFF 2,500; culprit receiver"), "{:?}", why(2));
    assert_eq!(why(3), None);
    assert_eq!(watched.stop, Some(RampStop::ReceiverBehind));
    let shaped = report(Plan { shaper: Spread::Ramp(40_000_000), ..Plan::default() });
    assert_eq!(seen::watched(&[], &shaped, vec![]).unwrap().stop, Some(RampStop::LimiterEngaged));
    assert_eq!(seen::watched(&[], &report(Plan::default()), vec![]).unwrap().stop, None);
}

#[test]
fn accounts_that_differ_are_invalid_and_named() {
    let r = report(slow_receiver());
    let good = agreeing(&r);
    assert_eq!(reconcile(&r, &good), None);
    let told = |a: Account| reconcile(&r, &a).map(|f| (f.level, f.detail)).unwrap();
    for (account, said) in [
        (Account { sent: good.sent + 1, ..good }, "the sockets took"),
        (Account { read: good.read.map(|n| n - 1), ..good }, "the receiver read"),
        (Account { read: good.read.map(|n| n + 1), ..good }, "the receiver read"),
        (Account { socket_drops: Some(2_499), ..good }, "the socket dropped 2,499"),
        (
            Account { moved: Moved { rcvbuf_errors: Some(9), ..good.moved }, ..good },
            "UdpRcvbufErrors grew by 9",
        ),
    ] {
        let (level, detail) = told(account);
        assert_eq!(level, Verdict::Invalid);
        assert!(detail.contains(said), "{detail}");
    }
    // Others drop in the same namespace, or arrive at the same socket: no contradiction.
    let busy = Moved { rcvbuf_errors: Some(1 << 20), qdisc_drops: Some(1 << 20) };
    for account in [
        Account { moved: busy, ..good },
        Account { socket_drops: good.socket_drops.map(|n| n + 7), ..good },
        Account { socket_drops: None, moved: Moved::default(), ..good },
        Account { read: None, socket_drops: None, ..good },
    ] {
        assert_eq!(reconcile(&r, &account), None, "{account:?}");
    }
}

#[test]
fn what_the_observer_missed_may_have_been_read() {
    let mut r = report(Plan::default());
    r.counts.delivered -= 50;
    r.counts.unobserved = 50;
    let account = Account { read: Some(r.counts.delivered + 50), ..agreeing(&r) };
    assert_eq!(reconcile(&r, &account), None);
    let lost = Account { read: Some(r.counts.delivered), ..account };
    assert_eq!(reconcile(&r, &lost), None);
    let more = Account { read: Some(r.counts.delivered + 51), ..account };
    assert!(reconcile(&r, &more).is_some());
}

#[test]
fn a_run_whose_stamps_were_out_of_reach_is_invalid() {
    let mut r = report(Plan::default());
    r.counts.lost_events.insert("paged".into(), r.counts.delivered);
    let account = agreeing(&r);
    let level = |r: &Report| {
        let all = judge::findings(&[], r, &account, &[]);
        find(&all, "observer-complete").map(|f| f.level)
    };
    // As many packets of somebody else's.
    assert_eq!(level(&r), None);
    r.counts.partial = r.counts.delivered;
    r.findings = r
        .findings
        .iter()
        .cloned()
        .map(|f| crate::report::Finding { level: crate::report::Level::Warning, ..f })
        .collect();
    assert_eq!(level(&r), Some(Verdict::Invalid));
}

#[test]
fn drops_are_laid_at_the_component_and_fail_where_loss_is_an_objective() {
    let r = report(slow_receiver());
    let warned = judge::findings(&[], &r, &agreeing(&r), &[]);
    let f = find(&warned, "receiver-kept-up").unwrap();
    assert_eq!(f.level, Verdict::Warning);
    assert!(f.observed.contains("2,500 datagrams") && f.detail.contains("in the socket queue"), "{f:?}");
    assert!(find(&warned, "shaper-kept-up").is_none() && find(&warned, "wire-kept-up").is_none());
    let failed = judge::findings(&[expect("loss", "< 1%")], &r, &agreeing(&r), &[]);
    assert_eq!(find(&failed, "receiver-kept-up").unwrap().level, Verdict::Failed);
    let allowed = judge::findings(&[expect("loss", "< 50%")], &r, &agreeing(&r), &[]);
    assert_eq!(find(&allowed, "receiver-kept-up").unwrap().level, Verdict::Warning);

    let r = report(Plan { drop_every: 8, drop_reason: QDISC_DROP, ..Plan::default() });
    let all = judge::findings(&[], &r, &agreeing(&r), &[]);
    assert!(find(&all, "shaper-kept-up").is_some() && find(&all, "receiver-kept-up").is_none());
}

#[test]
fn waiting_for_a_cpu_is_held_against_the_objective_it_is_part_of() {
    // Receiver waits up to 90 ms, 60 % of it without a CPU: p99 near 53 ms.
    let r = report(Plan { run_queue_percent: 60, drop_every: 0, ..slow_receiver() });
    let level = |name: &str, text: &str| {
        let all = judge::findings(&[expect(name, text)], &r, &agreeing(&r), &[]);
        find(&all, "host-was-quiet").map(|f| f.level)
    };
    assert_eq!(level("receiver_p99", "< 10ms"), Some(Verdict::Invalid));
    assert_eq!(level("total_p99", "< 10ms"), Some(Verdict::Invalid));
    assert_eq!(level("receiver_p99", "< 200ms"), Some(Verdict::Warning));
    assert_eq!(level("receiver_p99", "< 2s"), None);
    assert_eq!(level("shaper_p99", "< 1us"), None, "no thread waits in a qdisc");
    // Without an objective, the observer's own measure.
    let all = judge::findings(&[], &r, &agreeing(&r), &[]);
    assert_eq!(find(&all, "host-was-quiet").map(|f| f.level), Some(Verdict::Warning));
    // A wake-up is no noise, however strict the objective.
    let calm = report(Plan { run_queue_percent: 60, ..Plan::default() });
    let all = judge::findings(&[expect("receiver_p99", "< 1us")], &calm, &agreeing(&calm), &[]);
    assert!(find(&all, "host-was-quiet").is_none_or(|f| f.level == Verdict::Warning));
}

#[test]
fn the_worst_comes_first_and_better_informed_checks_replace_loads() {
    let own = |check, level| Finding {
        check,
        level,
        observed: String::new(),
        means: "load's".into(),
        detail: String::new(),
    };
    let own = [
        own("generator-kept-up", Verdict::Invalid),
        own("counts-reconcile", Verdict::Warning),
        own("receiver-kept-up", Verdict::Warning),
        own("run-was-long-enough", Verdict::Warning),
    ];
    let r = report(slow_receiver());
    let all = judge::findings(&[expect("loss", "< 1%")], &r, &agreeing(&r), &own);
    assert_eq!(all[0].check, "generator-kept-up");
    assert!(all.is_sorted_by_key(|f| std::cmp::Reverse(f.level)));
    assert!(find(&all, "counts-reconcile").is_none(), "every datagram has been accounted for");
    assert_ne!(find(&all, "receiver-kept-up").unwrap().means, "load's");
    assert!(find(&all, "run-was-long-enough").is_some());
}

#[test]
fn a_receiver_elsewhere_is_said_and_not_measured() {
    let mut r = report(Plan::default());
    r.counts.delivered = 0;
    r.counts.unobserved = r.counts.sent.unwrap();
    let account = Account { read: None, socket_drops: None, ..agreeing(&r) };
    let all = judge::findings(&[], &r, &account, &[]);
    let f = find(&all, "observer-complete").unwrap();
    assert_eq!(f.level, Verdict::Invalid);
    assert!(f.observed.contains("none of 20,000 datagrams"), "{}", f.observed);
    assert_eq!(seen::watched(&[], &r, vec![]).unwrap().delivered, None);
}

#[test]
fn an_objective_nobody_can_judge_is_refused_before_anything_is_sent() {
    let parse = |objective: &str| {
        let text =
            format!("[schedule]\nrate = \"1k/s\"\nduration = \"1s\"\n[expect]\n{objective} = \"< 1ms\"\n");
        workload::parse("f.toml", &text).unwrap()
    };
    let said = check("f.toml", &parse("shaper_p99_99")).unwrap_err().to_string();
    assert!(said.contains("f.toml") && said.contains("shaper_p99_99") && said.contains("p99_9"), "{said}");
    for fine in ["shaper_p99_9", "receiver_max", "total_p99_99", "intended_p99_99", "sender_queue_p50"] {
        assert!(check("f.toml", &parse(fine)).is_ok(), "{fine}");
    }
}

#[test]
fn the_warm_up_is_in_the_counts_and_in_no_distribution() {
    use crate::source::{Batch, Progress, Source};
    let mut source = Synthetic::new(Plan { drop_every: 10, ..Plan::default() });
    let mut pipeline = Pipeline::new(source.meta().clone());
    let (mut offers, mut batch) = (Vec::new(), Batch::default());
    loop {
        batch.clear();
        let progress = source.poll(&mut batch).unwrap();
        offers.extend(batch.journeys.iter().map(|j| j.offer_ns));
        // A quarter of 20,000 datagrams, 20 µs apart.
        let first = *offers.iter().min().unwrap_or(&0);
        pipeline.measure_from(first + 5_000 * 20_000);
        pipeline.batch(&batch);
        if progress == Progress::End {
            break;
        }
    }
    let total = pipeline.finish(source.tables(true).unwrap()).total.clone();
    assert_eq!(total.counts.delivered, 18_000);
    assert_eq!(total.components.total.distribution.count, 13_500);
    assert_eq!(total.counts.lost_events.get("records_missing"), None, "{:?}", total.counts);
}
