//! Provider IDs: `<provider>://<rest>`.

use std::{fmt, str::FromStr};

/// The identity of an instance, as in `spec.providerID`: `<provider>://<rest>`.
///
/// Each provider defines the meaning of `rest` and has one parser and one formatter for it. Cluster API
/// compares the provider IDs of Machines and Nodes byte for byte, so a provider writes only one form.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProviderId {
    text: String,
    provider_length: usize,
}

/// Why a text is not a provider ID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("provider ID {text:?} is not of the form <provider>://<id>")]
pub struct ProviderIdError {
    text: String,
}

const SEPARATOR: &str = "://";

impl ProviderId {
    /// The ID `<provider>://<rest>`. Neither part may be empty, and `rest` must contain more than slashes:
    /// see [`is_complete`](Self::is_complete).
    pub fn new(provider: &str, rest: &str) -> Self {
        Self { text: format!("{provider}{SEPARATOR}{rest}"), provider_length: provider.len() }
    }

    /// The part before `://`, such as `libvirt`.
    pub fn provider(&self) -> &str {
        &self.text[..self.provider_length]
    }

    /// The part after `://`, leading slashes included.
    pub fn rest(&self) -> &str {
        &self.text[self.provider_length + SEPARATOR.len()..]
    }

    /// Whether the ID can be parsed again from its text. A Node keeps its provider ID for ever, so the
    /// controllers do not write an incomplete ID: they proceed as if the cloud did not say one.
    pub fn is_complete(&self) -> bool {
        is_complete(self.provider(), self.rest())
    }

    /// The whole text, as in `spec.providerID`.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

fn is_complete(provider: &str, rest: &str) -> bool {
    !provider.is_empty() && !rest.trim_matches('/').is_empty()
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for ProviderId {
    type Err = ProviderIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(SEPARATOR) {
            Some((provider, rest)) if is_complete(provider, rest) => Ok(Self::new(provider, rest)),
            _ => Err(ProviderIdError { text: text.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts() {
        let id: ProviderId = "libvirt:///9d3f".parse().expect("valid");
        assert_eq!((id.provider(), id.rest(), id.as_str()), ("libvirt", "/9d3f", "libvirt:///9d3f"));
    }

    #[test]
    fn what_is_not_complete_cannot_be_read_back() {
        for (provider, rest) in [("", "x"), ("x", ""), ("x", "/"), ("x", "//"), ("x", "/1"), ("x", "1")] {
            let id = ProviderId::new(provider, rest);
            assert_eq!(id.is_complete(), id.as_str().parse::<ProviderId>().is_ok(), "{id}");
        }
    }

    #[test]
    fn what_is_none() {
        for text in ["", "libvirt", "libvirt:/x", "://x", "libvirt://", "libvirt:///"] {
            assert!(text.parse::<ProviderId>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(provider in "[a-z][a-z0-9-]{0,12}", rest in "/?[a-zA-Z0-9._:/-]{0,30}[a-z0-9]") {
            let id = ProviderId::new(&provider, &rest);
            let read: ProviderId = id.as_str().parse().expect("what we write we read");
            prop_assert_eq!(read.provider(), provider.as_str());
            prop_assert_eq!(read.rest(), rest.as_str());
            prop_assert_eq!(read, id);
        }
    }
}
