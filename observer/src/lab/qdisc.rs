//! The shaper between the two hosts: what is asked of `tc`, and what `tc`
//! says is there.
//!
//! `tc` rounds a bucket to its clock ticks at the given rate, so the values a
//! closed form needs are those read back ([`Qdisc`]), not those asked for
//! ([`Tbf`]).

use serde::{Deserialize, Serialize};

use super::{LabError, Namespace, tool};

/// A token bucket filter to be put on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tbf {
    /// Rate r, bits per second, Ethernet headers included.
    pub rate_bit_per_s: u64,
    /// Bucket b, bytes.
    pub burst_bytes: u64,
    /// What its queue holds before it drops, bytes.
    pub limit_bytes: u64,
}

impl Tbf {
    /// Puts it at the root of `device`, replacing what is there.
    pub(super) fn install(&self, host: &Namespace, device: &str) -> Result<(), LabError> {
        let rate = format!("{}bit", self.rate_bit_per_s);
        let burst = format!("{}b", self.burst_bytes);
        let limit = format!("{}b", self.limit_bytes);
        let args = ["qdisc", "replace", "dev", device, "root", "tbf"];
        let args = [&args[..], &["rate", &rate, "burst", &burst, "limit", &limit]].concat();
        tool::tc(host, &args).map(drop)
    }
}

/// A qdisc as `tc` reports it, with its counters since it was installed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qdisc {
    /// `tbf`, `noqueue`, `pfifo`, …
    pub kind: String,
    /// The device it sits on.
    #[serde(rename = "dev")]
    pub device: String,
    /// `8001:` and the like.
    #[serde(default)]
    pub handle: String,
    /// What it was configured to; zeros for kinds without these.
    #[serde(default)]
    pub options: QdiscOptions,
    /// Bytes that left it, Ethernet headers included.
    #[serde(default)]
    pub bytes: u64,
    /// Packets that left it.
    #[serde(default)]
    pub packets: u64,
    /// Packets it dropped.
    #[serde(default)]
    pub drops: u64,
    /// Times it held a packet back.
    #[serde(default)]
    pub overlimits: u64,
    /// Times the device gave a packet back.
    #[serde(default)]
    pub requeues: u64,
    /// Bytes that wait in it now.
    #[serde(default, rename = "backlog")]
    pub backlog_bytes: u64,
    /// Packets that wait in it now.
    #[serde(default, rename = "qlen")]
    pub backlog_packets: u64,
}

/// The part of a qdisc's configuration the lab reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QdiscOptions {
    /// Rate r, bytes per second.
    #[serde(rename = "rate")]
    pub rate_byte_per_s: u64,
    /// Bucket b as the kernel keeps it, bytes.
    #[serde(rename = "burst")]
    pub burst_bytes: u64,
    /// Longest wait its limit allows, µs (`tc` converts the limit to it).
    #[serde(rename = "lat")]
    pub latency_us: u64,
}

const SHOW: [&str; 4] = ["-s", "-j", "qdisc", "show"];

/// The qdiscs of all devices of `host`.
pub(super) fn show(host: &Namespace) -> Result<Vec<Qdisc>, LabError> {
    read(&tool::tc(host, &SHOW)?)
}

/// The qdiscs of all devices in the calling thread's own namespace.
///
/// # Errors
///
/// [`LabError`] if `tc` is missing or fails.
pub fn show_here() -> Result<Vec<Qdisc>, LabError> {
    read(&tool::tc_here(&SHOW)?)
}

fn read(printed: &str) -> Result<Vec<Qdisc>, LabError> {
    parse(printed).map_err(|source| LabError::ToolOutput { command: tool::typed("tc", &SHOW), source })
}

/// Reads what `tc -s -j qdisc show` prints.
fn parse(json: &str) -> Result<Vec<Qdisc>, serde_json::Error> {
    if json.trim().is_empty() { Ok(Vec::new()) } else { serde_json::from_str(json) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As printed by iproute2 6.1.
    const PRINTED: &str = r#"[{"kind":"noqueue","handle":"0:","dev":"lo","root":true,"refcnt":2,"options":{},
        "bytes":0,"packets":0,"drops":0,"overlimits":0,"requeues":0,"backlog":0,"qlen":0},
        {"kind":"tbf","handle":"8001:","dev":"eth0","root":true,"refcnt":3,
        "options":{"rate":12500000,"burst":262137,"lat":4173333},"bytes":200,"packets":2,"drops":3,
        "overlimits":4,"requeues":5,"backlog":606,"qlen":7}]"#;

    #[test]
    fn reads_what_tc_prints() {
        let qdiscs = parse(PRINTED).unwrap();
        assert_eq!(qdiscs[0].kind, "noqueue");
        assert_eq!(qdiscs[0].options, QdiscOptions::default());
        let options =
            QdiscOptions { rate_byte_per_s: 12_500_000, burst_bytes: 262_137, latency_us: 4_173_333 };
        let tbf = Qdisc {
            kind: "tbf".into(),
            device: "eth0".into(),
            handle: "8001:".into(),
            options,
            bytes: 200,
            packets: 2,
            drops: 3,
            overlimits: 4,
            requeues: 5,
            backlog_bytes: 606,
            backlog_packets: 7,
        };
        assert_eq!(qdiscs[1], tbf);
    }

    proptest! {
        #[test]
        fn anything_else_is_an_error_and_no_panic(text in ".{0,200}", cut in 0..PRINTED.len()) {
            let _ = parse(&text);
            prop_assert!(cut == 0 || parse(&PRINTED[..cut]).is_err());
        }
    }
}
