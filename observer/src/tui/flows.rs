//! Which flows are listed, and in which order.

use std::cmp::Reverse;
use std::fmt::Write as _;

use crate::report::{Distribution, FlowReport};

use super::state::Sort;

/// The flows that contain `filter` (in their addresses, run, process or name,
/// any case), in the order of `sort`; equals by run and stream.
pub fn listed<'a>(flows: &'a [FlowReport], sort: Sort, filter: &str) -> Vec<&'a FlowReport> {
    let filter = filter.to_lowercase();
    let mut listed: Vec<_> =
        flows.iter().filter(|flow| filter.is_empty() || haystack(flow).contains(&filter)).collect();
    listed.sort_by_key(|flow| (Reverse(key(flow, sort)), flow.key.run, flow.key.stream));
    listed
}

/// What a flow is known by, for searching.
fn haystack(flow: &FlowReport) -> String {
    let key = &flow.key;
    let mut text = format!("{:#010x}.{}", key.run, key.stream);
    for address in [&key.source, &key.destination].into_iter().flatten() {
        let _ = write!(text, " {address}");
    }
    for end in [&key.sender, &key.receiver].into_iter().flatten() {
        let _ = write!(text, " {}[{}]", end.comm.to_lowercase(), end.pid.unwrap_or(0));
    }
    text
}

/// The highest quantile that can be quoted, or the largest value.
pub fn tail(total: &Distribution) -> Option<u64> {
    total.p99_9_ns.or(total.p99_ns).or(total.p90_ns).or(total.max_ns)
}

fn key(flow: &FlowReport, sort: Sort) -> Option<u64> {
    let total = &flow.components.total;
    match sort {
        Sort::Tail => tail(total),
        Sort::Max => total.max_ns,
        Sort::Median => total.p50_ns,
        Sort::Datagrams => Some(flow.counts.delivered),
        Sort::Drops => Some(flow.counts.dropped),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Balance, FlowComponents, FlowKey};

    fn flow(stream: u16, max_ns: Option<u64>, dropped: u64) -> FlowReport {
        FlowReport {
            key: FlowKey {
                run: 0xab,
                stream,
                source: Some(format!("10.0.0.{stream}:4000")),
                ..FlowKey::default()
            },
            counts: Balance { dropped, ..Balance::default() },
            components: FlowComponents {
                total: Distribution { max_ns, ..Distribution::default() },
                ..FlowComponents::default()
            },
        }
    }

    fn streams(flows: &[&FlowReport]) -> Vec<u16> {
        flows.iter().map(|f| f.key.stream).collect()
    }

    #[test]
    fn largest_first_unknown_last_equals_by_name() {
        let flows = [flow(3, None, 5), flow(2, Some(10), 0), flow(1, Some(10), 0), flow(4, Some(30), 0)];
        assert_eq!(streams(&listed(&flows, Sort::Tail, "")), [4, 1, 2, 3]);
        assert_eq!(streams(&listed(&flows, Sort::Drops, "")), [3, 1, 2, 4]);
    }

    #[test]
    fn a_filter_looks_at_all_that_a_flow_is_known_by() {
        let flows = [flow(3, None, 0), flow(2, None, 0)];
        assert_eq!(streams(&listed(&flows, Sort::Max, "10.0.0.2:")), [2]);
        assert_eq!(streams(&listed(&flows, Sort::Max, "0X000000AB.3")), [3]);
        assert_eq!(streams(&listed(&flows, Sort::Max, "nothing")), [0_u16; 0]);
    }
}
