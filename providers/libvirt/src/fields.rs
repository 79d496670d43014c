//! A lenient reader for untyped configuration. It collects all faults instead of stopping at the first one.

use std::{collections::BTreeMap, time::Duration};

use cloudprovider::{ConfigProblem, TextOddity, kind_of_value, parse_duration};
use serde_json::{Map, Value};

/// The faults and warnings found so far.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    /// Faults that make the configuration unusable.
    pub(crate) faults: Vec<ConfigProblem>,
    /// Values that are probably a mistake but are accepted.
    pub(crate) warnings: Vec<ConfigProblem>,
}

impl Problems {
    pub(crate) fn add(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.faults.push(ConfigProblem::new(key, message));
    }

    /// Warns about a text that was probably copied with extra characters, or is still a placeholder.
    fn note_oddity(&mut self, path: &str, text: &str) {
        let words = if path.ends_with("password") {
            TextOddity::in_secret(text).map(|oddity| oddity.of_secret().to_owned())
        } else {
            TextOddity::of(text).map(|oddity| oddity.to_string())
        };
        if let Some(words) = words {
            self.warnings.push(ConfigProblem::new(path, words));
        }
    }
}

/// One mapping of the configuration. Each known key is taken once; keys that are left at the end are unknown.
pub(crate) struct Fields {
    path: String,
    values: BTreeMap<String, Value>,
    known: Vec<&'static str>,
}

impl Fields {
    /// The mapping at `path`, or `None` with a problem if the value is not a mapping. An empty value (`key:`)
    /// counts as an empty mapping.
    pub(crate) fn new(path: &str, value: Value, problems: &mut Problems) -> Option<Self> {
        let values = match value {
            Value::Object(map) => map,
            Value::Null => Map::new(),
            other => {
                problems
                    .add(path, format!("is {}, must be a mapping of keys to values", kind_of_value(&other)));
                return None;
            }
        };
        Some(Self { path: path.to_owned(), values: values.into_iter().collect(), known: Vec::new() })
    }

    /// The full path of `key`.
    pub(crate) fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The value of `key`. An empty value counts as absent.
    pub(crate) fn take(&mut self, key: &'static str) -> Option<Value> {
        self.take_even_empty(key).filter(|value| !value.is_null())
    }

    /// The value of `key`, which may be empty.
    pub(crate) fn take_even_empty(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.values.remove(key)
    }

    /// A text that is not empty and has no control characters.
    pub(crate) fn text(&mut self, key: &'static str, problems: &mut Problems) -> Option<String> {
        let path = self.path(key);
        match self.take(key)? {
            Value::String(text) if text.trim().is_empty() => {
                problems.add(path, "is empty; give a value or leave the key out");
                None
            }
            Value::String(text) if text.chars().any(char::is_control) => {
                problems.add(path, "holds a control character");
                None
            }
            Value::String(text) => {
                problems.note_oddity(&path, &text);
                Some(text)
            }
            other => {
                problems.add(path, format!("is {}, must be a text; put it in quotes", kind_of_value(&other)));
                None
            }
        }
    }

    /// A text that is required.
    pub(crate) fn required_text(
        &mut self,
        key: &'static str,
        what: &str,
        problems: &mut Problems,
    ) -> Option<String> {
        if self.values.get(key).is_none_or(Value::is_null) {
            self.known.push(key);
            self.values.remove(key);
            problems.add(self.path(key), format!("is missing; give {what}"));
            return None;
        }
        self.text(key, problems)
    }

    /// A list, each element with its full path.
    pub(crate) fn list(
        &mut self,
        key: &'static str,
        problems: &mut Problems,
    ) -> Option<Vec<(String, Value)>> {
        let path = self.path(key);
        match self.take(key)? {
            Value::Array(values) => Some(
                values.into_iter().enumerate().map(|(i, value)| (format!("{path}[{i}]"), value)).collect(),
            ),
            other => {
                problems.add(path, format!("is {}, must be a list", kind_of_value(&other)));
                None
            }
        }
    }

    /// A list of texts, each parsed into a `T`. `what` describes a valid text.
    pub(crate) fn parsed_list<T>(
        &mut self,
        key: &'static str,
        what: &str,
        parse: impl Fn(&str) -> Option<T>,
        problems: &mut Problems,
    ) -> Option<Vec<T>> {
        let mut parsed = Vec::new();
        for (path, value) in self.list(key, problems)? {
            match &value {
                Value::String(text) => match parse(text) {
                    Some(item) => parsed.push(item),
                    None => problems.add(path, format!("{text:?} is not {what}")),
                },
                other => problems.add(path, format!("is {}, must be {what}", kind_of_value(other))),
            }
        }
        Some(parsed)
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&mut self, key: &'static str, problems: &mut Problems) -> Option<bool> {
        let path = self.path(key);
        match self.take(key)? {
            Value::Bool(value) => Some(value),
            other => {
                problems.add(path, format!("is {}, must be true or false", kind_of_value(&other)));
                None
            }
        }
    }

    /// A whole number of at least `least`.
    pub(crate) fn number(&mut self, key: &'static str, least: u32, problems: &mut Problems) -> Option<u32> {
        let path = self.path(key);
        let value = self.take(key)?;
        match value.as_u64().and_then(|number| u32::try_from(number).ok()) {
            Some(number) if number >= least && number <= 1_000_000 => Some(number),
            _ => {
                problems.add(path, format!("must be a whole number of at least {least}"));
                None
            }
        }
    }

    /// A factor with at most two decimals, within `range`, in hundredths.
    pub(crate) fn factor(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<u32>,
        problems: &mut Problems,
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
                problems.add(
                    path,
                    format!("must be a number from {least} to {most} with at most two decimals, such as 1.5"),
                );
                None
            }
        }
    }

    /// A duration in Go's notation, within `range`.
    pub(crate) fn duration(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<Duration>,
        problems: &mut Problems,
    ) -> Option<Duration> {
        let path = self.path(key);
        let text = match self.take(key)? {
            Value::String(text) => text,
            other => {
                problems.add(
                    path,
                    format!("is {}, must be a duration such as 5s or 1m30s", kind_of_value(&other)),
                );
                return None;
            }
        };
        match parse_duration(&text) {
            Some(duration) if range.contains(&duration) => Some(duration),
            Some(_) => {
                problems.add(
                    path,
                    format!("must be between {} and {}", shown(*range.start()), shown(*range.end())),
                );
                None
            }
            None => {
                problems.add(path, format!("{text:?} is not a duration; write it as 5s, 1m30s or 500ms"));
                None
            }
        }
    }

    /// Reports all keys that were not taken, with the most similar known key or the place where the key
    /// belongs.
    pub(crate) fn finish(self, problems: &mut Problems) {
        for key in self.values.keys() {
            let nearest = nearest(key, &self.known);
            let elsewhere = HOMES.iter().find(|(_, keys)| keys.contains(&key.as_str()));
            let hint = match (nearest, elsewhere) {
                (_, Some((home, _))) => format!("it belongs {home}"),
                (Some(known), _) => format!("did you mean {known:?}?"),
                (None, None) => format!("known here: {}", self.known.join(", ")),
            };
            if let Some(TextOddity::NoBreakSpace | TextOddity::Invisible) = TextOddity::of(key) {
                let words = "has a key with a no-break space or an invisible character; type the line anew, with ordinary blanks";
                problems.add(self.path.clone(), words);
            } else if is_plain(key) && (nearest.is_some() || elsewhere.is_some() || !holds_a_value(key)) {
                problems.add(self.path(key), format!("unknown key; {hint}"));
            } else {
                let known = self.known.join(", ");
                problems.add(
                    self.path.clone(),
                    format!("has an unknown key, not shown since it may hold a value; write \"key: value\"; known here: {known}"),
                );
            }
        }
    }
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

/// The known key most similar to `key`, if any is similar enough.
pub(crate) fn nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(&key.to_lowercase(), &known.to_lowercase()), *known))
        .min()
        .filter(|(distance, known)| *distance <= known.len().div_ceil(3))
        .map(|(_, known)| known)
}

/// A duration of whole seconds in an operator's notation.
fn shown(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds > 0 && seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        seconds if seconds > 0 && seconds % 60 == 0 => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

/// The keys at the top level.
pub(crate) const SECTIONS: [&str; 8] = [
    "hypervisors",
    "addresses",
    "callTimeout",
    "keepalive",
    "refreshInterval",
    "routes",
    "machines",
    address_pools::Config::KEY,
];

/// Where each key of the configuration belongs.
const HOMES: [(&str, &[&str]); 8] = [
    ("at the top level", &SECTIONS),
    ("under routes", &["enabled"]),
    ("under machines", &["cpuOvercommit", "memoryOvercommit", "reservedMemoryMiB", "allow"]),
    (
        "under an element of machines.allow",
        &[
            "namespaces",
            "imageFolders",
            "imageVolumes",
            "imageHosts",
            "networks",
            "bridges",
            "macvtapDevices",
            "macvtapPassthrough",
            "pools",
            "macAddresses",
            "maxVcpus",
            "maxMemoryMiB",
            "maxDiskGiB",
        ],
    ),
    (
        "under an element of hypervisors",
        &["name", "uri", "region", "zone", "failureDomain", "auth", "pkipath"],
    ),
    ("under auth of a hypervisor", &["username", "usernameFile", "password", "passwordFile"]),
    ("under addresses", &["internal", "external", "exclude", "families"]),
    ("under keepalive", &["interval", "count"]),
];

/// Whether `key` has only characters of keys and is no longer than a key.
fn is_plain(key: &str) -> bool {
    key.len() <= 40 && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Whether `key` may be a key with its value attached, as in `password-x` or `passwordx`.
fn holds_a_value(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["pass", "pwd", "user", "auth", "secret", "token", "key"].iter().any(|word| key.contains(word))
}
