//! Values: their types, and how they are written in the notations of YAML 1.1, of gcfg and of ours.

use std::{collections::BTreeMap, fmt, time::Duration};

use cloudprovider::parse_bool;

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A text.
    Text,
    /// A text that must never be shown.
    Secret,
    /// A boolean.
    Flag,
    /// A whole number.
    Number,
    /// A duration in Go's notation.
    Duration,
    /// Texts: a list in YAML, joined by commas in gcfg and in the environment.
    List,
    /// Texts, joined by commas in every format.
    Commas,
    /// Texts by name: a mapping in YAML, a JSON object in gcfg.
    Tags,
    /// Something with a reader of its own, in YAML only. See [`Settings::tree`](crate::Settings::tree).
    Tree,
}

impl Kind {
    /// Describes values of this kind, for a reference.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Secret => "text, secret",
            Self::Flag => "true or false",
            Self::Number => "number",
            Self::Duration => "duration",
            Self::List => "list (INI: joined by commas)",
            Self::Commas => "texts joined by commas",
            Self::Tags => "mapping (INI: JSON object)",
            Self::Tree => "see below",
        }
    }
}

/// A value of the type that its [`Key`](crate::Key) has.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// Of a text or secret.
    Text(String),
    /// Of a boolean.
    Flag(bool),
    /// Of a number.
    Number(u64),
    /// Of a duration.
    Duration(Duration),
    /// Of several texts.
    List(Vec<String>),
    /// Of texts by name.
    Tags(BTreeMap<String, String>),
}

impl fmt::Debug for Value {
    /// Does not show the value: it may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// How values are written in one format.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// Reads a boolean.
    pub flag: fn(&str) -> Option<bool>,
    /// What a boolean must be, for messages.
    pub flags: &'static str,
    /// Reads a whole number.
    pub number: fn(&str) -> Option<u64>,
    /// The kinds of which an empty text is a fault. Any other is not set then.
    pub filled: &'static [Kind],
}

impl Words {
    /// Booleans as Go prints them, and decimal numbers.
    pub const STRICT: Self = Self {
        flag: |text| parse_bool(text).ok(),
        flags: "must be true or false",
        number: |text| text.parse::<u32>().ok().map(u64::from),
        filled: &[],
    };

    /// Those of Go's YAML library, which follows YAML 1.1.
    pub const YAML_1_1: Self = Self {
        flag: yaml_flag,
        flags: "must be true or false",
        number: yaml_number,
        filled: &[Kind::Flag, Kind::Number],
    };

    /// Those of Go's gcfg library.
    pub const GCFG: Self = Self {
        flag: gcfg_flag,
        flags: "must be true, yes, on, 1, false, no, off or 0",
        number: gcfg_number,
        filled: &[Kind::Flag],
    };

    /// Those of gcfg, and Go's booleans too.
    pub const GO_ENVIRONMENT: Self = Self {
        flag: |text| parse_bool(text).ok().or_else(|| gcfg_flag(text)),
        flags: "must be true or false",
        number: gcfg_number,
        filled: &[],
    };
}

/// A boolean, in the words of YAML 1.1.
fn yaml_flag(text: &str) -> Option<bool> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Some(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

/// A whole number that is not negative, in the notations of YAML 1.1: decimal, `0x`, `0b`, `0o`, octal
/// with a leading zero, and with underscores. Also a decimal fraction with a whole value: `443.0`, `1e3`,
/// `089`.
fn yaml_number(text: &str) -> Option<u64> {
    let text = text.replace('_', "");
    let text = text.strip_prefix('+').unwrap_or(&text);
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', b'b' | b'B', ..] => (&text[2..], 2),
        [b'0', b'o' | b'O', ..] => (&text[2..], 8),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    let is_whole = digits.bytes().all(|b| b.is_ascii_alphanumeric());
    let whole = is_whole.then(|| u64::from_str_radix(digits, radix).ok()).flatten();
    whole.or_else(|| whole_float(text))
}

/// The value of a fraction in the notation of YAML 1.1, if it is whole.
fn whole_float(text: &str) -> Option<u64> {
    /// Up to this number, every whole number has an exact floating-point value.
    const LARGEST: f64 = 9_007_199_254_740_992.0;
    let is_fraction = text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    let number = text.parse::<f64>().ok().filter(|_| is_fraction)?;
    let is_whole = number.fract() == 0.0 && (0.0..LARGEST).contains(&number);
    is_whole.then(|| format!("{number:.0}").parse().ok())?
}

/// Parses gcfg's boolean words, in any letter case.
fn gcfg_flag(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// Parses a number as gcfg does: decimal, with leading zeros allowed, or hexadecimal after `0x`.
fn gcfg_number(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    digits.bytes().all(|b| b.is_ascii_alphanumeric()).then(|| u64::from_str_radix(digits, radix).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truth_and_numbers_as_in_yaml_1_1() {
        for (text, expected) in [("true", true), ("Yes", true), ("on", true), ("n", false), ("FALSE", false)]
        {
            assert_eq!(yaml_flag(text), Some(expected), "{text}");
        }
        for text in ["1", "0", "tRue", "t", ""] {
            assert_eq!(yaml_flag(text), None, "{text}");
        }
        for (text, expected) in [
            ("443", 443),
            ("0x10", 16),
            ("010", 8),
            ("0", 0),
            ("1_000", 1000),
            ("+7", 7),
            ("0b11", 3),
            ("0o17", 15),
            ("443.0", 443),
            ("443.", 443),
            ("1e3", 1000),
            ("08", 8),
            ("1000", 1000),
        ] {
            assert_eq!(yaml_number(text), Some(expected), "{text}");
        }
        for text in ["-1", "", "4.5", "0x", "x", "++1", "99999999999999999999", "1e-3", "e3", "1e999"] {
            assert_eq!(yaml_number(text), None, "{text}");
        }
    }
}
