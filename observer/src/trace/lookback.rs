//! Which records a diagnosis needs.
//!
//! A diagnosis stands on the first datagrams of a run and on the latest
//! ([`crate::diagnose::evidence`]), and on the waits of their threads. So a
//! report from recorded distributions reads the first segments and the last,
//! a bounded number of records, and comes to the diagnosis that the whole
//! would have given.

use serde::Deserialize;

use super::segment::Files;
use super::{Trace, TraceError, files};
use crate::diagnose::evidence::{FIRST, LATEST};
use crate::report::Detail;

/// What is to be read of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Its records and waits.
    Records,
    /// Its waits: journeys of a later segment were under way.
    Waits,
    /// That it was there.
    Nothing,
}

/// What tells, of a segment-*.json.
#[derive(Debug, Deserialize)]
struct Head {
    to_ns: u64,
    offer_ns: Option<(i64, i64)>,
    measured: Measured,
    files: Files,
}

#[derive(Debug, Deserialize)]
struct Measured {
    delivered: u64,
    dropped: u64,
    unresolved: u64,
}

impl Head {
    fn journeys(&self) -> u64 {
        let m = &self.measured;
        m.delivered.saturating_add(m.dropped).saturating_add(m.unresolved)
    }
}

/// By segment, in order.
///
/// # Errors
///
/// If a segment cannot be read.
pub(super) fn needs(trace: &Trace) -> Result<Vec<Need>, TraceError> {
    if trace.meta.detail != Detail::Full {
        return Ok(vec![Need::Nothing; trace.numbers().len()]);
    }
    let heads: Vec<Head> = trace
        .numbers()
        .iter()
        .map(|n| files::read_json(&files::of_segment(trace.dir(), "segment", *n)))
        .collect::<Result<_, _>>()?;
    Ok(of(&heads))
}

fn of(heads: &[Head]) -> Vec<Need> {
    let mut needs = vec![Need::Nothing; heads.len()];
    let mut before = 0_u64;
    for (need, head) in needs.iter_mut().zip(heads) {
        if before >= FIRST as u64 {
            break;
        }
        *need = Need::Records;
        before = before.saturating_add(head.journeys());
    }
    let (mut after, mut first_offer_ns) = (0_u64, u64::MAX);
    for (need, head) in needs.iter_mut().zip(heads).rev() {
        if after < LATEST as u64 {
            *need = Need::Records;
            after = after.saturating_add(head.journeys());
            let offer_ns = head.offer_ns.map_or(u64::MAX, |o| u64::try_from(o.0).unwrap_or(0));
            first_offer_ns = first_offer_ns.min(offer_ns);
        } else if *need == Need::Nothing && head.to_ns >= first_offer_ns && head.files.waits.is_some() {
            // A wait is read after its end, so that none of an earlier segment
            // ends later.
            *need = Need::Waits;
        }
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::table::FileInfo;

    fn head(number: u64, delivered: u64, first_offer: u64) -> Head {
        Head {
            to_ns: (number + 1) * 100,
            offer_ns: Some((first_offer.cast_signed(), i64::MAX)),
            measured: Measured { delivered, dropped: 0, unresolved: 0 },
            files: Files { waits: Some(FileInfo::default()), ..Files::default() },
        }
    }

    #[test]
    fn the_first_and_the_last_are_read_and_the_waits_before_them() {
        let most = (FIRST.max(LATEST) as u64) - 1;
        // The last two are needed, and what was under way as they began.
        let heads: Vec<Head> = (0..9).map(|n| head(n, most, if n == 7 { 550 } else { n * 100 })).collect();
        let r = Need::Records;
        let expected =
            [r, Need::Nothing, Need::Nothing, Need::Nothing, Need::Nothing, Need::Waits, Need::Waits, r, r];
        assert_eq!(of(&heads), expected);
        assert_eq!(of(&heads[..3]), [r; 3]);
        let small: Vec<Head> = (0..9).map(|n| head(n, 10, n * 100)).collect();
        assert_eq!(of(&small), [r; 9]);
        assert_eq!(of(&[]), []);
    }
}
