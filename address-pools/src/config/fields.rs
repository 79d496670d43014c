//! A reader for one mapping of the section. It collects all faults.

use cloudprovider::{ConfigProblem, is_invisible, kind_of_value};
use serde_json::{Map, Value};

/// One mapping. Each known key is taken once; keys that are left at the end are unknown.
pub(super) struct Fields<'a> {
    path: &'a str,
    values: Map<String, Value>,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// The mapping at `path`. An empty value counts as an empty mapping.
    pub(super) fn of(path: &'a str, value: &Value, problems: &mut Vec<ConfigProblem>) -> Option<Self> {
        let values = match value {
            Value::Object(values) => values.clone(),
            Value::Null => Map::new(),
            other => {
                let words = format!("is {}, must be a mapping of keys to values", kind_of_value(other));
                problems.push(ConfigProblem::new(path, words));
                return None;
            }
        };
        Some(Self { path, values, known: Vec::new() })
    }

    /// The path of a key.
    pub(super) fn path(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    /// The value of a key. An empty value counts as absent.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.values.remove(key).filter(|value| !value.is_null())
    }

    /// A text that is not empty.
    pub(super) fn text(&mut self, key: &'static str, problems: &mut Vec<ConfigProblem>) -> Option<String> {
        let path = self.path(key);
        let value = self.take(key)?;
        text(path, &value, problems)
    }

    /// A text that is required.
    pub(super) fn required_text(
        &mut self,
        key: &'static str,
        what: &str,
        problems: &mut Vec<ConfigProblem>,
    ) -> Option<String> {
        if self.values.get(key).is_none_or(Value::is_null) {
            problems.push(ConfigProblem::new(self.path(key), format!("is missing; give {what}")));
        }
        self.text(key, problems)
    }

    /// `true` or `false`.
    pub(super) fn flag(
        &mut self,
        key: &'static str,
        default: bool,
        problems: &mut Vec<ConfigProblem>,
    ) -> bool {
        let path = self.path(key);
        match self.take(key) {
            None => default,
            Some(Value::Bool(flag)) => flag,
            Some(Value::String(text)) if text == "true" => true,
            Some(Value::String(text)) if text == "false" => false,
            Some(_) => {
                problems.push(ConfigProblem::new(path, "must be true or false"));
                default
            }
        }
    }

    /// A list, each element with its path.
    pub(super) fn list(
        &mut self,
        key: &'static str,
        problems: &mut Vec<ConfigProblem>,
    ) -> Option<Vec<(String, Value)>> {
        let path = self.path(key);
        match self.take(key)? {
            Value::Array(values) => {
                let values = values.into_iter().enumerate();
                Some(values.map(|(at, value)| (format!("{path}[{at}]"), value)).collect())
            }
            other => {
                problems
                    .push(ConfigProblem::new(path, format!("is {}, must be a list", kind_of_value(&other))));
                None
            }
        }
    }

    /// A list of texts.
    pub(super) fn texts(
        &mut self,
        key: &'static str,
        problems: &mut Vec<ConfigProblem>,
    ) -> Option<Vec<String>> {
        let list = self.list(key, problems)?;
        Some(list.into_iter().filter_map(|(path, value)| text(path, &value, problems)).collect())
    }

    /// Reports the keys that were not taken.
    pub(super) fn finish(self, problems: &mut Vec<ConfigProblem>) {
        for key in self.values.keys() {
            let distance =
                |known: &str| strsim::damerau_levenshtein(&key.to_lowercase(), &known.to_lowercase());
            let nearest = self.known.iter().map(|known| (distance(known), *known)).min();
            let hint = match nearest.filter(|(distance, known)| *distance <= known.len().div_ceil(3)) {
                Some((_, known)) => format!("did you mean {known:?}?"),
                None => format!("known here: {}", self.known.join(", ")),
            };
            problems.push(ConfigProblem::new(self.path(key), format!("unknown key; {hint}")));
        }
    }
}

fn text(path: String, value: &Value, problems: &mut Vec<ConfigProblem>) -> Option<String> {
    let fault = match value {
        Value::String(text) if text.trim().is_empty() => {
            "is empty; give a value or leave the key out".to_owned()
        }
        Value::String(text) if text.contains(|c: char| c.is_control() || is_invisible(c)) => {
            "holds an invisible character; type it anew".to_owned()
        }
        Value::String(text) => return Some(text.trim().to_owned()),
        other => format!("is {}, must be a text; put it in quotes", kind_of_value(other)),
    };
    problems.push(ConfigProblem::new(path, fault));
    None
}
