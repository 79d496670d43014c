//! The faults and warnings of a configuration.

use cloudprovider::{ConfigProblem, TextOddity};

use crate::{
    keys::{Key, Section},
    values::{Kind, Value},
};

/// The faults and warnings found so far.
#[derive(Debug, Default)]
pub struct Findings {
    /// Faults that make the configuration unusable.
    pub problems: Vec<ConfigProblem>,
    /// Values that are probably a mistake but are accepted.
    pub warnings: Vec<ConfigProblem>,
}

impl Findings {
    /// Adds a fault.
    pub fn problem(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.problems.push(ConfigProblem::new(key, message));
    }

    /// Adds a warning.
    pub fn warning(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.warnings.push(ConfigProblem::new(key, message));
    }

    /// Adds a fault of a section, which is only a warning if the section is [unused](Section::unused).
    pub fn fault(&mut self, section: &Section, key: impl Into<String>, message: impl Into<String>) {
        if section.is_unused {
            self.warning(key, message);
        } else {
            self.problem(key, message);
        }
    }

    /// Warns about a text that was probably copied with extra characters, or is still a placeholder.
    pub(crate) fn note_oddity(&mut self, origin: &str, oddity: Option<String>) {
        if let Some(oddity) = oddity {
            self.warning(origin, oddity);
        }
    }
}

/// What is odd about a text, for a message about its key.
pub(crate) fn oddity_of(text: &str, is_secret: bool) -> Option<String> {
    if is_secret {
        TextOddity::in_secret(text).map(|oddity| oddity.of_secret().to_owned())
    } else {
        TextOddity::of(text).map(|oddity| oddity.to_string())
    }
}

fn oddity_of_key(section: &Section, key: &Key, text: &str) -> Option<String> {
    let is_checked = !section.is_unused && !key.is_copied;
    is_checked.then(|| oddity_of(text, key.kind == Kind::Secret))?
}

/// What is odd about a value.
pub(crate) fn oddity_of_value(section: &Section, key: &Key, value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => oddity_of_key(section, key, text),
        Value::List(items) => items.iter().find_map(|item| oddity_of_key(section, key, item)),
        Value::Flag(_) | Value::Number(_) | Value::Duration(_) | Value::Tags(_) => None,
    }
}

/// Appends an oddity of the value to a message, since it may be the cause.
pub(crate) fn with_oddity(message: &str, section: &Section, key: &Key, text: Option<&str>) -> String {
    match text.and_then(|text| oddity_of_key(section, key, text)) {
        Some(oddity) => format!("{message}; the value {oddity}"),
        None => message.to_owned(),
    }
}
