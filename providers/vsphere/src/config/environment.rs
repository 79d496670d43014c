//! Variables of the environment that override the file.

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

/// Begins the variables that name further vCenters.
const VCENTER: &str = "VSPHERE_VCENTER_";

impl Environment {
    /// That of this process. What is not Unicode is left out.
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

    /// Whether a vCenter is named.
    pub(crate) fn has_vcenter(&self) -> bool {
        self.get("VSPHERE_VCENTER").is_some() || self.vcenters().next().is_some()
    }

    /// The vCenters with a variable of their own each: that variable, what tells it from others, and the name.
    fn vcenters(&self) -> impl Iterator<Item = (&String, &str, &String)> {
        self.0.iter().filter_map(|(variable, reference)| {
            let id = variable.strip_prefix(VCENTER)?;
            // the port of the one in `VSPHERE_VCENTER`
            (id != "PORT" && !reference.is_empty()).then_some((variable, id, reference))
        })
    }

    /// Overrides what the file says.
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

/// Go's words for truth values, and those of the INI format.
fn go_flag(text: &str) -> Option<bool> {
    parse_bool(text).ok().or_else(|| read_ini::flag(text))
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<T: IntoIterator<Item = (N, V)>>(variables: T) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl fmt::Debug for Environment {
    /// Leaves everything out: an environment is full of secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment(***)")
    }
}
