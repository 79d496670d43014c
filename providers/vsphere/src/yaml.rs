//! YAML as a tree that keeps every scalar as it was written.
//!
//! A reader that first turns scalars into numbers and booleans loses the text of a password such as `1e5` or
//! `007`. Go's YAML library decides by the wanted type, and so does this one: [`Node::text`], [`Node::flag`],
//! [`Node::number`].

use std::{borrow::Cow, collections::HashMap};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cloudprovider::yaml_syntax_fault;
use granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag};

/// The limit on the number of nodes. An alias counts as much as the nodes that it stands for.
const MOST_NODES: usize = 100_000;

/// The limit on nesting.
const DEEPEST: usize = 64;

/// The prefix that `!!` stands for.
const CORE_TAGS: &str = "tag:yaml.org,2002:";

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// No value, `~` or `null`.
    Null,
    /// Any other scalar.
    Scalar {
        text: String,
        /// Whether a comment follows whose sign touches its first word (`ab #cd`): the sign may have been
        /// meant as a part of the text.
        is_cut: bool,
    },
    List(Vec<Self>),
    /// In the order of the text. A key may occur twice.
    Mapping(Vec<(String, Self)>),
}

/// Why a text is not valid YAML, and where. The message is fixed and contains none of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why} (line {line}, column {column})")]
pub(crate) struct YamlFault {
    pub(crate) why: &'static str,
    /// From 1.
    pub(crate) line: usize,
    /// From 1.
    pub(crate) column: usize,
}

impl Node {
    /// Reads the first document of `text`. An empty one is [`Null`](Self::Null).
    pub(crate) fn parse(text: &str) -> Result<Self, YamlFault> {
        Self::parse_first(text).map(|(root, _)| root)
    }

    /// Like [`parse`](Self::parse), and also tells whether more documents follow.
    pub(crate) fn parse_first(text: &str) -> Result<(Self, bool), YamlFault> {
        let lines = Lines(text.lines().collect());
        let mut builder = Builder::default();
        let mut parser = Parser::new_from_str(text);
        for step in parser.by_ref() {
            let (event, span) = step.map_err(|error| syntax_fault(&error))?;
            let outcome = match event {
                Event::Scalar(text, style, anchor, tag) => scalar(&text, style, tag.as_ref())
                    .map(|node| lines.marked(node, style, &span.end))
                    .and_then(|node| builder.add(node, anchor)),
                Event::SequenceStart(_, anchor, _) => builder.open(Self::List(Vec::new()), anchor),
                Event::MappingStart(_, anchor, _) => builder.open(Self::Mapping(Vec::new()), anchor),
                Event::SequenceEnd | Event::MappingEnd => builder.close(),
                Event::Alias(anchor) => builder.alias(anchor),
                Event::DocumentEnd => break,
                _ => Ok(()),
            };
            outcome.map_err(|why| YamlFault {
                why,
                line: span.start.line(),
                column: span.start.col() + 1,
            })?;
        }
        let begins = parser.any(|step| matches!(step, Ok((Event::DocumentStart(..), _)) | Err(_)));
        let has_more = begins
            && !matches!(parser.next(), Some(Ok((Event::Scalar(text, ..), _))) if matches!(&*text, "" | "~"));
        Ok((builder.root.unwrap_or(Self::Null), has_more))
    }

    /// The text of a scalar, as written. `None` for lists, mappings and null.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// A boolean, in the words of YAML 1.1.
    pub(crate) fn flag(&self) -> Option<bool> {
        match self.text()? {
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Some(true),
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
                Some(false)
            }
            _ => None,
        }
    }

    /// A whole number that is not negative, in the notations of YAML 1.1: decimal, `0x`, `0b`, `0o`, octal
    /// with a leading zero, and with underscores. Also a decimal fraction with a whole value: `443.0`, `1e3`,
    /// `089`.
    pub(crate) fn number(&self) -> Option<u64> {
        let text = self.text()?.replace('_', "");
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

    /// The kind of node, for messages. Never contains the value.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "empty",
            Self::Scalar { .. } => "a single value",
            Self::List(_) => "a list",
            Self::Mapping(_) => "a mapping",
        }
    }

    /// The value of a key of a mapping; the last one if the key occurs twice.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Mapping(entries) => {
                entries.iter().rev().find(|(name, _)| name == key).map(|(_, node)| node)
            }
            _ => None,
        }
    }

    /// The same tree with every scalar as a text. Of a key that occurs twice, the last value counts.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Null => serde_json::Value::Null,
            Self::Scalar { text, .. } => text.clone().into(),
            Self::List(items) => items.iter().map(Self::to_json).collect(),
            Self::Mapping(entries) => {
                entries.iter().map(|(key, node)| (key.clone(), node.to_json())).collect()
            }
        }
    }

    fn count(&self) -> usize {
        1 + match self {
            Self::List(items) => items.iter().map(Self::count).sum::<usize>(),
            Self::Mapping(entries) => entries.iter().map(|(_, node)| 1 + node.count()).sum(),
            Self::Null | Self::Scalar { .. } => 0,
        }
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Cow<'_, Tag>>) -> Result<Node, &'static str> {
    // a tag that is written out is all in the suffix
    let tag = tag.map(|tag| format!("{}{}", tag.handle(), tag.suffix()));
    let core = tag.as_deref().and_then(|tag| tag.strip_prefix(CORE_TAGS));
    let is_plain = style == ScalarStyle::Plain;
    let text = match core {
        Some("binary") => decoded(text)?,
        Some("null") => return Ok(Node::Null),
        // a local tag, as before a password that begins with an exclamation mark, has no effect on an empty
        // text
        Some("str") if !text.is_empty() => text.to_owned(),
        _ if is_plain && matches!(text, "" | "~" | "null" | "Null" | "NULL") => return Ok(Node::Null),
        _ => text.to_owned(),
    };
    Ok(Node::Scalar { text, is_cut: false })
}

/// Decodes a `!!binary` text. As in Go, line breaks are skipped, and no other character is.
fn decoded(text: &str) -> Result<String, &'static str> {
    let bytes = STANDARD.decode(text.replace(['\n', '\r'], "")).map_err(|_| "is !!binary, and not base64")?;
    String::from_utf8(bytes).map_err(|_| "is !!binary, and what it holds is not UTF-8")
}

/// The text, to find out what follows a value.
struct Lines<'a>(Vec<&'a str>);

impl Lines<'_> {
    /// Longer lines are skipped: they were not written by hand.
    const LONGEST: usize = 1000;

    /// Marks a scalar that ends here if a comment may have cut it.
    fn marked(&self, node: Node, style: ScalarStyle, end: &Marker) -> Node {
        let Node::Scalar { text, .. } = node else { return node };
        let is_cut = style == ScalarStyle::Plain
            && self.line(end.line()).is_some_and(|line| {
                let behind = line.chars().skip(end.col()).collect::<String>();
                let mut comment = behind.trim_start().chars();
                comment.next() == Some('#') && comment.next().is_some_and(|c| !c.is_whitespace() && c != '#')
            });
        Node::Scalar { text, is_cut }
    }

    /// A line, counting from 1.
    fn line(&self, number: usize) -> Option<&str> {
        self.0.get(number.checked_sub(1)?).copied().filter(|line| line.len() <= Self::LONGEST)
    }
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

/// The nodes read so far.
#[derive(Default)]
struct Builder {
    root: Option<Node>,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

/// A list or mapping that is being read.
struct Open {
    node: Node,
    anchor: usize,
    /// The key whose value comes next.
    key: Option<String>,
}

impl Builder {
    fn open(&mut self, node: Node, anchor: usize) -> Result<(), &'static str> {
        if self.open.len() >= DEEPEST {
            return Err("is nested too deeply");
        }
        self.open.push(Open { node, anchor, key: None });
        Ok(())
    }

    fn close(&mut self) -> Result<(), &'static str> {
        match self.open.pop() {
            Some(Open { node: Node::Mapping(entries), anchor, .. }) => {
                let node = merged(entries)?;
                self.add(node, anchor)
            }
            Some(Open { node, anchor, .. }) => self.add(node, anchor),
            None => Ok(()),
        }
    }

    fn alias(&mut self, anchor: usize) -> Result<(), &'static str> {
        let node = self.anchors.get(&anchor).cloned().ok_or("not valid YAML: an alias (*) of nothing")?;
        self.nodes += node.count();
        self.add(node, 0)
    }

    /// Adds a complete node to its parent. Anchor 0 means none.
    fn add(&mut self, node: Node, anchor: usize) -> Result<(), &'static str> {
        self.nodes += 1;
        if self.nodes > MOST_NODES {
            return Err("holds too many values");
        }
        if anchor > 0 {
            self.nodes += node.count();
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open { node: Node::Mapping(entries), key, .. }) => match key.take() {
                Some(key) => entries.push((key, node)),
                None => match node {
                    Node::Scalar { text, .. } => *key = Some(text),
                    Node::Null => *key = Some(String::new()),
                    _ => return Err("has a key that is a list or a mapping"),
                },
            },
            Some(Open { node: Node::List(items), .. }) => items.push(node),
            Some(_) => {}
        }
        Ok(())
    }
}

/// Applies the merge key `<<` of YAML 1.1 as Go's library does. Between the mapping's own values and merged
/// ones, the later one wins. Between several that are merged by one `<<`, the first one wins.
fn merged(entries: Vec<(String, Node)>) -> Result<Node, &'static str> {
    const WANTS_MAPPING: &str = "not valid YAML: << needs a mapping, or a list of mappings";
    if !entries.iter().any(|(key, _)| key == "<<") {
        return Ok(Node::Mapping(entries));
    }
    // entries, and whether each was merged in
    let mut all: Vec<(String, Node, bool)> = Vec::with_capacity(entries.len());
    for (key, node) in entries {
        if key != "<<" {
            // A merged value is replaced. A mapping's own key that occurs twice is kept, and reported
            // elsewhere.
            all.retain(|(known, _, is_merged)| !(*is_merged && *known == key));
            all.push((key, node, false));
            continue;
        }
        let sources = match node {
            Node::List(items) => items,
            other => vec![other],
        };
        for source in sources.into_iter().rev() {
            let Node::Mapping(additions) = source else { return Err(WANTS_MAPPING) };
            for (key, node) in additions {
                all.retain(|(known, ..)| *known != key);
                all.push((key, node, true));
            }
        }
    }
    Ok(Node::Mapping(all.into_iter().map(|(key, node, _)| (key, node)).collect()))
}

fn syntax_fault(error: &ScanError) -> YamlFault {
    let why = yaml_syntax_fault(&error.info());
    YamlFault { why, line: error.marker().line(), column: error.marker().col() + 1 }
}

#[cfg(test)]
mod tests;
