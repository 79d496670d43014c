//! Configurations of Ignition.

use cloudprovider::{Error, ErrorKind, Result, machines::BootstrapData};
use serde::{Deserialize, de::IgnoredAny};

/// What every version of a configuration has. The rest is passed over and not kept, since it holds secrets.
#[derive(Deserialize)]
struct Config {
    ignition: Option<Section>,
}

#[derive(Deserialize)]
struct Section {
    version: Option<Text>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    Text(String),
    Other(IgnoredAny),
}

/// Checks that bootstrap data are a configuration of Ignition: JSON with `ignition.version`. Ignition checks
/// the rest in the guest, where a fault is hard to find.
///
/// # Errors
/// [`ErrorKind::InvalidInput`], without any part of the data.
pub(crate) fn check_ignition(data: &BootstrapData) -> Result<()> {
    let fault = |words: String| {
        let words = format!("the bootstrap data have the format ignition, but {words}");
        Err(Error::new(ErrorKind::InvalidInput, words))
    };
    let config: Config = match serde_json::from_slice(data.expose()) {
        Ok(config) => config,
        // the library's own words may quote a value
        Err(error) if error.is_data() => {
            return fault("are not an object with an object \"ignition\"".into());
        }
        Err(error) => {
            let (line, column) = (error.line(), error.column());
            return fault(format!("are not valid JSON (line {line}, column {column})"));
        }
    };
    match config.ignition.and_then(|section| section.version) {
        Some(Text::Text(version)) if version.starts_with(|first: char| first.is_ascii_digit()) => Ok(()),
        Some(Text::Text(_) | Text::Other(_)) => {
            fault("ignition.version is not a text such as \"3.4.0\"".into())
        }
        None => fault("have no ignition.version".into()),
    }
}
