//! The table of keys: their names in both file formats and in the environment, and what they mean.
//!
//! The readers of both formats, the environment and a generated reference all use this table, so that they know the same keys.

use crate::values::{Kind, Words};

/// The format of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// YAML.
    #[default]
    Yaml,
    /// gcfg, the INI dialect of Go's providers.
    Ini,
}

impl Format {
    /// The format of a text. gcfg begins with a section header, which YAML would read as a list.
    pub fn of(text: &str) -> Self {
        let text = text.trim_start_matches('\u{feff}');
        let mut lines = text.lines().map(str::trim_start);
        let first = lines.find(|line| !line.is_empty() && !line.starts_with(['#', ';']));
        if first.is_some_and(|line| line.starts_with('[')) { Self::Ini } else { Self::Yaml }
    }
}

/// All keys of a provider's configuration, and how their values are written.
#[derive(Debug)]
pub struct Schema {
    /// In the order of a reference.
    pub sections: &'static [Section],
    /// What is other than in files of our own.
    pub dialect: Dialect,
}

impl Schema {
    /// The section that is called so in YAML.
    pub fn section(&self, yaml: &str) -> Option<&'static Section> {
        self.sections.iter().find(|section| section.yaml == yaml)
    }

    /// The names that may stand at a path of YAML: keys, and sections below it.
    pub(crate) fn known_at(&self, path: &str) -> Vec<&'static str> {
        let keys = self.section(path).into_iter().flat_map(|section| section.keys).map(|key| key.name);
        let below = self.sections.iter().filter_map(|section| match path {
            "" => section.yaml.split('.').next().filter(|name| !name.is_empty()),
            path => section.yaml.strip_prefix(path)?.strip_prefix('.')?.split('.').next(),
        });
        let mut known: Vec<_> = Vec::new();
        for name in keys.chain(below) {
            if !known.contains(&name) {
                known.push(name);
            }
        }
        known
    }
}

/// A part of the configuration.
#[derive(Debug)]
pub struct Section {
    /// The path in YAML, such as `loadBalancer` or `loadBalancer.harvester`. Empty for keys at the top level.
    pub yaml: &'static str,
    /// The section of gcfg, whose letter case does not matter. Of a [tree](Self::tree) the message about one there.
    pub ini: &'static str,
    /// What stands below it.
    pub shape: Shape,
    /// Whether the provider does nothing with the section, so that faults in it are warnings.
    pub is_unused: bool,
    /// In the order of a reference.
    pub keys: &'static [Key],
}

/// What stands below a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Keys.
    Keys,
    /// Any number of names, each with the keys below it.
    Named,
    /// Something with a reader of its own, in YAML only.
    Tree,
}

impl Section {
    /// A section with these keys.
    pub const fn new(yaml: &'static str, ini: &'static str, keys: &'static [Key]) -> Self {
        Self { yaml, ini, shape: Shape::Keys, is_unused: false, keys }
    }

    /// A section of YAML with a reader of its own, and the message about one in gcfg. See
    /// [`Settings::tree`](crate::Settings::tree).
    pub const fn tree(yaml: &'static str, in_gcfg: &'static str) -> Self {
        Self { shape: Shape::Tree, ..Self::new(yaml, in_gcfg, &[]) }
    }

    /// The same with any number of names, each with the keys below it.
    #[must_use]
    pub const fn named(self) -> Self {
        Self { shape: Shape::Named, ..self }
    }

    /// The same where the provider does nothing with it.
    #[must_use]
    pub const fn unused(self) -> Self {
        Self { is_unused: true, ..self }
    }

    /// The key that is called so in YAML.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// The place of a section in messages. `name` is its own name, if it has one.
    pub fn origin(&self, format: Format, name: &str) -> String {
        match (format, self.shape) {
            (Format::Yaml, Shape::Named) if name.contains('.') => format!("{}[{name:?}]", self.yaml),
            (Format::Yaml, Shape::Named) => format!("{}.{name}", self.yaml),
            (Format::Yaml, Shape::Keys | Shape::Tree) => self.yaml.to_owned(),
            (Format::Ini, Shape::Named) => format!("[{} {name:?}]", self.ini),
            (Format::Ini, Shape::Keys | Shape::Tree) => format!("[{}]", self.ini),
        }
    }

    /// The place of a key in messages.
    pub(crate) fn origin_of(&self, format: Format, name: &str, key: &Key) -> String {
        let place = self.origin(format, name);
        match format {
            Format::Yaml if place.is_empty() => key.name.to_owned(),
            Format::Yaml => format!("{place}.{}", key.name),
            Format::Ini => format!("{place} {}", key.ini),
        }
    }
}

/// One key of the configuration.
#[derive(Debug)]
pub struct Key {
    /// The name in YAML, and in the code.
    pub name: &'static str,
    /// The name in gcfg, whose letter case does not matter.
    pub ini: &'static str,
    /// The environment variable with its value; empty if there is none. In a [named](Section::named) section the part that all
    /// of them have.
    pub env: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// Whether texts are copied from elsewhere as they are, so that any character may be in them.
    pub is_copied: bool,
    /// For the reference.
    pub default: &'static str,
    /// For the reference.
    pub meaning: &'static str,
}

impl Key {
    /// A key with these names.
    pub const fn new(name: &'static str, ini: &'static str, kind: Kind) -> Self {
        Self { name, ini, env: "", kind, is_copied: false, default: "", meaning: "" }
    }

    /// The same with an environment variable.
    #[must_use]
    pub const fn env(self, env: &'static str) -> Self {
        Self { env, ..self }
    }

    /// The same with a text about its default for the reference.
    #[must_use]
    pub const fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    /// The same with its meaning for the reference.
    #[must_use]
    pub const fn means(self, meaning: &'static str) -> Self {
        Self { meaning, ..self }
    }

    /// The same for texts that are copied from elsewhere as they are.
    #[must_use]
    pub const fn copied(self) -> Self {
        Self { is_copied: true, ..self }
    }
}

/// The quirks of a configuration: where other programs read the same files, their rules count.
#[derive(Debug)]
pub struct Dialect {
    /// How values are written in YAML.
    pub yaml: Words,
    /// How values are written in gcfg.
    pub ini: Words,
    /// How values are written in the environment.
    pub environment: Words,
    /// Whether the environment overrides the file. Else it gives what the file does not.
    pub environment_wins: bool,
    /// Whether an unknown key of YAML is a fault. Else it is ignored with a warning, as in gcfg.
    pub refuses_unknown: bool,
    /// Whether texts may have control characters in them.
    pub takes_control_characters: bool,
    /// Names at the top level of YAML that say nothing and are often written.
    pub ignored: &'static [&'static str],
    /// The message about an unknown section that the provider has more to say of.
    pub unknown_section: fn(&str, Format) -> Option<String>,
}

impl Dialect {
    /// That of files of our own.
    pub const STRICT: Self = Self {
        yaml: Words::STRICT,
        ini: Words::STRICT,
        environment: Words::STRICT,
        environment_wins: false,
        refuses_unknown: true,
        takes_control_characters: false,
        ignored: &[],
        unknown_section: |_, _| None,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_distinguished_by_their_beginning() {
        for text in ["[Global]", "\u{feff}[Global]", "# c\n; c\n\n  [Global]\n"] {
            assert_eq!(Format::of(text), Format::Ini, "{text:?}");
        }
        for text in ["", "global:", "---\nglobal:", "# [Global]\nglobal:", "{}"] {
            assert_eq!(Format::of(text), Format::Yaml, "{text:?}");
        }
    }
}
