//! Do all accounts of a run agree? The generator's own counts, the receiving
//! socket's drops, the namespace's UDP counters and the qdiscs' drops are
//! counted by others than the observer: each is held against it.
//!
//! The sockets are exact and the run's own. UdpRcvbufErrors and the qdiscs'
//! drops cover whatever else the namespace does: they can be larger than the
//! run's share, and never smaller.

use std::collections::BTreeMap;

use load::watch::Ends;
use load::{Finding, Verdict};

use crate::culprit::speaks_for;
use crate::lab::{UdpCounters, qdiscs_here};
use crate::report::{Blame, Report};
use crate::view::units::count;

/// Drops at a full receive buffer, as the kernel names them.
pub(super) const BUFFER_FULL: [&str; 2] = ["SOCKET_RCVBUFF", "PROTO_MEM"];

/// The kernel's counters of this namespace at one moment; `None` where they
/// cannot be read (no `tc`, no /proc).
#[derive(Debug)]
pub struct Marks {
    udp: Option<UdpCounters>,
    qdisc_drops: Option<u64>,
}

/// How far the namespace's counters moved during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// UdpRcvbufErrors, IPv4 and IPv6.
    pub rcvbuf_errors: Option<u64>,
    /// Drops in the qdiscs of all devices.
    pub qdisc_drops: Option<u64>,
}

impl Marks {
    /// Reads them now.
    pub fn now() -> Self {
        Self { udp: UdpCounters::here().ok(), qdisc_drops: qdisc_drops() }
    }

    /// What happened since.
    pub fn until_now(&self) -> Moved {
        let now = Self::now();
        let udp = now.udp.zip(self.udp).map(|(now, before)| now.since(&before));
        Moved {
            rcvbuf_errors: udp.map(|u| u.rcvbuf_errors),
            qdisc_drops: now
                .qdisc_drops
                .zip(self.qdisc_drops)
                .map(|(now, before)| now.saturating_sub(before)),
        }
    }
}

/// Drops of every device's qdiscs. A class-based parent counts its
/// children's drops too: the largest of a device is the device's.
fn qdisc_drops() -> Option<u64> {
    let mut by_device: BTreeMap<String, u64> = BTreeMap::new();
    for q in qdiscs_here().ok()? {
        let most = by_device.entry(q.device).or_default();
        *most = q.drops.max(*most);
    }
    Some(by_device.values().sum())
}

/// What everybody but the observer counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Datagrams the sending sockets took.
    pub sent: u64,
    /// Different datagrams the receiving application read; `None` if it is
    /// not in this process.
    pub read: Option<u64>,
    /// Datagrams it read and could not place (stale, implausible).
    pub odd: u64,
    /// Drops of the receiving socket, by its own counter.
    pub socket_drops: Option<u64>,
    /// The namespace's counters.
    pub moved: Moved,
}

impl Account {
    /// From what both ends say.
    pub fn of(ends: &Ends<'_>, moved: Moved) -> Self {
        let received = ends.received;
        Self {
            sent: ends.sent.sent,
            read: received.map(|r| r.total.unique),
            odd: received.map_or(0, |r| r.total.stale.saturating_add(r.total.implausible)),
            socket_drops: received.and_then(|r| r.socket_drops).map(u64::from),
            moved,
        }
    }

    /// Share of what was sent that was not read; `None` where that is not known.
    pub fn loss(&self) -> Option<f64> {
        let lost = self.sent.saturating_sub(self.read?);
        #[expect(clippy::cast_precision_loss, reason = "a share needs a few digits")]
        let share = lost as f64 / self.sent as f64;
        (self.sent > 0).then_some(share)
    }
}

/// The check `counts-reconcile`: INVALID with the accounts that differ, or
/// nothing to say.
pub fn reconcile(report: &Report, account: &Account) -> Option<Finding> {
    let c = &report.counts;
    let full: u64 = BUFFER_FULL.iter().filter_map(|r| c.dropped.get(*r)).sum();
    let in_qdiscs: u64 =
        c.dropped.iter().filter(|(r, _)| speaks_for(r) == Blame::Shaper).map(|(_, n)| n).sum();
    // What has no end for the observer may have one for the others.
    let open = c.unobserved.saturating_add(c.in_flight);
    let mut wrong = Vec::new();
    if c.unaccounted != 0 {
        wrong.push(format!("the observer's own counts leave {:+} unaccounted", c.unaccounted));
    }
    if let Some(sent) = c.sent.filter(|sent| *sent != account.sent) {
        wrong.push(format!(
            "the sockets took {}, the observer saw {} leave",
            count(account.sent),
            count(sent)
        ));
    }
    if let Some(read) = account.read {
        let most = read.saturating_add(account.odd);
        if c.delivered > most || read > c.delivered.saturating_add(open) {
            wrong.push(format!(
                "the receiver read {}, the observer saw {} read and {} without an end",
                count(read),
                count(c.delivered),
                count(open)
            ));
        }
    }
    if let Some(own) = account.socket_drops.filter(|own| full > *own) {
        wrong.push(format!(
            "the socket dropped {}, the observer saw {} dropped there",
            count(own),
            count(full)
        ));
    }
    if let Some(errors) = account.moved.rcvbuf_errors.filter(|n| account.read.is_some() && full > *n) {
        wrong.push(format!(
            "UdpRcvbufErrors grew by {}, the observer saw {} dropped",
            count(errors),
            count(full)
        ));
    }
    // The rule: sent = delivered + dropped + unobserved, by the sockets' own
    // counters where they tell. Foreign datagrams may have been dropped there
    // as well, so no more than what the observer leaves open is explained by them.
    let at_socket = account.socket_drops.map_or(full, |own| own.min(full.saturating_add(open)));
    if let Some(read) = account.read {
        let dropped = c.dropped_total().saturating_sub(full).saturating_add(at_socket);
        let known = read.saturating_add(dropped);
        if known > account.sent.saturating_add(account.odd) || known.saturating_add(open) < account.sent {
            wrong.push("the sum does not hold".to_owned());
        }
    }
    if wrong.is_empty() {
        return None;
    }
    Some(Finding {
        check: "counts-reconcile",
        level: Verdict::Invalid,
        observed: format!(
            "sent {} against delivered {} + dropped {} + in flight {} + unobserved {}",
            count(account.sent),
            count(account.read.unwrap_or(c.delivered)),
            count(c.dropped_total().saturating_sub(full).saturating_add(at_socket)),
            count(c.in_flight),
            count(c.unobserved)
        ),
        means: "two accounts of the same datagrams differ: the figures cannot be trusted".into(),
        detail: format!("{}; {}", wrong.join("; "), witnesses(account, in_qdiscs)),
    })
}

/// What the other counters said.
fn witnesses(account: &Account, in_qdiscs: u64) -> String {
    let own = |n: Option<u64>| n.map_or_else(|| "—".to_owned(), count);
    format!(
        "socket drops {}, UdpRcvbufErrors {}, qdisc drops here {} (the run's anywhere: {})",
        own(account.socket_drops),
        own(account.moved.rcvbuf_errors),
        own(account.moved.qdisc_drops),
        count(in_qdiscs)
    )
}
