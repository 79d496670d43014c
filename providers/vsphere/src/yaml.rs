//! YAML as a tree that keeps every scalar as it was written.
//!
//! A reader that turns scalars into numbers and truth values first has lost the text of a password such as `1e5` or
//! `007`. Go's YAML library decides by what is wanted, and so is it here: [`Node::text`], [`Node::flag`],
//! [`Node::number`].

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, ScanError};

/// More nodes than this, aliases counted as what they stand for, are no configuration.
const MOST_NODES: usize = 100_000;

/// Deeper nesting than this is no configuration either.
const DEEPEST: usize = 64;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// Nothing, `~` or `null`.
    Null,
    /// Any other scalar, with whether it stood in quotes or in a block.
    Scalar {
        text: String,
        is_quoted: bool,
    },
    List(Vec<Self>),
    /// In the order of the text; a key may stand there twice.
    Mapping(Vec<(String, Self)>),
}

/// A text that is no YAML: where, and why in fixed words that hold nothing of the text.
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
    /// Reads the first document of `text`; an empty one is [`Null`](Self::Null).
    pub(crate) fn parse(text: &str) -> Result<Self, YamlFault> {
        let mut builder = Builder::default();
        for step in Parser::new_from_str(text) {
            let (event, span) = step.map_err(|error| syntax_fault(&error))?;
            let outcome = match event {
                Event::Scalar(text, style, anchor, _) => builder.add(scalar(&text, style), anchor),
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
        Ok(builder.root.unwrap_or(Self::Null))
    }

    /// The text of a scalar, as written. `None` for lists, mappings and nothing.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// A truth value, in the words of YAML 1.1.
    pub(crate) fn flag(&self) -> Option<bool> {
        match self.text()? {
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Some(true),
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
                Some(false)
            }
            _ => None,
        }
    }

    /// A whole number that is not negative, in the notations of YAML 1.1: decimal, `0x`, `0b`, `0o`, octal with a
    /// leading zero, and with underscores.
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
        digits.bytes().all(|b| b.is_ascii_alphanumeric()).then(|| u64::from_str_radix(digits, radix).ok())?
    }

    /// What it is, in words that never hold the value itself.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "empty",
            Self::Scalar { .. } => "a single value",
            Self::List(_) => "a list",
            Self::Mapping(_) => "a mapping",
        }
    }

    /// The value of a key of a mapping, the last one where it stands twice.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Mapping(entries) => {
                entries.iter().rev().find(|(name, _)| name == key).map(|(_, node)| node)
            }
            _ => None,
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

fn scalar(text: &str, style: ScalarStyle) -> Node {
    let is_quoted = style != ScalarStyle::Plain;
    if !is_quoted && matches!(text, "" | "~" | "null" | "Null" | "NULL") {
        return Node::Null;
    }
    Node::Scalar { text: text.to_owned(), is_quoted }
}

/// What has been read so far.
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
    /// The key that waits for its value.
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
            Some(Open { node: Node::Mapping(entries), anchor, .. }) => self.add(merged(entries), anchor),
            Some(Open { node, anchor, .. }) => self.add(node, anchor),
            None => Ok(()),
        }
    }

    fn alias(&mut self, anchor: usize) -> Result<(), &'static str> {
        let node = self.anchors.get(&anchor).cloned().ok_or("not valid YAML: an alias (*) of nothing")?;
        self.nodes += node.count();
        self.add(node, 0)
    }

    /// Puts a whole node where it belongs. Anchor 0 is none.
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

/// Applies the merge key `<<` of YAML 1.1: what stands in the mapping itself wins.
fn merged(entries: Vec<(String, Node)>) -> Node {
    if !entries.iter().any(|(key, _)| key == "<<") {
        return Node::Mapping(entries);
    }
    let (merges, mut entries): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(key, _)| key == "<<");
    for (_, merge) in merges {
        let sources = match merge {
            Node::List(items) => items,
            other => vec![other],
        };
        for source in sources {
            if let Node::Mapping(additions) = source {
                for (key, node) in additions {
                    if !entries.iter().any(|(known, _)| *known == key) {
                        entries.push((key, node));
                    }
                }
            }
        }
    }
    Node::Mapping(entries)
}

fn syntax_fault(error: &ScanError) -> YamlFault {
    let words = error.info();
    let has = |part: &str| words.contains(part);
    let why = if has("tabs disallowed") || has("found a tab") {
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
    } else {
        "not valid YAML"
    };
    YamlFault { why, line: error.marker().line(), column: error.marker().col() + 1 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Node {
        Node::parse(text).unwrap_or_else(|fault| panic!("{text:?}: {fault}"))
    }

    #[test]
    fn scalars_keep_their_text() {
        for text in
            ["007", "1e5", "0x1F", "1.10", ".inf", "yes", "2026-01-01", "1_000", "+5", "12345678901234567890"]
        {
            assert_eq!(parse(&format!("a: {text}")).get("a").and_then(Node::text), Some(text));
        }
        for text in ["", "~", "null", "NULL"] {
            assert_eq!(parse(&format!("a: {text}")).get("a"), Some(&Node::Null), "{text:?}");
        }
        assert_eq!(parse("a: 'null'").get("a").and_then(Node::text), Some("null"));
        assert_eq!(parse("a: |\n  b\n  c\n").get("a").and_then(Node::text), Some("b\nc\n"));
        assert_eq!(parse(""), Node::Null);
        assert_eq!(parse("# nothing\n---\n"), Node::Null);
    }

    #[test]
    fn truth_and_numbers_as_in_yaml_1_1() {
        let node = |text: &str| Node::Scalar { text: text.to_owned(), is_quoted: false };
        for (text, expected) in [("true", true), ("Yes", true), ("on", true), ("n", false), ("FALSE", false)]
        {
            assert_eq!(node(text).flag(), Some(expected), "{text}");
        }
        for text in ["1", "0", "tRue", "t", ""] {
            assert_eq!(node(text).flag(), None, "{text}");
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
        ] {
            assert_eq!(node(text).number(), Some(expected), "{text}");
        }
        for text in ["-1", "", "4.5", "0x", "x", "++1", "08", "99999999999999999999", "1e3"] {
            assert_eq!(node(text).number(), None, "{text}");
        }
    }

    #[test]
    fn anchors_merges_and_duplicates() {
        let tree = parse("base: &b {x: 1, y: 2}\na: {<<: *b, y: 3}\nl: [*b, z]\nx: 1\nx: 2\n");
        let of_a = |key| tree.get("a").and_then(|a| a.get(key)).and_then(Node::text);
        assert_eq!((of_a("x"), of_a("y"), of_a("<<")), (Some("1"), Some("3"), None));
        assert_eq!(tree.get("x").and_then(Node::text), Some("2"));
        assert!(matches!(tree.get("l"), Some(Node::List(items)) if items.len() == 2));
        assert_eq!(parse("a: 1\n---\nb: 2\n").get("b"), None);
    }

    #[test]
    fn bombs_are_refused() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..9 {
            let refs = vec![format!("*a{}", i - 1); 10].join(", ");
            bomb = [bomb, format!("a{i}: &a{i} [{refs}]\n")].concat();
        }
        assert!(Node::parse(&bomb).is_err());
        assert!(Node::parse(&"[".repeat(10_000)).is_err());
        assert!(Node::parse(&format!("{}{}", "[".repeat(80), "]".repeat(80))).is_err());
    }

    #[test]
    fn faults_tell_the_place_and_nothing_of_the_text() {
        for (text, expected) in [
            ("a:\n\tb: 1\n", "not valid YAML: a tab; indent with spaces (line 2, column 2)"),
            ("a: {hunter2: c\n", "not valid YAML: a bracket is not closed (line 1, column 4)"),
            ("{[a]: b}", "has a key that is a list or a mapping (line 1, column 4)"),
        ] {
            assert_eq!(Node::parse(text).expect_err(text).to_string(), expected);
        }
        for text in ["a: hunter2: x", "a: *hunter2", "a: 'hunter2", "a: \"\\qhunter2\"", "a: @hunter2"] {
            let fault = Node::parse(text).expect_err(text).to_string();
            assert!(!fault.contains("hunter2"), "{fault}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(?s).{0,200}") {
            let _ = Node::parse(&text).map(|node| (node.flag(), node.number(), node.count()));
        }

        #[test]
        fn nothing_panics_near_the_format(text in "[a-c:{}\\[\\],&*<\n '\"-]{0,80}") {
            let _ = Node::parse(&text);
        }
    }
}
