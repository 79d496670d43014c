//! A cloud configuration that becomes part of the manifests: checked as the daemon in the pod checks it.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use cloudprovider::{FactoryInput, Registry, SecretName, ServiceAccessNeeds, decode_config};
use controller_kit::cloud;
use k8s_openapi::ByteString;
use parking_lot::Mutex;

use super::options::{CONFIG_KEY, CloudConfig, is_key};

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

/// A configuration that becomes part of the manifests.
pub(super) struct Embedded {
    /// Its Secret.
    pub(super) cloud_config: CloudConfig,
    /// What it asks for.
    pub(super) wanted: Wanted,
    /// Warnings, each with the option.
    pub(super) warnings: Vec<String>,
}

/// Reads the configuration of a provider, for a Secret of this name that is mounted in `folder`. `option` names the file in
/// messages.
///
/// # Errors
/// A file that cannot be read, or what is wrong with the configuration.
pub(super) fn embed(
    option: &str,
    path: &Path,
    (provider, registry): (&str, &Registry),
    secret: String,
    folder: &str,
) -> Result<Embedded, String> {
    let (text, oddity) = read_text(path).map_err(|why| format!("{option}: {why}"))?;
    let mut warnings: Vec<_> = oddity.map(|oddity| format!("{option}: {oddity}")).into_iter().collect();
    let mut wanted = Wanted::default();
    // That there is no such provider is reported elsewhere.
    if registry.names().any(|known| known == provider) {
        wanted = read(&text, path, (provider, registry), folder).map_err(|fault| {
            format!(
                "{option}: {fault} ({folder} is where the pods will have it, with the files that are beside it here)"
            )
        })?;
    }
    warnings.extend(wanted.warnings.iter().map(|warning| format!("{option}: {warning}")));
    warnings.extend(wanted.elsewhere.iter().map(|file| elsewhere(option, file, folder)));
    let files = std::mem::take(&mut wanted.files);
    Ok(Embedded { cloud_config: CloudConfig::Content { secret, text, files }, wanted, warnings })
}

/// The text of a configuration, and what is odd about its encoding, if anything.
fn read_text(path: &Path) -> Result<(String, Option<&'static str>), String> {
    let bytes = std::fs::read(path).map_err(|error| format!("the file cannot be read: {error}"))?;
    decode_config(&bytes).map_err(|error| error.to_string())
}

/// A warning about a file that the configuration names.
fn elsewhere(option: &str, file: &Path, folder: &str) -> String {
    format!(
        "{option}: the pods have {} only if their image does: a file becomes part of the Secret if it is \
         beside the configuration, named without a folder or in {folder}",
        file.display()
    )
}

/// Reads the configuration in the file at `path` as if it were mounted in `mounted` in the pod. Files beside it are read
/// from the same folder here.
///
/// # Errors
/// What is wrong with the configuration, missing files included, in the provider's own words, with its
/// warnings.
fn read(
    text: &str,
    path: &Path,
    (provider, registry): (&str, &Registry),
    mounted: &str,
) -> Result<Wanted, String> {
    let found: Arc<Mutex<Wanted>> = Arc::default();
    let input = FactoryInput::new(text).with_path(Path::new(mounted).join(CONFIG_KEY)).with_reader({
        let (found, folder) = (Arc::clone(&found), path.parent().map(Path::to_owned).unwrap_or_default());
        let mounted = mounted.to_owned();
        move |path| {
            let mut found = found.lock();
            let Some(key) = key_of(path, &mounted) else {
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
    let found = std::mem::take(&mut *found.lock());
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
fn key_of<'p>(path: &'p Path, mounted: &str) -> Option<&'p str> {
    let name = path.strip_prefix(mounted).ok()?.to_str()?;
    let name = name.strip_prefix("./").unwrap_or(name);
    (is_key(name) && name != CONFIG_KEY).then_some(name)
}
