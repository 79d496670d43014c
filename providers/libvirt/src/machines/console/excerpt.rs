//! The words of a condition about a log. Pure.

use std::collections::HashMap;

use cloudprovider::machines::BootstrapData;

/// How many lines are quoted at most: the last ones.
const MAX_LINES: usize = 10;

/// How many characters of a line are quoted at most.
const MAX_LINE: usize = 160;

/// How many bytes a quotation has at most.
const MAX_BYTES: usize = 1024;

/// The length in bytes from which a word of the bootstrap data is looked for in a line.
pub(crate) const MIN_WORD: usize = 8;

/// The place of lines that are left out.
const LEFT_OUT: &str = "(left out: it may have secrets)";

/// Parts of lines with secrets, in lower case.
const SUSPICIOUS: [&str; 14] = [
    "token",
    "passw",
    "secret",
    "credential",
    "private",
    "certificate",
    "-----begin",
    "-----end",
    "bearer",
    "apikey",
    "api-key",
    "api_key",
    "client-key",
    "sha256:",
];

/// Words in bootstrap data that say nothing.
const COMMON: [&str; 20] = [
    "#cloud-config",
    "cloud-init",
    "kubernetes",
    "kubeadm",
    "kubelet",
    "containerd",
    "systemctl",
    "systemd",
    "hostname",
    "/usr/bin",
    "/usr/local",
    "/var/lib",
    "/bin/bash",
    "#!/bin/sh",
    "network",
    "restart",
    "service",
    "enabled",
    "install",
    "started",
];

/// A length from which a word without a blank looks like a key.
const KEY_LENGTH: usize = 24;

/// The last lines of a console's output, fit for a condition. `None` if there is nothing in it.
///
/// Control characters and escape sequences are gone. Lines that may have secrets are left out, `data` among them.
pub(crate) fn excerpt(log: &[u8], data: Option<&BootstrapData>) -> Option<String> {
    let text = String::from_utf8_lossy(log);
    let words = data.map(|data| words_of(data.expose())).unwrap_or_default();
    let mut lines: Vec<String> = Vec::new();
    let mut bytes = 0;
    let clean = without_escapes(&text);
    for line in clean.lines().rev() {
        let line: String = line.chars().filter(|one| !one.is_control()).collect();
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let line = if may_have_secrets(line, &words) {
            LEFT_OUT.to_owned()
        } else {
            line.chars().take(MAX_LINE).collect()
        };
        // one place for many lines
        if line == LEFT_OUT && lines.last().is_some_and(|last| last == LEFT_OUT) {
            continue;
        }
        bytes += line.len() + 3;
        if lines.len() == MAX_LINES || bytes > MAX_BYTES {
            break;
        }
        lines.push(line);
    }
    lines.reverse();
    (!lines.is_empty()).then(|| lines.join(" | "))
}

/// Whether a line has a word of the bootstrap data, or looks as if it had a secret.
fn may_have_secrets(line: &str, words: &Words<'_>) -> bool {
    let lower = line.to_lowercase();
    SUSPICIOUS.iter().any(|part| lower.contains(part))
        || has_word(line.as_bytes(), words)
        || line.split(is_between_keys).any(looks_like_key)
}

fn is_between_keys(one: char) -> bool {
    !(one.is_ascii_alphanumeric() || matches!(one, '+' | '=' | '_' | '-' | '.'))
}

/// Long, and mixed as in Base64 or hexadecimal digits: a key or a hash, not the name of a function.
fn looks_like_key(word: &str) -> bool {
    let count = |is: fn(&u8) -> bool| word.bytes().filter(&is).count();
    let (digits, lower, upper) =
        (count(u8::is_ascii_digit), count(u8::is_ascii_lowercase), count(u8::is_ascii_uppercase));
    let is_mixed = digits >= 1 && lower >= 1 && upper >= 1;
    word.len() >= KEY_LENGTH && (is_mixed || digits >= 3 && lower + upper >= 1)
}

/// Words by their first bytes.
type Words<'a> = HashMap<&'a [u8], Vec<&'a [u8]>>;

/// The words of the bootstrap data that may be a secret.
fn words_of(data: &[u8]) -> Words<'_> {
    let mut words = Words::new();
    for word in split(data).filter(|word| !COMMON.iter().any(|common| common.as_bytes() == *word)) {
        if let Some(begin) = word.get(..MIN_WORD) {
            words.entry(begin).or_default().push(word);
        }
    }
    words
}

/// Whether one of the words is anywhere in the line.
fn has_word(line: &[u8], words: &Words<'_>) -> bool {
    line.windows(MIN_WORD).enumerate().any(|(at, begin)| {
        words.get(begin).is_some_and(|words| words.iter().any(|word| line[at..].starts_with(word)))
    })
}

/// The words of a text: what blanks, quotes and the signs between a key and a value separate.
fn split(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| {
        b.is_ascii_whitespace()
            || b.is_ascii_control()
            || matches!(b, b'"' | b'\'' | b'=' | b',' | b';' | b':' | b'(' | b')' | b'[' | b']' | b'{' | b'}')
    })
    .filter(|word| !word.is_empty())
}

/// The text without the escape sequences of terminals.
fn without_escapes(text: &str) -> String {
    const ESCAPE: char = '\u{1b}';
    const BELL: char = '\u{7}';
    let mut clean = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(one) = chars.next() {
        match one {
            ESCAPE => match chars.next() {
                // ends with a letter or one of a few signs
                Some('[') => while chars.next().is_some_and(|part| !('@'..='~').contains(&part)) {},
                // a title, up to the bell or the next escape
                Some(']') => {
                    while chars.next_if(|part| *part != BELL && *part != ESCAPE && *part != '\n').is_some() {}
                }
                Some('(' | ')') => drop(chars.next()),
                _ => {}
            },
            // a line that is written over: what stands behind it is kept
            '\r' => clean.push('\n'),
            _ => clean.push(one),
        }
    }
    clean
}

#[cfg(test)]
mod tests;
