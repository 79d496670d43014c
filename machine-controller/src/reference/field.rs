//! What a schema says about one field.

use std::fmt::Write as _;

use serde_json::Value;

/// Begins the sentence of a description that says what a missing field means.
const DEFAULT: &str = "Default: ";

/// Begins the line of a description about one of the words that a field may have.
const WORD: &str = "- ";

/// A field of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Field {
    /// As `kubectl explain` writes it, with `[]` behind lists: `spec.disks[].sizeGiB`.
    pub(super) path: String,
    /// Its type.
    pub(super) kind: String,
    /// Whether it must be there.
    pub(super) is_required: bool,
    /// What counts if it is not there.
    pub(super) default: String,
    /// What its value must be like.
    pub(super) limits: Vec<String>,
    /// Rules in CEL, in their own words.
    pub(super) rules: Vec<String>,
    /// What it means.
    pub(super) meaning: String,
}

impl Field {
    /// Its own name, at the end of the path.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    /// How many fields it is in.
    pub(super) fn depth(&self) -> usize {
        self.path.matches('.').count()
    }
}

/// The field with this path and schema, and the fields in it. None if there is no schema.
pub(super) fn fields(path: &str, schema: &Value) -> Vec<Field> {
    let mut all = Vec::new();
    if schema.is_object() {
        collect(path, schema, false, &mut all);
    }
    all
}

fn collect(path: &str, schema: &Value, is_required: bool, all: &mut Vec<Field>) {
    let about = schema["description"].as_str().unwrap_or_default();
    let (meaning, default) = take_default(about);
    let mut field = Field {
        path: path.to_owned(),
        kind: kind(schema),
        is_required,
        default: scalar(&schema["default"]).unwrap_or(default),
        limits: limits(schema),
        rules: rules(schema),
        meaning,
    };
    // What is inside of a list or a map has no row of its own.
    let mut inner = (path.to_owned(), schema);
    while let Some((mark, items)) = items(inner.1) {
        inner = (format!("{}{mark}", inner.0), items);
        field.limits.extend(limits(items).into_iter().map(|limit| format!("each {limit}")));
        field.rules.extend(rules(items));
    }
    all.push(field);
    let (path, schema) = inner;
    let required = schema["required"].as_array();
    for (name, of_field) in schema["properties"].as_object().into_iter().flatten() {
        let is_required = required.is_some_and(|names| names.iter().any(|one| one == name));
        collect(&format!("{path}.{name}"), of_field, is_required, all);
    }
}

/// The schema of the items of a list, or of the values of a map, and how a path says so.
fn items(schema: &Value) -> Option<(&'static str, &Value)> {
    let places = [("[]", &schema["items"]), ("{}", &schema["additionalProperties"])];
    places.into_iter().find(|(_, items)| items.is_object())
}

/// The type, in words.
fn kind(schema: &Value) -> String {
    let word = schema["type"].as_str().unwrap_or("any");
    match items(schema) {
        Some((mark, items)) => {
            let plural = match kind(items) {
                of if of.contains(" of ") => of,
                of => of.strip_suffix('y').map_or_else(|| format!("{of}s"), |stem| format!("{stem}ies")),
            };
            format!("{} of {plural}", if mark == "[]" { "list" } else { "map" })
        }
        None if schema["x-kubernetes-int-or-string"] == true => "quantity".to_owned(),
        None if schema["format"] == "date-time" => "time".to_owned(),
        None => word.to_owned(),
    }
}

fn limits(schema: &Value) -> Vec<String> {
    let mut all = Vec::new();
    let words: Vec<_> = schema["enum"].as_array().into_iter().flatten().filter_map(scalar).collect();
    if !words.is_empty() {
        all.push(words.join(", "));
    }
    let ranges = [
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
        ("minProperties", "maxProperties", " fields"),
    ];
    for (min, max, of) in ranges {
        let of = if schema["type"] == "object" && !schema["additionalProperties"].is_null() {
            " entries"
        } else {
            of
        };
        let (min, max) = (number(&schema[min]), number(&schema[max]));
        all.extend(match (min, max) {
            (Some(min), Some(max)) if min == max => Some(format!("{min}{of}")),
            (Some(min), Some(max)) => Some(format!("{min} to {max}{of}")),
            (Some(min), None) => Some(format!("at least {min}{of}")),
            (None, Some(max)) => Some(format!("at most {max}{of}")),
            (None, None) => None,
        });
    }
    // The pattern of quantities says nothing to people.
    if schema["x-kubernetes-int-or-string"] != true {
        all.extend(schema["pattern"].as_str().map(|pattern| format!("`{pattern}`")));
    }
    all
}

/// The numbers of schemas are floats, whole ones here.
fn number(value: &Value) -> Option<String> {
    value.as_f64().map(|number| number.to_string())
}

fn rules(schema: &Value) -> Vec<String> {
    let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
    let said = |rule: &Value| rule["message"].as_str().or(rule["rule"].as_str()).map(str::to_owned);
    rules.filter_map(said).collect()
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(format!("`{text}`")),
        Value::Bool(_) | Value::Number(_) => Some(format!("`{value}`")),
        _ => None,
    }
}

/// Takes the sentence about the default out of a description. Returns the rest, with a line for each word, and what the
/// sentence says.
fn take_default(about: &str) -> (String, String) {
    let mut text = String::new();
    for line in about.lines() {
        let separator = if text.is_empty() { "" } else { " " };
        let _ = match line.strip_prefix(WORD).map(|rest| rest.split_once(": ").unwrap_or((rest, ""))) {
            Some((word, about)) => write!(text, "\n`{word}`: {about}"),
            None => write!(text, "{separator}{line}"),
        };
    }
    let Some(start) = text.find(DEFAULT) else { return (text, String::new()) };
    let said = &text[start + DEFAULT.len()..];
    let line = said.find('\n').unwrap_or(said.len());
    let end = said[..line].find(". ").map_or(line, |end| end + 1);
    let default = said[..end].trim_end_matches('.').to_owned();
    let rest = said[end..].trim_start_matches(' ');
    let before = text[..start].trim_end();
    let between = if before.is_empty() || rest.is_empty() || rest.starts_with('\n') { "" } else { " " };
    (format!("{before}{between}{rest}"), default)
}
