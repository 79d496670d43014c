//! A reader for configuration that is lists and mappings. It collects all faults instead of stopping at the first one.

use std::{collections::BTreeMap, time::Duration};

use cloudprovider::{kind_of_value, parse_duration};
use serde_json::{Map, Value};

use crate::{
    findings::{Findings, oddity_of},
    hints,
};

/// Where keys belong: the words for a place, and the keys there. An unknown key that belongs elsewhere is answered with its place.
pub type Homes = &'static [(&'static str, &'static [&'static str])];

/// One mapping of the configuration. Each known key is taken once; keys that are left at the end are unknown.
pub struct Fields {
    path: String,
    values: BTreeMap<String, Value>,
    known: Vec<&'static str>,
    homes: Homes,
}

impl Fields {
    /// The mapping at `path`, or `None` with a problem if the value is not a mapping. An empty value (`key:`)
    /// counts as an empty mapping.
    pub fn new(path: &str, value: Value, homes: Homes, findings: &mut Findings) -> Option<Self> {
        let values = match value {
            Value::Object(map) => map,
            Value::Null => Map::new(),
            other => {
                findings.problem(
                    path,
                    format!("is {}, must be a mapping of keys to values", kind_of_value(&other)),
                );
                return None;
            }
        };
        Some(Self { path: path.to_owned(), values: values.into_iter().collect(), known: Vec::new(), homes })
    }

    /// The full path of `key`.
    pub fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The value of `key`. An empty value counts as absent.
    pub fn take(&mut self, key: &'static str) -> Option<Value> {
        self.take_even_empty(key).filter(|value| !value.is_null())
    }

    /// The value of `key`, which may be empty.
    pub fn take_even_empty(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.values.remove(key)
    }

    /// A text that is not empty and has no control characters.
    pub fn text(&mut self, key: &'static str, findings: &mut Findings) -> Option<String> {
        let path = self.path(key);
        text(&path, self.take(key)?, findings)
    }

    /// A text that is required.
    pub fn required_text(
        &mut self,
        key: &'static str,
        what: &str,
        findings: &mut Findings,
    ) -> Option<String> {
        if self.values.get(key).is_none_or(Value::is_null) {
            self.known.push(key);
            self.values.remove(key);
            findings.problem(self.path(key), format!("is missing; give {what}"));
            return None;
        }
        self.text(key, findings)
    }

    /// A list, each element with its full path.
    pub fn list(&mut self, key: &'static str, findings: &mut Findings) -> Option<Vec<(String, Value)>> {
        let path = self.path(key);
        match self.take(key)? {
            Value::Array(values) => Some(
                values.into_iter().enumerate().map(|(i, value)| (format!("{path}[{i}]"), value)).collect(),
            ),
            other => {
                findings.problem(path, format!("is {}, must be a list", kind_of_value(&other)));
                None
            }
        }
    }

    /// A list of texts, each parsed into a `T`. `what` describes a valid text.
    pub fn parsed_list<T>(
        &mut self,
        key: &'static str,
        what: &str,
        parse: impl Fn(&str) -> Option<T>,
        findings: &mut Findings,
    ) -> Option<Vec<T>> {
        let mut parsed = Vec::new();
        for (path, value) in self.list(key, findings)? {
            match &value {
                Value::String(text) => match parse(text) {
                    Some(item) => parsed.push(item),
                    None => findings.problem(path, format!("{text:?} is not {what}")),
                },
                other => findings.problem(path, format!("is {}, must be {what}", kind_of_value(other))),
            }
        }
        Some(parsed)
    }

    /// A list of texts without blanks around them.
    pub fn texts(&mut self, key: &'static str, findings: &mut Findings) -> Option<Vec<String>> {
        let list = self.list(key, findings)?;
        let texts = list.into_iter().filter_map(|(path, value)| text(&path, value, findings));
        Some(texts.map(|text| text.trim().to_owned()).collect())
    }

    /// `true` or `false`, also as a text, which is all that [`Node::parse`](crate::yaml::Node::parse) has.
    pub fn flag(&mut self, key: &'static str, default: bool, findings: &mut Findings) -> bool {
        let path = self.path(key);
        match self.take(key) {
            None => default,
            Some(Value::Bool(flag)) => flag,
            Some(Value::String(text)) if text == "true" => true,
            Some(Value::String(text)) if text == "false" => false,
            Some(_) => {
                findings.problem(path, "must be true or false");
                default
            }
        }
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, key: &'static str, findings: &mut Findings) -> Option<bool> {
        let path = self.path(key);
        match self.take(key)? {
            Value::Bool(value) => Some(value),
            other => {
                findings.problem(path, format!("is {}, must be true or false", kind_of_value(&other)));
                None
            }
        }
    }

    /// A whole number of at least `least`.
    pub fn number(&mut self, key: &'static str, least: u32, findings: &mut Findings) -> Option<u32> {
        let path = self.path(key);
        let value = self.take(key)?;
        match value.as_u64().and_then(|number| u32::try_from(number).ok()) {
            Some(number) if number >= least && number <= 1_000_000 => Some(number),
            _ => {
                findings.problem(path, format!("must be a whole number of at least {least}"));
                None
            }
        }
    }

    /// A factor with at most two decimals, within `range`, in hundredths.
    pub fn factor(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<u32>,
        findings: &mut Findings,
    ) -> Option<u32> {
        let path = self.path(key);
        // by its text, so that no rounding is needed
        let text = match self.take(key)? {
            Value::Number(number) => number.to_string(),
            _ => String::new(),
        };
        match hundredths(&text) {
            Some(factor) if range.contains(&factor) => Some(factor),
            _ => {
                let [least, most] =
                    [*range.start(), *range.end()].map(|hundredths| f64::from(hundredths) / 100.0);
                findings.problem(
                    path,
                    format!("must be a number from {least} to {most} with at most two decimals, such as 1.5"),
                );
                None
            }
        }
    }

    /// A duration in Go's notation, within `range`.
    pub fn duration(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<Duration>,
        findings: &mut Findings,
    ) -> Option<Duration> {
        let path = self.path(key);
        let text = match self.take(key)? {
            Value::String(text) => text,
            other => {
                findings.problem(
                    path,
                    format!("is {}, must be a duration such as 5s or 1m30s", kind_of_value(&other)),
                );
                return None;
            }
        };
        match parse_duration(&text) {
            Some(duration) if range.contains(&duration) => Some(duration),
            Some(_) => {
                findings.problem(
                    path,
                    format!("must be between {} and {}", shown(*range.start()), shown(*range.end())),
                );
                None
            }
            None => {
                findings.problem(path, format!("{text:?} is not a duration; write it as 5s, 1m30s or 500ms"));
                None
            }
        }
    }

    /// Reports all keys that were not taken, with the most similar known key or the place where the key
    /// belongs.
    pub fn finish(self, findings: &mut Findings) {
        for key in self.values.keys() {
            let nearest = hints::nearest(key, self.known.iter().copied());
            let elsewhere = self.homes.iter().find(|(_, keys)| keys.contains(&key.as_str()));
            let hint = match (nearest, elsewhere) {
                (_, Some((home, _))) => format!("it belongs {home}"),
                (Some(known), _) => format!("did you mean {known:?}?"),
                (None, None) => format!("known here: {}", self.known.join(", ")),
            };
            if hints::has_hidden_character(key) {
                let words = "has a key with a no-break space or an invisible character; type the line anew, with ordinary blanks";
                findings.problem(self.path.clone(), words);
            } else if hints::is_shown(key, nearest.is_some() || elsewhere.is_some()) {
                findings.problem(self.path(key), format!("unknown key; {hint}"));
            } else {
                let known = self.known.join(", ");
                findings.problem(
                    self.path.clone(),
                    format!("has an unknown key, not shown since it may hold a value; write \"key: value\"; known here: {known}"),
                );
            }
        }
    }
}

fn text(path: &str, value: Value, findings: &mut Findings) -> Option<String> {
    let fault = match value {
        Value::String(text) if text.trim().is_empty() => {
            "is empty; give a value or leave the key out".to_owned()
        }
        Value::String(text) if text.chars().any(char::is_control) => "holds a control character".to_owned(),
        Value::String(text) => {
            findings.note_oddity(path, oddity_of(&text, path.ends_with("password")));
            return Some(text);
        }
        other => format!("is {}, must be a text; put it in quotes", kind_of_value(&other)),
    };
    findings.problem(path, fault);
    None
}

/// A decimal number in hundredths, if it has at most two decimals.
fn hundredths(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let decimals = match decimals.len() {
        0 => 0,
        1 => decimals.parse::<u32>().ok()? * 10,
        2 => decimals.parse().ok()?,
        _ => return None,
    };
    whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(decimals)
}

/// A duration of whole seconds in an operator's notation.
fn shown(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds > 0 && seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        seconds if seconds > 0 && seconds % 60 == 0 => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}
