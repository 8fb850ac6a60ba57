//! Several senders and one receiver, each sender on a link of its own behind
//! a token bucket of its own.
//!
//! ```text
//!   sender 0   10.78.0.1 eth0 [tbf] ──── veth ──── 10.78.0.2 eth0 ┐
//!   sender 1   10.78.1.1 eth0 [tbf] ──── veth ──── 10.78.1.2 eth1 ┴ receiver
//! ```
//!
//! For what can only be seen where paths meet: the order in which the
//! datagrams of two senders arrive. IPv4 only; neighbours are static as in the
//! lab of two hosts. Dropping it removes everything.

use std::net::{Ipv4Addr, SocketAddr};

use super::{LINK, LabError, Namespace, Tbf, tool};

/// Senders at most: one per subnet of 10.78.0.0/16.
const MOST: usize = 8;

/// Senders, each behind its own token bucket, and the receiver they share.
#[derive(Debug)]
pub struct FanIn {
    senders: Vec<Namespace>,
    receiver: Namespace,
}

impl FanIn {
    /// One sender per entry of `shapers`; `None` is an unshaped one.
    ///
    /// # Errors
    ///
    /// [`LabError::Config`] for no or too many senders, otherwise as
    /// [`Lab::build`](super::Lab::build).
    pub fn build(shapers: &[Option<Tbf>]) -> Result<Self, LabError> {
        if !(1..=MOST).contains(&shapers.len()) {
            let what = format!("{} senders; 1 to {MOST} are possible", shapers.len());
            return Err(LabError::Config { what });
        }
        let receiver = Namespace::create("receiver")?;
        tool::ip(&receiver, &["link", "set", "dev", "lo", "up"])?;
        let path = receiver.path();
        let mut senders = Vec::with_capacity(shapers.len());
        for (i, shaper) in shapers.iter().enumerate() {
            let sender = Namespace::create("sender")?;
            let far = format!("eth{i}");
            let peer = ["type", "veth", "peer", "name", &far, "netns", &path.to_string_lossy()];
            tool::ip(&sender, &[&["link", "add", LINK], &peer[..]].concat())?;
            let ends = [(&sender, LINK, 1), (&receiver, far.as_str(), 2)];
            for (host, device, end) in ends {
                let link = ["link", "set", "dev", device];
                tool::ip(host, &[&link[..], &["address", &mac(i, end)]].concat())?;
                tool::ip(host, &[&link[..], &["up"]].concat())?;
                let own = format!("{}/24", address(i, end));
                tool::ip(host, &["address", "add", &own, "dev", device])?;
            }
            for (host, device, end) in ends {
                tool::wait_until_up(host, device)?;
                let (other, at) = (3 - end, ["nud", "permanent", "dev", device]);
                let to = [address(i, other).to_string(), mac(i, other)];
                tool::ip(host, &[&["neighbour", "replace", &to[0], "lladdr", &to[1]], &at[..]].concat())?;
            }
            if let Some(shaper) = shaper {
                shaper.install(&sender, LINK)?;
            }
            senders.push(sender);
        }
        Ok(Self { senders, receiver })
    }

    /// The host of sender `i`.
    pub fn sender(&self, i: usize) -> Option<&Namespace> {
        self.senders.get(i)
    }

    /// How many senders there are.
    pub fn senders(&self) -> usize {
        self.senders.len()
    }

    /// The receiving host.
    pub fn receiver(&self) -> &Namespace {
        &self.receiver
    }

    /// Where sender `i` reaches the receiver.
    pub fn target(&self, i: usize, port: u16) -> SocketAddr {
        (address(i, 2), port).into()
    }
}

/// End 1 is the sender's, 2 the receiver's.
fn address(sender: usize, end: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, u8::try_from(sender).unwrap_or(u8::MAX), end)
}

fn mac(sender: usize, end: u8) -> String {
    format!("02:00:00:01:{sender:02x}:{end:02x}")
}
