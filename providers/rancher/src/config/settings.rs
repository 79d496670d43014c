//! The operator's settings, in one form for both formats and the environment.

use std::{collections::BTreeMap, fmt, time::Duration};

use cloudprovider::{ConfigProblem, TextOddity, parse_bool, parse_duration};
use serde_json::Value;

use super::keys::{KEYS, Key, Kind};

/// Values by the name of their key.
#[derive(Debug, Default)]
pub(super) struct Settings {
    values: BTreeMap<&'static str, Setting>,
    /// Keys whose values were refused. They are not missing.
    refused: Vec<&'static str>,
    /// Whether the file is written in gcfg.
    is_gcfg: bool,
    /// The section `addressPools`, which has keys of its own.
    pub(super) address_pools: Option<Value>,
}

/// A value, and where the operator wrote it.
pub(super) struct Setting {
    text: String,
    origin: String,
}

impl fmt::Debug for Setting {
    /// Leaves the value out: it may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)
    }
}

/// The faults and warnings found so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Faults that make the configuration unusable.
    pub(super) problems: Vec<ConfigProblem>,
    /// Values that are probably a mistake but are accepted.
    pub(super) warnings: Vec<ConfigProblem>,
}

impl Findings {
    pub(super) fn problem(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.problems.push(ConfigProblem::new(key, message));
    }

    pub(super) fn warning(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.warnings.push(ConfigProblem::new(key, message));
    }
}

impl Settings {
    /// Empty settings of a file in gcfg.
    pub(super) fn of_gcfg() -> Self {
        Self { is_gcfg: true, ..Self::default() }
    }

    /// Sets the value of a key after checking its type. An empty text counts as not set.
    pub(super) fn set(&mut self, key: &'static Key, text: String, origin: String, findings: &mut Findings) {
        if text.is_empty() {
            return;
        }
        // A PEM text has line breaks.
        if key.name != "caCert" && text.chars().any(char::is_control) {
            self.refuse(key, origin, "holds a control character", findings);
            return;
        }
        let fault = match key.kind {
            Kind::Text | Kind::Secret => None,
            Kind::Flag => parse_bool(&text).err().map(|_| "must be true or false"),
            Kind::Number => text.parse::<u32>().err().map(|_| "must be a whole number"),
            Kind::Duration => {
                parse_duration(&text).is_none().then_some("must be a duration such as 5s or 1m30s")
            }
        };
        if let Some(fault) = fault {
            self.refuse(key, origin, fault, findings);
            return;
        }
        let oddity = match key.kind {
            Kind::Secret => TextOddity::in_secret(&text).map(|oddity| oddity.of_secret().to_owned()),
            Kind::Text if key.name != "caCert" => TextOddity::of(&text).map(|oddity| oddity.to_string()),
            _ => None,
        };
        if let Some(oddity) = oddity {
            findings.warning(&origin, oddity);
        }
        self.values.insert(key.name, Setting { text, origin });
    }

    /// Notes that a key has a value that cannot be used.
    pub(super) fn refuse(&mut self, key: &'static Key, origin: String, why: &str, findings: &mut Findings) {
        findings.problem(origin, why);
        self.refused.push(key.name);
    }

    /// Whether a key has a value, good or bad.
    pub(super) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name) || self.refused.contains(&name)
    }

    /// Whether a key has a value in the file, and not only in the environment.
    pub(super) fn is_in_file(&self, name: &str) -> bool {
        let variable = super::keys::find(name).and_then(|key| key.environment);
        self.values.get(name).is_some_and(|setting| Some(setting.origin.as_str()) != variable)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|setting| setting.text.as_str())
    }

    /// A value that is one of a few words.
    pub(super) fn word<T: Copy>(
        &self,
        name: &str,
        (all, as_str): (&[T], fn(T) -> &'static str),
        findings: &mut Findings,
    ) -> Option<T> {
        let text = self.text(name)?;
        let value = all.iter().copied().find(|one| as_str(*one) == text);
        if value.is_none() {
            let words: Vec<_> = all.iter().map(|one| as_str(*one)).collect();
            findings.problem(self.origin(name), format!("must be one of {}", words.join(", ")));
        }
        value
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.text(name).is_some_and(|text| parse_bool(text) == Ok(true))
    }

    pub(super) fn number(&self, name: &str) -> Option<u32> {
        self.text(name)?.parse().ok()
    }

    pub(super) fn duration(&self, name: &str) -> Option<Duration> {
        parse_duration(self.text(name)?)
    }

    /// Where a key stands, or where it would stand.
    pub(super) fn origin(&self, name: &str) -> String {
        if let Some(setting) = self.values.get(name) {
            return setting.origin.clone();
        }
        match super::keys::find(name) {
            Some(key) if self.is_gcfg => format!("[{}] {}", key.section, key.variable),
            _ => name.to_owned(),
        }
    }
}

/// The environment of a process.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// The environment of this process, without variables that are not Unicode.
    pub fn of_process() -> Self {
        let unicode = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self(std::env::vars_os().filter_map(unicode).collect())
    }

    /// Sets what the file does not.
    pub(super) fn apply(&self, settings: &mut Settings, findings: &mut Findings) {
        for key in KEYS {
            let Some(variable) = key.environment else { continue };
            let in_a_file = matches!(key.kind, Kind::Secret) && settings.has(&format!("{}File", key.name));
            if settings.has(key.name) || in_a_file {
                continue;
            }
            if let Some(text) = self.0.get(variable) {
                settings.set(key, text.clone(), variable.to_owned(), findings);
            }
        }
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<T: IntoIterator<Item = (N, V)>>(variables: T) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl fmt::Debug for Environment {
    /// Shows no variable: an environment is full of secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment(***)")
    }
}
