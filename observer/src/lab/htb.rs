//! A hierarchical token bucket with one class, to be put on the way instead of
//! a plain one.
//!
//! With a ceiling equal to the rate, htb's class limits as tbf does, but by
//! other arithmetic: two buckets (rate and ceiling), both refilled on packets'
//! ends, and a queue of its own behind the class. What the kernel made of the
//! configuration is read back with [`host::qdisc`](crate::host::qdisc).

use serde::{Deserialize, Serialize};

use super::{LINK, LabError, Namespace, tool};

/// One class of htb, through which everything goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Htb {
    /// Rate and ceiling, bits per second, Ethernet headers included.
    pub rate_bit_per_s: u64,
    /// Bucket of either, bytes.
    pub burst_bytes: u64,
    /// What its queue holds before it drops, packets.
    pub limit_packets: u64,
}

impl Htb {
    /// Puts it at the root of [`LINK`], replacing what is there.
    pub(super) fn install(&self, host: &Namespace) -> Result<(), LabError> {
        let rate = format!("{}bit", self.rate_bit_per_s);
        let burst = format!("{}b", self.burst_bytes);
        let limit = self.limit_packets.to_string();
        let tc = |args: &[&str]| tool::tc(host, args).map(drop);
        // Another kind first: an htb is not replaced by an htb of the same
        // handle, but changed, and keeps its classes.
        tc(&["qdisc", "replace", "dev", LINK, "root", "pfifo"])?;
        tc(&["qdisc", "replace", "dev", LINK, "root", "handle", "1:", "htb", "default", "10"])?;
        let class = ["class", "add", "dev", LINK, "parent", "1:", "classid", "1:10", "htb"];
        tc(&[&class[..], &["rate", &rate, "ceil", &rate, "burst", &burst, "cburst", &burst]].concat())?;
        tc(&["qdisc", "add", "dev", LINK, "parent", "1:10", "handle", "10:", "pfifo", "limit", &limit])
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::host::qdisc::{self, Role};
    use crate::lab::{Lab, LabConfig, RECEIVER_V4, needs_root};

    #[test]
    fn a_burst_takes_as_long_as_the_rate_says_and_reads_back() {
        needs_root!();
        let htb = Htb { rate_bit_per_s: 20_000_000, burst_bytes: 20_000, limit_packets: 1_000 };
        let lab = Lab::build(&LabConfig { htb: Some(htb), ..LabConfig::default() }).unwrap();
        let to = (RECEIVER_V4, 9_077);
        let socket = lab.receiver().namespace.enter(|| UdpSocket::bind(to).unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let begun = Instant::now();
        let send = || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            rustix::net::sockopt::set_socket_send_buffer_size_force(&socket, 4 << 20).unwrap();
            (0..300).for_each(|_| assert_eq!(socket.send_to(&[0; 1_200], to).unwrap(), 1_200));
        };
        lab.sender().namespace.enter(send).unwrap();
        for _ in 0..300 {
            socket.recv(&mut [0; 1_500]).unwrap();
        }
        // (300 x 1,242 - 20,000) bytes at 2.5 MB/s are 141 ms; never less.
        let took = begun.elapsed();
        assert!((Duration::from_millis(135)..Duration::from_secs(2)).contains(&took), "{took:?}");

        let all = lab.sender().namespace.enter(qdisc::here).unwrap().unwrap();
        let class = all.iter().find(|q| q.role == Role::Class && q.device == LINK).unwrap();
        assert_eq!((class.config.rate_bit_s, class.config.peak_bit_s), (Some(20_000_000), Some(20_000_000)));
        assert!(class.config.burst_bytes.unwrap().abs_diff(20_000) < 10, "{class:?}");
        assert!((300..=304).contains(&class.counters.packets), "{class:?}");
        assert_eq!(lab.way_out().unwrap().kind, "htb");

        // Installed anew, it starts anew.
        lab.shape_htb(&Htb { rate_bit_per_s: 8_000_000, ..htb }).unwrap();
        let all = lab.sender().namespace.enter(qdisc::here).unwrap().unwrap();
        let class = all.iter().find(|q| q.role == Role::Class).unwrap();
        assert_eq!((class.config.rate_bit_s, class.counters.drops), (Some(8_000_000), 0));
        assert!(class.counters.packets < 5, "{class:?}");
    }

    #[test]
    fn two_shapers_at_one_place_are_refused() {
        needs_root!();
        let htb = Some(Htb { rate_bit_per_s: 8_000_000, burst_bytes: 2_000, limit_packets: 10 });
        let shaper = Some(crate::lab::Tbf { rate_bit_per_s: 8, burst_bytes: 2_000, limit_bytes: 4_000 });
        let e = Lab::build(&LabConfig { htb, shaper, ..LabConfig::default() }).unwrap_err();
        assert!(e.to_string().contains("both"), "{e}");
    }
}
