//! What makes a machine a Node.

use std::{fmt, str::FromStr, sync::Arc};

use secrecy::{ExposeSecret as _, SecretSlice, zeroize::Zeroizing};

use crate::UnknownWord;

/// The bootstrap data of a machine, as its Secret has them. The machine gets them unchanged.
///
/// They contain join tokens, and for control planes private keys. No formatting shows them, and they are
/// wiped from memory when the last copy is dropped. Copies share one memory.
#[derive(Clone)]
pub struct BootstrapData {
    format: BootstrapFormat,
    value: Arc<SecretSlice<u8>>,
}

impl BootstrapData {
    /// Bootstrap data of this format.
    pub fn new(format: BootstrapFormat, value: impl Into<Vec<u8>>) -> Self {
        let value = Zeroizing::new(value.into());
        // Copied to a box of exactly this length, since shrinking a vector could leave a copy behind.
        Self { format, value: Arc::new(SecretSlice::new(Box::from(value.as_slice()))) }
    }

    /// Their format.
    pub fn format(&self) -> BootstrapFormat {
        self.format
    }

    /// The data, for the machine alone. Never for a log, an error, a condition or a status.
    pub fn expose(&self) -> &[u8] {
        self.value.expose_secret()
    }
}

impl fmt::Debug for BootstrapData {
    /// Prints the format and the length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.expose().len();
        f.debug_struct("BootstrapData")
            .field("format", &self.format)
            .field("length", &length)
            .finish_non_exhaustive()
    }
}

/// The format of bootstrap data, the key `format` of their Secret. A Secret without this key has
/// [`CloudConfig`](Self::CloudConfig).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BootstrapFormat {
    /// `cloud-config`: user data of cloud-init.
    #[default]
    CloudConfig,
    /// `ignition`: a configuration of Ignition, in JSON.
    Ignition,
}

impl BootstrapFormat {
    /// Every format.
    pub const ALL: &'static [Self] = &[Self::CloudConfig, Self::Ignition];

    /// The format as in the Secret.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CloudConfig => "cloud-config",
            Self::Ignition => "ignition",
        }
    }
}

impl fmt::Display for BootstrapFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for BootstrapFormat {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        UnknownWord::look_up("bootstrap format", text, Self::ALL, Self::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_are_not_shown() {
        let data = BootstrapData::new(BootstrapFormat::Ignition, "token: hunter2");
        assert_eq!(format!("{:?}", data.clone()), "BootstrapData { format: Ignition, length: 14, .. }");
        assert_eq!((data.format(), data.expose()), (BootstrapFormat::Ignition, &b"token: hunter2"[..]));
    }

    #[test]
    fn every_format_is_read_as_it_is_printed() {
        for format in BootstrapFormat::ALL {
            assert_eq!(format.to_string().parse(), Ok(*format));
        }
        let error = "shell".parse::<BootstrapFormat>().expect_err("no such format").to_string();
        assert_eq!(error, "unknown bootstrap format \"shell\", known: cloud-config, ignition");
    }
}
