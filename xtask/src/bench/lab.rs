//! Two network namespaces and a plain veth pair between them.
//!
//! ```text
//! observer-bench-PID-tx 10.79.0.1 ── veth ── 10.79.0.2 observer-bench-PID-rx
//! ```
//!
//! The peers are other people's programs, so the namespaces have names, for
//! `ip netns exec`. [`Lab`] removes what it made when it is dropped, which an
//! interrupt and a panic both come to; a name that exists is refused, never
//! taken over. Only a SIGKILL leaves them, for `ip netns delete`.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::run;

/// The receiver's address.
pub(super) const RECEIVER: &str = "10.79.0.2";
/// The sender's address.
const SENDER: &str = "10.79.0.1";
/// Where iproute2 keeps the names.
const NAMES: &str = "/run/netns";

/// The two hosts. Dropping it removes them.
#[derive(Debug)]
pub(super) struct Lab {
    tx: String,
    rx: String,
    made: Vec<String>,
}

impl Lab {
    /// Makes both namespaces and the link.
    ///
    /// # Errors
    ///
    /// If a name is taken or `ip` refuses; what had been made is gone again.
    pub(super) fn build() -> Result<Self> {
        let name = |end: &str| format!("observer-bench-{}-{end}", std::process::id());
        let mut lab = Self { tx: name("tx"), rx: name("rx"), made: Vec::new() };
        for name in [lab.tx.clone(), lab.rx.clone()] {
            if Path::new(NAMES).join(&name).exists() {
                bail!(
                    "a network namespace {name} exists and is not ours: `ip netns delete {name}` if it is nobody's"
                );
            }
            ip(&["netns", "add", &name])?;
            lab.made.push(name);
        }
        let (tx, rx) = (lab.tx.as_str(), lab.rx.as_str());
        ip(&["-n", tx, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", rx])?;
        for (host, address) in [(tx, SENDER), (rx, RECEIVER)] {
            ip(&["-n", host, "address", "add", &format!("{address}/24"), "dev", "eth0"])?;
            ip(&["-n", host, "link", "set", "dev", "lo", "up"])?;
            ip(&["-n", host, "link", "set", "dev", "eth0", "up"])?;
        }
        Ok(lab)
    }

    /// The sender's namespace.
    pub(super) fn tx(&self) -> &str {
        &self.tx
    }

    /// The receiver's namespace.
    pub(super) fn rx(&self) -> &str {
        &self.rx
    }

    /// What the kernel counted on the way so far.
    ///
    /// # Errors
    ///
    /// If a namespace's counters cannot be read.
    pub(super) fn counters(&self) -> Result<Counters> {
        let udp = |host: &str| -> Result<String> {
            run::output(Command::new("ip").args(["netns", "exec", host, "cat", "/proc/net/snmp"]))
        };
        let (tx, rx) = (udp(&self.tx)?, udp(&self.rx)?);
        let value = |text: &str, name: &str| match udp_counter(text, name) {
            Some(value) => Ok(value),
            None => bail!("/proc/net/snmp has no Udp {name} on this kernel"),
        };
        Ok(Counters {
            sent: value(&tx, "OutDatagrams")?,
            read: value(&rx, "InDatagrams")?,
            dropped: value(&rx, "RcvbufErrors")?,
        })
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Taking one end of the veth pair takes the other.
        for name in self.made.drain(..) {
            if let Err(error) = ip(&["netns", "delete", &name]) {
                eprintln!("warning: {error:#}");
            }
        }
    }
}

/// The kernel's own account, of every UDP socket in the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counters {
    /// Messages sent; one with GSO counts once.
    pub(super) sent: u64,
    /// Messages read by applications; one with GRO counts once.
    pub(super) read: u64,
    /// Datagrams dropped at full receive buffers.
    pub(super) dropped: u64,
}

impl Counters {
    /// What was counted since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(before.sent),
            read: self.read.saturating_sub(before.read),
            dropped: self.dropped.saturating_sub(before.dropped),
        }
    }
}

/// A counter of the `Udp:` lines of /proc/net/snmp: names in the first, values
/// in the second.
fn udp_counter(snmp: &str, name: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|n| n == name)?;
    values.split_whitespace().nth(at)?.parse().ok()
}

fn ip(args: &[&str]) -> Result<()> {
    let mut command = Command::new("ip");
    command.args(args);
    let out = command.output()?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        bail!("`{}` failed ({}): {}", run::shown(&command), out.status, said.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let snmp = "Tcp: A\nTcp: 1\nUdp: InDatagrams NoPorts RcvbufErrors\nUdp: 7 8 9\nUdpLite: InDatagrams\nUdpLite: 3\n";
        assert_eq!(udp_counter(snmp, "InDatagrams"), Some(7));
        assert_eq!(udp_counter(snmp, "RcvbufErrors"), Some(9));
        assert_eq!(udp_counter(snmp, "OutDatagrams"), None);
        assert_eq!(udp_counter("Udp: InDatagrams\n", "InDatagrams"), None);
    }

    #[test]
    fn the_lab_is_gone_when_it_is_dropped() {
        if !run::is_root() || run::find("ip").is_none() {
            return;
        }
        let names = {
            let Ok(lab) = Lab::build() else { return };
            assert_eq!(lab.counters().unwrap(), Counters { sent: 0, read: 0, dropped: 0 });
            assert!(Lab::build().unwrap_err().to_string().contains("exists"), "a taken name was not refused");
            assert!(Path::new(NAMES).join(lab.tx()).exists(), "refusing removed what it refused");
            [lab.tx().to_owned(), lab.rx().to_owned()]
        };
        assert!(names.iter().all(|name| !Path::new(NAMES).join(name).exists()));
    }
}
