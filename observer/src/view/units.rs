//! Numbers as people read them: three significant digits and a unit, or
//! grouped digits where every one counts.

/// A duration: `812 ns`, `56.3 µs`, `4.81 ms`, `1.20 s`.
pub fn duration(ns: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns")];
    // A value that rounds up to the next unit's 1.00 belongs there.
    let (scale, unit) = UNITS
        .into_iter()
        .find(|(scale, _)| u128::from(ns) * 2_000 >= u128::from(*scale) * 1_999)
        .unwrap_or((1, "ns"));
    if scale == 1 {
        return format!("{ns} ns");
    }
    let value = float(ns) / float(scale);
    format!("{value:.*} {unit}", decimals(value))
}

/// A duration, or a dash where it is not known or may not be quoted.
pub fn duration_or_dash(ns: Option<u64>) -> String {
    ns.map_or_else(|| "—".to_owned(), duration)
}

/// A count with its digits grouped: `1,204`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A share: `92 %`, `0.3 %`, `0 %`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent.abs() < 0.01 {
        return if percent > 0.0 { "<0.01 %".to_owned() } else { "0 %".to_owned() };
    }
    let decimals = match percent.abs() {
        p if p >= 9.95 => 0,
        p if p >= 0.1 => 1,
        _ => 2,
    };
    format!("{percent:.decimals$} %")
}

/// A rate of a link: `99.98 Mbit/s`, four significant digits.
pub fn bit_rate(bit_s: f64) -> String {
    let (value, unit) = match bit_s {
        r if r >= 999.95e6 => (r / 1e9, "Gbit/s"),
        r if r >= 999.95e3 => (r / 1e6, "Mbit/s"),
        r if r >= 999.95 => (r / 1e3, "kbit/s"),
        r => (r, "bit/s"),
    };
    let decimals = match value {
        v if v >= 999.95 => 0,
        v if v >= 99.995 => 1,
        v if v >= 9.9995 => 2,
        _ => 3,
    };
    format!("{value:.decimals$} {unit}")
}

/// A size: `812 B`, `32.1 kB`, `4.19 MB`; powers of ten.
pub fn bytes(bytes: f64) -> String {
    let (value, unit) = match bytes {
        b if b >= 999.5e6 => (b / 1e9, "GB"),
        b if b >= 999.5e3 => (b / 1e6, "MB"),
        b if b >= 999.5 => (b / 1e3, "kB"),
        b => return format!("{b:.0} B"),
    };
    format!("{value:.*} {unit}", decimals(value))
}

/// A rate per second: `187 k/s`, `50.0 k/s`, `812 /s`.
pub fn rate(per_second: f64) -> String {
    let (value, unit) = match per_second {
        r if r >= 999_500.0 => (r / 1e6, " M/s"),
        r if r >= 999.5 => (r / 1e3, " k/s"),
        r => (r, " /s"),
    };
    if unit == " /s" {
        return format!("{value:.0} /s");
    }
    format!("{value:.*}{unit}", decimals(value))
}

/// Decimals that leave three significant digits.
fn decimals(value: f64) -> usize {
    match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    }
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn float(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_have_three_digits() {
        let cases = [
            (0, "0 ns"),
            (812, "812 ns"),
            (1_000, "1.00 µs"),
            (56_349, "56.3 µs"),
            (99_960, "100 µs"),
            (999_499, "999 µs"),
            (999_600, "1.00 ms"),
            (4_810_000, "4.81 ms"),
            (9_996_000, "10.0 ms"),
            (1_200_000_000, "1.20 s"),
            (7_200_000_000_000, "7200 s"),
        ];
        for (ns, text) in cases {
            assert_eq!(duration(ns), text);
        }
        assert_eq!(duration_or_dash(None), "—");
    }

    #[test]
    fn counts_rates_and_shares() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [812.0, 49_960.0, 187_300.0, 1_500_000.0].map(rate),
            ["812 /s", "50.0 k/s", "187 k/s", "1.50 M/s"]
        );
        assert_eq!(
            [0.0, 0.92, 0.003, 0.0004, 0.000_000_1, -0.000_000_1, -0.02, 0.0996].map(percent),
            ["0 %", "92 %", "0.3 %", "0.04 %", "<0.01 %", "0 %", "-2.0 %", "10 %"]
        );
    }

    #[test]
    fn link_rates_and_sizes() {
        assert_eq!(
            [99_980_000.0, 1e9, 9_600.0, 12.0].map(bit_rate),
            ["99.98 Mbit/s", "1.000 Gbit/s", "9.600 kbit/s", "12.00 bit/s"]
        );
        assert_eq!([812.0, 32_100.0, 4_194_304.0].map(bytes), ["812 B", "32.1 kB", "4.19 MB"]);
    }

    proptest! {
        #[test]
        fn a_duration_below_a_quarter_hour_fits_seven_columns(ns in 0_u64..999_000_000_000) {
            prop_assert!(duration(ns).chars().count() <= 7, "{}", duration(ns));
        }
    }
}
