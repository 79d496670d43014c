//! Reads both file formats into [`Settings`].

use std::collections::{BTreeMap, BTreeSet};

use cloudprovider::{
    gcfg::{self, Cut},
    parse_duration,
};

use crate::{
    findings::{Findings, with_oddity},
    hints,
    keys::{Dialect, Format, Key, Schema, Section, Shape},
    settings::Settings,
    values::{Kind, Value, Words},
    yaml::Node,
};

const YAML_ONLY: &str = "can be given in the YAML format only; write the file in that format";

impl Settings {
    /// Reads a text in gcfg. Empty if it cannot be read at all.
    pub fn from_gcfg(schema: &'static Schema, text: &str, findings: &mut Findings) -> Self {
        let mut settings = Self::new(schema, Format::Ini);
        match gcfg::parse(text) {
            Ok(document) => {
                for section in document.sections {
                    read_ini_section(section, &mut settings, findings);
                }
            }
            Err(faults) => {
                for fault in faults {
                    findings.problem(format!("line {}", fault.line), fault.message);
                }
            }
        }
        settings
    }

    /// Reads the entries at the top level of a YAML text.
    pub fn from_yaml(schema: &'static Schema, entries: Vec<(String, Node)>, findings: &mut Findings) -> Self {
        let mut settings = Self::new(schema, Format::Yaml);
        let mut seen = BTreeSet::new();
        for (name, _) in &entries {
            // As in CPI, both sections are read into the same structure.
            if let (false, Some(section)) = (seen.insert(name), schema.section(name)) {
                let words = match section.shape {
                    Shape::Tree => "stands there twice; the last one counts",
                    Shape::Keys | Shape::Named => {
                        "stands there twice; both count, and of a key in both the last one"
                    }
                };
                findings.warning(name, words);
            }
        }
        Yaml { schema, settings: &mut settings, findings }.mapping("", None, entries);
        settings
    }
}

/// A YAML text that is being read.
struct Yaml<'a> {
    schema: &'static Schema,
    settings: &'a mut Settings,
    findings: &'a mut Findings,
}

impl Yaml<'_> {
    /// Reads what stands at a path. `own` is the section's own name, if it has one.
    fn mapping(&mut self, path: &str, own: Option<&str>, entries: Vec<(String, Node)>) {
        let section = self.schema.section(path);
        for (name, node) in entries {
            let full = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let below = self.schema.section(&full).filter(|_| own.is_none() && !full.is_empty());
            if let Some(below) = below {
                self.section(below, node);
            } else if let Some((section, key)) =
                section.and_then(|section| Some((section, section.key(&name)?)))
            {
                self.key(section, key, own.unwrap_or_default(), &node);
            } else if !path.is_empty() || !self.schema.dialect.ignored.contains(&name.as_str()) {
                self.unknown(path, own, &name);
            }
        }
    }

    fn section(&mut self, section: &'static Section, node: Node) {
        let path = section.yaml;
        match (section.shape, node) {
            (Shape::Tree, node) => self.settings.put_tree(path.to_owned(), node.to_json()),
            (Shape::Keys, node) => self.keys(section, None, node),
            (Shape::Named, Node::Null) => {}
            (Shape::Named, Node::Mapping(entries)) => {
                if entries.is_empty() {
                    self.settings.note_none(section);
                }
                for (name, node) in last_of_each(path, entries, self.findings) {
                    self.keys(section, Some(&name), node);
                }
            }
            (Shape::Named, other) => {
                let words = format!("is {}, must be a mapping of names to mappings", other.kind());
                self.findings.fault(section, path, words);
            }
        }
    }

    fn keys(&mut self, section: &'static Section, own: Option<&str>, node: Node) {
        let name = own.unwrap_or_default();
        let place = section.origin(Format::Yaml, name);
        let entries = match (node, own) {
            (Node::Mapping(entries), _) => entries,
            (Node::Null, _) => Vec::new(),
            (other, Some(_)) => {
                let words = format!(
                    "is {}, must be a mapping: below {} comes a name of your own, and below that the keys",
                    other.kind(),
                    section.yaml
                );
                self.findings.fault(section, place, words);
                return;
            }
            (other, None) => {
                self.settings.open(section, name);
                let words = format!("is {}, must be a mapping of keys to values", other.kind());
                self.findings.fault(section, place, words);
                return;
            }
        };
        self.settings.open(section, name);
        let entries = last_of_each(&place, entries, self.findings);
        self.mapping(section.yaml, own, entries);
    }

    fn key(&mut self, section: &'static Section, key: &'static Key, name: &str, node: &Node) {
        let origin = section.origin_of(Format::Yaml, name, key);
        if key.kind == Kind::Tree {
            self.settings.put_tree(origin, node.to_json());
            return;
        }
        if key.kind == Kind::Secret && matches!(node, Node::Scalar { is_cut: true, .. }) {
            self.findings.warning(
                &origin,
                "ends at a comment sign (#); if the sign belongs to the value, put the value in quotes",
            );
        }
        match value(key, node, &self.schema.dialect) {
            Ok(Some(value)) => self.settings.put((section, key, name), value, origin, self.findings),
            Ok(None) => {}
            Err(message) => {
                self.findings.fault(section, origin, with_oddity(&message, section, key, node.text()));
                self.settings.refuse(section, key, name);
            }
        }
    }

    fn unknown(&mut self, path: &str, own: Option<&str>, name: &str) {
        let section = self.schema.section(path);
        let known = self.schema.known_at(path);
        if self.schema.dialect.refuses_unknown {
            let is_shown = hints::is_shown(name, hints::nearest(name, known.iter().copied()).is_some());
            let place = match (is_shown, path) {
                (false, path) => path.to_owned(),
                (true, "") => name.to_owned(),
                (true, path) => format!("{path}.{name}"),
            };
            self.findings.problem(place, format!("unknown key; {}", hints::refused(name, &known)));
            return;
        }
        match section {
            Some(section) => {
                let place = section.origin(Format::Yaml, own.unwrap_or_default());
                self.findings.warning(place, hints::ignored(name, &known));
            }
            None => self.findings.warning("", unknown_section(self.schema, name, Format::Yaml)),
        }
    }
}

/// The message about a section that this format does not have.
fn unknown_section(schema: &Schema, name: &str, format: Format) -> String {
    let is_tree = |section: &&Section| section.shape == Shape::Tree;
    let is_called = |called: &str| hints::squeezed(called) == hints::squeezed(name);
    let tree = schema.sections.iter().filter(is_tree).find(|tree| is_called(tree.yaml));
    if let (Format::Ini, Some(tree)) = (format, tree) {
        return tree.ini.to_owned();
    }
    let known: Vec<_> = match format {
        Format::Yaml => schema.known_at(""),
        Format::Ini => schema.sections.iter().filter(|one| !is_tree(one)).map(|one| one.ini).collect(),
    };
    if hints::has_hidden_character(name) {
        return hints::ignored(name, &known);
    }
    let elsewhere = schema.sections.iter().filter(|section| !is_tree(section)).find_map(|section| {
        let (here, there) = match format {
            Format::Yaml => (section.yaml, section.ini),
            Format::Ini => (section.ini, section.yaml),
        };
        is_called(there).then_some(here)
    });
    match elsewhere {
        Some(known) => format!("{name:?} is not known and ignored; did you mean {known}?"),
        None => {
            (schema.dialect.unknown_section)(name, format).unwrap_or_else(|| hints::ignored(name, &known))
        }
    }
}

/// The entries of a mapping, keeping only the last one of each key.
fn last_of_each(place: &str, entries: Vec<(String, Node)>, findings: &mut Findings) -> Vec<(String, Node)> {
    let mut kept: Vec<(String, Node)> = Vec::with_capacity(entries.len());
    for (key, node) in entries {
        match kept.iter_mut().find(|(known, _)| *known == key) {
            Some(earlier) => {
                findings.warning(place, "has the same key twice; the last one counts");
                earlier.1 = node;
            }
            None => kept.push((key, node)),
        }
    }
    kept
}

fn read_ini_section(section: gcfg::Section, settings: &mut Settings, findings: &mut Findings) {
    let schema = settings.schema();
    let mut sections = schema.sections.iter().filter(|known| known.shape != Shape::Tree);
    let Some(known) = sections.find(|known| known.ini.eq_ignore_ascii_case(&section.name)) else {
        let words = unknown_section(schema, &section.name, Format::Ini);
        let is_tree = schema.sections.iter().any(|known| known.shape == Shape::Tree && known.ini == words);
        if is_tree && schema.dialect.refuses_unknown {
            findings.problem("", words);
        } else {
            findings.warning("", words);
        }
        return;
    };
    let name = match (known.shape, section.subsection) {
        (Shape::Named, Some(name)) => name,
        (Shape::Keys | Shape::Tree, None) => String::new(),
        (Shape::Named, None) => {
            let words = format!("needs a name; write [{} \"name\"]", known.ini);
            findings.fault(known, format!("[{}]", known.ini), words);
            return;
        }
        (Shape::Keys | Shape::Tree, Some(_)) => {
            findings.warning(format!("[{}]", known.ini), "takes no name in quotes; all below it is ignored");
            return;
        }
    };
    settings.open(known, &name);
    for variable in section.variables {
        read_variable(known, &name, variable, settings, findings);
    }
}

fn read_variable(
    section: &'static Section,
    name: &str,
    variable: gcfg::Variable,
    settings: &mut Settings,
    findings: &mut Findings,
) {
    let dialect = &settings.schema().dialect;
    let Some(key) = section.keys.iter().find(|known| known.ini.eq_ignore_ascii_case(&variable.name)) else {
        let known = section.keys.iter().filter(|key| key.kind != Kind::Tree);
        let known: Vec<_> = known.map(|key| key.ini).collect();
        findings.warning(section.origin(Format::Ini, name), hints::ignored(&variable.name, &known));
        return;
    };
    let origin = section.origin_of(Format::Ini, name, key);
    match variable.cut {
        Cut::No => {}
        // values other than secrets are often followed by such a comment
        Cut::Spaced if key.kind != Kind::Secret => {}
        Cut::Tight | Cut::Spaced => findings.warning(
            &origin,
            "ends at a comment sign (# or ;); if the sign belongs to the value, put the value in double quotes",
        ),
    }
    let read = match (variable.value.as_deref(), key.kind) {
        (_, Kind::Tree) => Err(YAML_ONLY),
        (Some(text), _) => scalar(key, text, &dialect.ini, dialect),
        (None, Kind::Flag) => Ok(Value::Flag(true)),
        (None, _) => Err("needs a value; write name = value"),
    };
    match read {
        Ok(value) => settings.put((section, key, name), value, origin, findings),
        Err(message) => {
            findings.fault(section, origin, with_oddity(message, section, key, variable.value.as_deref()));
            settings.refuse(section, key, name);
        }
    }
}

/// Reads a value of YAML. `None` if none is given.
fn value(key: &Key, node: &Node, dialect: &Dialect) -> Result<Option<Value>, String> {
    let read = match (node, key.kind) {
        (Node::Null, _) => return Ok(None),
        (Node::List(_), Kind::List) => texts(node).map(Value::List),
        (Node::Mapping(_), Kind::Tags) => tags(node).map(Value::Tags),
        (Node::Scalar { .. }, Kind::List | Kind::Tags) => None,
        (Node::Scalar { text, .. }, _) => {
            return scalar(key, text, &dialect.yaml, dialect).map(Some).map_err(str::to_owned);
        }
        (Node::Typed(typed), Kind::Flag) => typed.as_bool().map(Value::Flag),
        (Node::Typed(typed), Kind::Number) => (dialect.yaml.number)(&typed.to_string()).map(Value::Number),
        (Node::Typed(_), Kind::Text | Kind::Secret) => {
            return Err("must be a text; put it in quotes".to_owned());
        }
        _ => None,
    };
    let wanted = match key.kind {
        Kind::Text | Kind::Secret => "a text",
        Kind::Flag => "true or false",
        Kind::Number => "a whole number",
        Kind::Duration => "a duration such as 5s or 1m30s",
        Kind::Commas => "one text; join several with commas, without a list",
        Kind::List => "a list of texts, each on a line of its own behind a dash",
        Kind::Tags => "a mapping of texts to texts",
        Kind::Tree => "a tree",
    };
    read.map(Some).ok_or_else(|| match node {
        Node::Scalar { .. } | Node::Typed(_) => format!("must be {wanted}"),
        other => format!("is {}, must be {wanted}", other.kind()),
    })
}

/// Reads a value that is one text.
pub(crate) fn scalar(key: &Key, text: &str, words: &Words, dialect: &Dialect) -> Result<Value, &'static str> {
    if text.is_empty() && !words.filled.contains(&key.kind) {
        return Ok(Value::Text(String::new()));
    }
    if !dialect.takes_control_characters && !key.is_copied && text.chars().any(char::is_control) {
        return Err("holds a control character");
    }
    match key.kind {
        Kind::Text | Kind::Secret => Ok(Value::Text(text.to_owned())),
        Kind::Flag => (words.flag)(text).map(Value::Flag).ok_or(words.flags),
        Kind::Number => (words.number)(text).map(Value::Number).ok_or_else(|| not_a_number(key, text)),
        Kind::Duration => {
            parse_duration(text).map(Value::Duration).ok_or("must be a duration such as 5s or 1m30s")
        }
        Kind::List | Kind::Commas => Ok(Value::List(split(text))),
        Kind::Tags => serde_json::from_str(text)
            .map(Value::Tags)
            .map_err(|_| r#"must be a JSON object of texts in double quotes: "{\"name\":\"value\"}""#),
        Kind::Tree => Err(YAML_ONLY),
    }
}

/// The message about a text that is not a valid number for this key.
fn not_a_number(key: &Key, text: &str) -> &'static str {
    let is_negative = text.trim().strip_prefix('-').is_some_and(|digits| digits.parse::<f64>().is_ok());
    match (is_negative, key.name) {
        (true, "port") => "must be a port number, 1 to 65535",
        (true, _) => "must be a whole number of at least 0",
        (false, _) => "must be a whole number",
    }
}

fn texts(node: &Node) -> Option<Vec<String>> {
    match node {
        Node::List(items) => items
            .iter()
            .filter(|item| **item != Node::Null)
            .map(|item| item.text().map(|text| text.trim().to_owned()))
            .collect(),
        _ => None,
    }
}

fn tags(node: &Node) -> Option<BTreeMap<String, String>> {
    match node {
        Node::Mapping(entries) => entries
            .iter()
            .map(|(key, node)| match node {
                Node::Null => Some((key.clone(), String::new())),
                node => Some((key.clone(), node.text()?.to_owned())),
            })
            .collect(),
        _ => None,
    }
}

/// Splits a text at commas and trims each part. Empty parts are kept, so that callers can check for them.
pub fn split(text: &str) -> Vec<String> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    text.split(',').map(|item| item.trim().to_owned()).collect()
}
