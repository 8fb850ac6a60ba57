//! Which datagrams of a trace a question is about.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use load::workload::expect::Comparison;
use observer_ebpf::abi::{FlowSlot, JourneyRecord, flag, flow_id};

use crate::component::Component;
use crate::correlate::flows::run_and_stream;
use crate::correlate::{Journey, Outcome, stream};
use crate::source::Tables;

/// All that is asked for must hold. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Offered at this time after the start of the observation or later.
    pub from: Option<Duration>,
    /// Offered before this time after the start.
    pub to: Option<Duration>,
    /// Of any of these flows.
    pub flows: Vec<FlowName>,
    /// With so many bytes, Ethernet header included.
    pub size: Option<Sizes>,
    /// That spent so long in a component.
    pub components: Vec<Spent>,
}

/// A run, or one stream of it: `0x1f`, `31`, `0x1f:3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowName {
    /// Run id.
    pub run: u32,
    /// Stream; `None` for all.
    pub stream: Option<u16>,
}

/// A range of sizes: `100..200`, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Fewest bytes.
    pub least: u32,
    /// Most bytes.
    pub most: u32,
}

/// A condition on a component's time: `shaper > 1ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// Which; `None` for the total.
    pub component: Option<Component>,
    /// How it compares.
    pub comparison: Comparison,
    /// With what, ns.
    pub bound_ns: u64,
}

impl FromStr for FlowName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is no flow; write RUN or RUN:STREAM, the run decimal or 0x…");
        let (run, stream) = match text.split_once(':') {
            Some((run, stream)) => (run, Some(stream.parse().map_err(|_| bad())?)),
            None => (text, None),
        };
        let run = match run.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => run.parse(),
        };
        Ok(Self { run: run.map_err(|_| bad())?, stream })
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is no range of sizes; write bytes as in 202, or 100..1500");
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        let sizes = Self { least: least.parse().map_err(|_| bad())?, most: most.parse().map_err(|_| bad())? };
        if sizes.least > sizes.most { Err(bad()) } else { Ok(sizes) }
    }
}

impl FromStr for Spent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at = text
            .find(['<', '>'])
            .ok_or_else(|| format!("{text:?} compares nothing, as in \"shaper > 1ms\""))?;
        let (name, rest) = text.split_at(at);
        let name = name.trim();
        let component = match Component::ALL.into_iter().find(|c| c.name() == name) {
            None if name != "total" => {
                return Err(format!("{name:?} is none of sender_queue, shaper, wire, receiver, total"));
            }
            found => found,
        };
        let signs = [
            ("<=", Comparison::AtMost),
            (">=", Comparison::AtLeast),
            ("<", Comparison::Below),
            (">", Comparison::Above),
        ];
        let (comparison, bound) =
            signs.into_iter().find_map(|(s, c)| Some((c, rest.strip_prefix(s)?))).ok_or("no comparison")?;
        let bound = load::units::duration(bound.trim()).map_err(|e| e.to_string())?;
        let bound_ns = u64::try_from(bound.as_nanos()).map_err(|_| "a time beyond 500 years".to_owned())?;
        Ok(Self { component, comparison, bound_ns })
    }
}

impl Selection {
    /// Whether it selects everything.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it only bounds the time.
    pub fn is_time(&self) -> bool {
        Self { from: None, to: None, ..self.clone() }.is_all()
    }

    /// The bounds of the offer time on the trace's clock, the upper excluded.
    pub fn bounds_ns(&self, start_ns: u64) -> (i64, i64) {
        let at = |d: Duration| {
            let ns = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX).saturating_add(start_ns);
            i64::try_from(ns).unwrap_or(i64::MAX)
        };
        (self.from.map_or(i64::MIN, at), self.to.map_or(i64::MAX, at))
    }

    fn record(&self, r: &JourneyRecord, bounds: (i64, i64)) -> bool {
        let s = stream(r);
        (bounds.0..bounds.1).contains(&r.offer_ns)
            && self.size.is_none_or(|z| (z.least..=z.most).contains(&r.l2_bytes))
            && (self.flows.is_empty()
                || self.flows.iter().any(|f| f.run == r.run && f.stream.is_none_or(|stream| stream == s)))
    }

    fn journey(&self, j: &Journey) -> bool {
        self.components.iter().all(|spent| {
            let ns = match spent.component {
                Some(component) => j.stages.component(component),
                None => j.stages.total,
            };
            ns.is_some_and(|ns| match spent.comparison {
                Comparison::Below => ns < spent.bound_ns,
                Comparison::AtMost => ns <= spent.bound_ns,
                Comparison::Above => ns > spent.bound_ns,
                Comparison::AtLeast => ns >= spent.bound_ns,
            })
        })
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = Vec::new();
        let time = |d: Duration| load::units::show_ns(i64::try_from(d.as_nanos()).unwrap_or(i64::MAX));
        said.extend(self.from.map(|d| format!("offered {} after the start or later", time(d))));
        said.extend(self.to.map(|d| format!("offered before {} after the start", time(d))));
        if !self.flows.is_empty() {
            let names: Vec<_> = self
                .flows
                .iter()
                .map(|n| n.stream.map_or(format!("{:#x}", n.run), |s| format!("{:#x}:{s}", n.run)))
                .collect();
            said.push(format!("of flow {}", names.join(" or ")));
        }
        said.extend(self.size.map(|z| format!("of {} to {} bytes", z.least, z.most)));
        for spent in &self.components {
            let name = spent.component.map_or("total", Component::name);
            let sign = match spent.comparison {
                Comparison::Below => "<",
                Comparison::AtMost => "<=",
                Comparison::Above => ">",
                Comparison::AtLeast => ">=",
            };
            said.push(format!("with {name} {sign} {}", time(Duration::from_nanos(spent.bound_ns))));
        }
        f.write_str(&if said.is_empty() { "everything".to_owned() } else { said.join(", ") })
    }
}

/// Picks what is selected, and counts it: the kernel side's tables count whole
/// flows over whole runs.
#[derive(Clone, Debug, Default)]
pub struct Picker {
    selection: Selection,
    bounds: (i64, i64),
    flows: BTreeMap<u64, FlowSlot>,
    drops: BTreeMap<(u16, u32), u64>,
}

impl Picker {
    /// For a trace whose observation began at `start_ns`.
    pub fn new(selection: &Selection, start_ns: u64) -> Self {
        Self { selection: selection.clone(), bounds: selection.bounds_ns(start_ns), ..Self::default() }
    }

    /// Whether a record is of the time selected, of before, or of after.
    pub fn time_of(&self, record: &JourneyRecord) -> Ordering {
        match record.offer_ns {
            ns if ns < self.bounds.0 => Ordering::Less,
            ns if ns >= self.bounds.1 => Ordering::Greater,
            _ => Ordering::Equal,
        }
    }

    /// Whether the journey is selected; it is counted then.
    pub fn pick(&mut self, j: &Journey, sender_here: bool) -> bool {
        if !self.selection.record(&j.record, self.bounds) || !self.selection.journey(j) {
            return false;
        }
        let slot = self.flows.entry(j.flow).or_default();
        slot.id = j.flow;
        slot.admitted = 1;
        slot.offered += 1;
        if sender_here {
            slot.tx_socket = 1;
            slot.sent += 1;
        }
        match j.outcome {
            Outcome::Delivered => {
                slot.delivered += 1;
                slot.delivered_bytes += u64::from(payload(&j.record));
            }
            Outcome::Dropped => {
                slot.dropped += 1;
                *self.drops.entry((j.record.run_index, j.record.drop_reason)).or_default() += 1;
            }
            Outcome::Unresolved => slot.evicted += 1,
        }
        true
    }

    /// What the tables would be if there had been nothing else. Events that
    /// belong to no datagram are those of the whole trace.
    pub fn tables(&self, all: &Tables) -> Tables {
        let mut tables = all.clone();
        tables
            .unfinished
            .retain(|r| self.selection.components.is_empty() && self.selection.record(r, self.bounds));
        let mut flows = self.flows.clone();
        for r in &tables.unfinished {
            let id = flow_id(r.run, stream(r));
            let slot = flows.entry(id).or_default();
            (slot.id, slot.admitted, slot.tx_socket) = (id, 1, 1);
            slot.offered += 1;
            slot.sent += 1;
        }
        for slot in flows.values_mut() {
            let whole = all.flows.iter().find(|f| f.id == slot.id);
            slot.tx_tgid = whole.map_or(0, |f| f.tx_tgid);
            slot.run_index = whole.map_or(0, |f| f.run_index);
            if slot.sent == 0 {
                slot.tx_tgid = 0;
            }
        }
        tables.flows = flows.into_values().collect();
        tables.drops = self.drops.iter().map(|((run, reason), n)| (*run, *reason, *n)).collect();
        let runs: Vec<u32> = tables.flows.iter().map(|f| run_and_stream(f.id).0).collect();
        for run in &mut tables.runs {
            if !runs.iter().any(|r| u64::from(*r) == run.id) {
                run.id = 0;
            }
        }
        tables
    }
}

/// Bytes of UDP payload, if there are neither options nor tags.
fn payload(r: &JourneyRecord) -> u32 {
    let headers = if r.flags & flag::V6 != 0 { 14 + 40 + 8 } else { 14 + 20 + 8 };
    r.l2_bytes.saturating_sub(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_reads_well() {
        let flow: FlowName = "0x1f:3".parse().unwrap();
        assert_eq!((flow.run, flow.stream), (31, Some(3)));
        assert_eq!("31".parse::<FlowName>().unwrap().stream, None);
        assert_eq!("202".parse::<Sizes>().unwrap(), Sizes { least: 202, most: 202 });
        let spent: Spent = "shaper >= 1ms".parse().unwrap();
        assert_eq!(spent.bound_ns, 1_000_000);
        for bad in ["", "x", "1:70000", "0x1ffffffff"] {
            assert!(bad.parse::<FlowName>().is_err(), "{bad}");
        }
        assert!("3..2".parse::<Sizes>().is_err());
        assert!("cable > 1ms".parse::<Spent>().is_err());
        assert!("shaper 1ms".parse::<Spent>().is_err());
        let selection = Selection { flows: vec![flow], components: vec![spent], ..Selection::default() };
        assert_eq!(selection.to_string(), "of flow 0x1f:3, with shaper >= 1.00 ms");
        assert!(!selection.is_all() && !selection.is_time());
    }
}
