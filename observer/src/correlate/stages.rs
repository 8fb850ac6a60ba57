//! One journey's points → its components.
//!
//! The four components of a complete journey sum exactly to its total. A
//! point that was not seen takes away the components it bounds, and nothing
//! else. Clocks of two CPUs may disagree by well under a microsecond: a
//! difference in (−1 µs, 0) becomes 0 and the later point is moved to the
//! earlier, so that the sum still holds; anything below is an error, and the
//! component is not known.

use observer_ebpf::abi::{JourneyRecord, WaitKind, flag};
use serde::{Deserialize, Serialize};

use super::waits::{Thread, WaitBook};
use crate::component::{Component, Part};

/// Differences above this and below 0 are two CPUs' clocks, not an error.
/// CLOCK_MONOTONIC read on two CPUs of one host was seen to step back by some
/// tens of ns; a microsecond is far above that and far below any tail.
pub const STEP_BACK_NS: i64 = -1_000;

/// What is known of one journey, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stages {
    /// By [`Component`]; `None` is not known.
    pub components: [Option<u64>; Component::COUNT],
    /// app_dequeue − offer.
    pub total: Option<u64>,
    /// By [`Part`]; `None` is not known or, for the qdisc, none there.
    pub parts: [Option<u64>; Part::COUNT],
    /// By component, the total last: a difference was taken as 0.
    pub negative: [bool; Component::COUNT + 1],
    /// By component, the total last: a difference was an error.
    pub out_of_order: [bool; Component::COUNT + 1],
    /// A point inside the component, so one of its parts, was out of order.
    pub parts_out_of_order: [bool; Component::COUNT],
    /// Waits of its time have been forgotten.
    pub waits_forgotten: bool,
}

/// Index of the total in [`Stages::negative`] and [`Stages::out_of_order`].
pub const TOTAL: usize = Component::COUNT;

impl Stages {
    /// One component.
    pub fn component(&self, component: Component) -> Option<u64> {
        self.components[component as usize]
    }

    /// One part.
    pub fn part(&self, part: Part) -> Option<u64> {
        self.parts[part as usize]
    }

    /// Whether all components and the total are known.
    pub fn is_complete(&self) -> bool {
        self.total.is_some() && self.components.iter().all(Option::is_some)
    }

    fn set(&mut self, part: Part, ns: Option<u64>) {
        self.parts[part as usize] = ns;
    }
}

/// The points as signed times; `None` was not seen.
struct Points {
    offer: Option<i64>,
    syscall: Option<i64>,
    dev_queue: Option<i64>,
    rx: Option<i64>,
    sock_enqueue: Option<i64>,
    app_dequeue: Option<i64>,
}

impl Points {
    fn of(r: &JourneyRecord, sender_here: bool) -> Self {
        // A sender elsewhere reads another clock: its offer cannot be compared.
        let offer_comparable = r.flags & flag::RX_ONLY == 0 || sender_here;
        Self {
            offer: (r.offer_ns > 0 && offer_comparable).then_some(r.offer_ns),
            syscall: seen(r.syscall_ns),
            dev_queue: seen(r.dev_queue_ns),
            rx: seen(r.rx_ns),
            sock_enqueue: seen(r.sock_enqueue_ns),
            app_dequeue: seen(r.app_dequeue_ns),
        }
    }
}

/// A kernel point. Times beyond 2^63 ns, 292 years, are no times.
fn seen(ns: u64) -> Option<i64> {
    i64::try_from(ns).ok().filter(|ns| *ns > 0)
}

/// Computes the stages of `r`. `sender_here` says that the sender was seen on
/// this host, so that the offer is on the same clock even where the way out
/// was missed.
pub fn stages(r: &JourneyRecord, waits: &WaitBook, sender_here: bool) -> Stages {
    let p = Points::of(r, sender_here);
    let mut s = Stages::default();
    let shaper = shaper(r, &p);

    s.judge(Component::SenderQueue as usize, p.offer, p.dev_queue, 0);
    s.components[Component::Shaper as usize] = shaper.map(i64::unsigned_abs);
    if let Some(shaper) = shaper {
        s.judge(Component::Wire as usize, p.dev_queue, p.rx, shaper);
    }
    s.judge(Component::Receiver as usize, p.rx, p.app_dequeue, 0);
    s.judge(TOTAL, p.offer, p.app_dequeue, 0);
    let p = s.straighten(p);

    let sender = (r.tx_tid != 0).then(|| waits.thread(r.tx_tid));
    s.sender_parts(&p, sender);
    if shaper.is_some() {
        s.set(Part::SlowestHop, Some(r.slowest_hop_ns));
        s.set(Part::SlowestQdisc, (r.slowest_qdisc_ns > 0).then_some(r.slowest_qdisc_ns));
    }
    // Behind a qdisc the sending thread has no part in what follows.
    s.wire_parts(&p, sender.filter(|_| r.dequeue_ns == 0));
    s.receiver_parts(&p, r, waits);
    s
}

/// Σ over the finished hops, if every hop begun was finished.
fn shaper(r: &JourneyRecord, p: &Points) -> Option<i64> {
    let finished = p.dev_queue.is_some() && r.hops > 0 && r.hop_start_ns == 0;
    finished.then(|| i64::try_from(r.shaper_ns).ok()).flatten()
}

enum Judged {
    Known(u64),
    StepBack,
    OutOfOrder,
}

fn judge(difference: i64) -> Judged {
    match u64::try_from(difference) {
        Ok(ns) => Judged::Known(ns),
        Err(_) if difference > STEP_BACK_NS => Judged::StepBack,
        Err(_) => Judged::OutOfOrder,
    }
}

impl Stages {
    /// Fills component (or total) `which` with `to` − `from` − `less`.
    fn judge(&mut self, which: usize, from: Option<i64>, to: Option<i64>, less: i64) {
        let (Some(from), Some(to)) = (from, to) else { return };
        // All three are in [0, 2^63): only the second subtraction can overflow,
        // and then the points are 146 years out of order.
        let value = match judge((to - from).saturating_sub(less)) {
            Judged::Known(ns) => Some(ns),
            Judged::StepBack => {
                self.negative[which] = true;
                Some(0)
            }
            Judged::OutOfOrder => {
                self.out_of_order[which] = true;
                None
            }
        };
        match self.components.get_mut(which) {
            Some(component) => *component = value,
            None => self.total = value,
        }
    }

    /// Moves points that lie a clock's step before their predecessor onto it,
    /// so that the components of a complete journey sum to its total.
    fn straighten(&mut self, mut p: Points) -> Points {
        if !self.is_complete() || !self.negative.contains(&true) {
            return p;
        }
        let (Some(offer), Some(dev_queue), Some(rx), Some(app_dequeue), Some(shaper)) =
            (p.offer, p.dev_queue, p.rx, p.app_dequeue, self.component(Component::Shaper))
        else {
            return p;
        };
        let shaper = shaper.cast_signed();
        let dev_queue = dev_queue.max(offer);
        let rx = rx.max(dev_queue.saturating_add(shaper));
        let app_dequeue = app_dequeue.max(rx);
        self.components[Component::SenderQueue as usize] = Some((dev_queue - offer).unsigned_abs());
        self.components[Component::Wire as usize] = Some((rx - dev_queue - shaper).unsigned_abs());
        self.components[Component::Receiver as usize] = Some((app_dequeue - rx).unsigned_abs());
        self.total = Some((app_dequeue - offer).unsigned_abs());
        (p.dev_queue, p.rx, p.app_dequeue) = (Some(dev_queue), Some(rx), Some(app_dequeue));
        p
    }

    /// `thread`: `None` if the sending thread is not known, `Some(None)` if it
    /// has not waited.
    fn sender_parts(&mut self, p: &Points, thread: Option<Option<&Thread>>) {
        if self.component(Component::SenderQueue).is_none() {
            return;
        }
        let (Some(offer), Some(dev_queue)) = (p.offer, p.dev_queue) else { return };
        let halves = self.split(Component::SenderQueue, offer, p.syscall, dev_queue);
        self.set(Part::BeforeSyscall, halves.map(|h| h.0));
        self.set(Part::InCall, halves.map(|h| h.1));
        if let Some(thread) = thread {
            let blocked = self.waited(thread, WaitKind::SendBuffer, offer, dev_queue);
            self.set(Part::SndbufBlocked, blocked);
            let starved = self.waited(thread, WaitKind::RunQueue, offer, dev_queue);
            self.set(Part::SenderRunQueue, starved);
        }
    }

    /// Where no qdisc decouples them, the sending thread itself carries the
    /// datagram into the receiving stack (lo, veth): then it waits with it.
    fn wire_parts(&mut self, p: &Points, thread: Option<Option<&Thread>>) {
        let Some(wire) = self.component(Component::Wire) else { return };
        let (Some(dev_queue), Some(rx)) = (p.dev_queue, p.rx) else { return };
        if let Some(thread) = thread {
            let starved = self.waited(thread, WaitKind::RunQueue, dev_queue, rx);
            self.set(Part::WireRunQueue, starved.map(|ns| ns.min(wire)));
        }
    }

    fn receiver_parts(&mut self, p: &Points, r: &JourneyRecord, waits: &WaitBook) {
        if self.component(Component::Receiver).is_none() {
            return;
        }
        let (Some(rx), Some(app_dequeue)) = (p.rx, p.app_dequeue) else { return };
        let halves = self.split(Component::Receiver, rx, p.sock_enqueue, app_dequeue);
        self.set(Part::Softirq, halves.map(|h| h.0));
        self.set(Part::SocketQueue, halves.map(|h| h.1));
        if r.rx_tid != 0 {
            let from = p.sock_enqueue.unwrap_or(rx);
            let starved = self.waited(waits.thread(r.rx_tid), WaitKind::RunQueue, from, app_dequeue);
            self.set(Part::ReceiverRunQueue, starved);
        }
    }

    /// Splits [`from`, `to`] at `at`; the halves sum to it. `None` if `at` was
    /// not seen or lies outside by more than a clock's step.
    fn split(&mut self, of: Component, from: i64, at: Option<i64>, to: i64) -> Option<(u64, u64)> {
        let at = at?;
        let to = to.max(from);
        if at - from <= STEP_BACK_NS || to - at <= STEP_BACK_NS {
            self.parts_out_of_order[of as usize] = true;
            return None;
        }
        let at = at.clamp(from, to);
        Some(((at - from).unsigned_abs(), (to - at).unsigned_abs()))
    }

    fn waited(&mut self, thread: Option<&Thread>, kind: WaitKind, from: i64, to: i64) -> Option<u64> {
        // A thread without entries has not waited.
        let Some(thread) = thread else { return Some(0) };
        let overlap = thread.overlap(kind, from.unsigned_abs(), to.unsigned_abs());
        self.waits_forgotten |= overlap.is_none();
        overlap
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::synthetic::{START_NS, journey, wait};
    use proptest::prelude::*;

    fn of(r: &JourneyRecord) -> Stages {
        stages(r, &WaitBook::default(), false)
    }

    #[test]
    fn a_complete_journey_splits_into_its_four_components() {
        let s = of(&journey(1, 0, 0));
        assert_eq!(s.components, [2_000, 1_000, 3_000, 4_000].map(Some));
        assert_eq!(s.total, Some(10_000));
        assert_eq!(s.part(Part::BeforeSyscall), Some(500));
        assert_eq!(s.part(Part::InCall), Some(1_500));
        assert_eq!(s.part(Part::SlowestHop), Some(1_000));
        assert_eq!(s.part(Part::SlowestQdisc), None);
        assert_eq!(s.part(Part::Softirq), Some(1_000));
        assert_eq!(s.part(Part::SocketQueue), Some(3_000));
        assert_eq!(s.part(Part::ReceiverRunQueue), Some(0));
    }

    #[test]
    fn a_missing_point_takes_away_what_it_bounds_and_no_more() {
        let r = journey(1, 0, 0);
        let known = |r: JourneyRecord| of(&r).components.map(|c| c.is_some());
        assert_eq!(known(JourneyRecord { rx_ns: 0, ..r }), [true, true, false, false]);
        assert_eq!(known(JourneyRecord { dev_queue_ns: 0, ..r }), [false, false, false, true]);
        assert_eq!(known(JourneyRecord { hops: 0, ..r }), [true, false, false, true]);
        assert_eq!(known(JourneyRecord { hop_start_ns: 9, ..r }), [true, false, false, true]);
        assert_eq!(known(JourneyRecord { app_dequeue_ns: 0, ..r }), [true, true, true, false]);
        let s = of(&JourneyRecord { rx_ns: 0, ..r });
        assert_eq!(s.total, Some(10_000));
        assert!(!s.is_complete());
        let s = of(&JourneyRecord { syscall_ns: 0, sock_enqueue_ns: 0, ..r });
        assert!(s.is_complete());
        for part in [Part::BeforeSyscall, Part::InCall, Part::Softirq, Part::SocketQueue] {
            assert_eq!(s.part(part), None, "never guessed");
        }
    }

    #[test]
    fn the_offer_of_another_host_is_not_compared() {
        let r = JourneyRecord { flags: flag::RX_ONLY, dev_queue_ns: 0, hops: 0, ..journey(1, 0, 0) };
        assert_eq!(of(&r).total, None);
        assert_eq!(of(&r).component(Component::Receiver), Some(4_000));
        assert_eq!(stages(&r, &WaitBook::default(), true).total, Some(10_000));
    }

    #[test]
    fn a_small_step_back_is_zero_and_a_large_one_an_error() {
        let r = journey(1, 0, 0);
        let s = of(&JourneyRecord { rx_ns: r.xmit_ns - 999, ..r });
        assert_eq!(s.component(Component::Wire), Some(0));
        assert!(s.negative[Component::Wire as usize] && s.is_complete());
        let s = of(&JourneyRecord { rx_ns: r.xmit_ns - 1_000, ..r });
        assert_eq!(s.component(Component::Wire), None);
        assert!(s.out_of_order[Component::Wire as usize] && !s.is_complete());
        assert_eq!(s.total, Some(10_000));
    }

    #[test]
    fn waits_are_split_off_their_own_side() {
        let r = journey(1, 0, 0);
        let mut book = WaitBook::default();
        book.add(&wait(WaitKind::SendBuffer, r.tx_tid, START_NS - 500, 1_000));
        book.add(&wait(WaitKind::RunQueue, r.tx_tid, START_NS + 1_900, 1_000));
        book.add(&wait(WaitKind::RunQueue, r.rx_tid, START_NS, 7_500));
        let s = stages(&r, &book, false);
        assert_eq!(s.part(Part::SndbufBlocked), Some(500));
        assert_eq!(s.part(Part::SenderRunQueue), Some(100));
        assert_eq!(s.part(Part::WireRunQueue), Some(900));
        assert_eq!(s.part(Part::ReceiverRunQueue), Some(500));
        let behind_a_qdisc = stages(&JourneyRecord { dequeue_ns: 1, ..r }, &book, false);
        assert_eq!(behind_a_qdisc.part(Part::WireRunQueue), None);
    }

    fn time() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), 1_u64..20_000, 1_u64..2_000, any::<u64>()]
    }

    proptest! {
        #[test]
        fn complete_journeys_sum_exactly_and_no_journey_panics(
            offer: i64, near in 1_i64..5_000, use_near: bool,
            t in proptest::collection::vec(time(), 6), shaper in time(), hops in 0_u16..3, open: bool,
        ) {
            let r = JourneyRecord {
                offer_ns: if use_near { near } else { offer },
                syscall_ns: t[0], dev_queue_ns: t[1], rx_ns: t[2], sock_enqueue_ns: t[3],
                app_dequeue_ns: t[4], dequeue_ns: t[5], shaper_ns: shaper, hops,
                hop_start_ns: u64::from(open),
                ..journey(1, 0, 0)
            };
            let s = of(&r);
            if s.is_complete() {
                let sum: u64 = s.components.iter().flatten().sum();
                prop_assert_eq!(Some(sum), s.total);
                // Straightening moves points by less than a step each.
                let raw = i128::from(r.app_dequeue_ns) - i128::from(r.offer_ns);
                prop_assert!((i128::from(sum) - raw).abs() < 3_000);
            }
            for c in [Component::SenderQueue, Component::Receiver] {
                let pair = if c == Component::SenderQueue {
                    [Part::BeforeSyscall, Part::InCall]
                } else {
                    [Part::Softirq, Part::SocketQueue]
                };
                if let [Some(a), Some(b)] = pair.map(|p| s.part(p)) {
                    prop_assert_eq!(Some(a + b), s.component(c));
                }
            }
        }

        #[test]
        fn points_in_order_with_small_jitter_are_complete(
            steps in proptest::collection::vec(-900_i64..5_000, 4),
        ) {
            let mut at = 1_000_000_i64;
            let mut next = |step: i64| { at += step; at.unsigned_abs() };
            let offer = 1_000_000;
            let dev_queue = next(steps[0]);
            let shaper = steps[1].max(0).unsigned_abs();
            let rx = next(steps[1].max(0)) .wrapping_add_signed(steps[2]);
            let app = rx.wrapping_add_signed(steps[3]);
            // Two steps back in a row may add up to more than one.
            prop_assume!(app + 999 > offer);
            let r = JourneyRecord {
                offer_ns: offer.cast_signed(), dev_queue_ns: dev_queue, shaper_ns: shaper, rx_ns: rx,
                app_dequeue_ns: app, sock_enqueue_ns: 0, ..journey(1, 0, 0)
            };
            let s = of(&r);
            prop_assert!(s.is_complete());
            prop_assert_eq!(Some(s.components.iter().flatten().sum::<u64>()), s.total);
            prop_assert_eq!(s.negative[0], steps[0] < 0);
            prop_assert_eq!(s.negative[2], steps[2] < 0);
            prop_assert_eq!(s.negative[3], steps[3] < 0);
        }
    }
}
