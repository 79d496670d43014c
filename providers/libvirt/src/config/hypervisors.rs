//! The section `hypervisors`.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use cloudprovider::label_value_fault;
use provider_kit::{Fields, Findings};
use serde_json::Value;

use super::credentials::{Auth, read_auth};
use crate::{fields::mapping, uri};

/// One hypervisor, that is one libvirtd.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HypervisorConfig {
    /// The operator's name for it, used in messages, and never in a provider ID.
    pub name: String,
    /// libvirt's connection URI. Must not contain secrets.
    pub uri: String,
    /// The region of its Nodes.
    pub region: Option<String>,
    /// The zone of its Nodes.
    pub zone: Option<String>,
    /// Its failure domain, if that is not its zone. See [`failure_domain`](Self::failure_domain).
    pub failure_domain: Option<String>,
    /// SASL credentials. They are read again for each connection.
    pub auth: Option<Auth>,
    /// A directory with `cacert.pem`, `clientcert.pem` and `clientkey.pem`.
    pub pkipath: Option<PathBuf>,
}

impl HypervisorConfig {
    /// The failure domain of machines on it: what is configured, else its zone, else its name.
    pub fn failure_domain(&self) -> &str {
        self.failure_domain.as_deref().or(self.zone.as_deref()).unwrap_or(&self.name)
    }
}

/// Checks that a name is given once, since names identify hypervisors in messages. `names` maps known names
/// to their places.
pub(super) fn check_name(
    path: &str,
    name: &str,
    names: &mut HashMap<String, String>,
    findings: &mut Findings,
) {
    if name.is_empty() {
        return;
    }
    match names.get(name) {
        Some(first) => findings.problem(
            format!("{path}.name"),
            format!("{name:?} is the name of {first} already; each needs its own"),
        ),
        None => drop(names.insert(name.to_owned(), path.to_owned())),
    }
}

/// Checks that a URI is given once. One libvirtd under two names would have every domain twice.
pub(super) fn check_uri(path: &str, uri: &str, uris: &mut HashMap<String, String>, findings: &mut Findings) {
    if uri.is_empty() {
        return;
    }
    match uris.get(uri) {
        Some(first) => findings.problem(format!("{path}.uri"), format!("is the uri of {first} already")),
        None => drop(uris.insert(uri.to_owned(), path.to_owned())),
    }
}

/// Reads a hypervisor. Faulty fields are left empty, so that checks across hypervisors still work and
/// positions are right.
pub(super) fn read_hypervisor(
    path: &str,
    value: Value,
    base: Option<&Path>,
    findings: &mut Findings,
) -> HypervisorConfig {
    let Some(mut fields) = mapping(path, value, findings) else {
        return HypervisorConfig {
            name: String::new(),
            uri: String::new(),
            region: None,
            zone: None,
            failure_domain: None,
            auth: None,
            pkipath: None,
        };
    };
    let name = fields.required_text("name", "a name of your own for this hypervisor", findings);
    let uri = fields.required_text("uri", "libvirt's connection URI, such as qemu:///system", findings);
    let region = label_value(&mut fields, "region", findings);
    let zone = label_value(&mut fields, "zone", findings);
    let failure_domain = label_value(&mut fields, "failureDomain", findings);
    let pkipath = fields.text("pkipath", findings).map(PathBuf::from);
    if let Some(uri) = &uri {
        for fault in uri::faults(uri) {
            findings.problem(fields.path("uri"), fault);
        }
        if pkipath.is_some() && uri::has_parameter(uri, "pkipath") {
            findings.problem(fields.path("pkipath"), "stands in the uri too; give it once");
        }
        if pkipath.is_some() && !uri::is_tls(uri) {
            findings.problem(
                fields.path("pkipath"),
                "has an effect on TLS only; write the uri as qemu+tls://host/system",
            );
        }
    }
    if pkipath.as_ref().is_some_and(|path| !path.is_absolute()) {
        findings.problem(fields.path("pkipath"), "must be an absolute path of a directory");
    }
    let auth_path = fields.path("auth");
    let auth = fields.take("auth").and_then(|value| read_auth(&auth_path, value, base, findings));
    fields.finish(findings);
    HypervisorConfig {
        name: name.unwrap_or_default(),
        uri: uri.unwrap_or_default(),
        region,
        zone,
        failure_domain,
        auth,
        pkipath,
    }
}

/// A text that becomes the value of a label, so Kubernetes' rule applies to it.
fn label_value(fields: &mut Fields, key: &'static str, findings: &mut Findings) -> Option<String> {
    let text = fields.text(key, findings)?;
    if is_label_value(&text) {
        return Some(text);
    }
    findings.problem(
        fields.path(key),
        "cannot be the value of a label: at most 63 letters, digits, '-', '_' and '.', \
         beginning and ending with a letter or digit",
    );
    None
}

/// Whether a label can have `text` as a value that says something.
pub(crate) fn is_label_value(text: &str) -> bool {
    !text.is_empty() && label_value_fault(text).is_none()
}
