//! Floating-point numbers.

use super::NumError;

/// Parses a floating-point number. Unlike Go, it does not accept hexadecimal numbers.
///
/// # Errors
/// In Go's words.
pub fn parse_float(text: &str) -> Result<f64, NumError> {
    text.parse().map_err(|_| NumError::syntax("ParseFloat", text))
}

/// Formats a number as Go's `strconv.FormatFloat(value, 'g', -1, 64)` does, and therefore Prometheus.
pub fn format_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    // Rust's shortest representation has the same digits as Go's.
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    // The range that Go prints without an exponent ('g' with the shortest precision).
    if (-4..6).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_go_writes_them() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.005, "0.005"),
            (10e-9, "1e-08"),
            (0.000_01, "1e-05"),
            (0.000_1, "0.0001"),
            (9.999_999_999_999_999e-5, "9.999999999999999e-05"),
            (262_144.0, "262144"),
            (1_048_576.0, "1.048576e+06"),
            (16_777_216.0, "1.6777216e+07"),
            (1_000_000.0, "1e+06"),
            (1_795_277_668.56, "1.79527766856e+09"),
            (18_446_744_073_709_551_615.0, "1.8446744073709552e+19"),
            (123.456, "123.456"),
            (-2.5, "-2.5"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(format_float(value), text);
        }
    }

    #[test]
    fn what_is_no_number_is_refused_in_gos_words() {
        assert_eq!(parse_float("1e3"), Ok(1000.0));
        let error = parse_float("x").expect_err("no number").to_string();
        assert_eq!(error, "strconv.ParseFloat: parsing \"x\": invalid syntax");
    }
}
