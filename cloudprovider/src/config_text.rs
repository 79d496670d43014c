//! Reads configuration files as operators really write them: in encodings of other systems, copied from web
//! pages, with placeholders that were never filled in, or the wrong file altogether.

use std::fmt;

use serde_json::Value;

/// Why the bytes of a file cannot be read as a configuration text. Contains nothing of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigTextError(String);

impl fmt::Display for ConfigTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigTextError {}

/// Decodes a configuration file. Returns the text without its byte order mark, and a remark if the encoding
/// is unusual.
///
/// Accepts UTF-8, and UTF-16 with a byte order mark, as Windows writes it.
///
/// # Errors
/// What the file is instead, if that can be recognised, and what to do.
pub fn decode_config(bytes: &[u8]) -> Result<(String, Option<&'static str>), ConfigTextError> {
    const UTF_16: &str =
        "the file is UTF-16; it is read all the same, but other programs may refuse it: save it as UTF-8";
    let text = match bytes {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => {
            return Err(ConfigTextError("the file is UTF-32; save it as UTF-8".to_owned()));
        }
        [0xff, 0xfe, units @ ..] => return utf_16(units, u16::from_le_bytes).map(|text| (text, Some(UTF_16))),
        [0xfe, 0xff, units @ ..] => return utf_16(units, u16::from_be_bytes).map(|text| (text, Some(UTF_16))),
        [0, first, 0, ..] | [first, 0, _, 0, ..] if *first != 0 => {
            let words = "the file is UTF-16 without a byte order mark; save it as UTF-8";
            return Err(ConfigTextError(words.to_owned()));
        }
        bytes => std::str::from_utf8(bytes).map_err(|error| {
            let line = line_of(&bytes[..error.valid_up_to()]);
            ConfigTextError(format!(
                "the file is not UTF-8: line {line} holds a byte that is none, as texts in Latin-1 or Windows-1252 do; \
                 save it as UTF-8"
            ))
        })?,
    };
    if let Some(place) = text.find('\0') {
        let line = line_of(&text.as_bytes()[..place]);
        return Err(ConfigTextError(format!("the file is no text: line {line} holds a NUL character")));
    }
    Ok((text.strip_prefix('\u{feff}').unwrap_or(text).to_owned(), None))
}

fn utf_16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, ConfigTextError> {
    let broken = || ConfigTextError("the file is UTF-16 and damaged; save it as UTF-8".to_owned());
    let units = bytes.chunks(2).map(|pair| <[u8; 2]>::try_from(pair).map(unit));
    let units: Vec<u16> = units.collect::<Result<_, _>>().map_err(|_| broken())?;
    String::from_utf16(&units).ok().filter(|text| !text.contains('\0')).ok_or_else(broken)
}

fn line_of(before: &[u8]) -> usize {
    before.split(|byte| *byte == b'\n').count()
}

/// Something odd about the text of a value. The value can be read, but is probably not what the operator
/// meant.
///
/// The `Display` text continues a message that begins with the name of the key. It contains nothing of the
/// value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TextOddity {
    /// It is a placeholder: `<password>`, `{{ password }}`, `${PASSWORD}`, `use-your-password-here`.
    Placeholder,
    /// It begins or ends with a typographic quote, which YAML and INI do not treat as a quote.
    TypographicQuotes,
    /// It contains a blank that most programs do not treat as one, such as the no-break space of web pages.
    NoBreakSpace,
    /// It contains invisible characters, such as marks of the writing direction.
    Invisible,
    /// It begins or ends with a blank or a line break.
    OuterBlank,
}

impl TextOddity {
    /// What is odd about `text`, if anything. The most likely mistake comes first.
    pub fn of(text: &str) -> Option<Self> {
        if is_placeholder(text.trim()) { Some(Self::Placeholder) } else { Self::of_characters(text) }
    }

    /// Like [`of`](Self::of), for a secret such as a password. The words of a secret prove nothing:
    /// `changeme` may be a real password. So a text is a placeholder only if it is wrapped as a whole:
    /// `<...>`, `{{...}}` and `${...}`.
    pub fn in_secret(text: &str) -> Option<Self> {
        let is_placeholder = [("<", ">"), ("{{", "}}"), ("${", "}")]
            .iter()
            .any(|(open, close)| is_wrapped(text.trim(), open, close));
        if is_placeholder { Some(Self::Placeholder) } else { Self::of_characters(text) }
    }

    fn of_characters(text: &str) -> Option<Self> {
        if text.trim().starts_with(is_typographic_quote) || text.trim().ends_with(is_typographic_quote) {
            Some(Self::TypographicQuotes)
        } else if text.chars().any(|c| c.is_whitespace() && !c.is_ascii()) {
            Some(Self::NoBreakSpace)
        } else if text.chars().any(is_invisible) {
            Some(Self::Invisible)
        } else if text.trim() != text {
            Some(Self::OuterBlank)
        } else {
            None
        }
    }

    /// The message for an oddity that [`TextOddity::in_secret`] found. It says only that the secret may be
    /// wrong.
    pub fn of_secret(self) -> &'static str {
        match self {
            Self::Placeholder => "looks like a placeholder that nobody filled in",
            _ => {
                "holds characters that copied texts often have and passwords rarely: a blank at an end, a no-break space, \
                 a typographic quote or an invisible character; type it anew if it is refused"
            }
        }
    }
}

impl fmt::Display for TextOddity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Placeholder => "looks like a placeholder that nobody filled in",
            Self::TypographicQuotes => {
                "has typographic quotes, which belong to the value; write straight ones (\")"
            }
            Self::NoBreakSpace => {
                "holds a no-break space or another blank that is none to other programs; type it anew"
            }
            Self::Invisible => "holds an invisible character, as copied texts do; type it anew",
            Self::OuterBlank => "begins or ends with a blank or a line break",
        })
    }
}

/// The kind of a value in a configuration, for messages such as "is a list, must be a text". Never contains the value.
pub fn kind_of_value(value: &Value) -> &'static str {
    match value {
        Value::Null => "empty",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

/// Whether `c` is invisible, such as a soft hyphen or a mark of the writing direction.
pub fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

fn is_wrapped(text: &str, open: &str, close: &str) -> bool {
    text.len() > open.len() + close.len() && text.starts_with(open) && text.ends_with(close)
}

fn is_typographic_quote(c: char) -> bool {
    matches!(c, '\u{2018}'..='\u{201f}' | '\u{ab}' | '\u{bb}' | '\u{2039}' | '\u{203a}')
}

/// Whether `text` looks like a placeholder, by its form or by its words.
fn is_placeholder(text: &str) -> bool {
    let is_between = |open: &str, close: &str| {
        text.find(open).is_some_and(|begin| text[begin + open.len()..].contains(close))
    };
    let words = text.to_ascii_lowercase().replace(['_', ' '], "-");
    let says_so =
        ["use-your-", "enter-your-", "put-your-", "insert-your-", "your-", "replace-me", "replace-with-"]
            .iter()
            .any(|begin| words.starts_with(begin));
    is_wrapped(text, "<", ">")
        || is_between("{{", "}}")
        || is_between("${", "}")
        || is_between("$(", ")")
        || is_wrapped(text, "@@", "@@")
        || is_wrapped(text, "__", "__")
        || (words.ends_with("-here") && words.contains("your"))
        || says_so
        || words == "changeme"
        || words == "change-me"
}

/// The message for a configuration file that is a Kubernetes manifest of this kind: what is wrong, and what
/// to do.
pub fn manifest_in_place_of_config(kind: &str) -> String {
    let is_plain = kind.len() <= 40 && kind.bytes().all(|byte| byte.is_ascii_alphabetic());
    match kind {
        "ConfigMap" | "Secret" => format!(
            "is a Kubernetes manifest of kind {kind}, not the configuration in it: apply the manifest, mount the {kind}, and \
             name the mounted file, or write the text below its data into a file of its own"
        ),
        "Config" => {
            "is a kubeconfig, which belongs to --kubeconfig; name the configuration of the cloud".to_owned()
        }
        kind if is_plain && !kind.is_empty() => {
            format!("is a Kubernetes manifest of kind {kind}; name the configuration of the cloud")
        }
        _ => "is a Kubernetes manifest; name the configuration of the cloud".to_owned(),
    }
}

/// What is wrong with a text that is no YAML, in fixed words, given those of a parser of the saphyr family, which may quote
/// the text.
pub fn yaml_syntax_fault(parser_words: &str) -> &'static str {
    let has = |part: &str| parser_words.contains(part);
    if has("tabs disallowed") || has("found a tab") {
        "not valid YAML: a tab; indent with spaces"
    } else if has("unknown anchor") {
        "not valid YAML: an alias (*) of an anchor that does not exist; put the text in quotes"
    } else if has("unclosed bracket") {
        "not valid YAML: a bracket is not closed"
    } else if has("misplaced bracket") {
        "not valid YAML: a bracket closes nothing"
    } else if has("quoted scalar") {
        "not valid YAML: a quoted text is not closed or holds an unknown escape"
    } else if has("mapping values are not allowed") {
        "not valid YAML: a colon where no key can be; check the indentation, or put the text in quotes"
    } else if has("expected ':'") {
        "not valid YAML: a key needs a colon and a space behind it"
    } else if has("expected '-'") {
        "not valid YAML: a list and a mapping are mixed; check the indentation"
    } else if has("unexpected character") {
        "not valid YAML: a text must not begin with this character; put it in quotes"
    } else if has("multiple YAML documents") {
        "holds more than one YAML document"
    } else {
        "not valid YAML"
    }
}

/// A likely reason why `text` is not valid YAML. `line`, counted from 1, is where the parser failed.
pub fn yaml_fault_cause(text: &str, line: usize) -> Option<&'static str> {
    let is_blank = |c: char| c.is_whitespace() && !c.is_ascii();
    let faulty = line.checked_sub(1).and_then(|before| text.lines().nth(before)).unwrap_or_default();
    if faulty.contains("{{") {
        Some("the line looks like a template that nobody filled in ({{ ... }})")
    } else if text.lines().take(line).any(|line| line.trim_start_matches([' ', '\t']).starts_with(is_blank)) {
        // The parser fails some lines later, since it takes such lines for a part of a value.
        Some("a line is indented with no-break spaces; write ordinary ones")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &str, unit: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(unit).collect()
    }

    #[test]
    fn text_is_read_in_the_encodings_that_say_what_they_are() {
        let text = "user: ü\r\npassword: 𝄞\r\n";
        for bytes in [text.as_bytes().to_vec(), format!("\u{feff}{text}").into_bytes()] {
            assert_eq!(decode_config(&bytes).expect("text"), (text.to_owned(), None));
        }
        for unit in [u16::to_le_bytes, u16::to_be_bytes] {
            let (read, warning) = decode_config(&encoded(&format!("\u{feff}{text}"), unit)).expect("text");
            assert_eq!(read, text);
            assert!(warning.expect("told").contains("UTF-16"));
        }
        assert_eq!(decode_config(b"").expect("nothing"), (String::new(), None));
    }

    #[test]
    fn what_is_no_text_is_named_without_any_of_it() {
        let mut odd = encoded("\u{feff}hunter2", u16::to_le_bytes);
        odd.pop();
        for (bytes, part) in [
            (encoded("hunter2", u16::to_le_bytes), "UTF-16 without a byte order mark"),
            (encoded("hunter2", u16::to_be_bytes), "UTF-16 without a byte order mark"),
            (odd, "UTF-16 and damaged"),
            (b"\xff\xfe\0\0h\0\0\0".to_vec(), "UTF-32"),
            (b"a\nb\nhunter2\xe4".to_vec(), "line 3 holds a byte that is none, as texts in Latin-1"),
            (b"a\nhunter2\0".to_vec(), "line 2 holds a NUL character"),
            (b"\0\0\0\0".to_vec(), "line 1 holds a NUL character"),
        ] {
            let error = decode_config(&bytes).expect_err(part).to_string();
            assert!(error.contains(part) && !error.contains("hunter2"), "{part}: {error}");
        }
    }

    #[test]
    fn odd_texts() {
        use TextOddity::{Invisible, NoBreakSpace, OuterBlank, Placeholder, TypographicQuotes};
        for (text, expected) in [
            ("<ENTER_YOUR_VCENTER_USERNAME>", Some(Placeholder)),
            ("use-your-vcenter-user-here", Some(Placeholder)),
            ("YOUR_PASSWORD", Some(Placeholder)),
            ("{{ vcenter_password }}", Some(Placeholder)),
            ("a-${REGION}-b", Some(Placeholder)),
            ("$(PASSWORD)", Some(Placeholder)),
            ("@@USER@@", Some(Placeholder)),
            ("change_me", Some(Placeholder)),
            ("\u{201c}admin\u{201d}", Some(TypographicQuotes)),
            ("\u{201e}admin\u{201c}", Some(TypographicQuotes)),
            ("ad\u{a0}min", Some(NoBreakSpace)),
            ("\u{200e}a9 09", Some(Invisible)),
            ("admin ", Some(OuterBlank)),
            ("admin\n", Some(OuterBlank)),
            ("", None),
            ("a b", None),
            ("<>", None),
            ("a<b>c", None),
            ("$ecret{1}", None),
            ("M\u{fc}ller\u{2019}s DC", None),
            ("yours", None),
            ("DOMAIN\\user", None),
        ] {
            assert_eq!(TextOddity::of(text), expected, "{text:?}");
        }
        for oddity in [Placeholder, TypographicQuotes, NoBreakSpace, Invisible, OuterBlank] {
            assert!(!oddity.to_string().is_empty() && !oddity.of_secret().is_empty());
        }
    }

    #[test]
    fn the_words_of_a_secret_tell_nothing() {
        use TextOddity::{Invisible, NoBreakSpace, OuterBlank, Placeholder, TypographicQuotes};
        for text in [
            "changeme",
            "change_me",
            "YOUR_PASSWORD",
            "replace-me",
            "a-${b}-c",
            "$(PASSWORD)",
            "@@x@@",
            "__x__",
            "<>",
        ] {
            assert_eq!(TextOddity::in_secret(text), None, "{text}");
        }
        for text in ["<password>", "{{ vcenter_password }}", "${PASSWORD}", " <password>\n"] {
            assert_eq!(TextOddity::in_secret(text), Some(Placeholder), "{text}");
        }
        // The message does not say which of these it is, since that would reveal something about the secret.
        let odd =
            [("\u{201c}x\u{201d}", TypographicQuotes), ("a\u{a0}b", NoBreakSpace), ("a\u{ad}b", Invisible)];
        for (text, oddity) in odd {
            assert_eq!(TextOddity::in_secret(text), Some(oddity), "{text:?}");
            assert_eq!(oddity.of_secret(), OuterBlank.of_secret());
        }
    }

    #[test]
    fn reasons_why_a_text_is_no_yaml() {
        assert!(yaml_fault_cause("a: 1\nb: {{ b }}\n", 2).expect("told").contains("template"));
        assert!(yaml_fault_cause("a:\n\u{a0}\u{a0}b: 1\n", 2).expect("told").contains("no-break"));
        assert!(yaml_fault_cause("a: x\n \u{a0}b: 1\nc: [\n", 3).expect("told").contains("no-break"));
        assert_eq!(yaml_fault_cause("a: {{ b }}\nb: [\n", 2), None);
        assert_eq!(yaml_fault_cause("a: [\n", 0), None);
    }

    #[test]
    fn manifests_are_named_by_their_kind() {
        assert!(manifest_in_place_of_config("ConfigMap").contains("kind ConfigMap"));
        assert!(manifest_in_place_of_config("Config").contains("kubeconfig"));
        assert!(manifest_in_place_of_config("DaemonSet").contains("kind DaemonSet"));
        assert!(!manifest_in_place_of_config("hunter2 x").contains("hunter2"));
    }
}
