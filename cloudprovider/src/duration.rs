//! Durations as Go writes them, in flags and configuration files.

use std::time::Duration;

use jiff::SignedDuration;

/// Reads a duration in Go's notation, such as `5s`, `1m30s`, `500ms` or `0`; `None` for anything else and for
/// negative ones.
pub fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    // The library reads ISO 8601 and whole words too; Go does not.
    let go_like = text.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && text.chars().all(|c| c.is_ascii_digit() || "hmsuµn.".contains(c));
    let duration: SignedDuration = go_like.then(|| text.parse().ok())??;
    Duration::try_from(duration).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gos_notation_and_nothing_else() {
        for (text, millis) in [
            ("5s", 5000),
            ("1m30s", 90_000),
            ("500ms", 500),
            ("1h0m0s", 3_600_000),
            ("1.5s", 1500),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "-5s", "PT5S", "5 seconds", "s", "5x", "5s 3ms", "1d"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
