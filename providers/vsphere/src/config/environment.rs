//! Environment variables that override the configuration file.

use std::{collections::BTreeMap, fmt};

use cloudprovider::parse_bool;

use super::{
    keys::{KEYS, Key, Kind, Section},
    read_ini,
    read_yaml::split,
    settings::{Findings, Settings, Value, with_oddity},
};

/// The environment of a process.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

/// The prefix of the variables that name further vCenters.
const VCENTER: &str = "VSPHERE_VCENTER_";

impl Environment {
    /// The environment of this process, without variables that are not Unicode.
    pub fn of_process() -> Self {
        let unicode = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self(std::env::vars_os().filter_map(unicode).collect())
    }

    /// The value of a variable that is set and not empty.
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Whether a variable is set, empty or not.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Whether any variable names a vCenter.
    pub(crate) fn has_vcenter(&self) -> bool {
        self.get("VSPHERE_VCENTER").is_some() || self.vcenters().next().is_some()
    }

    /// The vCenters that are named by variables of their own: the variable, its distinguishing part, and the
    /// vCenter's name.
    fn vcenters(&self) -> impl Iterator<Item = (&String, &str, &String)> {
        self.0.iter().filter_map(|(variable, reference)| {
            let id = variable.strip_prefix(VCENTER)?;
            // `VSPHERE_VCENTER_PORT` belongs to the vCenter of `VSPHERE_VCENTER`
            (id != "PORT" && !reference.is_empty()).then_some((variable, id, reference))
        })
    }

    /// Overrides values of the file.
    pub(crate) fn apply(&self, settings: &mut Settings, findings: &mut Findings) {
        for key in KEYS.iter().filter(|key| !key.env.is_empty() && key.section != Section::VCenter) {
            self.apply_key(key, "", key.env, settings, findings);
        }
        for (variable, id, reference) in self.vcenters() {
            settings.open(Section::VCenter, reference);
            for key in Section::VCenter.keys().filter(|key| !key.env.is_empty()) {
                self.apply_key(key, reference, &format!("VCENTER_{id}_{}", key.env), settings, findings);
            }
            if settings.get(Section::VCenter, reference, "server").is_none()
                && let Some(key) = Section::VCenter.keys().find(|key| key.name == "server")
            {
                settings.set(key, reference, Value::Text(reference.clone()), variable.clone());
            }
        }
    }

    fn apply_key(
        &self,
        key: &'static Key,
        name: &str,
        variable: &str,
        settings: &mut Settings,
        findings: &mut Findings,
    ) {
        let Some(text) = self.get(variable) else { return };
        let value = match key.kind {
            Kind::Text | Kind::Secret => Ok(Value::Text(text.to_owned())),
            Kind::Flag => go_flag(text).map(Value::Flag).ok_or("must be true or false"),
            Kind::Number => {
                read_ini::number(text).map(Value::Number).ok_or_else(|| super::keys::not_a_number(key, text))
            }
            Kind::List | Kind::Commas => Ok(Value::List(split(text))),
            Kind::Tags => return,
        };
        match value {
            Ok(value) => {
                findings.note_oddity(key, &value, variable);
                settings.set(key, name, value, variable.to_owned());
            }
            Err(message) => findings.problem(variable, with_oddity(message, key, Some(text))),
        }
    }
}

/// Parses Go's boolean words and those of the INI format.
fn go_flag(text: &str) -> Option<bool> {
    parse_bool(text).ok().or_else(|| read_ini::flag(text))
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
