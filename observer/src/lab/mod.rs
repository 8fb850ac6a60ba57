//! A lab of two hosts: two network namespaces, a veth pair between them and,
//! if asked for, a token bucket and a bridge on the way.
//!
//! ```text
//!   sender                                        receiver
//!   10.77.0.1, fd00:77::1                         10.77.0.2, fd00:77::2
//!   [br0 ─] eth0 [tbf] ────────── veth ────────── eth0
//! ```
//!
//! What a datagram meets is what the configuration says and nothing else:
//! neighbours are static (a packet that waits for ARP waits in nobody's
//! queue), there are no link-local addresses and so no router solicitations
//! (a multicast listener report or two, 90 bytes each, is all that shares the
//! link), and all offloads are the kernel's defaults unless
//! [`LabConfig::segment`] says otherwise. Both ends share the host's CPUs and
//! its CLOCK_MONOTONIC.
//!
//! In goes a [`LabConfig`]; out come a [`Lab`] to run senders and receivers
//! in, and the kernel's own account of what happened there: [`UdpCounters`]
//! and [`Qdisc`]s. Dropping the lab removes everything; so does any end of
//! the process, SIGKILL included (see [`netns`]). It needs CAP_SYS_ADMIN and
//! CAP_NET_ADMIN, and `ip` and `tc`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use serde::{Deserialize, Serialize};

mod error;
pub mod netns;
pub mod priority;
mod qdisc;
pub mod scenario;
mod tool;
mod udp;

pub use error::LabError;
pub use netns::Namespace;
pub use qdisc::{Qdisc, QdiscOptions, Tbf, show_here as qdiscs_here};
pub use udp::UdpCounters;

/// The device that leads to the other host, on both of them.
pub const LINK: &str = "eth0";
/// The sender's bridge, where there is one.
pub const BRIDGE: &str = "br0";

/// The sender's IPv4 address.
pub const SENDER_V4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The receiver's IPv4 address.
pub const RECEIVER_V4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The sender's IPv6 address, where the kernel has IPv6.
pub const SENDER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, 1);
/// The receiver's IPv6 address, where the kernel has IPv6.
pub const RECEIVER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, 2);

/// Exists where the kernel has IPv6 at all.
const IPV6: &str = "/proc/sys/net/ipv6";

/// What stands between the two hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LabConfig {
    /// A token bucket at the sender's way out.
    pub shaper: Option<Tbf>,
    /// The sender's address is on a bridge and the way out is a port of it,
    /// so that a datagram makes two hops on the sending host; the shaper is
    /// on the second.
    pub bridge: bool,
    /// Packets that carry several datagrams (UDP GSO) are taken apart before
    /// they are handed to the driver.
    pub segment: bool,
    /// Largest IP packet the link takes, bytes; the kernel's 1500 if absent.
    pub mtu: Option<u32>,
}

/// One of the two hosts.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its network namespace.
    pub namespace: Namespace,
    /// The device that carries its addresses.
    pub device: &'static str,
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Its IPv6 address; `None` where the kernel has no IPv6.
    pub v6: Option<Ipv6Addr>,
    /// The hardware address of `device`.
    mac: &'static str,
}

impl Host {
    /// Its address in the family asked for.
    ///
    /// # Errors
    ///
    /// [`LabError::Config`] for IPv6 on a kernel without it.
    pub fn address(&self, ipv6: bool) -> Result<IpAddr, LabError> {
        match (ipv6, self.v6) {
            (false, _) => Ok(self.v4.into()),
            (true, Some(v6)) => Ok(v6.into()),
            (true, None) => Err(LabError::Config { what: "this kernel has no IPv6: use IPv4".into() }),
        }
    }

    fn ip(&self, args: &[&str]) -> Result<(), LabError> {
        tool::ip(&self.namespace, args)
    }

    /// Addresses, and the way to `peer` without asking for it.
    fn address_and_neighbour(&self, peer: &Self) -> Result<(), LabError> {
        let dev = ["dev", self.device];
        let known = ["lladdr", peer.mac, "nud", "permanent"];
        self.ip(&[&["address", "add", &format!("{}/24", self.v4)], &dev[..]].concat())?;
        self.ip(&[&["neighbour", "add", &peer.v4.to_string()], &known[..], &dev[..]].concat())?;
        if let (Some(own), Some(peer)) = (self.v6, peer.v6) {
            self.ip(&[&["address", "add", &format!("{own}/64"), "nodad"], &dev[..]].concat())?;
            self.ip(&[&["neighbour", "add", &peer.to_string()], &known[..], &dev[..]].concat())?;
        }
        Ok(())
    }

    fn up(&self, device: &str) -> Result<(), LabError> {
        if self.v6.is_some() {
            self.ip(&["link", "set", "dev", device, "addrgenmode", "none"])?;
        }
        self.ip(&["link", "set", "dev", device, "up"])
    }
}

/// Two hosts and what stands between them. Dropping it removes them.
#[derive(Debug)]
pub struct Lab {
    sender: Host,
    receiver: Host,
}

impl Lab {
    /// Builds it.
    ///
    /// # Errors
    ///
    /// [`LabError::Permission`] without the privileges; otherwise what `ip` or
    /// `tc` refused. Whatever had been built is gone again.
    pub fn build(config: &LabConfig) -> Result<Self, LabError> {
        let way_out = if config.bridge { BRIDGE } else { LINK };
        let ipv6 = Path::new(IPV6).exists();
        let sender = Host {
            namespace: Namespace::create("sender")?,
            device: way_out,
            v4: SENDER_V4,
            v6: ipv6.then_some(SENDER_V6),
            mac: "02:00:00:00:00:01",
        };
        let receiver = Host {
            namespace: Namespace::create("receiver")?,
            device: LINK,
            v4: RECEIVER_V4,
            v6: ipv6.then_some(RECEIVER_V6),
            mac: "02:00:00:00:00:02",
        };
        let lab = Self { sender, receiver };
        lab.link(config)?;
        if config.bridge {
            lab.bridge()?;
        }
        for host in [&lab.sender, &lab.receiver] {
            host.ip(&["link", "set", "dev", host.device, "address", host.mac])?;
            host.ip(&["link", "set", "dev", "lo", "up"])?;
            for device in [LINK, host.device] {
                host.up(device)?;
            }
        }
        lab.sender.address_and_neighbour(&lab.receiver)?;
        lab.receiver.address_and_neighbour(&lab.sender)?;
        if let Some(shaper) = &config.shaper {
            lab.shape(shaper)?;
        }
        Ok(lab)
    }

    /// The host that sends.
    pub fn sender(&self) -> &Host {
        &self.sender
    }

    /// The host that receives.
    pub fn receiver(&self) -> &Host {
        &self.receiver
    }

    /// Puts `shaper` at the sender's way out, in place of what is there. Its
    /// bucket is full, its counters are 0.
    ///
    /// # Errors
    ///
    /// [`LabError::Tool`] with the reason `tc` gives.
    pub fn shape(&self, shaper: &Tbf) -> Result<(), LabError> {
        shaper.install(&self.sender.namespace, LINK)
    }

    /// The qdisc at the sender's way out, as `tc` sees it now.
    ///
    /// # Errors
    ///
    /// [`LabError::Tool`] or [`LabError::ToolOutput`] if `tc` fails.
    pub fn way_out(&self) -> Result<Qdisc, LabError> {
        let all = qdisc::show(&self.sender.namespace)?;
        let found = all.into_iter().find(|q| q.device == LINK);
        found.ok_or_else(|| LabError::Config { what: format!("tc shows no qdisc on {LINK}") })
    }

    fn link(&self, config: &LabConfig) -> Result<(), LabError> {
        let peer = self.receiver.namespace.path();
        let peer = peer.to_string_lossy();
        self.sender.ip(&["link", "add", LINK, "type", "veth", "peer", "name", LINK, "netns", &peer])?;
        for host in [&self.sender, &self.receiver] {
            if let Some(mtu) = config.mtu {
                host.ip(&["link", "set", "dev", LINK, "mtu", &mtu.to_string()])?;
            }
            if config.segment {
                host.ip(&["link", "set", "dev", LINK, "gso_max_segs", "1"])?;
            }
        }
        Ok(())
    }

    /// Without spanning tree and snooping: it forwards at once and says
    /// nothing by itself.
    fn bridge(&self) -> Result<(), LabError> {
        let quiet = ["stp_state", "0", "mcast_snooping", "0"];
        self.sender.ip(&[&["link", "add", BRIDGE, "type", "bridge"], &quiet[..]].concat())?;
        self.sender.ip(&["link", "set", "dev", LINK, "master", BRIDGE])
    }
}

/// Waits until no other test of this program puts load on the machine.
#[cfg(test)]
pub(crate) fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Has the machine to itself for the rest of a test. Ends the test early, and
/// says so, where there are no privileges to make a namespace; CI has them:
/// there it fails.
#[cfg(test)]
macro_rules! needs_root {
    () => {
        let _alone = match $crate::lab::Namespace::create("probe") {
            Ok(_) => $crate::lab::alone(),
            Err(e) if e.is_permission() && std::env::var("CI").as_deref() != Ok("true") => {
                eprintln!("SKIPPED: needs root");
                return;
            }
            Err(e) => panic!("{e}"),
        };
    };
}
#[cfg(test)]
pub(crate) use needs_root;

#[cfg(test)]
mod tests;
