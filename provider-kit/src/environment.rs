//! The environment of a process.

use std::{collections::BTreeMap, fmt};

use crate::{
    findings::{Findings, with_oddity},
    keys::{Key, Section, Shape},
    read::scalar,
    settings::Settings,
    values::Kind,
};

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

    /// The value of a variable that is set and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Whether a variable is set, empty or not.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// All variables with their values, sorted.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Reads the variables of all keys, but for those of sections that have names of their own.
    pub fn apply(&self, settings: &mut Settings, findings: &mut Findings) {
        for section in settings.schema().sections.iter().filter(|section| section.shape == Shape::Keys) {
            for key in section.keys.iter().filter(|key| !key.env.is_empty()) {
                self.apply_key((section, key, ""), key.env, settings, findings);
            }
        }
    }

    /// Reads the variables of a section that has a name of its own. They begin with `prefix`.
    pub fn apply_named(
        &self,
        section: &'static Section,
        name: &str,
        prefix: &str,
        settings: &mut Settings,
        findings: &mut Findings,
    ) {
        settings.open(section, name);
        for key in section.keys.iter().filter(|key| !key.env.is_empty()) {
            self.apply_key((section, key, name), &format!("{prefix}{}", key.env), settings, findings);
        }
    }

    fn apply_key(
        &self,
        (section, key, name): (&'static Section, &'static Key, &str),
        variable: &str,
        settings: &mut Settings,
        findings: &mut Findings,
    ) {
        let Some(text) = self.get(variable) else { return };
        let dialect = &settings.schema().dialect;
        // The file gives a secret also by naming the file that it is in.
        let in_a_file = || {
            let file = section.key(&format!("{}File", key.name));
            key.kind == Kind::Secret && file.is_some_and(|file| settings.has((section.yaml, name, file.name)))
        };
        if !dialect.environment_wins && (settings.has((section.yaml, name, key.name)) || in_a_file()) {
            return;
        }
        match scalar(key, text, &dialect.environment, dialect) {
            Ok(value) => settings.put((section, key, name), value, variable.to_owned(), findings),
            Err(message) => {
                findings.problem(variable, with_oddity(message, section, key, Some(text)));
                settings.refuse(section, key, name);
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
