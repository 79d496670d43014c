//! Parses and formats provider IDs of Rancher.

use cloudprovider::{Error, ErrorKind, ProviderId};

use crate::NAME;

/// The form of the IDs, for messages.
pub(crate) const FORM: &str = "rancher://<uuid of the host>";

/// The form of the IDs of Rancher 2.x.
pub(crate) const MACHINE_FORM: &str = "rancher://<ID of the cluster>/<UID of the Machine>";

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

/// The provider ID of a machine of a Rancher 2.x cluster:
/// `rancher://<ID of the cluster>/<UID of the Machine>`, or the name of the management server's node where
/// Rancher does not make the machines.
pub fn format_machine_id(cluster: &str, machine: &str) -> ProviderId {
    ProviderId::new(NAME, &format!("{}/{}", cluster.to_ascii_lowercase(), machine.to_ascii_lowercase()))
}

/// Reads the ID of the cluster and that of the machine, in lower case. Upper case is accepted.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for any other text, including provider IDs of other clouds.
pub fn parse_machine_id(text: &str) -> Result<(String, String), Error> {
    parse_machine(text).ok_or_else(|| {
        let words = format!("provider ID {text:?} is not of the form {MACHINE_FORM}");
        Error::new(ErrorKind::InvalidInput, words)
    })
}

/// Whether `text` is the provider ID of a machine of Rancher 2.x.
pub(crate) fn is_machine_id(text: &str) -> bool {
    parse_machine(text).is_some()
}

fn parse_machine(text: &str) -> Option<(String, String)> {
    let (cluster, machine) = text.strip_prefix(NAME)?.strip_prefix("://")?.split_once('/')?;
    let are_plain = is_host_uuid(cluster) && is_host_uuid(machine);
    are_plain.then(|| (cluster.to_ascii_lowercase(), machine.to_ascii_lowercase()))
}

/// Whether `text` is the provider ID of a Cattle host.
#[cfg(feature = "cattle")]
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
            // Of Rancher 2.x.
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

    #[test]
    fn ids_of_the_two_versions_are_told_apart() {
        let id = format_machine_id("c-m-abcdefgh", UUID);
        assert_eq!(id.as_str(), format!("rancher://c-m-abcdefgh/{UUID}"));
        let parsed = ("c-m-abcdefgh".to_owned(), UUID.to_owned());
        assert_eq!(parse_machine_id(id.as_str()).expect("ours"), parsed);
        assert_eq!(parse_machine_id(&format!("rancher://C-M-abcdefgh/{UUID}")).expect("ours"), parsed);
        for text in [
            "",
            "rancher://",
            "rancher:///",
            "rancher://c-m-abcdefgh",
            "rancher://c-m-abcdefgh/",
            "rancher:///machine",
            "rancher://c-m-abcdefgh/machine/more",
            "rancher://c-m abcdefgh/machine",
            "rke2://node-1",
            "k3s://node-1",
            "harvester://7f3a1c52-9e0b-4d6a-8a53-0d5f2b7c9e11",
            UUID,
            format_provider_id(UUID).as_str(),
        ] {
            assert!(!is_machine_id(text), "{text:?}");
            assert_eq!(parse_machine_id(text).expect_err(text).kind(), ErrorKind::InvalidInput);
        }
    }

    proptest! {
        #[test]
        fn machine_ids_round_trip(cluster in "[a-z0-9-]{1,20}", machine in "[0-9a-f-]{1,36}") {
            let id = format_machine_id(&cluster, &machine);
            prop_assert!(id.is_complete() && !is_ours(id.as_str()));
            prop_assert_eq!(parse_machine(id.as_str()), Some((cluster, machine)));
        }

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
