//! Reads the text, in the format that it has, and the environment over it.

use cloudprovider::manifest_in_place_of_config;
use provider_kit::{Environment, Findings, Format, Settings, hints, yaml::Node};

use super::{
    environment::{apply, has_vcenter},
    keys::SCHEMA,
};

/// Reads a text and the environment. `None` if the text cannot be read at all: then missing keys are not reported as well.
pub(super) fn read(text: &str, environment: &Environment, findings: &mut Findings) -> Option<Settings> {
    let mut settings = match Format::of(text) {
        Format::Ini => Settings::from_gcfg(&SCHEMA, text, findings),
        Format::Yaml => read_yaml(text, has_vcenter(environment), findings),
    };
    let is_readable = findings.problems.is_empty() || !settings.is_empty();
    apply(environment, &mut settings, findings);
    is_readable.then_some(settings)
}

/// Reads a YAML text. `has_vcenter` says whether a vCenter is named elsewhere; then the file need not name one.
pub(super) fn read_yaml(text: &str, has_vcenter: bool, findings: &mut Findings) -> Settings {
    let empty = || Settings::new(&SCHEMA, Format::Yaml);
    let root = match Node::parse_first(text) {
        Ok((root, has_more)) => {
            if has_more {
                findings.warning("", "holds several YAML documents (---); only the first one counts");
            }
            root
        }
        Err(fault) => {
            findings.problem("", fault.in_text(text));
            return empty();
        }
    };
    let entries = match root.into_entries() {
        Ok(entries) => entries,
        Err(other) => {
            findings.problem(
                "",
                format!(
                    "is {}, must be a YAML mapping that begins with a key such as vcenter:, \
                     or an INI text that begins with a section such as [Global]",
                    other.kind()
                ),
            );
            return empty();
        }
    };
    let kind = entries.iter().find(|(name, _)| name == "kind").and_then(|(_, kind)| kind.text());
    let is_meant = |name: &str| {
        let sections = || SCHEMA.sections.iter().map(|section| section.yaml);
        sections().any(|section| section == name) || hints::nearest(name, sections()).is_some()
    };
    if let Some(kind) = kind
        && !entries.iter().any(|(name, _)| is_meant(name))
    {
        if !has_vcenter {
            findings.problem("", manifest_in_place_of_config(kind));
            return empty();
        }
        findings.warning("", manifest_in_place_of_config(kind));
    }
    Settings::from_yaml(&SCHEMA, entries, findings)
}
