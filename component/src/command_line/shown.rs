//! Flags and their values in Go's notation, for `/flagz` and `/configz`.

use std::{collections::BTreeMap, time::Duration};

use clap::{ArgMatches, Command};

use crate::classified::without_secrets;

/// Every flag that was given or has a default, with its value. The value of any other flag is empty.
pub fn shown(command: &Command, matches: &ArgMatches) -> BTreeMap<String, String> {
    command
        .get_arguments()
        .filter_map(|arg| {
            let flag = arg.get_long()?;
            Some((flag.to_owned(), without_secrets(flag, &value(matches, arg.get_id().as_str()))))
        })
        .collect()
}

/// A value in Go's notation. A value of any other type stays as it was given.
fn value(matches: &ArgMatches, id: &str) -> String {
    if let Ok(Some(value)) = matches.try_get_one::<bool>(id) {
        return value.to_string();
    }
    if let Ok(Some(value)) = matches.try_get_one::<Duration>(id) {
        return go_duration(*value);
    }
    if let Ok(Some(value)) = matches.try_get_one::<i32>(id) {
        return value.to_string();
    }
    if let Ok(Some(value)) = matches.try_get_one::<i64>(id) {
        return value.to_string();
    }
    if let Ok(Some(list)) = matches.try_get_one::<Vec<String>>(id) {
        return format!("[{}]", list.join(","));
    }
    if let Ok(Some(list)) = matches.try_get_one::<Vec<i32>>(id) {
        let list: Vec<String> = list.iter().map(ToString::to_string).collect();
        return format!("[{}]", list.join(","));
    }
    let raw = matches.try_get_raw(id).ok().flatten();
    let texts: Vec<_> = raw.into_iter().flatten().map(|text| text.to_string_lossy()).collect();
    texts.join(",")
}

/// A duration as Go writes it: `1h0m0s`, `1.5s`, `100ms`.
pub fn go_duration(duration: Duration) -> String {
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
    use super::*;

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
            assert_eq!(go_duration(Duration::from_nanos(nanos)), text);
        }
    }
}
