//! The tail above each quotable quantile, taken apart.
//!
//! A component's *share* is Σc / Σtotal over the tail; its *excess share* is
//! Σ(c − median c) / Σ(total − median total), so that what is always slow does
//! not pass for what makes the tail. Nothing is clamped: a component that is
//! faster than its median in the tail has a negative excess.

use std::collections::BTreeMap;

use crate::component::{Component, Part};
use crate::metrics::tail::TailMakeup;
use crate::metrics::{Latency, Quantile, Window};
use crate::report::{Shares, Tail};

/// The quantiles whose tails are taken apart, lowest first.
pub const JUDGED: [Quantile; 2] = [Quantile::P99, Quantile::P999];

/// Takes apart every tail for which there are enough complete journeys.
pub fn tails(window: &Window) -> Vec<Tail> {
    JUDGED.into_iter().filter_map(|q| window.tail.above(q).and_then(|t| tail(window, &t))).collect()
}

/// Name of a part across components: `receiver_socket_queue`.
pub fn part_name(part: Part) -> String {
    format!("{}_{}", part.component().name(), part.name())
}

fn tail(window: &Window, t: &TailMakeup) -> Option<Tail> {
    let threshold_ns = window.complete.quantile(t.quantile)?;
    let mean_ns = window.complete.mean_above(t.quantile)?;
    let median_ns = window.complete.median()?;
    let n = float(t.count);
    let median = |latency: &Latency| float(latency.median().unwrap_or(0));
    let excess = t.total_ns - n * median(&window.complete);

    let component_excess = |c: Component| {
        let i = c as usize;
        (t.components_ns[i] - n * median(&window.components[i])) / excess
    };
    let seen = || Part::ALL.into_iter().filter(|p| window.parts[*p as usize].count() > 0);
    let of_total = |ns: f64| if t.total_ns > 0.0 { round(ns / t.total_ns) } else { 0.0 };
    let part_share = seen().map(|p| (part_name(p), of_total(t.parts_ns[p as usize]))).collect();
    let part_excess_share: BTreeMap<String, f64> = seen()
        .filter(|_| excess > 0.0)
        .map(|p| {
            let i = p as usize;
            (part_name(p), round((t.parts_ns[i] - n * median(&window.parts[i])) / excess))
        })
        .collect();
    let stalled = window.stalls.above(threshold_ns);
    Some(Tail {
        quantile: t.quantile.as_f64(),
        threshold_ns,
        count: t.count,
        mean_ns,
        excess_ns: mean_ns.cast_signed().saturating_sub(median_ns.cast_signed()),
        share: shares(|c| of_total(t.components_ns[c as usize])),
        excess_share: (excess > 0.0).then(|| shares(|c| round(component_excess(c)))),
        part_share,
        part_excess_share,
        slowest_hop: t.hop,
        waited_ns: stalled.waited_ns,
        stolen_ns: stalled.stolen_ns,
    })
}

fn shares(of: impl Fn(Component) -> f64) -> Shares {
    Shares {
        sender_queue: of(Component::SenderQueue),
        shaper: of(Component::Shaper),
        wire: of(Component::Wire),
        receiver: of(Component::Receiver),
    }
}

/// Six decimals: the rest is noise, and would make equal reports differ.
fn round(share: f64) -> f64 {
    (share * 1e6).round() / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "ns below 2^53, 104 days")]
fn float(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::Correlator;
    use crate::source::synthetic::journey;
    use observer_ebpf::abi::JourneyRecord;

    #[test]
    fn shares_and_excess_shares_are_those_of_the_definition() {
        let mut window = Window::default();
        let mut correlator = Correlator::default();
        for n in 0..10_000 {
            let mut r = journey(1, 0, n);
            // Of a hundred, one waits 90 µs in the shaper and 10 µs in the socket.
            if n % 100 == 0 {
                r = JourneyRecord {
                    shaper_ns: 91_000,
                    slowest_hop_ns: 91_000,
                    rx_ns: r.rx_ns + 90_000,
                    sock_enqueue_ns: r.sock_enqueue_ns + 90_000,
                    app_dequeue_ns: r.app_dequeue_ns + 100_000,
                    ..r
                };
            }
            window.record(&correlator.journey(&r));
        }
        let [p99, p999] = tails(&window).try_into().unwrap();
        assert_eq!((p99.quantile, p99.count, p999.count), (0.99, 100, 10));
        assert_eq!((p99.mean_ns, p99.excess_ns), (110_000, 110_000 - 10_007));
        let close =
            |found: f64, expected: f64| assert!((found - expected).abs() < 2e-3, "{found} {expected}");
        close(p99.share.shaper, 91.0 / 110.0);
        close(p99.share.sender_queue, 2.0 / 110.0);
        let excess = p99.excess_share.unwrap();
        close(excess.shaper, 0.9);
        close(excess.receiver, 0.1);
        close(excess.sender_queue, 0.0);
        close(p99.part_excess_share["receiver_socket_queue"], 0.1);
        close(p99.part_share["shaper_slowest_hop"], 91.0 / 110.0);
        assert!(!p99.part_share.contains_key("shaper_slowest_qdisc"), "never seen");
        assert_eq!(p99.slowest_hop.map(|h| h.span_ns), Some(91_000));
    }

    #[test]
    fn no_tail_is_taken_apart_before_it_can_be_quoted() {
        let mut window = Window::default();
        let mut correlator = Correlator::default();
        for n in 0..9_999 {
            window.record(&correlator.journey(&journey(1, 0, n)));
        }
        assert_eq!(tails(&window).iter().map(|t| t.quantile).collect::<Vec<_>>(), [0.99]);
    }
}
