//! Objects as YAML for people to read.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// The key of a mapping under which a comment on the mapping is stored. It is not part of the object.
pub const COMMENT: &str = "#";

/// Keys that come first, in this order. The others follow in alphabetical order.
const FIRST: [&str; 6] = ["apiVersion", "kind", "metadata", "type", "name", "namespace"];

/// Several objects as one YAML stream.
pub fn stream<'v>(objects: impl IntoIterator<Item = &'v Value>) -> String {
    let texts: Vec<String> = objects.into_iter().map(document).collect();
    texts.join("---\n")
}

/// One object.
pub fn document(object: &Value) -> String {
    let mut out = String::new();
    if is_flow(object) {
        let _ = writeln!(out, "{}", flow(object));
    } else {
        block(&mut out, object, 0, true);
    }
    out
}

/// The object without the comments.
#[must_use]
pub fn without_comments(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .filter(|(key, _)| *key != COMMENT)
                .map(|(key, value)| (key.clone(), without_comments(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(without_comments).collect()),
        scalar => scalar.clone(),
    }
}

/// Writes a mapping or a list whose lines begin at `indent`. With `indented` false, the first line has
/// already begun.
fn block(out: &mut String, value: &Value, indent: usize, mut indented: bool) {
    let mut begin = |out: &mut String| {
        if indented {
            out.extend(std::iter::repeat_n(' ', indent));
        }
        indented = true;
    };
    match value {
        Value::Object(fields) => {
            for key in keys(fields) {
                begin(out);
                out.push_str(&scalar(key));
                out.push(':');
                field(out, &fields[key], indent);
            }
        }
        Value::Array(items) => {
            for item in items {
                if let Some(Value::String(comment)) = item.get(COMMENT) {
                    begin(out);
                    let _ = writeln!(out, "# {comment}");
                }
                begin(out);
                out.push('-');
                if is_flow(item) {
                    let _ = writeln!(out, " {}", flow(item));
                } else {
                    out.push(' ');
                    block(out, item, indent + 2, false);
                }
            }
        }
        other => {
            begin(out);
            let _ = writeln!(out, "{}", flow(other));
        }
    }
}

/// Writes what follows a key and its colon.
fn field(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::String(text) if text.contains('\n') && is_plain_text(text) => literal(out, text, indent + 2),
        value if is_flow(value) => {
            let _ = writeln!(out, " {}", flow(value));
        }
        Value::Object(fields) => {
            out.push('\n');
            if let Some(Value::String(comment)) = fields.get(COMMENT) {
                out.extend(std::iter::repeat_n(' ', indent + 2));
                let _ = writeln!(out, "# {comment}");
            }
            block(out, value, indent + 2, true);
        }
        list => {
            out.push('\n');
            // Kubernetes' own style: the dashes of a list are in the same column as its key.
            block(out, list, indent, true);
        }
    }
}

fn keys(fields: &Map<String, Value>) -> Vec<&String> {
    let mut keys: Vec<&String> = fields.keys().filter(|key| *key != COMMENT).collect();
    keys.sort_by_key(|key| (FIRST.iter().position(|first| first == key).unwrap_or(FIRST.len()), *key));
    keys
}

/// Whether the value is written on one line: scalars, empty values, and short lists of scalars.
fn is_flow(value: &Value) -> bool {
    /// Longer than any list of verbs, shorter than a command line.
    const SHORT: usize = 60;
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => {
            items.iter().all(|item| !item.is_object() && !item.is_array()) && flow(value).len() <= SHORT
        }
        _ => true,
    }
}

fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// A text, in quotes unless every version of YAML reads it as a string without them. JSON's quotes are valid
/// in YAML.
fn scalar(text: &str) -> String {
    let is_word = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
    let is_flag = text.starts_with("--")
        && text[2..].starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=".contains(c));
    let means_something = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word));
    if (is_word && !means_something) || is_flag { text.to_owned() } else { Value::from(text).to_string() }
}

fn is_plain_text(text: &str) -> bool {
    !text.starts_with([' ', '\n', '\t'])
        && text.chars().all(|c| {
            c == '\n' || (!c.is_control() && !matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}'))
        })
}

/// A text of several lines, as a literal block.
fn literal(out: &mut String, text: &str, indent: usize) {
    let body = text.trim_end_matches('\n');
    let chomping = match text.len() - body.len() {
        0 => "-",
        1 => "",
        _ => "+",
    };
    let _ = writeln!(out, " |{chomping}");
    let kept = if chomping == "+" { &text[..text.len() - 1] } else { body };
    for line in kept.split('\n') {
        if !line.is_empty() {
            out.extend(std::iter::repeat_n(' ', indent));
            out.push_str(line);
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Value {
        serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error} in\n{text}"))
    }

    #[test]
    fn looks_as_people_write_it() {
        let object = json!({
            "kind": "Role",
            "apiVersion": "v1",
            "rules": [
                {"#": "why", "resources": ["nodes"], "verbs": ["get", "*"]},
                {"resources": [], "verbs": ["watch"]},
            ],
            "spec": {"#": "a comment", "on": "true", "port": 10258, "args": ["--a=b", "-"], "none": {}},
            "metadata": {"name": "x", "annotations": {"a/b": "1"}},
        });
        let text = document(&object);
        assert_eq!(
            text,
            "apiVersion: v1\n\
             kind: Role\n\
             metadata:\n\
             \x20 name: x\n\
             \x20 annotations:\n\
             \x20   a/b: \"1\"\n\
             rules:\n\
             # why\n\
             - resources: [nodes]\n\
             \x20 verbs: [get, \"*\"]\n\
             - resources: []\n\
             \x20 verbs: [watch]\n\
             spec:\n\
             \x20 # a comment\n\
             \x20 args: [--a=b, \"-\"]\n\
             \x20 none: {}\n\
             \x20 \"on\": \"true\"\n\
             \x20 port: 10258\n"
        );
        assert_eq!(read(&text), without_comments(&object));
    }

    #[test]
    fn several_lines_are_a_literal_block() {
        for text in [
            "a:\n  b: 1\n",
            "a\nb",
            "a\n\n",
            "a\n\n\nb\n\n\n",
            "a:\tb\r\nc",
            "\n",
            " a\nb",
            "a\u{85}\nb",
            "# a\n# b\n",
        ] {
            let object = json!({"data": {"file": text, "next": 1}});
            assert_eq!(read(&document(&object)), object, "{text:?} in\n{}", document(&object));
        }
        assert_eq!(document(&json!({"file": "a: 1\nb: 2\n"})), "file: |\n  a: 1\n  b: 2\n");
    }

    fn any_object() -> impl Strategy<Value = Value> {
        let scalar = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[ -~\n\t\u{e9}\u{85}]{0,12}".prop_map(Value::from),
            prop_oneof![Just("yes"), Just("~"), Just("1e3"), Just("0x1"), Just("a: b"), Just("---")]
                .prop_map(Value::from),
        ];
        scalar.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z ]{1,6}", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read_back(object in any_object()) {
            prop_assert_eq!(read(&document(&object)), object);
        }
    }
}
