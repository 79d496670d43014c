//! Durations as Go writes them, such as `5m0s`.

/// The seconds of a duration, if it is whole seconds, not negative, and as many as a field can hold.
pub(super) fn seconds(text: &str) -> Option<i32> {
    let mut seconds: i64 = 0;
    let mut rest = text;
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, after) = rest.split_at(digits);
        let number: i64 = number.parse().ok()?;
        let unit = match after.chars().next()? {
            'h' => 3600,
            // Not milliseconds.
            'm' if !after.starts_with("ms") => 60,
            's' => 1,
            _ => return None,
        };
        seconds = seconds.checked_add(number.checked_mul(unit)?)?;
        rest = &after[1..];
    }
    i32::try_from(seconds).ok()
}

/// The duration of so many seconds, as Go writes it.
pub(super) fn text(seconds: i64) -> Option<String> {
    if seconds < 0 {
        return None;
    }
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    Some(match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("5m0s", Some(300)),
            ("5m", Some(300)),
            ("300s", Some(300)),
            ("1h2m3s", Some(3723)),
            ("0", Some(0)),
            ("0s", Some(0)),
            ("", None),
            ("5", None),
            ("-5m", None),
            ("1.5s", None),
            ("20ms", None),
            ("1d", None),
            ("9999999999999999999s", None),
            ("9999999h", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for (seconds, expected) in [(0, "0s"), (59, "59s"), (60, "1m0s"), (300, "5m0s"), (3600, "1h0m0s")] {
            assert_eq!(text(seconds).as_deref(), Some(expected));
        }
        assert_eq!(text(-1), None);
    }
}
