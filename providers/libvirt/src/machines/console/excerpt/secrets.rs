//! What must not be quoted.

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, RandomState},
};

use base64::{
    Engine as _,
    alphabet::{Alphabet, STANDARD, URL_SAFE},
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use cloudprovider::machines::BootstrapData;
use percent_encoding::percent_decode_str;
use secrecy::zeroize::Zeroizing;

/// The length in bytes of parts of the bootstrap data that are looked for.
const PART: usize = 8;

/// The length in bytes of the shortest words that are looked for as a whole. Those of [`PART`] bytes are
/// found by their parts.
const MIN_WORD: usize = 4;

/// The length of the shortest words without a digit, and without a sign between their letters. Shorter ones
/// are in every text.
const MIN_PLAIN_WORD: usize = 6;

/// The most bytes of bootstrap data that are looked through.
const MAX_DATA: usize = 256 << 10;

/// How often decoded data are decoded again.
const MAX_DEPTH: usize = 4;

/// The length of the shortest Base64 that is decoded, without its padding: that of [`MIN_WORD`] bytes.
const MIN_BASE64: usize = 6;

/// A length from which a word without a blank looks like a key.
const KEY_LENGTH: usize = 24;

/// How data begin that were compressed by gzip, and how they begin in Base64.
const GZIP: [u8; 3] = [0x1f, 0x8b, 8];
const GZIP_IN_BASE64: &[u8] = b"H4sI";

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

/// Whole words in bootstrap data that say nothing, in lower case.
const COMMON: [&str; 29] = [
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
    "starting",
    "failed",
    "default",
    "static",
    "system",
    "target",
    "config",
    "modules",
    "kernel",
];

/// What is in bootstrap data, in lower case, as far as it may be a secret: hashes, so that nothing of it is
/// kept.
pub(super) struct Secrets {
    hasher: RandomState,
    parts: HashSet<u64>,
    words: HashSet<u64>,
}

impl Secrets {
    /// `None` if the data cannot be looked through: they are too large, compressed, or not a text.
    pub(super) fn of(data: &BootstrapData) -> Option<Self> {
        let mut secrets = Self { hasher: RandomState::new(), parts: HashSet::new(), words: HashSet::new() };
        let is_small = data.expose().len() <= MAX_DATA;
        is_small.then(|| secrets.add(data.expose(), 0)).flatten()?;
        Some(secrets)
    }

    /// Adds a text, and what is encoded in it.
    fn add(&mut self, text: &[u8], depth: usize) -> Option<()> {
        if text.starts_with(&GZIP[..2]) || !is_text(text) {
            return None;
        }
        self.add_plain(text);
        if depth == MAX_DEPTH {
            return Some(());
        }
        for (alphabet, signs) in [(&STANDARD, b"+/"), (&URL_SAFE, b"-_")] {
            let is_outside = |byte: &u8| !byte.is_ascii_alphanumeric() && !signs.contains(byte);
            for run in text.split(is_outside).filter(|run| run.len() >= MIN_BASE64) {
                if run.starts_with(GZIP_IN_BASE64) {
                    return None;
                }
                if let Some(decoded) = decode(run, alphabet) {
                    self.add_decoded(&decoded, depth + 1)?;
                }
            }
        }
        let text = String::from_utf8_lossy(text);
        if text.contains('\\') {
            self.add_decoded(Zeroizing::new(unescape(&text)).as_bytes(), depth + 1)?;
        }
        if text.contains('%') {
            let decoded = Zeroizing::new(percent_decode_str(&text).collect::<Vec<u8>>());
            self.add_decoded(&decoded, depth + 1)?;
        }
        Some(())
    }

    /// Adds what may be encoded in a text. Any word may be Base64 of something, so this need not be a text.
    fn add_decoded(&mut self, decoded: &[u8], depth: usize) -> Option<()> {
        if is_text(decoded) {
            return self.add(decoded, depth);
        }
        if decoded.windows(GZIP.len()).any(|part| part == GZIP) {
            return None;
        }
        self.add_plain(decoded);
        Some(())
    }

    fn add_plain(&mut self, text: &[u8]) {
        let text = Zeroizing::new(text.to_ascii_lowercase());
        for line in text.split(u8::is_ascii_control) {
            for run in runs(line) {
                self.parts.extend(run.windows(PART).map(|part| self.hasher.hash_one(part)));
                // also a part of a word, such as the password of a URL
                let pieces = pieces(run).filter(|piece| core(piece).len() == piece.len());
                let words = pieces.chain(split(run).map(|(_, word)| word));
                let words = words.filter(|word| is_telling(word) && !is_common(word));
                self.words.extend(words.map(|word| self.hasher.hash_one(word)));
            }
        }
    }

    /// For each line, whether it may have a secret. A secret may be broken over two lines.
    pub(super) fn find_in(&self, lines: &[&str]) -> Vec<bool> {
        let mut hidden: Vec<bool> = lines.iter().map(|line| self.is_in(line)).collect();
        let mut all = Vec::new();
        let mut line_of = Vec::new();
        for (number, line) in lines.iter().enumerate() {
            all.extend(line.bytes().map(|byte| byte.to_ascii_lowercase()));
            line_of.resize(all.len(), number);
        }
        for (at, part) in all.windows(PART).enumerate() {
            if self.parts.contains(&self.hasher.hash_one(part)) {
                line_of[at..at + PART].iter().for_each(|number| hidden[*number] = true);
            }
        }
        hidden
    }

    fn is_in(&self, line: &str) -> bool {
        let lower = line.to_ascii_lowercase();
        SUSPICIOUS.iter().any(|part| lower.contains(part))
            || pieces(lower.as_bytes()).any(|piece| self.words.contains(&self.hasher.hash_one(piece)))
            || line.split(is_between_keys).any(looks_like_key)
    }
}

fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok() && !bytes.contains(&0)
}

/// The parts of a line between words that say nothing. Without this, `#cloud-config` alone would be a secret.
fn runs(line: &[u8]) -> Vec<&[u8]> {
    let mut runs = Vec::new();
    let mut begin = 0;
    for (at, word) in split(line).filter(|(_, word)| is_common(word)) {
        runs.push(&line[begin..at]);
        begin = at + word.len();
    }
    runs.push(&line[begin..]);
    runs
}

fn is_common(word: &[u8]) -> bool {
    COMMON.iter().any(|common| common.as_bytes() == word)
}

/// A word without signs at its ends.
fn core(word: &[u8]) -> &[u8] {
    let is_sign = |byte: &u8| byte.is_ascii_punctuation();
    let begin = word.iter().position(|byte| !is_sign(byte)).unwrap_or(word.len());
    let end = word.iter().rposition(|byte| !is_sign(byte)).map_or(begin, |at| at + 1);
    &word[begin..end]
}

fn is_telling(word: &[u8]) -> bool {
    let is_plain = core(word).iter().all(u8::is_ascii_alphabetic);
    word.len() >= if is_plain { MIN_PLAIN_WORD } else { MIN_WORD }
}

/// The short parts of a line, without blanks, that are not cut out of a row of letters and digits.
fn pieces(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_letter = |at: usize| line.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || !b.is_ascii());
    let is_edge = move |at: usize| at == 0 || !is_letter(at - 1) || !is_letter(at);
    let of_length = move |begin: usize, length: usize| {
        let piece = line.get(begin..begin + length).filter(|_| is_edge(begin + length))?;
        let has_blank = piece.iter().any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control());
        (!has_blank).then_some(piece)
    };
    let begins = (0..line.len()).filter(move |begin| is_edge(*begin));
    begins.flat_map(move |begin| (MIN_WORD..PART).filter_map(move |length| of_length(begin, length)))
}

/// The words of a text, with their places: what blanks, quotes and the signs between a key and a value
/// separate.
fn split(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let is_between = |b: &u8| {
        b.is_ascii_whitespace()
            || b.is_ascii_control()
            || matches!(b, b'"' | b'\'' | b'=' | b',' | b';' | b':' | b'(' | b')' | b'[' | b']' | b'{' | b'}')
    };
    let mut next = 0;
    let placed = text.split(is_between).map(move |word| {
        let at = next;
        next += word.len() + 1;
        (at, word)
    });
    placed.filter(|(_, word)| !word.is_empty())
}

/// What a run of the letters of Base64 is. `None` if it is not Base64.
fn decode(run: &[u8], alphabet: &Alphabet) -> Option<Zeroizing<Vec<u8>>> {
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    // A single last letter says nothing.
    let run = if run.len() % 4 == 1 { &run[..run.len() - 1] } else { run };
    GeneralPurpose::new(alphabet, config).decode(run).ok().map(Zeroizing::new)
}

/// A text in quotes, as JSON and YAML write it, without its backslashes.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(one) = chars.next() {
        match (one == '\\').then(|| chars.next()).flatten() {
            None => plain.push(one),
            Some('n' | 'r' | 't') => plain.push('\n'),
            Some('u') => {
                let digits: String = chars.by_ref().take(4).collect();
                plain.extend(u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32));
            }
            Some(other) => plain.push(other),
        }
    }
    plain
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
