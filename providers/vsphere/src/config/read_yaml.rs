//! Reads the YAML format into [`Settings`].

use std::collections::{BTreeMap, BTreeSet};

use cloudprovider::{manifest_in_place_of_config, yaml_fault_cause};

use super::{
    allow::ALLOW_KEY,
    hints,
    keys::{Key, Kind, Section, not_a_number},
    settings::{Findings, Format, Settings, Value, with_oddity},
};
use crate::yaml::{Node, YamlFault};

/// Top-level keys of Kubernetes objects. They have no meaning here but are often written.
const KUBERNETES_HABITS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Reads a file. `has_vcenter` says whether a vCenter is named elsewhere; then the file need not name one.
pub(crate) fn read(text: &str, has_vcenter: bool, findings: &mut Findings) -> Settings {
    let mut settings = Settings::new(Format::Yaml);
    let root = match Node::parse_first(text) {
        Ok((root, has_more)) => {
            if has_more {
                findings.warning("", "holds several YAML documents (---); only the first one counts");
            }
            root
        }
        Err(fault) => {
            findings.problem("", with_cause(&fault, text));
            return settings;
        }
    };
    let entries = match root {
        Node::Mapping(entries) => entries,
        Node::Null => Vec::new(),
        other => {
            findings.problem(
                "",
                format!(
                    "is {}, must be a YAML mapping that begins with a key such as vcenter:, \
                     or an INI text that begins with a section such as [Global]",
                    other.kind()
                ),
            );
            return settings;
        }
    };
    let is_section = |name: &str| {
        name == address_pools::Config::KEY || Section::ALL.iter().any(|section| section.yaml() == name)
    };
    let kind = entries.iter().find(|(name, _)| name == "kind").and_then(|(_, kind)| kind.text());
    let is_near = |name: &str| hints::nearest(name, &Section::ALL.map(Section::yaml)).is_some();
    if let Some(kind) = kind
        && !entries.iter().any(|(name, _)| is_section(name) || is_near(name))
    {
        if !has_vcenter {
            findings.problem("", manifest_in_place_of_config(kind));
            return settings;
        }
        findings.warning("", manifest_in_place_of_config(kind));
    }
    let mut seen = BTreeSet::new();
    for (name, node) in entries {
        // As in CPI, both sections are read into the same structure.
        if !seen.insert(name.clone()) && is_section(&name) {
            let words = if name == address_pools::Config::KEY {
                "stands there twice; the last one counts"
            } else {
                "stands there twice; both count, and of a key in both the last one"
            };
            findings.warning(&name, words);
        }
        if name == address_pools::Config::KEY {
            settings.address_pools = Some(node.to_json());
            continue;
        }
        match Section::ALL.into_iter().find(|section| section.yaml() == name) {
            Some(section) if section.is_named() => read_named(section, node, &mut settings, findings),
            Some(section) => read_section(section, "", node, &mut settings, findings),
            None if KUBERNETES_HABITS.contains(&name.as_str()) => {}
            None => findings.warning("", hints::unknown_section(&name, Format::Yaml)),
        }
    }
    settings
}

/// The message about a text that is not valid YAML, with its probable cause.
fn with_cause(fault: &YamlFault, text: &str) -> String {
    match yaml_fault_cause(text, fault.line) {
        Some(cause) => format!("{fault}; {cause}"),
        None => fault.to_string(),
    }
}

fn read_named(section: Section, node: Node, settings: &mut Settings, findings: &mut Findings) {
    let what = section.yaml();
    match node {
        Node::Null => {}
        Node::Mapping(entries) => {
            settings.has_no_vcenter |= section == Section::VCenter && entries.is_empty();
            for (name, node) in last_of_each(what, entries, findings) {
                match node {
                    Node::Mapping(_) | Node::Null => read_section(section, &name, node, settings, findings),
                    other => findings.fault(
                        section,
                        settings.section_origin(section, &name),
                        format!(
                            "is {}, must be a mapping: below {what} comes a name of your own, and below that the keys",
                            other.kind()
                        ),
                    ),
                }
            }
        }
        other => findings.fault(
            section,
            what,
            format!("is {}, must be a mapping of names to mappings", other.kind()),
        ),
    }
}

fn read_section(section: Section, name: &str, node: Node, settings: &mut Settings, findings: &mut Findings) {
    let place = settings.section_origin(section, name);
    settings.open(section, name);
    let entries = match node {
        Node::Mapping(entries) => entries,
        Node::Null => return,
        other => {
            findings.fault(
                section,
                place,
                format!("is {}, must be a mapping of keys to values", other.kind()),
            );
            return;
        }
    };
    for (key, node) in last_of_each(&place, entries, findings) {
        if section == Section::Machines && key == ALLOW_KEY {
            settings.machine_allow = Some(node.to_json());
            continue;
        }
        match section.keys().find(|known| known.name == key) {
            Some(key) => {
                let origin = format!("{place}.{}", key.name);
                if key.kind == Kind::Secret && matches!(node, Node::Scalar { is_cut: true, .. }) {
                    findings.warning(
                        &origin,
                        "ends at a comment sign (#); if the sign belongs to the value, put the value in quotes",
                    );
                }
                match read_value(key, &node) {
                    Ok(Some(value)) => {
                        findings.note_oddity(key, &value, &origin);
                        settings.set(key, name, value, origin);
                    }
                    Ok(None) => {}
                    Err(message) => findings.fault(section, origin, with_oddity(&message, key, node.text())),
                }
            }
            None => {
                let more = (section == Section::Machines).then_some(ALLOW_KEY);
                let known: Vec<_> = section.keys().map(|key| key.name).chain(more).collect();
                findings.warning(&place, hints::unknown(&key, &known));
            }
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

/// Reads a value. `None` if none is given.
fn read_value(key: &Key, node: &Node) -> Result<Option<Value>, String> {
    if *node == Node::Null {
        return Ok(None);
    }
    let value = match key.kind {
        Kind::Text | Kind::Secret => node.text().map(|text| Value::Text(text.to_owned())).ok_or("a text"),
        Kind::Flag => node.flag().map(Value::Flag).ok_or("true or false"),
        Kind::Number => match (node.number(), node.text()) {
            (Some(number), _) => Ok(Value::Number(number)),
            (None, Some(text)) => return Err(not_a_number(key, text).to_owned()),
            (None, None) => Err("a whole number"),
        },
        Kind::Commas => node
            .text()
            .map(|text| Value::List(split(text)))
            .ok_or("one text; join several with commas, without a list"),
        Kind::List => {
            texts(node).map(Value::List).ok_or("a list of texts, each on a line of its own behind a dash")
        }
        Kind::Tags => tags(node).map(Value::Tags).ok_or("a mapping of texts to texts"),
    };
    match value {
        Ok(value) => Ok(Some(value)),
        Err(wanted) => Err(match node {
            Node::Scalar { .. } => format!("must be {wanted}"),
            other => format!("is {}, must be {wanted}", other.kind()),
        }),
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
pub(crate) fn split(text: &str) -> Vec<String> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    text.split(',').map(|item| item.trim().to_owned()).collect()
}
