//! Credentials of hypervisors, and the files that they are in.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use cloudprovider::FactoryInput;
use provider_kit::Findings;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::fields::mapping;

/// SASL credentials of a hypervisor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Auth {
    /// The user name.
    pub username: Credential,
    /// The password.
    pub password: Credential,
}

/// Where a credential comes from.
#[derive(Clone)]
pub enum Credential {
    /// The configuration itself.
    Inline(SecretString),
    /// A file, such as a key of a mounted Secret. One trailing line break is dropped.
    File(PathBuf),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(_) => f.write_str("Inline(***)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// The files that must be in the directory of a `pkipath`.
pub(crate) const PKI_FILES: [&str; 3] = ["cacert.pem", "clientcert.pem", "clientkey.pem"];

/// What a file in PEM format has in it.
const PEM: &[u8] = b"-----BEGIN ";

pub(super) fn read_credential_file(
    input: &FactoryInput,
    path: &Path,
) -> std::result::Result<SecretString, String> {
    let content =
        input.read_file(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let text = String::from_utf8(content).map_err(|_| format!("{} is not valid UTF-8", path.display()))?;
    credential_of(&text.into()).map_err(|why| format!("{}: {why}", path.display()))
}

/// The credential in a file's text.
pub(crate) fn credential_of(text: &SecretString) -> std::result::Result<SecretString, &'static str> {
    let value = text.expose_secret();
    let value = value.strip_suffix('\n').unwrap_or(value);
    let value = value.strip_suffix('\r').unwrap_or(value);
    if value.is_empty() {
        return Err("the file is empty");
    }
    if value.contains('\0') {
        return Err("the file holds a NUL character");
    }
    Ok(value.into())
}

/// Checks a file early: libvirt reports a broken file only when it connects, and with little detail.
pub(super) fn check_pem(input: &FactoryInput, path: &Path) -> std::result::Result<(), String> {
    let content =
        input.read_file(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let is_pem = content.windows(PEM.len()).any(|part| part == PEM);
    if is_pem { Ok(()) } else { Err(format!("{} is not in PEM format", path.display())) }
}

/// Reads the section `auth` of a hypervisor.
pub(super) fn read_auth(
    path: &str,
    value: Value,
    base: Option<&Path>,
    findings: &mut Findings,
) -> Option<Auth> {
    let mut fields = mapping(path, value, findings)?;
    let mut credential = |key: &'static str, file_key: &'static str| {
        let inline = fields.text(key, findings).map(|text| Credential::Inline(text.into()));
        let file = fields.text(file_key, findings).map(|file| {
            let file = PathBuf::from(file);
            Credential::File(base.map_or_else(|| file.clone(), |base| base.join(&file)))
        });
        if inline.is_some() && file.is_some() {
            findings.problem(fields.path(key), format!("stands beside {file_key}; give one of the two"));
        }
        (file.or(inline), fields.path(file_key))
    };
    let (username, _) = credential("username", "usernameFile");
    let (password, password_path) = credential("password", "passwordFile");
    // a key of the wrong type has been reported already; only absent keys are missing
    let reported = |key: &str, findings: &Findings| {
        findings.problems.iter().any(|problem| problem.key.starts_with(&format!("{path}.{key}")))
    };
    if username.is_none() && !reported("username", findings) {
        findings.problem(fields.path("username"), "is missing; give username or usernameFile");
    }
    if password.is_none() && !reported("password", findings) {
        findings
            .problem(password_path, "is missing; give the path of a file, such as a key of a mounted Secret");
    }
    fields.finish(findings);
    Some(Auth { username: username?, password: password? })
}
