//! Who is to blame now, and since when.
//!
//! One interval's verdict may flicker: bursts fall on its borders, a quiet
//! second names nobody. So the last [`WINDOW_NS`] are heard, each interval
//! with the time its tail cost as its weight, and the component with most of
//! it stands. The figures shown with it are those of the newest interval that
//! names it; nothing is averaged.

use std::sync::Arc;

use crate::report::{Blame, Culprit, Kind};
use crate::snapshot::Snapshot;
use crate::timeline::Moment;

/// How long a verdict is heard, and how long a silence may be that does not
/// end an episode.
pub const WINDOW_NS: u64 = 5_000_000_000;

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Who; [`Blame::None`] where there is no tail worth naming.
    pub blame: Blame,
    /// The verdict it was named with.
    pub culprit: Culprit,
    /// How long ago that was, ns; `None`: it is of the whole run.
    pub ago_ns: Option<u64>,
    /// How long it has been so, ns; `None` where nobody is named, or for the
    /// whole run.
    pub for_ns: Option<u64>,
    /// Intervals of that time that name it, and all of them.
    pub named: (usize, usize),
}

/// Judges. `None`: there are too few datagrams to say anything.
pub fn judge(snapshot: &Snapshot, since_ns: u64) -> Option<Standing> {
    let of_whole = |culprit: &Culprit| Standing {
        blame: culprit.component,
        culprit: culprit.clone(),
        ago_ns: None,
        for_ns: None,
        named: (0, 0),
    };
    let whole = || snapshot.marked.as_ref().unwrap_or(&snapshot.total).culprit.as_ref().map(of_whole);
    if snapshot.total.kind == Kind::Final {
        return whole();
    }
    let moments: Vec<&Arc<Moment>> = snapshot.timeline.iter().filter(|m| m.to_ns > since_ns).collect();
    let now = snapshot.total.to_ns;
    let recent: Vec<&Arc<Moment>> =
        moments.iter().copied().filter(|m| now.saturating_sub(m.to_ns) < WINDOW_NS).collect();
    if let Some(blame) = heaviest(&recent) {
        let newest = recent.iter().rev().find(|m| names(m, blame))?;
        let (from, named, of) = episode(&moments, blame);
        return Some(Standing {
            blame,
            culprit: newest.culprit.clone()?,
            ago_ns: Some(now.saturating_sub(newest.to_ns)),
            for_ns: Some(now.saturating_sub(from)),
            named: (named, of),
        });
    }
    let nobody = recent.iter().rev().find_map(|m| m.culprit.as_ref().map(|c| (m.to_ns, c)));
    match nobody {
        Some((at, culprit)) => Some(Standing { ago_ns: Some(now.saturating_sub(at)), ..of_whole(culprit) }),
        None => whole(),
    }
}

fn names(moment: &Moment, blame: Blame) -> bool {
    moment.culprit.as_ref().is_some_and(|c| c.component == blame)
}

/// The component whose intervals cost most. A verdict for loss alone has no
/// excess and weighs least, but it weighs.
fn heaviest(moments: &[&Arc<Moment>]) -> Option<Blame> {
    const NAMED: [Blame; 5] =
        [Blame::SenderQueue, Blame::Shaper, Blame::Wire, Blame::Receiver, Blame::HostNoise];
    let weight = |blame: Blame| -> u64 {
        moments.iter().filter(|m| names(m, blame)).fold(0, |sum, m| sum.saturating_add(m.excess_ns.max(1)))
    };
    NAMED.into_iter().map(|b| (weight(b), b)).filter(|(w, _)| *w > 0).max_by_key(|(w, _)| *w).map(|(_, b)| b)
}

/// The stretch up to now in which `blame` was never silent for longer than
/// [`WINDOW_NS`]: its start, the intervals that name it, and all of them.
fn episode(moments: &[&Arc<Moment>], blame: Blame) -> (u64, usize, usize) {
    let (mut from, mut named, mut of, mut passed) = (0, 0, 0, 0);
    let mut last_from = None;
    for m in moments.iter().rev() {
        passed += 1;
        if names(m, blame) {
            (from, named, of) = (m.from_ns, named + 1, passed);
            last_from = Some(m.from_ns);
        } else if last_from.is_some_and(|at| at.saturating_sub(m.from_ns) > WINDOW_NS) {
            break;
        }
    }
    (from, named, of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Pipeline;
    use crate::source::synthetic::{Plan, Synthetic};
    use crate::timeline::Marks;

    const SECOND: u64 = 1_000_000_000;

    fn culprit(component: Blame) -> Culprit {
        Culprit { component, quantile: Some(0.99), share: Some(0.9), cause: component.name().to_owned() }
    }

    /// A snapshot after one interval a second, each with its verdict and cost.
    fn after(seconds: &[(Option<Blame>, u64)]) -> Snapshot {
        let whole = Pipeline::run(&mut Synthetic::new(Plan { datagrams: 10, ..Plan::default() })).unwrap();
        let mut snapshot = (*whole).clone();
        let mut total = (*snapshot.total).clone();
        total.kind = Kind::Interval;
        total.to_ns = seconds.len() as u64 * SECOND;
        total.culprit = Some(culprit(Blame::Wire));
        snapshot.total = Arc::new(total);
        snapshot.timeline = seconds
            .iter()
            .enumerate()
            .map(|(i, (blame, excess_ns))| {
                Arc::new(Moment {
                    number: i as u64,
                    from_ns: i as u64 * SECOND,
                    to_ns: (i as u64 + 1) * SECOND,
                    sent: None,
                    delivered: 0,
                    dropped: Default::default(),
                    lost: 0,
                    marks: [Marks::default(); 5],
                    heat: Vec::new(),
                    culprit: blame.map(culprit),
                    excess_ns: *excess_ns,
                })
            })
            .collect();
        snapshot
    }

    const SHAPER: (Option<Blame>, u64) = (Some(Blame::Shaper), 900);
    const NOISE: (Option<Blame>, u64) = (Some(Blame::HostNoise), 100);
    const QUIET: (Option<Blame>, u64) = (Some(Blame::None), 0);
    const SILENT: (Option<Blame>, u64) = (None, 0);

    fn stands(seconds: &[(Option<Blame>, u64)]) -> Standing {
        judge(&after(seconds), 0).unwrap()
    }

    #[test]
    fn the_costliest_of_the_last_seconds_stands_however_often_others_are_named() {
        let s = stands(&[QUIET, SHAPER, NOISE, NOISE, NOISE]);
        assert_eq!((s.blame, s.ago_ns, s.for_ns), (Blame::Shaper, Some(3 * SECOND), Some(4 * SECOND)));
        assert_eq!(s.named, (1, 4));
    }

    #[test]
    fn an_episode_lasts_through_short_silences_and_ends_at_long_ones() {
        let s = stands(&[SHAPER, SILENT, SILENT, SHAPER, QUIET, SHAPER]);
        assert_eq!((s.for_ns, s.named), (Some(6 * SECOND), (3, 6)));
        let mut long = vec![SHAPER];
        long.extend([QUIET; 7]);
        long.push(SHAPER);
        assert_eq!(stands(&long).named, (1, 1));
    }

    #[test]
    fn quiet_is_nobody_and_silence_is_the_whole_run() {
        assert_eq!(stands(&[SHAPER, QUIET, QUIET, QUIET, QUIET, QUIET]).blame, Blame::None);
        let s = stands(&[SILENT; 3]);
        assert_eq!((s.blame, s.ago_ns), (Blame::Wire, None));
        let mut nothing = after(&[SILENT]);
        Arc::make_mut(&mut nothing.total).culprit = None;
        assert_eq!(judge(&nothing, 0), None);
    }

    #[test]
    fn what_was_before_a_reset_is_not_heard() {
        let snapshot = after(&[SHAPER, SHAPER, QUIET]);
        assert_eq!(judge(&snapshot, 0).unwrap().blame, Blame::Shaper);
        assert_eq!(judge(&snapshot, 2 * SECOND).unwrap().blame, Blame::None);
    }

    #[test]
    fn a_run_that_is_over_is_judged_as_a_whole() {
        let mut snapshot = after(&[SHAPER]);
        Arc::make_mut(&mut snapshot.total).kind = Kind::Final;
        assert_eq!(judge(&snapshot, 0).unwrap().blame, Blame::Wire);
    }
}
