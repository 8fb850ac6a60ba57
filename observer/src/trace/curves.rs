//! What a trace's recorded distributions look like: latency by quantile, and
//! by time.

use super::{Trace, TraceError, histograms, path_of};
use crate::component::Component;
use crate::metrics::{Latency, Quantile, Window};
use crate::view::page::Plots;
use crate::view::plot::{Curve, decades};

/// Points of a curve over time, at most.
const MOMENTS: usize = 600;

/// The plots of a trace.
///
/// # Errors
///
/// What is wrong with it.
pub fn plots(trace: &Trace) -> Result<Plots, TraceError> {
    let mut whole = Window::default();
    let mut recent = Window::default();
    let mut by_time: [Vec<(f64, f64)>; 2] = Default::default();
    let numbers = trace.numbers();
    let together = numbers.len().div_ceil(MOMENTS).max(1);
    for (i, number) in numbers.iter().enumerate() {
        let segment = trace.segment(*number)?;
        let mut table = trace.table(&segment, "histograms", |_| true)?;
        let path = path_of(trace, "histograms", *number);
        histograms::put_back(table.as_mut(), &segment.measured, &path, &mut recent, None)?;
        if (i + 1).is_multiple_of(together) || i + 1 == numbers.len() {
            let at = float(segment.to_ns.saturating_sub(trace.meta.start_ns)) / 1e9;
            for (curve, q) in by_time.iter_mut().zip([Quantile::P50, Quantile::P99]) {
                curve.extend(recent.total.quantile(q).map(|ns| (at, float(ns))));
            }
            whole.merge(&recent);
            recent.clear();
        }
    }
    let all = Component::ALL.into_iter().map(|c| (c.title(), &whole.components[c as usize]));
    let by_quantile = all
        .chain([("total", &whole.total)])
        .map(|(name, latency)| curve(name, latency))
        .filter(|c| c.points.len() > 1)
        .collect();
    let by_time = by_time.into_iter().zip(["p50", "p99"]).map(|(points, q)| Curve {
        name: format!("total {q}, each second or so"),
        points,
        dashed: false,
    });
    Ok(Plots { by_quantile, by_time: by_time.filter(|c| c.points.len() > 1).collect() })
}

/// Latency by quantile, as far as there are datagrams for.
pub fn curve(name: &str, latency: &Latency) -> Curve {
    let n = latency.count();
    let points = (0..=100)
        .map(|i| f64::from(i) / 20.0)
        .map_while(|d| {
            let above = 10_f64.powf(-d);
            // Ten values lie above any quantile drawn.
            let enough = float(n) * above >= 10.0;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank from 1 to n")]
            let rank = (float(n) * (1.0 - above)).ceil().max(1.0) as u64;
            enough.then(|| latency.at_rank(rank)).flatten().map(|ns| (decades(1.0 - above), float(ns)))
        })
        .collect();
    Curve { name: name.to_owned(), points, dashed: false }
}

#[expect(clippy::cast_precision_loss, reason = "figures to draw")]
fn float(n: u64) -> f64 {
    n as f64
}
