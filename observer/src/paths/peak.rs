//! The best second of a transfer: what is usually read off iperf.

use super::Arrival;

const SECOND_NS: u64 = 1_000_000_000;
/// Seconds looked at.
const SECONDS: usize = 10;

/// Payload bits of the best whole second among the first ten, counted from the
/// first arrival; `None` if there is no whole one.
pub fn second(arrivals: &[Arrival]) -> Option<f64> {
    let first = arrivals.iter().map(|a| a.rx_ns).min()?;
    let last = arrivals.iter().map(|a| a.rx_ns).max()?;
    let whole = usize::try_from((last - first) / SECOND_NS).unwrap_or(SECONDS).min(SECONDS);
    let mut bytes = [0_u64; SECONDS];
    for arrival in arrivals {
        let index = usize::try_from((arrival.rx_ns - first) / SECOND_NS).unwrap_or(SECONDS);
        if let Some(second) = bytes.get_mut(index) {
            *second += u64::from(arrival.payload_bytes);
        }
    }
    bytes.iter().take(whole).max().map(|best| *best as f64 * 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(every_ns: u64, count: u64, from: u64) -> Vec<Arrival> {
        (0..count)
            .map(|i| Arrival {
                seq: i,
                intended_ns: 0,
                rx_ns: from + i * every_ns,
                l2_bytes: 1_042,
                payload_bytes: 1_000,
            })
            .collect()
    }

    #[test]
    fn the_best_of_whole_seconds() {
        // 1,000 a second for 3 s, then 2,000 a second for 1 s, then a rest.
        let mut all = arrivals(1_000_000, 3_000, 77);
        all.extend(arrivals(500_000, 2_000, 77 + 3 * SECOND_NS));
        all.extend(arrivals(100_000, 3_000, 77 + 4 * SECOND_NS));
        assert_eq!(second(&all), Some(2_000.0 * 8_000.0), "the last 0.3 s are no second");
        all.reverse();
        assert_eq!(second(&all), Some(2_000.0 * 8_000.0), "in any order");
    }

    #[test]
    fn without_a_whole_second_there_is_none_and_after_ten_nobody_looks() {
        assert_eq!(second(&[]), None);
        assert_eq!(second(&arrivals(1_000_000, 900, 0)), None);
        let mut all = arrivals(1_000_000, 11_000, 0);
        all.extend(arrivals(1_000, 10_000, 11 * SECOND_NS));
        assert_eq!(second(&all), Some(1_000.0 * 8_000.0));
    }
}
