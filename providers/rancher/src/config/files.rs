//! The files that a configuration names.

use std::path::{Path, PathBuf};

use cloudprovider::FactoryInput;
use secrecy::SecretString;

/// A path is relative to the folder of the configuration file.
pub(super) fn resolve(input: &FactoryInput, file: &str) -> PathBuf {
    let folder = input.config_path.as_deref().and_then(Path::parent);
    folder.map_or_else(|| file.into(), |folder| folder.join(file))
}

/// The secret in a file, without the end of its line.
///
/// # Errors
/// What is wrong with the file, without its content.
pub(super) fn read_secret(input: &FactoryInput, path: &Path) -> Result<SecretString, String> {
    let shown = path.display();
    let content = input.read_file(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let text = String::from_utf8(content).map_err(|_| format!("{shown} is not valid UTF-8"))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(format!("{shown} is empty"));
    }
    if text.chars().any(char::is_control) {
        return Err(format!("{shown} has more than one line, or holds a control character"));
    }
    Ok(text.into())
}
