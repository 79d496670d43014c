//! Durations.

use std::time::Duration;

/// Go's units with their length in nanoseconds. `ms` comes before `m`.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration as Go's `time.ParseDuration` does, such as `5s`, `1m30s`, `1.5h` or `0`. `None`:
/// invalid, negative, or above Go's maximum of about 292 years.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut total = Duration::ZERO;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|end| *end > 0)?;
        let (number, tail) = rest.split_at(end);
        let (unit, length) = UNITS.iter().find(|(unit, _)| tail.starts_with(unit))?;
        total = total.checked_add(match number.parse::<u64>() {
            Ok(whole) => Duration::from_nanos(whole.checked_mul(*length)?),
            Err(_) => {
                let seconds = number.parse::<f64>().ok()? * Duration::from_nanos(*length).as_secs_f64();
                Duration::try_from_secs_f64(seconds).ok()?
            }
        })?;
        rest = &tail[unit.len()..];
        if rest.is_empty() {
            break;
        }
    }
    i64::try_from(total.as_nanos()).is_ok().then_some(total)
}

/// Formats a duration as Go does: `1h0m0s`, `1.5s`, `100ms`.
pub fn format_duration(duration: Duration) -> String {
    let with_fraction = |whole: u128, fraction: u128, digits: usize, unit: &str| {
        let fraction = format!("{fraction:0digits$}");
        let fraction = fraction.trim_end_matches('0');
        if fraction.is_empty() { format!("{whole}{unit}") } else { format!("{whole}.{fraction}{unit}") }
    };
    let nanos = duration.as_nanos();
    match nanos {
        0 => return "0s".to_owned(),
        1..1_000 => return format!("{nanos}ns"),
        1_000..1_000_000 => return with_fraction(nanos / 1_000, nanos % 1_000, 3, "µs"),
        1_000_000..1_000_000_000 => return with_fraction(nanos / 1_000_000, nanos % 1_000_000, 6, "ms"),
        _ => {}
    }
    let seconds = duration.as_secs();
    let rest = with_fraction(u128::from(seconds % 60), u128::from(duration.subsec_nanos()), 9, "s");
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0) => rest,
        (0, minutes) => format!("{minutes}m{rest}"),
        (hours, minutes) => format!("{hours}h{minutes}m{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn gos_notation_and_nothing_else() {
        for (text, micros) in [
            ("5s", 5_000_000),
            ("+5s", 5_000_000),
            ("1m30s", 90_000_000),
            ("500ms", 500_000),
            ("1h0m0s", 3_600_000_000),
            ("1.5s", 1_500_000),
            ("1.5h30m", 7_200_000_000),
            (".5s", 500_000),
            ("5\u{b5}s", 5),
            ("5\u{3bc}s", 5),
            ("5us", 5),
            ("0", 0),
            ("0s", 0),
            ("0h0s", 0),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_micros(micros)), "{text}");
        }
        for text in [
            "",
            "+",
            "5",
            "-5s",
            "PT5S",
            "5 seconds",
            "s",
            "5x",
            "5s 3ms",
            "1d",
            ".s",
            "1.2.3s",
            "5s5",
            "2562048h",
            "99999999999999999999h",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn durations_as_go_writes_them() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5µs"),
            (100_000_000, "100ms"),
            (1_500_000_000, "1.5s"),
            (10_000_000_000, "10s"),
            (60_000_000_000, "1m0s"),
            (90_250_000_000, "1m30.25s"),
            (43_200_000_000_000, "12h0m0s"),
        ] {
            assert_eq!(format_duration(Duration::from_nanos(nanos)), text);
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,20}") {
            let _ = parse_duration(&text);
        }

        #[test]
        fn what_go_prints_is_read(hours in 0..2_000_000u64, minutes in 0..60u64, seconds in 0..60u64) {
            let expected = Duration::from_secs(hours * 3600 + minutes * 60 + seconds);
            prop_assert_eq!(parse_duration(&format!("{hours}h{minutes}m{seconds}s")), Some(expected));
            prop_assert_eq!(parse_duration(&format_duration(expected)), Some(expected));
        }
    }
}
