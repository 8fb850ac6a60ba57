//! Two devices that together are the shaper: a datagram enters it where it is
//! handed to the entry's driver, and leaves it where it enters the stack at
//! the exit.
//!
//! Between them is something the kernel's hooks cannot see: a limiter in user
//! space (the lab's forwarders), a virtual machine's back end, a box on a
//! cable whose two ends are both on this host. Unnamed, its time is *wire*:
//! what is left between the driver and the receiving stack. Named as a pair it
//! is the last hop of the *shaper*. In goes a record and where its flow's ends
//! are; the record comes out with the hop added, so that everything behind it
//! (components, estimators) sees a shaper like any other.
//!
//! What the record tells limits what can be told apart: the device of its last
//! hop, and the namespaces of the sockets at both ends. So the entry must be
//! the last device a datagram leaves by, in its sender's namespace, and the
//! exit must lead to its receiver's. A datagram that leaves the exit's
//! namespace by a further device has another last hop and is left alone.

use observer_ebpf::abi::JourneyRecord;
use serde::{Deserialize, Serialize};

/// A network device, named so that it is the only one of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeviceId {
    /// Inode number of its network namespace.
    pub netns: u32,
    /// Its number in that namespace.
    pub ifindex: u32,
}

/// An entry and an exit that together are a shaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pair {
    /// Where a datagram enters it.
    pub entry: DeviceId,
    /// Where it leaves it.
    pub exit: DeviceId,
}

impl Pair {
    /// Whether `record`, whose sender and receiver have their sockets in these
    /// namespaces (as far as they are known), went through this pair.
    pub fn carried(&self, record: &JourneyRecord, sender: Option<u32>, receiver: Option<u32>) -> bool {
        record.ifindex == self.entry.ifindex
            && record.hops > 0
            && record.hop_start_ns == 0
            && sender.is_none_or(|netns| netns == self.entry.netns)
            && receiver.is_none_or(|netns| netns == self.exit.netns)
    }

    /// Adds the way from the entry's driver to the exit to the shaper. A
    /// datagram that was not seen at both ends stays as it is.
    pub fn add_hop(record: &mut JourneyRecord) {
        let Some(span) = record.rx_ns.checked_sub(record.xmit_ns) else { return };
        if record.xmit_ns == 0 || record.rx_ns == 0 {
            return;
        }
        record.shaper_ns = record.shaper_ns.saturating_add(span);
        record.hops = record.hops.saturating_add(1);
        if span >= record.slowest_hop_ns {
            record.slowest_hop_ns = span;
            record.slowest_ifindex = record.ifindex;
            record.slowest_qdisc_ns = 0;
        }
        record.xmit_ns = record.rx_ns;
    }
}

/// The pairs of one observation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pairs(Vec<Pair>);

impl Pairs {
    /// These pairs.
    pub fn new(pairs: Vec<Pair>) -> Self {
        Self(pairs)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `record` with the hop through the pair that carried it, if one did.
    #[must_use]
    pub fn resolve(
        &self,
        mut record: JourneyRecord,
        sender: Option<u32>,
        receiver: Option<u32>,
    ) -> JourneyRecord {
        if self.0.iter().any(|pair| pair.carried(&record, sender, receiver)) {
            Pair::add_hop(&mut record);
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::Component;
    use crate::correlate::Correlator;
    use crate::source::synthetic;
    use proptest::prelude::*;

    const PAIR: Pair =
        Pair { entry: DeviceId { netns: 41, ifindex: 2 }, exit: DeviceId { netns: 42, ifindex: 2 } };

    fn record() -> JourneyRecord {
        JourneyRecord { ifindex: 2, ..synthetic::journey(7, 3, 1) }
    }

    #[test]
    fn the_wire_becomes_the_shapers_last_hop() {
        let before = record();
        let pairs = Pairs::new(vec![PAIR]);
        let after = pairs.resolve(before, Some(41), Some(42));
        let (b, a) =
            (Correlator::default().journey(&before).stages, Correlator::default().journey(&after).stages);
        let of = |s: &crate::correlate::Stages, c| s.component(c).unwrap();
        assert!(of(&b, Component::Wire) > 0, "the synthetic journey has a wire");
        assert_eq!(of(&a, Component::Wire), 0);
        assert_eq!(of(&a, Component::Shaper), of(&b, Component::Shaper) + of(&b, Component::Wire));
        assert_eq!(a.total, b.total);
        assert_eq!(after.hops, before.hops + 1);
    }

    #[test]
    fn others_are_left_alone() {
        let pairs = Pairs::new(vec![PAIR]);
        let r = record();
        for (record, sender, receiver) in [
            (JourneyRecord { ifindex: 3, ..r }, Some(41), Some(42)),
            (r, Some(40), Some(42)),
            (r, Some(41), Some(43)),
            (JourneyRecord { hop_start_ns: 5, ..r }, Some(41), Some(42)),
            (JourneyRecord { hops: 0, ..r }, None, None),
            (JourneyRecord { rx_ns: 0, ..r }, None, None),
            (JourneyRecord { xmit_ns: 0, ..r }, None, None),
            (JourneyRecord { rx_ns: r.xmit_ns - 1, ..r }, None, None),
        ] {
            assert_eq!(pairs.resolve(record, sender, receiver), record);
        }
        assert_eq!(Pairs::default().resolve(r, None, None), r);
    }

    proptest! {
        #[test]
        fn any_record_is_resolved_without_panic(xmit: u64, rx: u64, shaper: u64, hops: u16, slowest: u64) {
            let record = JourneyRecord { xmit_ns: xmit, rx_ns: rx, shaper_ns: shaper, hops, slowest_hop_ns: slowest, ..record() };
            let after = Pairs::new(vec![PAIR]).resolve(record, None, None);
            prop_assert!(after == record || (after.xmit_ns == rx && after.slowest_hop_ns >= slowest));
        }
    }
}
