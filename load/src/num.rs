//! The few numeric conversions that `From` does not offer, each saturating
//! instead of wrapping, in one place.

/// Rounds to the nearest integer; negative and NaN give 0, too large gives
/// `u64::MAX`.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "float to integer `as` saturates, which is the documented result"
)]
pub(crate) fn round_u64(x: f64) -> u64 {
    x.round() as u64
}

/// A signed time from an unsigned one; beyond 292 years it saturates.
#[inline]
pub(crate) fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// Whole nanoseconds of a duration; beyond 292 years it saturates.
#[inline]
pub(crate) fn duration_ns(d: std::time::Duration) -> i64 {
    i64::try_from(d.as_nanos()).unwrap_or(i64::MAX)
}

/// A count as an index type; on the 64-bit hosts this runs on nothing is lost.
#[inline]
pub(crate) fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
