//! What is configured where the datagrams go: qdiscs and their rates, and the
//! most a receive buffer may be.
//!
//! Live, the qdiscs are read over netlink in the namespace of each sending
//! thread, when it is first seen and again at every diagnosis while it lives,
//! and in the observer's own. From a recording they are given. Asked for a
//! device, a [`Configuration`] says what limits there ([`Configured`]), or
//! that it does not know.

use std::fs;

use foldhash::HashMap;
use serde::{Deserialize, Serialize};

use crate::correlate::FlowBook;
use crate::host::qdisc::{self, Qdisc};

/// Namespaces whose qdiscs are remembered.
const NAMESPACES: usize = 64;

/// What a device's qdisc is configured to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configured {
    /// `tbf`, `htb`, or what else is there: `noqueue`, `fq_codel`, …
    pub kind: String,
    /// r, bits per second; null where the kind has none.
    pub rate_bit_s: Option<u64>,
    /// b, bytes; null where the kind has none.
    pub burst_bytes: Option<u64>,
    /// The device's name.
    pub device: String,
}

/// Where to learn what is configured.
#[derive(Debug, Default)]
pub struct Configuration {
    live: bool,
    /// By inode of the namespace; 0 is the observer's own.
    qdiscs: HashMap<u32, Vec<Qdisc>>,
    rmem_max: Option<u64>,
}

/// A [`Configuration`] as a trace keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// The most SO_RCVBUF may ask for, bytes; null if not known.
    pub rmem_max_bytes: Option<u64>,
    /// The namespaces of the senders that could be reached, and the observer's
    /// own.
    pub namespaces: Vec<Namespace>,
}

/// The qdiscs of one network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Its inode number; 0 is the observer's own.
    pub netns: u32,
    /// They, with what they had counted.
    pub qdiscs: Vec<Qdisc>,
}

impl Recorded {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether both say the same, whatever has been counted.
    pub fn is_as(&self, other: &Self) -> bool {
        let plain = |r: &Self| {
            let mut r = r.clone();
            for q in r.namespaces.iter_mut().flat_map(|n| &mut n.qdiscs) {
                q.counters = Default::default();
            }
            r
        };
        plain(self) == plain(other)
    }
}

impl From<&Recorded> for Configuration {
    fn from(r: &Recorded) -> Self {
        let all = r.namespaces.iter().flat_map(|n| n.qdiscs.iter().map(|q| (n.netns, q.clone())));
        Self::recorded(all, r.rmem_max_bytes)
    }
}

impl Configuration {
    /// That of the running kernel.
    pub fn live() -> Self {
        let text = fs::read_to_string("/proc/sys/net/core/rmem_max");
        let rmem_max = text.ok().and_then(|t| t.trim().parse().ok());
        Self { live: true, qdiscs: HashMap::default(), rmem_max }
    }

    /// That of a recording: qdiscs by the inode of their namespace, 0 where it
    /// is not known.
    pub fn recorded(qdiscs: impl IntoIterator<Item = (u32, Qdisc)>, rmem_max: Option<u64>) -> Self {
        let mut by_namespace: HashMap<u32, Vec<Qdisc>> = HashMap::default();
        for (netns, qdisc) in qdiscs {
            by_namespace.entry(netns).or_default().push(qdisc);
        }
        Self { live: false, qdiscs: by_namespace, rmem_max }
    }

    /// As a trace keeps it.
    pub fn record(&self) -> Recorded {
        let of = |(netns, qdiscs): (&u32, &Vec<Qdisc>)| Namespace { netns: *netns, qdiscs: qdiscs.clone() };
        let mut namespaces: Vec<Namespace> = self.qdiscs.iter().map(of).collect();
        namespaces.sort_unstable_by_key(|n| n.netns);
        Recorded { rmem_max_bytes: self.rmem_max, namespaces }
    }

    /// The most SO_RCVBUF may ask for, bytes.
    pub fn rmem_max_bytes(&self) -> Option<u64> {
        self.rmem_max
    }

    /// Reads the qdiscs of the namespaces of all senders that can be reached.
    /// One that cannot (its threads are gone, no permission) keeps what was
    /// read before, or stays unknown.
    pub fn look(&mut self, book: &FlowBook) {
        if !self.live {
            return;
        }
        for (netns, tid, pid) in book.senders() {
            if self.qdiscs.len() >= NAMESPACES && !self.qdiscs.contains_key(&netns) {
                continue;
            }
            // A thread may be in another namespace than its process.
            let of = |id: Option<u32>| id.filter(|id| is_in(*id, netns)).map(qdisc::of_process);
            if let Some(Ok(read)) = of(tid).or_else(|| of(pid)) {
                self.qdiscs.insert(netns, read);
            }
        }
        if let Ok(own) = qdisc::here() {
            self.qdiscs.insert(0, own);
        }
    }

    /// What limits at interface `ifindex` of namespace `netns`, or what is
    /// there. Of several limiters (the classes of an htb) the one whose rate
    /// is nearest to `rate_bit_s`, else the one that passed most. `None` where
    /// nothing is known of the device.
    pub fn at(&self, netns: u32, ifindex: u32, rate_bit_s: Option<f64>) -> Option<Configured> {
        let here = self.qdiscs.get(&netns)?;
        let of: Vec<&Qdisc> = here.iter().filter(|q| q.ifindex == ifindex).collect();
        let limiters = || of.iter().filter(|q| q.is_limiter() && q.counters.packets > 0);
        let distance = |q: &Qdisc, measured: f64| {
            let rate = q.config.rate_bit_s.map_or(f64::INFINITY, |r| r as f64);
            (rate / measured).ln().abs()
        };
        let found = match rate_bit_s {
            Some(r) => limiters().min_by(|a, b| distance(a, r).total_cmp(&distance(b, r))),
            None => limiters().max_by_key(|q| q.counters.packets),
        };
        let found = found.or_else(|| of.iter().find(|q| q.is_limiter())).or_else(|| of.first())?;
        Some(Configured {
            kind: found.kind.clone(),
            rate_bit_s: found.config.rate_bit_s,
            burst_bytes: found.config.burst_bytes,
            device: found.device.clone(),
        })
    }
}

/// Whether process or thread `id` is in the network namespace with this inode.
fn is_in(id: u32, netns: u32) -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(format!("/proc/{id}/ns/net")).is_ok_and(|m| m.ino() == u64::from(netns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::qdisc::{Config, Counters};

    fn entry(kind: &str, ifindex: u32, rate: Option<u64>, packets: u64) -> (u32, Qdisc) {
        let config = Config { rate_bit_s: rate, burst_bytes: rate.map(|_| 32_768), ..Config::default() };
        let counters = Counters { packets, ..Counters::default() };
        (
            7,
            Qdisc {
                device: format!("eth{ifindex}"),
                ifindex,
                kind: kind.into(),
                config,
                counters,
                ..Qdisc::default()
            },
        )
    }

    #[test]
    fn the_limiter_nearest_to_what_was_measured_is_named() {
        let all = [
            entry("noqueue", 1, None, 5),
            entry("htb", 2, None, 9),
            entry("htb", 2, Some(10_000_000), 50),
            entry("htb", 2, Some(100_000_000), 20),
            entry("htb", 2, Some(99_000_000), 0),
        ];
        let c = Configuration::recorded(all, Some(212_992));
        let rate = |measured| c.at(7, 2, measured).unwrap().rate_bit_s;
        assert_eq!(rate(Some(99.6e6)), Some(100_000_000));
        assert_eq!(rate(Some(1e6)), Some(10_000_000));
        assert_eq!(rate(None), Some(10_000_000));
        let plain = c.at(7, 1, None).unwrap();
        assert_eq!((plain.kind.as_str(), plain.rate_bit_s), ("noqueue", None));
        assert_eq!((c.at(7, 3, None), c.at(8, 2, None)), (None, None));
        assert_eq!(c.rmem_max_bytes(), Some(212_992));

        let recorded = c.record();
        let json = serde_json::to_string(&recorded).unwrap();
        let back: Recorded = serde_json::from_str(&json).unwrap();
        assert_eq!(back, recorded);
        let again = Configuration::from(&back);
        assert_eq!((again.at(7, 2, Some(99.6e6)), again.record()), (c.at(7, 2, Some(99.6e6)), recorded));
        let counted = Configuration::recorded([entry("noqueue", 1, None, 6)], None).record();
        let before = Configuration::recorded([entry("noqueue", 1, None, 5)], None).record();
        assert!(counted.is_as(&before) && counted != before && !counted.is_empty());
        assert!(!counted.is_as(&Configuration::recorded([entry("tbf", 1, None, 6)], None).record()));
    }

    #[test]
    fn live_knows_this_namespace() {
        let mut c = Configuration::live();
        c.look(&FlowBook::default());
        assert!(c.rmem_max_bytes().is_some());
        assert!(c.qdiscs.contains_key(&0));
    }
}
