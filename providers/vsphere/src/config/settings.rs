//! The operator's settings, in one form for both formats and the environment.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use cloudprovider::{ConfigProblem, TextOddity};

use super::keys::{Key, Kind, Section};

/// Values by section, the section's name if it has one, and key.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    values: BTreeMap<(Section, String, &'static str), Setting>,
    /// The sections that are present, empty ones included.
    sections: BTreeSet<(Section, String)>,
    /// The file says that there is no vCenter, by an empty mapping.
    pub(crate) has_no_vcenter: bool,
    /// The section `addressPools`, which only this provider has.
    pub(crate) address_pools: Option<serde_json::Value>,
    /// The list `machines.allow`.
    pub(crate) machine_allow: Option<serde_json::Value>,
    pub(crate) format: Format,
}

/// The format of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    #[default]
    Yaml,
    Ini,
}

/// A value, and where the operator wrote it.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) value: Value,
    /// Such as `vcenter.a.port`, `[VirtualCenter "a"] port` or `VSPHERE_VCENTER_PORT`.
    pub(crate) origin: String,
}

/// A value of the type that its [`Key`] has.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Flag(bool),
    Number(u64),
    List(Vec<String>),
    Tags(BTreeMap<String, String>),
}

impl fmt::Debug for Value {
    /// Does not show the value: it may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The faults and warnings found so far.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Faults that make the configuration unusable.
    pub(crate) problems: Vec<ConfigProblem>,
    /// Values that are probably a mistake but are accepted.
    pub(crate) warnings: Vec<ConfigProblem>,
}

impl Findings {
    pub(crate) fn problem(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.problems.push(ConfigProblem::new(key, message));
    }

    /// Adds a fault in a section. In an NSX-T section it is only a warning, since NSX-T is not supported.
    pub(crate) fn fault(&mut self, section: Section, key: impl Into<String>, message: impl Into<String>) {
        if section.is_nsx() {
            self.warning(key, message);
        } else {
            self.problem(key, message);
        }
    }

    pub(crate) fn warning(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.warnings.push(ConfigProblem::new(key, message));
    }

    /// Warns about a value that was probably copied with extra characters, or is still a placeholder.
    pub(crate) fn note_oddity(&mut self, key: &Key, value: &Value, origin: &str) {
        let oddity = match value {
            Value::Text(text) => oddity_of(key, text),
            Value::List(items) => items.iter().find_map(|item| oddity_of(key, item)),
            Value::Flag(_) | Value::Number(_) | Value::Tags(_) => None,
        };
        if let Some(oddity) = oddity {
            self.warning(origin, oddity);
        }
    }
}

fn oddity_of(key: &Key, text: &str) -> Option<String> {
    // NSX-T keys are not used, and a thumbprint may be copied with extra characters.
    if key.section.is_nsx() || key.name == "thumbprint" {
        return None;
    }
    if key.kind == Kind::Secret {
        return TextOddity::in_secret(text).map(|oddity| oddity.of_secret().to_owned());
    }
    TextOddity::of(text).map(|oddity| oddity.to_string())
}

/// Appends an oddity of the value to a message, since it may be the cause.
pub(crate) fn with_oddity(message: &str, key: &Key, text: Option<&str>) -> String {
    match text.and_then(|text| oddity_of(key, text)) {
        Some(oddity) => format!("{message}; the value {oddity}"),
        None => message.to_owned(),
    }
}

impl Settings {
    /// Empty settings, from a file of this format.
    pub(crate) fn new(format: Format) -> Self {
        Self { format, ..Self::default() }
    }

    /// Notes that a section is present.
    pub(crate) fn open(&mut self, section: Section, name: &str) {
        self.sections.insert((section, name.to_owned()));
    }

    /// Sets a value; a later one wins. As in CPI, an empty text counts as not set.
    pub(crate) fn set(&mut self, key: &'static Key, name: &str, value: Value, origin: String) {
        let place = (key.section, name.to_owned(), key.name);
        let is_empty = match &value {
            Value::Text(text) => text.is_empty(),
            Value::List(items) => items.is_empty(),
            Value::Flag(_) | Value::Number(_) | Value::Tags(_) => false,
        };
        if is_empty {
            self.values.remove(&place);
        } else {
            self.values.insert(place, Setting { value, origin });
        }
    }

    /// The names of the sections of this kind, sorted.
    pub(crate) fn names(&self, section: Section) -> Vec<String> {
        self.sections.iter().filter(|(found, _)| *found == section).map(|(_, name)| name.clone()).collect()
    }

    /// Whether a section is present or has values.
    pub(crate) fn has(&self, section: Section, name: &str) -> bool {
        self.sections.contains(&(section, name.to_owned()))
    }

    /// Whether nothing has been read.
    pub(crate) fn is_empty(&self) -> bool {
        self.sections.is_empty() && self.values.is_empty() && self.address_pools.is_none()
    }

    /// Whether a section has any value.
    pub(crate) fn has_values(&self, section: Section) -> bool {
        self.values.keys().any(|(found, _, _)| *found == section)
    }

    pub(crate) fn get(&self, section: Section, name: &str, key: &'static str) -> Option<&Setting> {
        self.values.get(&(section, name.to_owned(), key))
    }

    pub(crate) fn text(&self, section: Section, name: &str, key: &'static str) -> Option<&str> {
        match &self.get(section, name, key)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn flag(&self, section: Section, name: &str, key: &'static str) -> Option<bool> {
        match &self.get(section, name, key)?.value {
            Value::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    /// Where a key stands, or where it would stand.
    pub(crate) fn origin(&self, section: Section, name: &str, key: &'static str) -> String {
        if let Some(setting) = self.get(section, name, key) {
            return setting.origin.clone();
        }
        let ini = Section::keys(section).find(|known| known.name == key).map_or(key, |known| known.ini);
        match self.format {
            Format::Yaml => format!("{}.{key}", self.section_origin(section, name)),
            Format::Ini => format!("{} {ini}", self.section_origin(section, name)),
        }
    }

    /// Where a section stands, or would stand.
    pub(crate) fn section_origin(&self, section: Section, name: &str) -> String {
        section_origin(self.format, section, name)
    }
}

/// The name of a section in messages.
pub(crate) fn section_origin(format: Format, section: Section, name: &str) -> String {
    match (format, section.is_named()) {
        (Format::Yaml, false) => section.yaml().to_owned(),
        (Format::Yaml, true) if name.contains('.') => format!("{}[{name:?}]", section.yaml()),
        (Format::Yaml, true) => format!("{}.{name}", section.yaml()),
        (Format::Ini, false) => format!("[{}]", section.ini()),
        (Format::Ini, true) => format!("[{} {name:?}]", section.ini()),
    }
}
