//! Environment variables that override the configuration file.

use provider_kit::{Environment, Findings, Settings, Value};

use super::keys::{SCHEMA, VCENTER};

/// The prefix of the variables that name further vCenters.
const PREFIX: &str = "VSPHERE_VCENTER_";

/// Whether any variable names a vCenter.
pub(super) fn has_vcenter(environment: &Environment) -> bool {
    environment.get("VSPHERE_VCENTER").is_some() || vcenters(environment).next().is_some()
}

/// The vCenters that are named by variables of their own: the variable, its distinguishing part, and the
/// vCenter's name.
fn vcenters(environment: &Environment) -> impl Iterator<Item = (&str, &str, &str)> {
    environment.all().filter_map(|(variable, reference)| {
        let id = variable.strip_prefix(PREFIX)?;
        // `VSPHERE_VCENTER_PORT` belongs to the vCenter of `VSPHERE_VCENTER`
        (id != "PORT" && !reference.is_empty()).then_some((variable, id, reference))
    })
}

/// Overrides values of the file.
pub(super) fn apply(environment: &Environment, settings: &mut Settings, findings: &mut Findings) {
    environment.apply(settings, findings);
    let Some(section) = SCHEMA.section(VCENTER) else { return };
    for (variable, id, reference) in vcenters(environment) {
        environment.apply_named(section, reference, &format!("VCENTER_{id}_"), settings, findings);
        if let (None, Some(key)) = (settings.get((VCENTER, reference, "server")), section.key("server")) {
            settings.set(section, key, reference, Value::Text(reference.to_owned()), variable.to_owned());
        }
    }
}
