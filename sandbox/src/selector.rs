//! Label and field selectors.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    resources::ResourceKind,
    status::{ApiError, ApiResult},
};

/// The parts of an object that selectors match, extracted once per version.
#[derive(Debug, Default, Clone)]
pub(crate) struct Selectable {
    labels: BTreeMap<String, String>,
    fields: BTreeMap<&'static str, String>,
    name: String,
    namespace: String,
}

impl Selectable {
    /// Extracts the labels, and the fields that the kind allows in selectors.
    pub(crate) fn of(kind: &ResourceKind, object: &Value) -> Self {
        let text = |value: Option<&Value>| match value {
            Some(Value::String(s)) => s.clone(),
            Some(Value::Bool(b)) => b.to_string(),
            Some(Value::Number(n)) => n.to_string(),
            _ => String::new(),
        };
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        let mut fields = BTreeMap::new();
        for field in kind.rules.fields {
            let value = match *field {
                "spec.unschedulable" => object
                    .pointer("/spec/unschedulable")
                    .and_then(Value::as_bool)
                    .unwrap_or(false)
                    .to_string(),
                // Core Events: if the component is empty, the reporting controller is used
                "source" => {
                    let component = text(object.pointer("/source/component"));
                    if component.is_empty() { text(object.get("reportingComponent")) } else { component }
                }
                path => text(object.pointer(&format!("/{}", path.replace('.', "/")))),
            };
            fields.insert(*field, value);
        }
        Self {
            labels: labels.into_iter().flatten().map(|(k, v)| (k.clone(), text(Some(v)))).collect(),
            fields,
            name: text(object.pointer("/metadata/name")),
            namespace: text(object.pointer("/metadata/namespace")),
        }
    }
}

impl Selectable {
    /// The object's storage key.
    pub(crate) fn key(&self) -> (String, String) {
        (self.namespace.clone(), self.name.clone())
    }
}

#[derive(Debug, Clone)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
    Greater(String, i64),
    Less(String, i64),
}

/// A label selector and a field selector; empty ones match everything.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    /// field, wanted value, equal (or not equal)
    fields: Vec<(String, String, bool)>,
    /// The namespace of the request; `None` means all.
    namespace: Option<String>,
}

impl Selector {
    /// Parses `labelSelector` and `fieldSelector`; 400 for bad syntax and for fields that the kind does not
    /// support.
    pub(crate) fn parse(
        kind: &ResourceKind,
        namespace: Option<&str>,
        labels: &str,
        fields: &str,
    ) -> ApiResult<Self> {
        let labels_parsed = parse_labels(labels)
            .map_err(|why| ApiError::bad_request(format!("unable to parse requirement: {why}")))?;
        let mut parsed = Vec::new();
        for term in fields.split(',').filter(|term| !term.is_empty()) {
            let (field, value, equal) = if let Some((k, v)) = term.split_once("!=") {
                (k, v, false)
            } else if let Some((k, v)) = term.split_once("==").or_else(|| term.split_once('=')) {
                (k, v, true)
            } else {
                return Err(ApiError::bad_request(format!(
                    "invalid selector: {fields:?}; can't understand {term:?}"
                )));
            };
            let stored = kind
                .rules
                .renames
                .iter()
                .find_map(|(stored, served)| {
                    let rest = field.strip_prefix(served)?;
                    (rest.is_empty() || rest.starts_with('.')).then(|| format!("{stored}{rest}"))
                })
                .unwrap_or_else(|| field.to_owned());
            let known = stored == "metadata.name"
                || (stored == "metadata.namespace" && kind.namespaced)
                || kind.rules.fields.contains(&stored.as_str());
            if !known {
                return Err(ApiError::bad_request(format!("field label not supported: {field}")));
            }
            parsed.push((stored, value.to_owned(), equal));
        }
        Ok(Self { labels: labels_parsed, fields: parsed, namespace: namespace.map(str::to_owned) })
    }

    /// Whether all objects of the namespace match.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Selectable) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| *namespace == object.namespace)
            && self.fields.iter().all(|(field, value, equal)| {
                let actual = match field.as_str() {
                    "metadata.name" => &object.name,
                    "metadata.namespace" => &object.namespace,
                    other => object.fields.get(other).unwrap_or(&object.name),
                };
                (actual == value) == *equal
            })
            && self.labels.iter().all(|requirement| match requirement {
                Requirement::In(key, values) => object.labels.get(key).is_some_and(|v| values.contains(v)),
                Requirement::NotIn(key, values) => object.labels.get(key).is_none_or(|v| !values.contains(v)),
                Requirement::Exists(key) => object.labels.contains_key(key),
                Requirement::Absent(key) => !object.labels.contains_key(key),
                Requirement::Greater(key, bound) => number(object, key).is_some_and(|n| n > *bound),
                Requirement::Less(key, bound) => number(object, key).is_some_and(|n| n < *bound),
            })
    }
}

fn number(object: &Selectable, key: &str) -> Option<i64> {
    object.labels.get(key)?.parse().ok()
}

/// Splits at commas outside parentheses.
fn terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, String> {
    let mut requirements = Vec::new();
    for term in terms(text).into_iter().map(str::trim).filter(|term| !term.is_empty()) {
        requirements.push(parse_term(term)?);
    }
    Ok(requirements)
}

fn parse_term(term: &str) -> Result<Requirement, String> {
    let key = |text: &str| {
        let text = text.trim();
        if text.is_empty() || text.contains(char::is_whitespace) {
            Err(format!("found {term:?}, expected: identifier"))
        } else {
            Ok(text.to_owned())
        }
    };
    let one = |text: &str| vec![text.trim().to_owned()];
    if let Some((left, right)) = term.split_once("!=") {
        return Ok(Requirement::NotIn(key(left)?, one(right)));
    }
    if let Some((left, right)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return Ok(Requirement::In(key(left)?, one(right)));
    }
    if let Some(rest) = term.strip_prefix('!') {
        return Ok(Requirement::Absent(key(rest)?));
    }
    if let Some((head, list)) = term.split_once('(') {
        let list = list.strip_suffix(')').ok_or_else(|| format!("found {term:?}, expected: ')'"))?;
        let values = list.split(',').map(|v| v.trim().to_owned()).collect();
        let head = head.trim();
        return match head.rsplit_once(char::is_whitespace) {
            Some((name, "in")) => Ok(Requirement::In(key(name)?, values)),
            Some((name, "notin")) => Ok(Requirement::NotIn(key(name)?, values)),
            _ => Err(format!("found {head:?}, expected: in, notin")),
        };
    }
    for (sign, greater) in [('>', true), ('<', false)] {
        if let Some((left, right)) = term.split_once(sign) {
            let bound = right.trim().parse().map_err(|_| format!("found {right:?}, expected: integer"))?;
            let left = key(left)?;
            return Ok(if greater {
                Requirement::Greater(left, bound)
            } else {
                Requirement::Less(left, bound)
            });
        }
    }
    key(term).map(Requirement::Exists)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn matches(labels: &str) -> bool {
        let kind = ResourceKind::new("", "v1", "Node", "nodes");
        let object = json!({"metadata": {"name": "n", "labels": {"zone": "a", "size": "3", "empty": ""}}});
        let selector = Selector::parse(&kind, None, labels, "").unwrap();
        selector.matches(&Selectable::of(&kind, &object))
    }

    #[test]
    fn label_selectors() {
        for yes in [
            "",
            "zone",
            "!other",
            "zone=a",
            "zone==a",
            "zone!=b",
            "zone in (a, b),size",
            "zone notin (b)",
            "size>2",
            "size<4",
            "empty=",
            "other!=x",
        ] {
            assert!(matches(yes), "{yes}");
        }
        for no in ["other", "!zone", "zone=b", "zone in (c)", "zone notin (a,b)", "size>3", "zone=a,other"] {
            assert!(!matches(no), "{no}");
        }
        let kind = ResourceKind::new("", "v1", "Node", "nodes");
        assert!(Selector::parse(&kind, None, "a b", "").is_err());
        assert!(Selector::parse(&kind, None, "", "spec.other=1").is_err());
    }
}
