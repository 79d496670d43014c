//! Quoted texts.

use std::fmt::Write as _;

/// Quotes a text as Go does. Line breaks and other characters that a terminal would interpret are escaped.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        let _ = match c {
            '"' | '\\' => write!(quoted, "\\{c}"),
            '\x07' => write!(quoted, "\\a"),
            '\x08' => write!(quoted, "\\b"),
            '\x0b' => write!(quoted, "\\v"),
            '\x0c' => write!(quoted, "\\f"),
            '\n' => write!(quoted, "\\n"),
            '\r' => write!(quoted, "\\r"),
            '\t' => write!(quoted, "\\t"),
            c if c.is_ascii_control() => write!(quoted, "\\x{:02x}", u32::from(c)),
            c if is_printable(c) => {
                quoted.push(c);
                Ok(())
            }
            c if u32::from(c) <= 0xffff => write!(quoted, "\\u{:04x}", u32::from(c)),
            c => write!(quoted, "\\U{:08x}", u32::from(c)),
        };
    }
    quoted.push('"');
    quoted
}

/// Rust's `escape_debug` escapes unprintable characters, quotes, and combining marks at the begin of a text.
fn is_printable(c: char) -> bool {
    let mut buffer = [b'a'; 5];
    let end = 1 + c.encode_utf8(&mut buffer[1..]).len();
    let after_a_letter = std::str::from_utf8(&buffer[..end]).unwrap_or_default();
    c == '\'' || after_a_letter.escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_whatever_the_text() {
        for (text, expected) in [
            ("plain", r#""plain""#),
            ("it's \"quoted\" \\", r#""it's \"quoted\" \\""#),
            ("a\nb\r\tc", r#""a\nb\r\tc""#),
            ("\u{7}\u{8}\u{b}\u{c}", r#""\a\b\v\f""#),
            ("\u{1b}[31mred\u{7f}", r#""\x1b[31mred\x7f""#),
            ("K\u{f6}ln \u{1f600}", "\"K\u{f6}ln \u{1f600}\""),
            ("e\u{301} \u{20dd}", "\"e\u{301} \u{20dd}\""),
            ("\u{85}\u{2028}\u{e0001}", r#""\u0085\u2028\U000e0001""#),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }
}
