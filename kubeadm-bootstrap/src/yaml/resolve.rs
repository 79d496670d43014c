//! Which texts a reader of YAML 1.1 takes for something else than a text.

use basics::go::parse_int;

/// The texts that are booleans or null.
const WORDS: [&str; 22] = [
    "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No", "NO", "off", "Off", "OFF", "~",
    "null", "Null", "NULL", "true", "false",
];
/// The other spellings of booleans.
const CAPITALS: [&str; 4] = ["True", "TRUE", "False", "FALSE"];
/// The numbers that are words. The sign is optional, except before "not a number".
const INFINITE: [&str; 3] = [".inf", ".Inf", ".INF"];
const NOT_A_NUMBER: [&str; 3] = [".nan", ".NaN", ".NAN"];

/// Whether the text, written without quotes, is read as a text again.
pub(super) fn is_text(text: &str) -> bool {
    !(text.is_empty()
        || WORDS.contains(&text)
        || CAPITALS.contains(&text)
        || NOT_A_NUMBER.contains(&text)
        || INFINITE.contains(&text.strip_prefix(['+', '-']).unwrap_or(text))
        || is_timestamp(text)
        || is_number(text)
        || is_base_60(text))
}

fn is_number(text: &str) -> bool {
    match text.as_bytes().first() {
        Some(b'.') => is_finite_float(text),
        Some(b'+' | b'-' | b'0'..=b'9') => {
            let plain = text.replace('_', "");
            parse_int(&plain).is_ok() || is_large_integer(&plain) || is_finite_float(&plain)
        }
        _ => false,
    }
}

/// Integers with a prefix that need the 64th bit.
fn is_large_integer(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    [("0x", 16), ("0o", 8), ("0b", 2), ("0", 8)].into_iter().any(|(prefix, radix)| {
        lower.strip_prefix(prefix).is_some_and(|digits| {
            digits.bytes().all(|byte| byte.is_ascii_alphanumeric())
                && u64::from_str_radix(digits, radix).is_ok()
        })
    })
}

/// A decimal fraction with an optional exponent. One that is too large for 64 bits is a text.
fn is_finite_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let are_digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    let exponent_is_valid = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && are_digits(digits)
    });
    are_digits(whole)
        && are_digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent_is_valid
        && text.parse::<f64>().is_ok_and(f64::is_finite)
}

/// Numbers such as `12:30:45`, which YAML 1.1 reads in base 60.
fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut parts = unsigned.split(':');
    let starts_with_digit = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
    let are_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    if !parts.next().is_some_and(|first| starts_with_digit(first) && are_digits(first)) {
        return false;
    }
    let rest: Vec<&str> = parts.collect();
    let Some((last, middle)) = rest.split_last() else { return false };
    let is_sexagesimal = |part: &str| match part.as_bytes() {
        [digit] => digit.is_ascii_digit(),
        [tens, digit] => (b'0'..=b'5').contains(tens) && digit.is_ascii_digit(),
        _ => false,
    };
    let (last, fraction) = last.split_once('.').unwrap_or((last, ""));
    middle.iter().all(|part| is_sexagesimal(part)) && is_sexagesimal(last) && are_digits(fraction)
}

/// A date, or a date and a time, in one of the forms that Go's reader of YAML accepts.
fn is_timestamp(text: &str) -> bool {
    let Some(time) = after_date(text) else { return false };
    if time.is_empty() {
        return true;
    }
    if let Some(rest) = time.strip_prefix(['T', 't']) {
        return after_clock(rest).is_some_and(|zone| zone == "Z" || is_offset(zone));
    }
    let rest = time.trim_start_matches(' ');
    rest.len() < time.len() && after_clock(rest) == Some("")
}

/// What follows a date that exists.
fn after_date(text: &str) -> Option<&str> {
    let (year, rest) = text.split_at_checked(4)?;
    if !year.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (month, rest) = one_or_two_digits(rest.strip_prefix('-')?)?;
    let (day, rest) = one_or_two_digits(rest.strip_prefix('-')?)?;
    let year: u32 = year.parse().ok()?;
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    (1..=days).contains(&day).then_some(rest)
}

/// What follows a time of day.
fn after_clock(text: &str) -> Option<&str> {
    let (hour, rest) = one_or_two_digits(text)?;
    let (minute, rest) = one_or_two_digits(rest.strip_prefix(':')?)?;
    let (second, rest) = one_or_two_digits(rest.strip_prefix(':')?)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let after_point = rest.strip_prefix(['.', ',']).unwrap_or("");
    let fraction = after_point.bytes().take_while(u8::is_ascii_digit).count();
    Some(if fraction > 0 { &after_point[fraction..] } else { rest })
}

fn is_offset(zone: &str) -> bool {
    let Some(zone) = zone.strip_prefix(['+', '-']) else { return false };
    let two =
        |digits: &str, most| digits.len() == 2 && digits.parse::<u32>().is_ok_and(|value| value <= most);
    zone.split_once(':').is_some_and(|(hours, minutes)| two(hours, 24) && two(minutes, 60))
}

fn one_or_two_digits(text: &str) -> Option<(u32, &str)> {
    let digits = text.bytes().take(2).take_while(u8::is_ascii_digit).count();
    Some((text[..digits].parse().ok()?, &text[digits..]))
}
