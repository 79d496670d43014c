//! Booleans.

use super::NumError;

/// Parses a boolean in one of the spellings of Go's `strconv.ParseBool`.
///
/// # Errors
/// In Go's words.
pub fn parse_bool(text: &str) -> Result<bool, NumError> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(NumError::syntax("ParseBool", text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gos_spellings_and_nothing_else() {
        for (text, value) in [("1", true), ("t", true), ("True", true), ("0", false), ("F", false)] {
            assert_eq!(parse_bool(text), Ok(value), "{text}");
        }
        for text in ["", "tRue", "yes", "on", "2", " true"] {
            let error = parse_bool(text).expect_err(text).to_string();
            assert_eq!(error, format!("strconv.ParseBool: parsing {text:?}: invalid syntax"));
        }
    }
}
