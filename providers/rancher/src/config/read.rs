//! Reads a configuration text, and the environment below it.

use cloudprovider::manifest_in_place_of_config;
use provider_kit::{Environment, Findings, Format, Settings, yaml::Node};

use super::keys::SCHEMA;

/// Reads the text, in the format that it has, and the environment below it. `None` if the text cannot be read
/// at all.
pub(super) fn read(text: &str, environment: &Environment, findings: &mut Findings) -> Option<Settings> {
    let mut settings = match Format::of(text) {
        Format::Ini => {
            let had = findings.problems.len();
            let settings = Settings::from_gcfg(&SCHEMA, text, findings);
            if settings.is_empty() && findings.problems.len() > had {
                return None;
            }
            settings
        }
        Format::Yaml => read_yaml(text, findings)?,
    };
    environment.apply(&mut settings, findings);
    Some(settings)
}

fn read_yaml(text: &str, findings: &mut Findings) -> Option<Settings> {
    let root = Node::strict(text).map_err(|why| findings.problem("", why)).ok()?;
    let kind = root.get("kind").and_then(Node::text);
    if let (Some(kind), Some(_)) = (kind, root.get("metadata")) {
        findings.problem("", manifest_in_place_of_config(kind));
        return None;
    }
    let Ok(entries) = root.into_entries() else {
        findings.problem("", "must be a mapping of keys to values, or gcfg with a [Global] section");
        return None;
    };
    Some(Settings::from_yaml(&SCHEMA, entries, findings))
}
