//! A segment's distributions as rows, and back: `histograms-*.parquet`.
//!
//! In: what the pipeline measured since the last segment. Out: one row per
//! bucket in use. Adding up the rows of any number of segments gives exactly
//! what measuring over all of them would have given, so that reports and
//! comparisons of whole segments need no record.
//!
//! | scope | metric | to_ns | count | sum_ns |
//! |---|---|---|---|---|
//! | `all` | `total`, `complete`, `send_lag`, a component, `<component>_<part>` | largest value of the bucket (0.1 %) | values in it | |
//! | `flow`, `other_flows` | `total`, a component | the same (1 %) | values in it | |
//! | `tail` | `total` | largest total of the bucket (1.6 %) | complete journeys in it | sum of their totals |
//! | `tail` | a component or part | the same | 0 | sum of it over them |
//!
//! Values above the range have the bucket 2^63 − 1. The scopes `all_max`,
//! `flow_max` and `other_flows_max` have the largest value of each metric,
//! exactly, in to_ns.

use std::collections::HashMap;

use parquet::data_type::ByteArray;
use serde::{Deserialize, Serialize};

use super::TraceError;
use super::table::{Column, Kind, TableReader, Values, column, nullable};
use crate::component::{Component, Part};
use crate::correlate::flows::run_and_stream;
use crate::metrics::flows::SHOWN;
use crate::metrics::tail::Bucket;
use crate::metrics::{FlowMetrics, Latency, Window};
use crate::report::SlowestHop;
use observer_ebpf::abi::flow_id;

/// Columns of histograms-*.parquet.
pub const COLUMNS: &[Column] = &[
    column("scope", Kind::Name),
    column("metric", Kind::Name),
    nullable("run_id", Kind::Few),
    nullable("stream", Kind::Few),
    column("to_ns", Kind::Delta),
    column("count", Kind::Delta),
    nullable("sum_ns", Kind::Delta),
];

/// Components and the total.
const WITH_TOTAL: usize = Component::COUNT + 1;
/// Largest count or sum in a row: sums beyond take several rows.
const MOST: u64 = 1 << 62;
/// Largest count in one segment that is believed.
const MOST_COUNT: u64 = 1 << 40;
/// The bucket of values above the range.
const ABOVE: u64 = i64::MAX.unsigned_abs();

/// What of a [`Window`] is no bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scalars {
    /// The largest single hop in each tail bucket: bucket (ns), interface,
    /// span (ns), of that in the qdisc (ns).
    pub hops: Vec<(u64, u32, u64, Option<u64>)>,
    /// Complete journeys above the tail's range.
    pub beyond: u64,
    /// Wall time in which a datagram with a total of 2^k ns or more was under
    /// way, ns by k; zeros at the end are left out.
    pub waited_ns: Vec<u64>,
    /// Fields of the same names in `Window`.
    pub partial: [u64; WITH_TOTAL],
    /// Delivered with something unknown.
    pub partial_journeys: u64,
    /// Differences taken as 0.
    pub negatives: [u64; WITH_TOTAL],
    /// Differences that are errors.
    pub out_of_order: [u64; WITH_TOTAL],
    /// Errors inside a component.
    pub parts_out_of_order: [u64; Component::COUNT],
    /// Records by outcome.
    pub delivered: u64,
    /// Records by outcome.
    pub dropped: u64,
    /// Records by outcome.
    pub unresolved: u64,
    /// Datagrams offered before they were wanted.
    pub offered_early: u64,
    /// Where `waited_ns` had come to, by k; kept where segments are forgotten.
    #[serde(skip)]
    pub until_ns: Vec<u64>,
    /// The flows with distributions of their own when the segment was closed.
    pub flows: Vec<u64>,
}

impl Scalars {
    /// Journeys measured, however they ended.
    pub fn journeys(&self) -> u64 {
        self.delivered.saturating_add(self.dropped).saturating_add(self.unresolved)
    }
}

/// The distributions of a window with their names.
fn named(window: &Window) -> impl Iterator<Item = (usize, &Latency)> {
    let others = [&window.total, &window.complete, &window.send_lag];
    window.components.iter().chain(&window.parts).chain(others).enumerate()
}

/// The name of the distribution at that place in [`named`].
fn name(place: usize) -> String {
    match place.checked_sub(Component::COUNT) {
        None => Component::ALL.get(place).map_or("", |c| c.name()).to_owned(),
        Some(p) => match Part::ALL.get(p) {
            Some(part) => part_name(*part),
            None if p == Part::COUNT => "total".to_owned(),
            None if p == Part::COUNT + 1 => "complete".to_owned(),
            None => "send_lag".to_owned(),
        },
    }
}

/// A part's name in the one grammar of metrics.
pub fn part_name(part: Part) -> String {
    format!("{}_{}", part.component().name(), part.name())
}

/// How many distributions a window has.
const DISTRIBUTIONS: usize = Component::COUNT + Part::COUNT + 3;

/// Buckets of one flow's distributions at the last segment.
type Buckets = [Vec<(u64, u64)>; WITH_TOTAL];

/// Turns windows into rows. Flows are kept since the start by the pipeline;
/// here the difference to the last segment is taken.
pub struct Extract {
    metrics: Vec<ByteArray>,
    scopes: [ByteArray; SCOPES.len()],
    last: HashMap<Option<u64>, Buckets>,
}

/// One segment's rows.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// By [`COLUMNS`].
    pub values: Vec<Values>,
    /// How many.
    pub rows: usize,
    /// What is no row.
    pub scalars: Scalars,
}

impl Default for Extract {
    fn default() -> Self {
        Self {
            metrics: (0..DISTRIBUTIONS).map(|place| ByteArray::from(name(place).as_str())).collect(),
            scopes: SCOPES.map(ByteArray::from),
            last: HashMap::new(),
        }
    }
}

/// The scopes' names, by the numbers below.
const SCOPES: [&str; 7] = ["all", "flow", "other_flows", "tail", "all_max", "flow_max", "other_flows_max"];
const ALL: usize = 0;
const FLOW: usize = 1;
const OTHER_FLOWS: usize = 2;
const TAIL: usize = 3;
/// From a scope of distributions to that of their largest values.
const MAX: usize = 4;

/// Place of the total among the names.
const TOTAL: usize = Component::COUNT + Part::COUNT;

impl Extract {
    /// The rows of a segment.
    pub fn rows(&mut self, window: &Window, flows: &mut FlowMetrics) -> Rows {
        let mut rows = Rows { values: vec![Values::default(); COLUMNS.len()], ..Rows::default() };
        for (place, latency) in named(window).filter(|(_, l)| l.count() > 0) {
            for (to_ns, count) in with_overflow(latency) {
                self.push(&mut rows, ALL, place, None, (to_ns, count, None));
            }
            self.push(&mut rows, ALL + MAX, place, None, (latency.max().unwrap_or(0), 0, None));
        }
        self.tail(window, &mut rows);
        self.flows(flows, &mut rows);
        let s = &mut rows.scalars;
        s.beyond = window.tail.beyond();
        s.waited_ns = window.stalls.waited_ns().to_vec();
        while s.waited_ns.last() == Some(&0) {
            s.waited_ns.pop();
        }
        (s.partial, s.partial_journeys) = (window.partial, window.partial_journeys);
        (s.negatives, s.out_of_order) = (window.negatives, window.out_of_order);
        s.parts_out_of_order = window.parts_out_of_order;
        (s.delivered, s.dropped, s.unresolved) = (window.delivered, window.dropped, window.unresolved);
        s.offered_early = window.offered_early;
        s.until_ns = window.stalls.until_ns().to_vec();
        rows
    }

    fn push(
        &self,
        rows: &mut Rows,
        scope: usize,
        metric: usize,
        flow: Option<u64>,
        (to_ns, count, sum): (u64, u64, Option<u64>),
    ) {
        let (Some(scope), Some(metric)) = (self.scopes.get(scope), self.metrics.get(metric)) else { return };
        let [s, m, run, stream, to, n, sums] = rows.values.as_mut_slice() else { return };
        let (r, st) = flow.map_or((0, 0), run_and_stream);
        s.push_name(scope);
        m.push_name(metric);
        run.push_if(flow.is_some(), r.into());
        stream.push_if(flow.is_some(), st.into());
        to.push(to_ns.cast_signed());
        n.push(count.cast_signed());
        sums.push_if(sum.is_some(), sum.unwrap_or(0).cast_signed());
        rows.rows += 1;
    }

    fn tail(&self, window: &Window, rows: &mut Rows) {
        // By metric, so that sums of one kind lie together.
        for place in [TOTAL].into_iter().chain(0..TOTAL) {
            for (to_ns, b) in window.tail.buckets() {
                let (count, mut sum) = match place.checked_sub(Component::COUNT) {
                    None => (0, b.components_ns.get(place).copied().unwrap_or(0)),
                    Some(Part::COUNT) => (b.count, b.total_ns),
                    Some(part) => (0, b.parts_ns.get(part).copied().unwrap_or(0)),
                };
                let mut count = count;
                while count > 0 || sum > 0 {
                    let some = u64::try_from(sum).unwrap_or(u64::MAX).min(MOST);
                    self.push(rows, TAIL, place, None, (to_ns, count, Some(some)));
                    sum -= u128::from(some);
                    count = 0;
                }
            }
        }
        let hops = window.tail.buckets().filter_map(|(to_ns, b)| b.hop.map(|h| (to_ns, h)));
        rows.scalars.hops = hops.map(|(to_ns, h)| (to_ns, h.ifindex, h.span_ns, h.qdisc_ns)).collect();
    }

    fn flows(&mut self, flows: &mut FlowMetrics, rows: &mut Rows) {
        let mut now: HashMap<Option<u64>, Buckets> = HashMap::new();
        for (id, flow, largest) in flows.each() {
            let mut buckets = Buckets::default();
            for (latency, buckets) in flow.distributions().zip(&mut buckets) {
                buckets.extend(with_overflow(latency));
            }
            rows.scalars.flows.extend(id);
            for (place, max_ns) in largest.into_iter().enumerate().filter(|(_, max_ns)| *max_ns > 0) {
                let metric = if place == Component::COUNT { TOTAL } else { place };
                let scope = if id.is_some() { FLOW } else { OTHER_FLOWS };
                self.push(rows, scope + MAX, metric, id, (max_ns, 0, None));
            }
            now.insert(id, buckets);
        }
        rows.scalars.flows.sort_unstable();
        // What a flow had that now counts among the others was theirs before.
        let gone: Vec<_> =
            self.last.keys().filter(|id| id.is_some() && !now.contains_key(*id)).copied().collect();
        for id in gone {
            let before = self.last.remove(&id).unwrap_or_default();
            let others = self.last.entry(None).or_default();
            for (mine, theirs) in others.iter_mut().zip(before) {
                merge(mine, &theirs);
            }
        }
        let mut ids: Vec<_> = now.keys().copied().collect();
        ids.sort_unstable();
        let nothing = Buckets::default();
        for id in ids {
            let (Some(buckets), before) = (now.get(&id), self.last.get(&id).unwrap_or(&nothing)) else {
                continue;
            };
            for (place, (after, before)) in buckets.iter().zip(before).enumerate() {
                let metric = if place == Component::COUNT { TOTAL } else { place };
                for (to_ns, count) in difference(after, before) {
                    let scope = if id.is_some() { FLOW } else { OTHER_FLOWS };
                    self.push(rows, scope, metric, id, (to_ns, count, None));
                }
            }
        }
        self.last = now;
    }
}

/// The buckets in use, and last the values above them.
fn with_overflow(latency: &Latency) -> impl Iterator<Item = (u64, u64)> + '_ {
    let above = latency.overflow();
    latency.buckets().chain((above > 0).then_some((ABOVE, above)))
}

/// Adds the buckets of `theirs`; both are in order.
fn merge(mine: &mut Vec<(u64, u64)>, theirs: &[(u64, u64)]) {
    for (to_ns, count) in theirs {
        match mine.binary_search_by_key(to_ns, |b| b.0) {
            Ok(at) => {
                if let Some(b) = mine.get_mut(at) {
                    b.1 += count;
                }
            }
            Err(at) => mine.insert(at, (*to_ns, *count)),
        }
    }
}

/// What `after` has more than `before`; both are in order.
fn difference<'a>(
    after: &'a [(u64, u64)],
    before: &'a [(u64, u64)],
) -> impl Iterator<Item = (u64, u64)> + 'a {
    let mut before = before.iter().peekable();
    after.iter().filter_map(move |(to_ns, count)| {
        while before.peek().is_some_and(|b| b.0 < *to_ns) {
            before.next();
        }
        let had = before.peek().filter(|b| b.0 == *to_ns).map_or(0, |b| b.1);
        (*count > had).then(|| (*to_ns, count - had))
    })
}

/// Puts a segment's rows and scalars into `window` and `flows`.
///
/// # Errors
///
/// [`TraceError::Damaged`] for rows that no recorder wrote.
pub fn put_back(
    reader: Option<&mut TableReader>,
    scalars: &Scalars,
    path: &std::path::Path,
    window: &mut Window,
    flows: Option<&mut FlowMetrics>,
) -> Result<(), TraceError> {
    let mut back = Back::new(window, flows);
    if let Some(reader) = reader {
        while reader.next(super::table::CHUNK_ROWS)? > 0 {
            back.chunk(&reader.values).map_err(|why| TraceError::damaged(path, why))?;
        }
    }
    back.scalars(scalars).map_err(|why| TraceError::damaged(path, why))
}

struct Back<'a> {
    window: &'a mut Window,
    flows: Option<&'a mut FlowMetrics>,
    places: HashMap<Vec<u8>, usize>,
}

impl<'a> Back<'a> {
    fn new(window: &'a mut Window, flows: Option<&'a mut FlowMetrics>) -> Self {
        let places = (0..DISTRIBUTIONS).map(|place| (name(place).into_bytes(), place)).collect();
        Self { window, flows, places }
    }

    fn chunk(&mut self, values: &[Values]) -> Result<(), &'static str> {
        let [scopes, metrics, runs, streams, tos, counts, sums] = values else {
            return Err("columns are missing");
        };
        let (mut flow_at, mut sum_at) = (0, 0);
        let rows = scopes.names.iter().zip(&metrics.names).zip(&tos.ints).zip(&counts.ints).enumerate();
        for (i, (((scope, metric), to_ns), count)) in rows {
            let place = *self.places.get(metric.data()).ok_or("an unknown metric")?;
            let to_ns = u64::try_from(*to_ns).map_err(|_| "a negative bucket")?;
            let count =
                u64::try_from(*count).ok().filter(|n| *n <= MOST_COUNT).ok_or("a count without sense")?;
            let mut flow = None;
            if runs.present.get(i) == Some(&1) {
                let (run, stream) = (runs.ints.get(flow_at), streams.ints.get(flow_at));
                let run = run.and_then(|n| u32::try_from(*n).ok());
                let stream = stream.and_then(|n| u16::try_from(*n).ok());
                flow = run.zip(stream).map(|(run, stream)| flow_id(run, stream));
                flow_at += 1;
            }
            let mut sum = 0;
            if sums.present.get(i) == Some(&1) {
                sum = sums.ints.get(sum_at).and_then(|n| u64::try_from(*n).ok()).ok_or("a negative sum")?;
                sum_at += 1;
            }
            match scope.data() {
                b"all" => self.distribution(place).put_back(to_ns, count),
                b"tail" => self.tail(place, to_ns, count, sum)?,
                b"flow" => self.flow(flow, place, to_ns, count)?,
                b"other_flows" => self.flow(None, place, to_ns, count)?,
                b"all_max" => self.distribution(place).raise_max(to_ns),
                b"flow_max" => self.flow_max(flow, place, to_ns)?,
                b"other_flows_max" => self.flow_max(None, place, to_ns)?,
                _ => return Err("an unknown scope"),
            }
        }
        Ok(())
    }

    fn distribution(&mut self, place: usize) -> &mut Latency {
        let w = &mut *self.window;
        match place.checked_sub(Component::COUNT) {
            None => &mut w.components[place],
            Some(part) if part < Part::COUNT => &mut w.parts[part],
            Some(Part::COUNT) => &mut w.total,
            Some(place) if place == Part::COUNT + 1 => &mut w.complete,
            Some(_) => &mut w.send_lag,
        }
    }

    fn tail(&mut self, place: usize, to_ns: u64, count: u64, sum: u64) -> Result<(), &'static str> {
        let mut bucket = Bucket { count, ..Bucket::default() };
        let sum = u128::from(sum);
        match place.checked_sub(Component::COUNT) {
            None => bucket.components_ns[place] = sum,
            Some(part) if part < Part::COUNT => bucket.parts_ns[part] = sum,
            Some(Part::COUNT) => bucket.total_ns = sum,
            Some(_) => return Err("a tail of an unknown metric"),
        }
        self.window.tail.put_back(to_ns, &bucket).then_some(()).ok_or("a tail bucket beyond the range")
    }

    fn flow(&mut self, id: Option<u64>, place: usize, to_ns: u64, count: u64) -> Result<(), &'static str> {
        self.of_flow(id, place, |latency| latency.put_back(to_ns, count))
    }

    fn flow_max(&mut self, id: Option<u64>, place: usize, max_ns: u64) -> Result<(), &'static str> {
        self.of_flow(id, place, |latency| latency.raise_max(max_ns))
    }

    fn of_flow(
        &mut self,
        id: Option<u64>,
        place: usize,
        put_back: impl FnOnce(&mut Latency),
    ) -> Result<(), &'static str> {
        let Some(flows) = self.flows.as_deref_mut() else { return Ok(()) };
        let flow = match id {
            Some(id) if flows.get(id).is_some() || flows.shown().count() < 2 * SHOWN => flows.put_back(id),
            Some(_) => return Err("more flows than any recorder keeps"),
            None => flows.put_back_others(),
        };
        let place = if place == TOTAL { Component::COUNT } else { place };
        put_back(flow.distributions_mut().nth(place).ok_or("a flow's unknown metric")?);
        Ok(())
    }

    fn scalars(&mut self, s: &Scalars) -> Result<(), &'static str> {
        let sane = |n: &u64| *n <= MOST_COUNT;
        let counts = [s.beyond, s.partial_journeys, s.delivered, s.dropped, s.unresolved, s.offered_early];
        let lists = s.partial.iter().chain(&s.negatives).chain(&s.out_of_order).chain(&s.parts_out_of_order);
        if !counts.iter().chain(lists).all(sane) {
            return Err("a count without sense");
        }
        for (to_ns, ifindex, span_ns, qdisc_ns) in &s.hops {
            let hop = SlowestHop { ifindex: *ifindex, span_ns: *span_ns, qdisc_ns: *qdisc_ns };
            self.window.tail.put_back(*to_ns, &Bucket { hop: Some(hop), ..Bucket::default() });
        }
        let w = &mut *self.window;
        w.tail.put_back_beyond(s.beyond);
        add(&mut w.partial, &s.partial);
        add(&mut w.negatives, &s.negatives);
        add(&mut w.out_of_order, &s.out_of_order);
        add(&mut w.parts_out_of_order, &s.parts_out_of_order);
        w.partial_journeys += s.partial_journeys;
        w.delivered += s.delivered;
        w.dropped += s.dropped;
        w.unresolved += s.unresolved;
        w.offered_early += s.offered_early;
        if s.flows.len() > SHOWN {
            return Err("more flows than any recorder keeps");
        }
        let Some(flows) = self.flows.as_deref_mut() else { return Ok(()) };
        flows.keep(&s.flows);
        Ok(())
    }
}

fn add<const N: usize>(to: &mut [u64; N], from: &[u64; N]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += from;
    }
}
