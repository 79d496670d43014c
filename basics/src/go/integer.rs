//! Integers.

use super::NumError;

const PARSE_INT: &str = "ParseInt";

/// Parses a 64-bit integer: decimal, or with one of the prefixes `0x`, `0o`, `0b` and `0`.
///
/// # Errors
/// In Go's words.
pub fn parse_int(text: &str) -> Result<i64, NumError> {
    let (sign, digits) = match text.as_bytes().first() {
        Some(b'-') => (-1, &text[1..]),
        Some(b'+') => (1, &text[1..]),
        _ => (1, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.split_at_checked(2) {
        Some(("0x", rest)) => (16, rest),
        Some(("0o", rest)) => (8, rest),
        Some(("0b", rest)) => (2, rest),
        _ if lower.len() > 1 && lower.starts_with('0') => (8, lower.as_str()),
        _ => (10, lower.as_str()),
    };
    let has_prefix = digits.len() < lower.len();
    // An underscore is valid between two digits, or after the prefix.
    if (digits.starts_with('_') && !has_prefix) || digits.ends_with('_') || digits.contains("__") {
        return Err(NumError::syntax(PARSE_INT, text));
    }
    let digits = digits.replace('_', "");
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(NumError::syntax(PARSE_INT, text));
    }
    let value = i128::from_str_radix(&digits, radix).map_err(|_| NumError::range(PARSE_INT, text))?;
    i64::try_from(sign * value).map_err(|_| NumError::range(PARSE_INT, text))
}

/// Like [`parse_int`], but with 32 bits.
///
/// # Errors
/// In Go's words.
pub fn parse_int32(text: &str) -> Result<i32, NumError> {
    i32::try_from(parse_int(text)?).map_err(|_| NumError::range(PARSE_INT, text))
}

/// Parses a decimal number that is not negative and fits into 31 bits, such as klog's verbosity.
///
/// # Errors
/// In Go's words.
pub fn parse_uint31(text: &str) -> Result<u32, NumError> {
    const FUNCTION: &str = "ParseUint";
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NumError::syntax(FUNCTION, text));
    }
    let value = text.parse().ok().filter(|value| *value <= i32::MAX.cast_unsigned());
    value.ok_or_else(|| NumError::range(FUNCTION, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_as_go_reads_them() {
        for (text, value) in [
            ("0", 0),
            ("-5", -5),
            ("+5", 5),
            ("0x1F", 31),
            ("-0b11", -3),
            ("0o17", 15),
            ("017", 15),
            ("1_000", 1000),
            ("0_17", 15),
            ("0x_ff", 255),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(parse_int(text), Ok(value), "{text}");
        }
        for text in [
            "", "-", "x", "1.5", "1e3", "0x", "0x_", "08", "_1", "1_", "1__0", "0_x1F", "0_b1", " 1", "0b2",
            "\u{661}",
        ] {
            let error = parse_int(text).expect_err(text).to_string();
            assert_eq!(error, format!("strconv.ParseInt: parsing {text:?}: invalid syntax"));
        }
        for text in ["9223372036854775808", "99999999999999999999999999999999999999999999"] {
            assert!(parse_int(text).expect_err(text).to_string().ends_with("value out of range"));
        }
        let error = parse_int32("2147483648").expect_err("too large").to_string();
        assert!(error.ends_with("value out of range"));
    }

    #[test]
    fn numbers_of_31_bits() {
        for (text, value) in [("0", 0), ("4", 4), ("007", 7), ("2147483647", 0x7fff_ffff)] {
            assert_eq!(parse_uint31(text), Ok(value), "{text}");
        }
        for (text, fault) in [
            ("", "invalid syntax"),
            ("-1", "invalid syntax"),
            ("+1", "invalid syntax"),
            ("0x4", "invalid syntax"),
            ("2147483648", "value out of range"),
            ("99999999999", "value out of range"),
        ] {
            let error = parse_uint31(text).expect_err(text).to_string();
            assert_eq!(error, format!("strconv.ParseUint: parsing {text:?}: {fault}"));
        }
    }
}
