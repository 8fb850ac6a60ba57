//! The kernel's own UDP counters of one namespace: the account that the
//! observer's must agree with.
//!
//! Read from /proc/net/snmp and /proc/net/snmp6 through /proc/thread-self:
//! /proc/net itself is the main thread's namespace, whichever thread asks.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{LabError, Namespace};

const SNMP: &str = "/proc/thread-self/net/snmp";
const SNMP6: &str = "/proc/thread-self/net/snmp6";

/// UDP counters of a namespace, IPv4 and IPv6 added up, in datagrams since
/// the namespace was made (or between two readings).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpCounters {
    /// `InDatagrams`: read by an application.
    pub in_datagrams: u64,
    /// `NoPorts`: no socket was bound to the port.
    pub no_ports: u64,
    /// `InErrors`: not delivered, for any of the reasons counted apart below.
    pub in_errors: u64,
    /// `OutDatagrams`: sent.
    pub out_datagrams: u64,
    /// `RcvbufErrors`: the receive buffer was full.
    pub rcvbuf_errors: u64,
    /// `SndbufErrors`: no memory to send.
    pub sndbuf_errors: u64,
    /// `InCsumErrors`: wrong checksum.
    pub in_csum_errors: u64,
    /// `MemErrors`: the memory of all UDP sockets was exhausted (0 before
    /// Linux 5.11, which has no such counter).
    pub mem_errors: u64,
}

impl UdpCounters {
    /// The counters of `host` now.
    ///
    /// # Errors
    ///
    /// [`LabError::Counters`] if the kernel's files cannot be read,
    /// [`LabError::CountersForm`] if they are not what they were since 2.6.
    pub fn read(host: &Namespace) -> Result<Self, LabError> {
        host.enter(Self::here)?
    }

    /// What happened since `earlier`. The counters only grow; should one have
    /// wrapped, the difference is still right.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.zip(earlier, u64::wrapping_sub)
    }

    /// The counters of the calling thread's own namespace now.
    ///
    /// # Errors
    ///
    /// As [`UdpCounters::read`].
    pub fn here() -> Result<Self, LabError> {
        let v4 = v4(&read(SNMP)?).ok_or(LabError::CountersForm { path: SNMP.into(), line: "Udp:" })?;
        // Absent where IPv6 is not compiled in.
        let v6 = match read(SNMP6) {
            Ok(text) => v6(&text),
            Err(LabError::Counters { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Self::default()
            }
            Err(e) => return Err(e),
        };
        Ok(v4.zip(&v6, u64::wrapping_add))
    }

    fn zip(&self, other: &Self, op: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            in_datagrams: op(self.in_datagrams, other.in_datagrams),
            no_ports: op(self.no_ports, other.no_ports),
            in_errors: op(self.in_errors, other.in_errors),
            out_datagrams: op(self.out_datagrams, other.out_datagrams),
            rcvbuf_errors: op(self.rcvbuf_errors, other.rcvbuf_errors),
            sndbuf_errors: op(self.sndbuf_errors, other.sndbuf_errors),
            in_csum_errors: op(self.in_csum_errors, other.in_csum_errors),
            mem_errors: op(self.mem_errors, other.mem_errors),
        }
    }

    /// The field the kernel calls `name`, if it is one of ours.
    fn field(&mut self, name: &str) -> Option<&mut u64> {
        Some(match name {
            "InDatagrams" => &mut self.in_datagrams,
            "NoPorts" => &mut self.no_ports,
            "InErrors" => &mut self.in_errors,
            "OutDatagrams" => &mut self.out_datagrams,
            "RcvbufErrors" => &mut self.rcvbuf_errors,
            "SndbufErrors" => &mut self.sndbuf_errors,
            "InCsumErrors" => &mut self.in_csum_errors,
            "MemErrors" => &mut self.mem_errors,
            _ => return None,
        })
    }

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        if let Some(field) = self.field(name) {
            *field = value.parse().ok()?;
        }
        Some(())
    }
}

fn read(path: &'static str) -> Result<String, LabError> {
    fs::read_to_string(path).map_err(|source| LabError::Counters { path: Path::new(path).into(), source })
}

/// /proc/net/snmp: a line of names, then a line of values, both led by `Udp:`.
fn v4(text: &str) -> Option<UdpCounters> {
    let mut rows = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, values) = (rows.next()?.split_whitespace(), rows.next()?.split_whitespace());
    if names.clone().count() != values.clone().count() {
        return None;
    }
    let mut counters = UdpCounters::default();
    names.zip(values).try_for_each(|(name, value)| counters.set(name, value))?;
    Some(counters)
}

/// /proc/net/snmp6: one name and value per line, UDP's led by `Udp6`.
fn v6(text: &str) -> UdpCounters {
    let mut counters = UdpCounters::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(value)) = (words.next(), words.next())
            && let Some(name) = name.strip_prefix("Udp6")
        {
            counters.set(name, value);
        }
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As printed by Linux 6.18.
    const PRINTED: &str = "Tcp: RtoAlgorithm RtoMin\nTcp: 1 200\n\
        Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors\n\
        Udp: 1 2 3 4 5 6 7 8 9\nUdpLite: InDatagrams\nUdpLite: 99\n";

    #[test]
    fn reads_both_files() {
        let four = v4(PRINTED).unwrap();
        assert_eq!(
            four,
            UdpCounters {
                in_datagrams: 1,
                no_ports: 2,
                in_errors: 3,
                out_datagrams: 4,
                rcvbuf_errors: 5,
                sndbuf_errors: 6,
                in_csum_errors: 7,
                mem_errors: 9,
            }
        );
        let six = v6("Ip6InReceives  77\nUdp6InDatagrams \t10\nUdp6RcvbufErrors 50\nUdpLite6InDatagrams 9\n");
        assert_eq!((six.in_datagrams, six.rcvbuf_errors, six.no_ports), (10, 50, 0));
    }

    #[test]
    fn a_missing_or_lopsided_table_is_refused() {
        assert_eq!(v4("Tcp: A\nTcp: 1\n"), None);
        assert_eq!(v4("Udp: InDatagrams NoPorts\nUdp: 1\n"), None);
        assert_eq!(v4("Udp: InDatagrams\nUdp: many\n"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(Udp: .{0,40}\n){0,3}.{0,80}") {
            let _ = v4(&text);
            let _ = v6(&text);
        }

        #[test]
        fn differences_add_up(before: u64, more in 0..1_u64 << 40) {
            let earlier = UdpCounters { in_datagrams: before, ..UdpCounters::default() };
            let later = UdpCounters { in_datagrams: before.wrapping_add(more), ..earlier };
            prop_assert_eq!(later.since(&earlier).in_datagrams, more);
        }
    }
}
