//! Journeys as rows, and back: `packets-*.parquet` and `unfinished-*.parquet`.
//!
//! One row per record, in the order in which they came. Times are absolute:
//! measured on live traffic, 11 to 12 bytes per datagram, whereas differences
//! to the offer or to the previous point took 15 to 19 and 11.5 to 14. What
//! follows from other columns is null, see [`COLUMNS`].

use std::ops::RangeInclusive;

use observer_ebpf::abi::{Detail, JourneyRecord, flag};
use observer_ebpf::stamp::{SEQ_BITS, SEQ_MAX};

use super::table::{Column, Kind, Values, column, nullable};
use crate::correlate;

/// Columns of packets-*.parquet. Times are CLOCK_MONOTONIC ns of the observed
/// host; a point that was not seen is null.
pub const COLUMNS: &[Column] = &[
    // 1 delivered, 2 dropped, 3 unresolved; 0 unfinished, in unfinished-*.parquet alone.
    column("outcome", Kind::Few),
    column("run_id", Kind::Few),
    column("stream", Kind::Few),
    column("seq", Kind::Delta),
    // The application's own times, from the stamp.
    column("intended_ns", Kind::Delta),
    column("offer_ns", Kind::Delta),
    nullable("syscall_ns", Kind::Delta),
    nullable("dev_queue_ns", Kind::Delta),
    nullable("dequeue_ns", Kind::Delta),
    nullable("xmit_ns", Kind::Delta),
    nullable("rx_ns", Kind::Delta),
    nullable("sock_enqueue_ns", Kind::Delta),
    nullable("app_dequeue_ns", Kind::Delta),
    nullable("drop_ns", Kind::Delta),
    nullable("drop_reason", Kind::Few),
    // Null where it is xmit_ns − dev_queue_ns.
    nullable("shaper_ns", Kind::Delta),
    // Null where it is the shaper's time.
    nullable("slowest_hop_ns", Kind::Delta),
    // Null where it is dequeue_ns − dev_queue_ns, or 0 without a dequeue.
    nullable("slowest_qdisc_ns", Kind::Delta),
    nullable("hop_start_ns", Kind::Delta),
    // Null where it is ifindex.
    nullable("slowest_ifindex", Kind::Few),
    column("ifindex", Kind::Few),
    column("hops", Kind::Few),
    column("l2_bytes", Kind::Few),
    column("batch_pos", Kind::Few),
    nullable("tx_tid", Kind::Few),
    nullable("rx_tid", Kind::Few),
    column("run_index", Kind::Few),
    column("flags", Kind::Few),
    column("detail", Kind::Few),
];

/// Appends `record` to `values`, one per column.
pub fn push(values: &mut [Values], r: &JourneyRecord) {
    let [
        outcome,
        run,
        stream,
        seq,
        intended,
        offer,
        syscall,
        dev_queue,
        dequeue,
        xmit,
        rx,
        sock_enqueue,
        app_dequeue,
        drop,
        reason,
        shaper,
        slowest_hop,
        slowest_qdisc,
        hop_start,
        slowest_ifindex,
        ifindex,
        hops,
        l2_bytes,
        batch_pos,
        tx_tid,
        rx_tid,
        run_index,
        flags,
        detail,
    ] = values
    else {
        return;
    };
    outcome.push(r.kind.into());
    run.push(r.run.into());
    stream.push(correlate::stream(r).into());
    seq.push(correlate::sequence(r).cast_signed());
    intended.push(r.intended_ns);
    offer.push(r.offer_ns);
    let time = |to: &mut Values, ns: u64| to.push_if(ns != 0, ns.cast_signed());
    time(syscall, r.syscall_ns);
    time(dev_queue, r.dev_queue_ns);
    time(dequeue, r.dequeue_ns);
    time(xmit, r.xmit_ns);
    time(rx, r.rx_ns);
    time(sock_enqueue, r.sock_enqueue_ns);
    time(app_dequeue, r.app_dequeue_ns);
    time(drop, r.drop_ns);
    // A drop has a reason even where its number is 0.
    reason.push_if(r.drop_reason != 0 || r.drop_ns != 0, r.drop_reason.into());
    let implied = Implied::of(r);
    shaper.push_if(r.shaper_ns != implied.shaper_ns, r.shaper_ns.cast_signed());
    slowest_hop.push_if(r.slowest_hop_ns != r.shaper_ns, r.slowest_hop_ns.cast_signed());
    slowest_qdisc.push_if(r.slowest_qdisc_ns != implied.qdisc_ns, r.slowest_qdisc_ns.cast_signed());
    time(hop_start, r.hop_start_ns);
    slowest_ifindex.push_if(r.slowest_ifindex != r.ifindex, r.slowest_ifindex.into());
    ifindex.push(r.ifindex.into());
    hops.push(r.hops.into());
    l2_bytes.push(r.l2_bytes.into());
    batch_pos.push(r.batch_pos.into());
    tx_tid.push_if(r.tx_tid != 0, r.tx_tid.into());
    rx_tid.push_if(r.rx_tid != 0, r.rx_tid.into());
    run_index.push(r.run_index.into());
    flags.push(r.flags.into());
    detail.push(r.detail.into());
}

/// What follows from the points of a single hop.
struct Implied {
    shaper_ns: u64,
    qdisc_ns: u64,
}

impl Implied {
    fn of(r: &JourneyRecord) -> Self {
        let since_dev_queue = |to: u64| if to == 0 { 0 } else { to.wrapping_sub(r.dev_queue_ns) };
        Self { shaper_ns: since_dev_queue(r.xmit_ns), qdisc_ns: since_dev_queue(r.dequeue_ns) }
    }
}

/// Walks the rows of a chunk.
pub struct Rows<'a> {
    columns: Vec<Cursor<'a>>,
    outcomes: RangeInclusive<u8>,
    left: usize,
}

struct Cursor<'a> {
    ints: std::slice::Iter<'a, i64>,
    present: std::slice::Iter<'a, i16>,
}

impl Cursor<'_> {
    /// The next value; `None` if it is null, or the column was not read.
    #[inline]
    fn next(&mut self) -> Option<i64> {
        match self.present.next() {
            Some(0) => None,
            _ => self.ints.next().copied(),
        }
    }

    /// The next value, 0 for null.
    #[inline]
    fn time(&mut self) -> u64 {
        self.next().map_or(0, i64::cast_unsigned)
    }

    #[inline]
    fn number<T: TryFrom<i64>>(&mut self) -> Option<T> {
        self.next().and_then(|n| T::try_from(n).ok())
    }
}

impl<'a> Rows<'a> {
    /// Over the `rows` rows of a chunk of packets-*.parquet.
    pub fn new(values: &'a [Values], rows: usize) -> Self {
        let columns =
            values.iter().map(|v| Cursor { ints: v.ints.iter(), present: v.present.iter() }).collect();
        Self { columns, left: rows, outcomes: 1..=3 }
    }

    /// The same of unfinished-*.parquet, whose journeys have no outcome.
    pub fn unfinished(values: &'a [Values], rows: usize) -> Self {
        Self { outcomes: 0..=0, ..Self::new(values, rows) }
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<JourneyRecord, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let [
            outcome,
            run,
            stream,
            seq,
            intended,
            offer,
            syscall,
            dev_queue,
            dequeue,
            xmit,
            rx,
            sock_enqueue,
            app_dequeue,
            drop,
            reason,
            shaper,
            slowest_hop,
            slowest_qdisc,
            hop_start,
            slowest_ifindex,
            ifindex,
            hops,
            l2_bytes,
            batch_pos,
            tx_tid,
            rx_tid,
            run_index,
            flags,
            detail,
        ] = self.columns.as_mut_slice()
        else {
            return Some(Err("columns are missing"));
        };
        let kind = outcome.number().filter(|k| self.outcomes.contains(k));
        let (run, stream, seq) =
            (run.number(), stream.number::<u16>(), seq.number::<u64>().filter(|s| *s <= SEQ_MAX));
        let detail = detail.number().filter(|d| Detail::from_u8(*d).is_some());
        let (Some(kind), Some(run), Some(stream), Some(seq), Some(detail)) = (kind, run, stream, seq, detail)
        else {
            return Some(Err("a row without outcome, run, stream, sequence or detail"));
        };
        let mut r = JourneyRecord {
            kind,
            detail,
            flags: flags.number().unwrap_or(0),
            run,
            stream_seq: u64::from(stream) << SEQ_BITS | seq,
            intended_ns: intended.next().unwrap_or(0),
            offer_ns: offer.next().unwrap_or(0),
            syscall_ns: syscall.time(),
            dev_queue_ns: dev_queue.time(),
            dequeue_ns: dequeue.time(),
            xmit_ns: xmit.time(),
            rx_ns: rx.time(),
            sock_enqueue_ns: sock_enqueue.time(),
            app_dequeue_ns: app_dequeue.time(),
            drop_ns: drop.time(),
            shaper_ns: 0,
            slowest_hop_ns: 0,
            slowest_qdisc_ns: 0,
            hop_start_ns: hop_start.time(),
            drop_location: 0,
            slowest_ifindex: 0,
            ifindex: ifindex.number().unwrap_or(0),
            l2_bytes: l2_bytes.number().unwrap_or(0),
            drop_reason: reason.number().unwrap_or(0),
            tx_tid: tx_tid.number().unwrap_or(0),
            rx_tid: rx_tid.number().unwrap_or(0),
            hops: hops.number().unwrap_or(0),
            batch_pos: batch_pos.number().unwrap_or(0),
            run_index: run_index.number().unwrap_or(0),
            pad: 0,
        };
        let implied = Implied::of(&r);
        r.shaper_ns = shaper.next().map_or(implied.shaper_ns, i64::cast_unsigned);
        r.slowest_hop_ns = slowest_hop.next().map_or(r.shaper_ns, i64::cast_unsigned);
        r.slowest_qdisc_ns = slowest_qdisc.next().map_or(implied.qdisc_ns, i64::cast_unsigned);
        r.slowest_ifindex = slowest_ifindex.number().unwrap_or(r.ifindex);
        Some(Ok(r))
    }
}

/// The flags by name, for people.
pub fn flag_names(flags: u16) -> Vec<&'static str> {
    [
        (flag::V6, "v6"),
        (flag::SEGMENTED, "segmented"),
        (flag::DEFERRED, "deferred"),
        (flag::RX_ONLY, "rx_only"),
        (flag::NO_DEV_QUEUE, "no_dev_queue"),
    ]
    .into_iter()
    .filter_map(|(bit, name)| (flags & bit != 0).then_some(name))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::synthetic::journey;
    use proptest::prelude::*;

    fn back(records: &[JourneyRecord]) -> Vec<JourneyRecord> {
        let mut values = vec![Values::default(); COLUMNS.len()];
        records.iter().for_each(|r| push(&mut values, r));
        for (column, v) in COLUMNS.iter().zip(&values) {
            let rows = if column.nullable { v.present.len() } else { v.ints.len() };
            assert_eq!(rows, records.len(), "{}", column.name);
        }
        Rows::new(&values, records.len()).map(Result::unwrap).collect()
    }

    #[test]
    fn a_plain_journey_needs_no_column_of_its_hops() {
        let r = journey(7, 3, 9);
        let mut values = vec![Values::default(); COLUMNS.len()];
        push(&mut values, &r);
        for (column, v) in COLUMNS.iter().zip(&values) {
            if ["shaper_ns", "slowest_hop_ns", "slowest_qdisc_ns", "slowest_ifindex"].contains(&column.name) {
                assert_eq!(v.present, [0], "{}", column.name);
            }
        }
        assert_eq!(back(&[r]), [r]);
    }

    #[test]
    fn a_journey_without_outcome_is_one_of_the_unfinished_alone() {
        let r = JourneyRecord { kind: 0, ..journey(1, 0, 0) };
        let mut values = vec![Values::default(); COLUMNS.len()];
        push(&mut values, &r);
        assert_eq!(Rows::unfinished(&values, 1).map(Result::unwrap).collect::<Vec<_>>(), [r]);
        assert!(Rows::new(&values, 1).all(|row| row.is_err()));
        let mut values = vec![Values::default(); COLUMNS.len()];
        push(&mut values, &journey(1, 0, 0));
        assert!(Rows::unfinished(&values, 1).all(|row| row.is_err()));
    }

    proptest! {
        #[test]
        fn any_record_survives_but_for_the_drop_location(
            times in proptest::array::uniform16(any::<u64>()),
            small in proptest::array::uniform8(any::<u32>()),
            kind in 1_u8..=3, zero in any::<u16>(), seq in 0..=SEQ_MAX, stream in any::<u16>(),
        ) {
            let t = |i: usize| if zero >> i & 1 == 1 { 0 } else { times[i] };
            let short = |i: usize| (small[i] >> 16) as u16;
            let r = JourneyRecord {
                kind,
                flags: short(0),
                run: small[0],
                stream_seq: u64::from(stream) << SEQ_BITS | seq,
                intended_ns: times[0].cast_signed(),
                offer_ns: times[1].cast_signed(),
                syscall_ns: t(2),
                dev_queue_ns: t(3),
                dequeue_ns: t(4),
                xmit_ns: t(5),
                rx_ns: t(6),
                sock_enqueue_ns: t(7),
                app_dequeue_ns: t(8),
                drop_ns: t(9),
                shaper_ns: t(10),
                slowest_hop_ns: t(11),
                slowest_qdisc_ns: t(12),
                hop_start_ns: t(13),
                slowest_ifindex: small[1],
                ifindex: small[2],
                l2_bytes: small[3],
                drop_reason: small[4],
                tx_tid: small[5],
                rx_tid: small[6],
                hops: short(1),
                batch_pos: short(2),
                run_index: short(3),
                ..journey(1, 0, 0)
            };
            prop_assert_eq!(back(&[r, r]), [r, r]);
        }
    }
}
