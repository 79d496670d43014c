//! Times as people read them.

use std::time::Duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Such as `40s`, `4h20m` or `181d`: two units at most, and days alone from the eighth on.
pub(super) fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    let two = |large: u64, of_large: &str, small: u64, of_small: &str| match seconds % large / small {
        0 => format!("{}{of_large}", seconds / large),
        rest => format!("{}{of_large}{rest}{of_small}", seconds / large),
    };
    match seconds {
        0 => format!("{time:?}"),
        1..MINUTE => format!("{seconds}s"),
        MINUTE..HOUR => two(MINUTE, "m", 1, "s"),
        HOUR..DAY => two(HOUR, "h", MINUTE, "m"),
        _ if seconds < 8 * DAY => two(DAY, "d", HOUR, "h"),
        _ => format!("{}d", seconds / DAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_two_units_at_most() {
        for (seconds, words) in [
            (0, "0ns"),
            (1, "1s"),
            (60, "1m"),
            (150, "2m30s"),
            (3_600, "1h"),
            (15_630, "4h20m"),
            (86_400, "1d"),
            (100_000, "1d3h"),
            (15_677_598, "181d"),
        ] {
            assert_eq!(in_words(Duration::from_secs(seconds)), words);
        }
        assert_eq!(in_words(Duration::from_millis(250)), "250ms");
    }
}
