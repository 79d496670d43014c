//! YAML as a tree, read in two ways.
//!
//! [`Node::parse`] keeps every scalar as it was written. A reader that first turns scalars into numbers and booleans loses the text
//! of a password such as `1e5` or `007`. Go's YAML library decides by the wanted type, so files that Go's programs read too are
//! read like this, with their duplicate keys and merges.
//!
//! [`Node::strict`] is for files of our own: a number that is meant as a text is in quotes, and a key stands once.

use std::{borrow::Cow, collections::HashMap};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cloudprovider::{kind_of_value, yaml_fault_cause, yaml_syntax_fault};
use granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag};
use serde_json::Value;

/// The limit on the number of nodes. An alias counts as much as the nodes that it stands for.
const MOST_NODES: usize = 100_000;

/// The limit on nesting.
const DEEPEST: usize = 64;

/// The prefix that `!!` stands for.
const CORE_TAGS: &str = "tag:yaml.org,2002:";

/// A value.
#[derive(Clone, PartialEq, Eq)]
pub enum Node {
    /// No value, `~` or `null`.
    Null,
    /// Any other scalar.
    Scalar {
        /// As written, without quotes and escapes.
        text: String,
        /// Whether a comment follows whose sign touches its first word (`ab #cd`): the sign may have been
        /// meant as a part of the text.
        is_cut: bool,
    },
    /// A number or boolean. Only [`strict`](Self::strict) tells them from other scalars.
    Typed(Value),
    /// In their order.
    List(Vec<Self>),
    /// In the order of the text. A key may occur twice.
    Mapping(Vec<(String, Self)>),
}

/// Why a text is not valid YAML, and where. The message is fixed and contains none of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why} (line {line}, column {column})")]
pub struct YamlFault {
    /// What is wrong.
    pub why: &'static str,
    /// From 1.
    pub line: usize,
    /// From 1.
    pub column: usize,
}

impl std::fmt::Debug for Node {
    /// Leaves the values out: they may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kind())
    }
}

impl YamlFault {
    /// The fault with its probable cause in the text.
    pub fn in_text(&self, text: &str) -> String {
        match yaml_fault_cause(text, self.line) {
            Some(cause) => format!("{self}; {cause}"),
            None => self.to_string(),
        }
    }
}

/// Reads a text as a value, with numbers and booleans as the notation makes them. A duplicate key and a second document are faults.
///
/// # Errors
/// What is wrong, and where. It contains none of the text.
pub fn strict_value(text: &str) -> Result<Value, String> {
    // The library's own words may quote the text, which may hold a secret. So only the place is shown.
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options::<Value>(text, options).map_err(|error| {
        let why = if matches!(error.without_snippet(), serde_saphyr::Error::DuplicateMappingKey { .. }) {
            "the same key stands twice"
        } else {
            yaml_syntax_fault(&error.without_snippet().to_string())
        };
        let place = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        error.location().map_or_else(
            || why.to_owned(),
            |at| YamlFault { why, line: place(at.line()), column: place(at.column()) }.in_text(text),
        )
    })
}

impl From<Value> for Node {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::String(text) => Self::Scalar { text, is_cut: false },
            typed @ (Value::Bool(_) | Value::Number(_)) => Self::Typed(typed),
            Value::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            Value::Object(entries) => {
                Self::Mapping(entries.into_iter().map(|(key, value)| (key, value.into())).collect())
            }
        }
    }
}

impl Node {
    /// Reads a text as [`strict_value`] does.
    ///
    /// # Errors
    /// What is wrong, and where. It contains none of the text.
    pub fn strict(text: &str) -> Result<Self, String> {
        strict_value(text).map(Self::from)
    }

    /// The entries of a mapping. Null has none.
    ///
    /// # Errors
    /// The node itself, if it is neither.
    pub fn into_entries(self) -> Result<Vec<(String, Self)>, Self> {
        match self {
            Self::Mapping(entries) => Ok(entries),
            Self::Null => Ok(Vec::new()),
            other => Err(other),
        }
    }

    /// Reads the first document of `text`. An empty one is [`Null`](Self::Null).
    ///
    /// # Errors
    /// The first fault.
    pub fn parse(text: &str) -> Result<Self, YamlFault> {
        Self::parse_first(text).map(|(root, _)| root)
    }

    /// Like [`parse`](Self::parse), and also tells whether more documents follow.
    ///
    /// # Errors
    /// The first fault.
    pub fn parse_first(text: &str) -> Result<(Self, bool), YamlFault> {
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
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The kind of node, for messages. Never contains the value.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "empty",
            Self::Scalar { .. } => "a single value",
            Self::Typed(value) => kind_of_value(value),
            Self::List(_) => "a list",
            Self::Mapping(_) => "a mapping",
        }
    }

    /// The value of a key of a mapping; the last one if the key occurs twice.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Mapping(entries) => {
                entries.iter().rev().find(|(name, _)| name == key).map(|(_, node)| node)
            }
            _ => None,
        }
    }

    /// The same tree, with scalars that are not typed as texts. Of a key that occurs twice, the last value counts.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Scalar { text, .. } => text.clone().into(),
            Self::Typed(value) => value.clone(),
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
            Self::Null | Self::Scalar { .. } | Self::Typed(_) => 0,
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
