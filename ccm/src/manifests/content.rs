//! A cloud configuration that becomes part of the manifests: checked as the daemon in the pod checks it.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use cloudprovider::{FactoryInput, Registry, SecretName, ServiceAccessNeeds};
use k8s_openapi::ByteString;

use super::{
    options::{CONFIG_KEY, is_key},
    workload::CONFIG_FOLDER,
};
use crate::cloud;

/// The content that stands for a file which only the pods have. It is probably a credential or a certificate.
const UNKNOWN_CONTENT: &[u8] = b"-----BEGIN UNKNOWN-----\n";

/// What a configuration asks for.
#[derive(Default)]
pub(super) struct Wanted {
    /// The files beside the configuration that it names, by name.
    pub(super) files: BTreeMap<String, ByteString>,
    /// The Secrets that it names.
    pub(super) secrets: Vec<SecretName>,
    /// What the provider does with Services.
    pub(super) service_access: ServiceAccessNeeds,
    /// Whether the provider changes the network of the host.
    pub(super) changes_host_network: bool,
    /// Files that the configuration names and that cannot be in its Secret.
    pub(super) elsewhere: Vec<PathBuf>,
    /// Oddities in it that are not errors.
    pub(super) warnings: Vec<String>,
}

/// Reads the configuration in the file at `path` as if it were mounted in the pod. Files beside it are read
/// from the same folder here.
///
/// # Errors
/// What is wrong with the configuration, missing files included, in the provider's own words, with its
/// warnings.
pub(super) fn read(text: &str, path: &Path, provider: &str, registry: &Registry) -> Result<Wanted, String> {
    let found: Arc<Mutex<Wanted>> = Arc::default();
    let input = FactoryInput::new(text).with_path(Path::new(CONFIG_FOLDER).join(CONFIG_KEY)).with_reader({
        let (found, folder) = (Arc::clone(&found), path.parent().map(Path::to_owned).unwrap_or_default());
        move |path| {
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(key) = key_of(path) else {
                if !found.elsewhere.iter().any(|known| known == path) {
                    found.elsewhere.push(path.to_owned());
                }
                return std::fs::read(path).or_else(unknown_content);
            };
            let content = std::fs::read(folder.join(key))?;
            found.files.insert(key.to_owned(), ByteString(content.clone()));
            Ok(content)
        }
    });
    let created = registry.create(provider, &input);
    let warnings: Vec<_> = input.warnings().iter().map(ToString::to_string).collect();
    let created = created.map_err(|error| match warnings.as_slice() {
        [] => error.report(),
        warnings => format!("{}; beside that: {}", error.report(), warnings.join("; ")),
    })?;
    let found = std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Wanted {
        secrets: cloud::secrets_of(&*created),
        service_access: cloud::service_access_needs_of(&*created),
        changes_host_network: cloud::changes_host_network(&*created),
        warnings,
        ..found
    })
}

fn unknown_content(error: io::Error) -> io::Result<Vec<u8>> {
    if error.kind() == io::ErrorKind::NotFound { Ok(UNKNOWN_CONTENT.to_vec()) } else { Err(error) }
}

/// The key of the Secret that is mounted as this file.
fn key_of(path: &Path) -> Option<&str> {
    let name = path.strip_prefix(CONFIG_FOLDER).ok()?.to_str()?;
    let name = name.strip_prefix("./").unwrap_or(name);
    (is_key(name) && name != CONFIG_KEY).then_some(name)
}
