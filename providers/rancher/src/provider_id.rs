//! Parses and formats provider IDs of Rancher.

use cloudprovider::{Error, ErrorKind, ProviderId};

use crate::NAME;

/// The form of the IDs, for messages.
pub(crate) const FORM: &str = "rancher://<uuid of the host>";

/// Longer texts are no UUID of a host.
const MAX_LENGTH: usize = 128;

/// The provider ID of the Cattle host with this UUID: `rancher://<uuid>`. This is what the Go framework would
/// make of the instance ID of rancher-cloud-controller-manager.
pub fn format_provider_id(host_uuid: &str) -> ProviderId {
    ProviderId::new(NAME, &host_uuid.to_ascii_lowercase())
}

/// Reads the UUID of the host, in lower case. Upper case and a third slash are accepted.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for any other text, including provider IDs of other clouds.
pub fn parse_provider_id(text: &str) -> Result<String, Error> {
    parse(text).ok_or_else(|| {
        Error::new(ErrorKind::InvalidInput, format!("provider ID {text:?} is not of the form {FORM}"))
    })
}

/// Whether `text` is the provider ID of a Cattle host.
pub(crate) fn is_ours(text: &str) -> bool {
    parse(text).is_some()
}

/// Whether a host's UUID can be part of a provider ID.
pub(crate) fn is_host_uuid(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    !text.is_empty() && text.len() <= MAX_LENGTH && text.bytes().all(is_plain)
}

fn parse(text: &str) -> Option<String> {
    let rest = text.strip_prefix(NAME)?.strip_prefix("://")?;
    let rest = rest.strip_prefix('/').unwrap_or(rest);
    is_host_uuid(rest).then(|| rest.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UUID: &str = "7f3a1c52-9e0b-4d6a-8a53-0d5f2b7c9e11";

    #[test]
    fn every_form_is_read() {
        assert_eq!(format_provider_id(UUID).as_str(), format!("rancher://{UUID}"));
        for text in [
            format!("rancher://{UUID}"),
            format!("rancher:///{UUID}"),
            format!("rancher://{}", UUID.to_uppercase()),
        ] {
            assert_eq!(parse(&text).as_deref(), Some(UUID), "{text}");
        }
    }

    #[test]
    fn foreign_and_broken_ones_are_refused() {
        for text in [
            "",
            "rancher",
            "rancher://",
            "rancher:///",
            "rancher://a b",
            // The form that is planned for Rancher 2.x.
            "rancher://c-m-abcdefgh/machine",
            "rke2://node-1",
            "k3s://node-1",
            "harvester://7f3a1c52-9e0b-4d6a-8a53-0d5f2b7c9e11",
            "RANCHER://7f3a1c52-9e0b-4d6a-8a53-0d5f2b7c9e11",
            UUID,
        ] {
            assert!(!is_ours(text), "{text:?}");
            assert_eq!(parse_provider_id(text).expect_err(text).kind(), ErrorKind::InvalidInput);
        }
        assert!(!is_ours(&format!("rancher://{}", "a".repeat(MAX_LENGTH + 1))));
    }

    proptest! {
        #[test]
        fn round_trip(uuid in "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{12}") {
            let id = format_provider_id(&uuid);
            prop_assert!(id.is_complete());
            prop_assert_eq!(parse(id.as_str()), Some(uuid));
        }

        #[test]
        fn nothing_panics(text in ".{0,60}") {
            let _ = (parse(&text), parse(&format!("rancher://{text}")));
        }
    }
}
