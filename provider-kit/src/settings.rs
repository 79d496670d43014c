//! The operator's settings, in one form for both file formats and the environment.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::Value as Tree;

use crate::{
    findings::{Findings, oddity_of_value},
    keys::{Format, Key, Schema, Section},
    values::Value,
};

/// Where a value belongs: a section by its name in YAML, the section's own name if it has one, and the key by its name in YAML.
///
/// A path such as `loadBalancer.mode` is one too, for a section without a name of its own.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    section: &'a str,
    name: &'a str,
    key: &'a str,
}

impl<'a> From<&'a str> for At<'a> {
    fn from(path: &'a str) -> Self {
        let (section, key) = path.rsplit_once('.').unwrap_or(("", path));
        Self { section, name: "", key }
    }
}

impl<'a> From<&'a String> for At<'a> {
    fn from(path: &'a String) -> Self {
        path.as_str().into()
    }
}

impl<'a> From<(&'a str, &'a str, &'a str)> for At<'a> {
    fn from((section, name, key): (&'a str, &'a str, &'a str)) -> Self {
        Self { section, name, key }
    }
}

/// A key of a section of this name.
type Place = (&'static str, String, &'static str);

/// Values by section, the section's own name if it has one, and key.
#[derive(Debug)]
pub struct Settings {
    schema: &'static Schema,
    format: Format,
    values: BTreeMap<Place, Setting>,
    /// Keys whose values were refused. They are not missing.
    refused: BTreeSet<Place>,
    /// The sections that are present, empty ones included.
    sections: BTreeSet<(&'static str, String)>,
    /// The sections with names of which the file says that there are none.
    none: BTreeSet<&'static str>,
    /// What has a reader of its own, by its path.
    trees: BTreeMap<String, Tree>,
}

/// A value, and where the operator wrote it.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Of the type that the key has.
    pub value: Value,
    /// Such as `vcenter.a.port`, `[VirtualCenter "a"] port` or `VSPHERE_VCENTER_PORT`.
    pub origin: String,
}

impl Settings {
    /// Empty settings, from a file of this format.
    pub fn new(schema: &'static Schema, format: Format) -> Self {
        Self {
            schema,
            format,
            values: BTreeMap::new(),
            refused: BTreeSet::new(),
            sections: BTreeSet::new(),
            none: BTreeSet::new(),
            trees: BTreeMap::new(),
        }
    }

    /// The table of keys.
    pub fn schema(&self) -> &'static Schema {
        self.schema
    }

    /// The format of the file.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Notes that a section is present.
    pub fn open(&mut self, section: &'static Section, name: &str) {
        self.sections.insert((section.yaml, name.to_owned()));
    }

    /// Notes that the file says that there is no section of this kind.
    pub(crate) fn note_none(&mut self, section: &'static Section) {
        self.none.insert(section.yaml);
    }

    /// Sets a value; a later one wins. An empty one counts as not set.
    pub fn set(
        &mut self,
        section: &'static Section,
        key: &'static Key,
        name: &str,
        value: Value,
        origin: String,
    ) {
        let place = (section.yaml, name.to_owned(), key.name);
        let is_empty = match &value {
            Value::Text(text) => text.is_empty(),
            Value::List(items) => items.is_empty(),
            Value::Flag(_) | Value::Number(_) | Value::Duration(_) | Value::Tags(_) => false,
        };
        if is_empty {
            self.values.remove(&place);
        } else {
            self.values.insert(place, Setting { value, origin });
        }
    }

    /// Sets a value, with a warning if it is odd.
    pub(crate) fn put(
        &mut self,
        (section, key, name): (&'static Section, &'static Key, &str),
        value: Value,
        origin: String,
        findings: &mut Findings,
    ) {
        findings.note_oddity(&origin, oddity_of_value(section, key, &value));
        self.set(section, key, name, value, origin);
    }

    /// Notes that a key has a value that cannot be used.
    pub(crate) fn refuse(&mut self, section: &'static Section, key: &'static Key, name: &str) {
        self.refused.insert((section.yaml, name.to_owned(), key.name));
    }

    pub(crate) fn put_tree(&mut self, path: String, tree: Tree) {
        self.trees.insert(path, tree);
    }

    fn found(&self, at: At<'_>) -> Option<(&'static Section, &'static Key)> {
        let section = self.schema.section(at.section);
        let found = section.and_then(|section| Some((section, section.key(at.key)?)));
        debug_assert!(found.is_some(), "no such key: {at:?}");
        found
    }

    fn place(&self, at: At<'_>) -> Option<Place> {
        self.found(at).map(|(section, key)| (section.yaml, at.name.to_owned(), key.name))
    }

    /// A value, and where it stands.
    pub fn get<'a>(&self, at: impl Into<At<'a>>) -> Option<&Setting> {
        self.values.get(&self.place(at.into())?)
    }

    /// Whether a key has a value, good or bad.
    pub fn has<'a>(&self, at: impl Into<At<'a>>) -> bool {
        self.place(at.into())
            .is_some_and(|place| self.values.contains_key(&place) || self.refused.contains(&place))
    }

    /// Whether a key has a value in the file, and not only in the environment.
    pub fn is_in_file<'a>(&self, at: impl Into<At<'a>>) -> bool {
        let at = at.into();
        let variable = self.found(at).map_or("", |(_, key)| key.env);
        self.get(at).is_some_and(|setting| setting.origin != variable)
    }

    /// The value of a text or secret.
    pub fn text<'a>(&self, at: impl Into<At<'a>>) -> Option<&str> {
        match &self.get(at)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value of a boolean.
    pub fn flag<'a>(&self, at: impl Into<At<'a>>) -> Option<bool> {
        match &self.get(at)?.value {
            Value::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    /// The value of a number.
    pub fn number<'a>(&self, at: impl Into<At<'a>>) -> Option<u64> {
        match &self.get(at)?.value {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The value of a duration.
    pub fn duration<'a>(&self, at: impl Into<At<'a>>) -> Option<Duration> {
        match &self.get(at)?.value {
            Value::Duration(duration) => Some(*duration),
            _ => None,
        }
    }

    /// A text that is one of a few words. Any other is a fault.
    pub fn word<'a, T: Copy>(
        &self,
        at: impl Into<At<'a>>,
        (all, as_str): (&[T], fn(T) -> &'static str),
        findings: &mut Findings,
    ) -> Option<T> {
        let at = at.into();
        let text = self.text(at)?;
        let value = all.iter().copied().find(|one| as_str(*one) == text);
        if value.is_none() {
            let words: Vec<_> = all.iter().map(|one| as_str(*one)).collect();
            findings.problem(self.origin(at), format!("must be one of {}", words.join(", ")));
        }
        value
    }

    /// What stands at this path of a [tree](crate::Section::tree).
    pub fn tree(&self, path: &str) -> Option<&Tree> {
        self.trees.get(path)
    }

    /// The own names of the sections of this kind, sorted.
    pub fn names(&self, section: &str) -> Vec<String> {
        self.sections.iter().filter(|(found, _)| *found == section).map(|(_, name)| name.clone()).collect()
    }

    /// Whether a section is present, empty or not.
    pub fn has_section(&self, section: &str, name: &str) -> bool {
        self.sections.iter().any(|(found, of)| *found == section && of == name)
    }

    /// Whether the file says that there is no section of this kind, by an empty mapping.
    pub fn says_none(&self, section: &str) -> bool {
        self.none.contains(section)
    }

    /// Whether a section has any value.
    pub fn has_values(&self, section: &str) -> bool {
        self.values.keys().any(|(found, _, _)| *found == section)
    }

    /// Whether nothing has been read.
    pub fn is_empty(&self) -> bool {
        self.sections.is_empty() && self.values.is_empty() && self.trees.is_empty()
    }

    /// Where a key stands, or where it would stand.
    pub fn origin<'a>(&self, at: impl Into<At<'a>>) -> String {
        let at = at.into();
        if let Some(setting) = self.get(at) {
            return setting.origin.clone();
        }
        self.found(at)
            .map_or_else(|| at.key.to_owned(), |(section, key)| section.origin_of(self.format, at.name, key))
    }

    /// Where a section stands, or would stand.
    pub fn section_origin(&self, section: &str, name: &str) -> String {
        let section = self.schema.section(section);
        section.map_or_else(String::new, |section| section.origin(self.format, name))
    }
}
