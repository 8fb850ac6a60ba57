//! Who is to blame for the tail, in one sentence.
//!
//! In: the tails taken apart, the drops, and what the host did meanwhile. The
//! highest quotable quantile is judged. The component with the largest share
//! of the excess is named, unless
//!
//! - there is no tail worth naming ([`FLOOR_NS`]);
//! - the excess is time for which the flow's threads had no CPU
//!   ([`HOST_NOISE_SHARE`]), or the hypervisor had taken the CPUs away
//!   ([`STEAL_SHARE`], [`STOLEN_SHARE`]): then it is the host, not a queue;
//! - it is the sender queue, and most of that was spent blocked on a full send
//!   buffer: then it is what drains the buffer, the shaper.
//!
//! Where nobody is named, drops may still speak ([`LOSS_WORTH_NAMING`]).

pub mod shares;

use crate::component::{Component, Part};
use crate::metrics::Quantile;
use crate::report::{Blame, Counts, Culprit, Host, Shares, SlowestHop, Tail};
use crate::view::units::{count, duration, duration_or_dash, percent};

/// A tail below this is not worth naming. A sleeping reader's wake-up, a timer
/// tick (1 to 4 ms at HZ 1000 to 250) and a softirq handed to ksoftirqd reach
/// hundreds of µs on any general-purpose host; below a millisecond they cannot
/// be told from a queue.
pub const FLOOR_NS: u64 = 1_000_000;

/// Where the tail's mean lies less than this share of itself above the
/// median, the whole distribution is slow, not its tail (a qdisc that stands
/// full): plain shares are judged instead of those of the excess.
pub const EXCESS_SHARE_MIN: f64 = 0.1;

/// Host noise: at least this share of the excess is time in which a thread of
/// the flow was runnable without a CPU…
pub const HOST_NOISE_SHARE: f64 = 0.5;

/// …and what is left without it would not be a tail by itself. Five times the
/// floor: the waits of other threads on the way (ksoftirqd, the hypervisor's
/// vCPUs) are not recorded and come with those that are.
pub const HOST_NOISE_RESIDUE_NS: u64 = 5 * FLOOR_NS;

/// From this share on it is host noise, whatever is left.
pub const HOST_NOISE_CERTAIN: f64 = 0.8;

/// Steal above this may explain a tail (a quiet virtual machine has less than
/// 1 %)…
pub const STEAL_SHARE: f64 = 0.05;

/// …that is no longer than a hypervisor's time slice (Xen's credit scheduler:
/// 30 ms)…
pub const STEAL_SLICE_NS: u64 = 30_000_000;

/// …and is spread over the components, as a thief does not care which queue a
/// datagram is in.
pub const STEAL_SPREAD: f64 = 0.8;

/// Or, whatever the components: the datagrams of the tail were under way for
/// so short a time in all that at least this share of it may have been stolen,
/// second by second. A tail that a thief may explain is no evidence against a
/// queue.
pub const STOLEN_SHARE: f64 = 0.8;

/// Of the sender queue's excess, from this share on blocked on the send
/// buffer, the shaper is to blame.
pub const SNDBUF_SHARE: f64 = 0.5;

/// Loss from this share of the datagrams sent is named though there is no
/// tail.
pub const LOSS_WORTH_NAMING: f64 = 0.001;

/// Judges. `None` while there is too little to say anything.
pub fn judge(tails: &[Tail], counts: &Counts, host: &Host) -> Option<Culprit> {
    let tail = tails.last();
    let mut culprit = match tail {
        Some(tail) if tail.threshold_ns >= FLOOR_NS => Some(by_tail(tail, host)),
        Some(tail) => Some(nobody(tail)),
        None => None,
    };
    let losses = losses(counts);
    match (&mut culprit, losses) {
        (_, None) => {}
        (Some(culprit), Some(loss)) if culprit.component != Blame::None => {
            culprit.cause = format!("{}; {}", culprit.cause, loss.sentence);
        }
        (_, Some(loss)) if loss.share >= LOSS_WORTH_NAMING && loss.blame != Blame::None => {
            culprit =
                Some(Culprit { component: loss.blame, quantile: None, share: None, cause: loss.sentence });
        }
        (Some(culprit), Some(loss)) => culprit.cause = format!("{}; {}", culprit.cause, loss.sentence),
        (None, Some(_)) => {}
    }
    culprit
}

fn nobody(tail: &Tail) -> Culprit {
    Culprit {
        component: Blame::None,
        quantile: Some(tail.quantile),
        share: None,
        cause: format!(
            "no tail worth naming: {} is {}, below {}",
            quantile_name(tail.quantile),
            duration(tail.threshold_ns),
            duration(FLOOR_NS)
        ),
    }
}

/// What a judgement stands on: shares of the tail's excess, or of all of it.
struct Basis<'a> {
    tail: &'a Tail,
    shares: Shares,
    of_excess: bool,
}

impl<'a> Basis<'a> {
    fn of(tail: &'a Tail) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a comparison of magnitudes")]
        let rises = tail.excess_ns as f64 >= EXCESS_SHARE_MIN * tail.mean_ns as f64;
        match tail.excess_share {
            Some(shares) if rises => Self { tail, shares, of_excess: true },
            _ => Self { tail, shares: tail.share, of_excess: false },
        }
    }

    fn part(&self, part: Part) -> f64 {
        let shares = if self.of_excess { &self.tail.part_excess_share } else { &self.tail.part_share };
        shares.get(&shares::part_name(part)).copied().unwrap_or(0.0)
    }

    fn largest(&self) -> Component {
        let by_share = |a: &Component, b: &Component| self.shares.get(*a).total_cmp(&self.shares.get(*b));
        Component::ALL.into_iter().max_by(by_share).unwrap_or(Component::Wire)
    }

    fn run_queue(&self) -> f64 {
        Part::RUN_QUEUE.into_iter().map(|p| self.part(p)).sum()
    }

    /// `92 % of the excess above p99.9 (4.81 ms, 1,204 datagrams)`
    fn opening(&self, share: f64) -> String {
        format!(
            "{} of the {} above {} ({}, {} datagrams)",
            percent(share),
            if self.of_excess { "excess" } else { "time, slow throughout," },
            quantile_name(self.tail.quantile),
            duration(self.tail.threshold_ns),
            count(self.tail.count),
        )
    }

    fn blame(&self, component: Blame, share: f64, cause: String) -> Culprit {
        Culprit { component, quantile: Some(self.tail.quantile), share: Some(share), cause }
    }
}

fn by_tail(tail: &Tail, host: &Host) -> Culprit {
    let basis = Basis::of(tail);
    let largest = basis.largest();
    let share = basis.shares.get(largest);

    if let Some(culprit) = host_noise(&basis, host, share) {
        return culprit;
    }
    let blocked = basis.part(Part::SndbufBlocked);
    if largest == Component::SenderQueue && blocked > SNDBUF_SHARE * share {
        let cause = format!(
            "{} is spent in the sender queue, {} blocked on SO_SNDBUF behind the shaper",
            basis.opening(share),
            percent(blocked)
        );
        return basis.blame(Blame::Shaper, share, cause);
    }
    let cause = format!("{} is {}{}", basis.opening(share), largest.title(), evidence(&basis, largest));
    basis.blame(largest.into(), share, cause)
}

fn host_noise(basis: &Basis<'_>, host: &Host, largest: f64) -> Option<Culprit> {
    // A share of what is always slow says nothing about noise.
    if !basis.of_excess {
        return None;
    }
    let noise = basis.run_queue();
    #[expect(clippy::cast_precision_loss, reason = "a comparison of magnitudes")]
    let (excess, residue, slice) =
        (basis.tail.excess_ns as f64, HOST_NOISE_RESIDUE_NS as f64, STEAL_SLICE_NS as f64);
    let certain = noise >= HOST_NOISE_CERTAIN;
    if certain || (noise > HOST_NOISE_SHARE && excess * (1.0 - noise) < residue) {
        let cause = format!("{} is the flow's threads waiting for a CPU", basis.opening(noise));
        return Some(basis.blame(Blame::HostNoise, noise, cause));
    }
    #[expect(clippy::cast_precision_loss, reason = "a comparison of magnitudes")]
    let (waited, stolen) = (basis.tail.waited_ns as f64, basis.tail.stolen_ns as f64);
    if waited > 0.0 && stolen >= STOLEN_SHARE * waited && excess < slice {
        let cause = format!(
            "the tail above {} ({}, {} datagrams) was under way for {} in all, and the hypervisor took that \
             much CPU time in the same seconds",
            quantile_name(basis.tail.quantile),
            duration(basis.tail.threshold_ns),
            count(basis.tail.count),
            duration(basis.tail.waited_ns),
        );
        return Some(basis.blame(Blame::HostNoise, stolen / waited, cause));
    }
    let steal = host.steal_ratio.filter(|steal| *steal > STEAL_SHARE)?;
    (excess < slice && largest < STEAL_SPREAD).then(|| {
        let cause = format!(
            "the hypervisor took {} of the CPU time; no component has more than {}",
            percent(steal),
            basis.opening(largest)
        );
        basis.blame(Blame::HostNoise, largest, cause)
    })
}

/// What is known about the inside of the component, after a colon or nothing.
fn evidence(basis: &Basis<'_>, component: Component) -> String {
    let part = |part: Part| basis.part(part);
    match component {
        Component::Shaper => basis.tail.slowest_hop.map_or_else(String::new, |hop| hop_evidence(&hop)),
        Component::SenderQueue => {
            if part(Part::BeforeSyscall) >= part(Part::InCall) {
                format!(": {} before the send call", percent(part(Part::BeforeSyscall)))
            } else {
                format!(": {} inside the send call", percent(part(Part::InCall)))
            }
        }
        Component::Receiver => {
            if part(Part::SocketQueue) == 0.0 && part(Part::Softirq) == 0.0 {
                String::new()
            } else if part(Part::SocketQueue) >= part(Part::Softirq) {
                format!(": {} in the socket queue", percent(part(Part::SocketQueue)))
            } else {
                format!(": {} in the softirq, before the socket", percent(part(Part::Softirq)))
            }
        }
        Component::Wire => ": between the last device and the receiving stack".to_owned(),
    }
}

fn hop_evidence(hop: &SlowestHop) -> String {
    match hop.qdisc_ns {
        Some(ns) => format!(": slowest hop ifindex {}, {} in its qdisc", hop.ifindex, duration(ns)),
        None => format!(": slowest hop ifindex {}, {}", hop.ifindex, duration_or_dash(Some(hop.span_ns))),
    }
}

struct Loss {
    blame: Blame,
    share: f64,
    sentence: String,
}

/// What the drops say, by the most frequent reason.
fn losses(counts: &Counts) -> Option<Loss> {
    let total = counts.dropped_total();
    let (reason, _) = counts.dropped.iter().max_by_key(|(_, n)| **n).filter(|_| total > 0)?;
    let of = counts.sent.unwrap_or(0).saturating_add(counts.received_only).max(total);
    #[expect(clippy::cast_precision_loss, reason = "a share needs a few digits")]
    let share = total as f64 / of as f64;
    let mut reasons: Vec<_> = counts.dropped.iter().collect();
    reasons.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    let listed: Vec<_> = reasons.iter().take(3).map(|(r, n)| format!("{r} {}", count(**n))).collect();
    let blame = speaks_for(reason);
    let whose = match blame {
        Blame::Receiver => ", the receive buffer was full",
        Blame::Shaper => ", the qdisc was full",
        _ => "",
    };
    let sentence = format!("{} datagrams dropped ({}){whose}", count(total), listed.join(", "));
    Some(Loss { blame, share, sentence })
}

/// Who a drop reason speaks for; `None` for reasons that say nothing about a
/// queue.
pub(crate) fn speaks_for(reason: &str) -> Blame {
    match reason {
        "SOCKET_RCVBUFF" | "PROTO_MEM" | "SOCKET_BACKLOG" => Blame::Receiver,
        "QDISC_DROP" | "QDISC_OVERLIMIT" | "QDISC_CONGESTED" => Blame::Shaper,
        "CPU_BACKLOG" => Blame::Receiver,
        _ => Blame::None,
    }
}

/// `p99` or `p99.9`.
pub fn quantile_name(quantile: f64) -> &'static str {
    let above = |q: Quantile| quantile >= q.as_f64();
    match quantile {
        _ if above(Quantile::P999) => "p99.9",
        _ if above(Quantile::P99) => "p99",
        _ if above(Quantile::P90) => "p90",
        _ => "p50",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn tail(excess_us: u32, shares: [f64; 4], parts: &[(Part, f64)]) -> Tail {
        let shares =
            Shares { sender_queue: shares[0], shaper: shares[1], wire: shares[2], receiver: shares[3] };
        let parts: BTreeMap<_, _> = parts.iter().map(|(p, s)| (shares::part_name(*p), *s)).collect();
        Tail {
            quantile: 0.999,
            threshold_ns: u64::from(excess_us) * 900,
            count: 1_204,
            mean_ns: u64::from(excess_us) * 1_000 + 20_000,
            excess_ns: i64::from(excess_us) * 1_000,
            share: shares,
            excess_share: Some(shares),
            part_share: parts.clone(),
            part_excess_share: parts,
            slowest_hop: None,
            waited_ns: 400_000_000,
            stolen_ns: 0,
        }
    }

    fn blame(tail: Tail) -> Culprit {
        judge(&[tail], &Counts::default(), &Host::default()).unwrap()
    }

    #[test]
    fn the_sentence_carries_the_figures() {
        let hop = SlowestHop { ifindex: 3, span_ns: 4_800_000, qdisc_ns: Some(4_700_000) };
        let t = Tail {
            threshold_ns: 4_810_000,
            slowest_hop: Some(hop),
            ..tail(5_300, [0.05, 0.92, 0.0, 0.03], &[])
        };
        let culprit = blame(t);
        assert_eq!(culprit.component, Blame::Shaper);
        assert_eq!(
            culprit.cause,
            "92 % of the excess above p99.9 (4.81 ms, 1,204 datagrams) is shaper: \
             slowest hop ifindex 3, 4.70 ms in its qdisc"
        );
    }

    #[test]
    fn a_tail_that_stolen_time_may_explain_is_no_evidence_against_a_queue() {
        let receiver = || tail(3_000, [0.0, 0.0, 0.01, 0.99], &[(Part::SocketQueue, 0.99)]);
        let culprit = blame(Tail { waited_ns: 15_000_000, stolen_ns: 13_000_000, ..receiver() });
        assert_eq!((culprit.component, culprit.share.map(|s| s > 0.86)), (Blame::HostNoise, Some(true)));
        assert!(culprit.cause.contains("under way for 15.0 ms in all"), "{}", culprit.cause);
        let culprit = blame(Tail { waited_ns: 15_000_000, stolen_ns: 11_000_000, ..receiver() });
        assert_eq!(culprit.component, Blame::Receiver);
        let never = blame(Tail { waited_ns: 0, stolen_ns: 0, ..receiver() });
        assert_eq!(never.component, Blame::Receiver);
        let long = tail(40_000, [0.0, 0.0, 0.0, 1.0], &[]);
        let culprit = blame(Tail { waited_ns: 80_000_000, stolen_ns: 80_000_000, ..long });
        assert_eq!(culprit.component, Blame::Receiver, "longer than a time slice");
    }

    #[test]
    fn each_queue_is_named_for_its_own_tail() {
        use Part::*;
        let sender =
            blame(tail(40_000, [0.97, 0.0, 0.01, 0.02], &[(BeforeSyscall, 0.95), (SenderRunQueue, 0.3)]));
        assert_eq!(sender.component, Blame::SenderQueue);
        assert!(sender.cause.ends_with("95 % before the send call"), "{}", sender.cause);
        let receiver =
            blame(tail(40_000, [0.0, 0.0, 0.01, 0.99], &[(SocketQueue, 0.99), (ReceiverRunQueue, 0.1)]));
        assert_eq!(receiver.component, Blame::Receiver);
        assert!(receiver.cause.ends_with("99 % in the socket queue"), "{}", receiver.cause);
        assert_eq!(blame(tail(40_000, [0.0, 0.0, 1.0, 0.0], &[])).component, Blame::Wire);
    }

    #[test]
    fn a_sender_blocked_on_its_buffer_is_the_shapers_fault() {
        let culprit = blame(tail(40_000, [0.97, 0.02, 0.0, 0.01], &[(Part::SndbufBlocked, 0.9)]));
        assert_eq!(culprit.component, Blame::Shaper);
        assert!(culprit.cause.contains("blocked on SO_SNDBUF behind the shaper"), "{}", culprit.cause);
        let culprit = blame(tail(40_000, [0.97, 0.02, 0.0, 0.01], &[(Part::SndbufBlocked, 0.4)]));
        assert_eq!(culprit.component, Blame::SenderQueue);
    }

    #[test]
    fn waiting_for_a_cpu_is_host_noise_unless_a_tail_remains_without_it() {
        let noisy =
            |us, share| blame(tail(us, [0.1, 0.0, 0.1, 0.8], &[(Part::ReceiverRunQueue, share)])).component;
        assert_eq!(noisy(4000, 0.7), Blame::HostNoise);
        assert_eq!(noisy(4000, 0.4), Blame::Receiver);
        assert_eq!(noisy(60000, 0.6), Blame::Receiver, "24 ms would remain");
        assert_eq!(noisy(60000, 0.9), Blame::HostNoise);
        let both =
            tail(4_000, [0.5, 0.0, 0.0, 0.5], &[(Part::SenderRunQueue, 0.3), (Part::ReceiverRunQueue, 0.3)]);
        assert_eq!(blame(both).component, Blame::HostNoise, "both sides count");
    }

    #[test]
    fn steal_explains_a_short_tail_without_a_single_seat() {
        let host = Host { steal_ratio: Some(0.08), ..Host::default() };
        let of = |t: Tail| judge(&[t], &Counts::default(), &host).unwrap().component;
        assert_eq!(of(tail(4_000, [0.4, 0.0, 0.3, 0.3], &[])), Blame::HostNoise);
        assert_eq!(of(tail(4_000, [0.05, 0.9, 0.0, 0.05], &[])), Blame::Shaper);
        assert_eq!(of(tail(90_000, [0.6, 0.0, 0.2, 0.2], &[])), Blame::SenderQueue);
    }

    #[test]
    fn what_stands_full_is_named_by_its_plain_share() {
        let mut t = tail(60_000, [0.0, 0.99, 0.0, 0.01], &[]);
        t.excess_ns = 1_000_000;
        t.excess_share = Some(Shares { sender_queue: 1.0, ..Shares::default() });
        let culprit = blame(t);
        assert_eq!(culprit.component, Blame::Shaper);
        assert!(
            culprit.cause.starts_with("99 % of the time, slow throughout, above p99.9"),
            "{}",
            culprit.cause
        );
    }

    #[test]
    fn without_a_tail_nobody_is_named_and_loss_may_speak() {
        let quiet = || tail(500, [0.0, 0.0, 0.0, 1.0], &[]);
        assert_eq!(blame(quiet()).component, Blame::None);
        assert_eq!(judge(&[], &Counts::default(), &Host::default()), None);
        let lossy = |reason: &str, dropped| Counts {
            sent: Some(100_000),
            dropped: BTreeMap::from([(reason.to_owned(), dropped)]),
            ..Counts::default()
        };
        let of = |tails: &[Tail], counts: &Counts| judge(tails, counts, &Host::default());
        assert_eq!(of(&[quiet()], &lossy("SOCKET_RCVBUFF", 100)).unwrap().component, Blame::Receiver);
        assert_eq!(of(&[], &lossy("QDISC_DROP", 100)).unwrap().component, Blame::Shaper);
        assert_eq!(of(&[quiet()], &lossy("SOCKET_RCVBUFF", 99)).unwrap().component, Blame::None);
        assert_eq!(of(&[], &lossy("IP_CSUM", 9_000)), None);
        let culprit = of(&[tail(40_000, [0.0, 0.9, 0.0, 0.1], &[])], &lossy("QDISC_DROP", 1_204)).unwrap();
        assert!(culprit.cause.ends_with("; 1,204 datagrams dropped (QDISC_DROP 1,204), the qdisc was full"));
    }
}
