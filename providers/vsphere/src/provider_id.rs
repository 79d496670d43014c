//! Parses and formats provider IDs of vSphere.

use cloudprovider::{
    Error, ErrorKind, ProviderId,
    uuids::{parse_uuid, swapped},
};
use uuid::Uuid;

use crate::NAME;

/// The provider ID of the machine with this BIOS UUID: `vsphere://<uuid>`, lower case with dashes, byte for
/// byte as CPI and the Cluster API provider write it.
pub fn format_provider_id(bios_uuid: Uuid) -> ProviderId {
    ProviderId::new(NAME, &bios_uuid.hyphenated().to_string())
}

/// Reads the UUID of a provider ID, in any form that CPI ever wrote or accepted: in either letter case, with
/// white space around the UUID, with the third slash of later in-tree providers, and without dashes.
///
/// The byte order is not decided here: Nodes of old guests may have the UUID in the order that their firmware
/// showed. See `byte_orders`.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for any other text, including provider IDs of other clouds.
pub fn parse_provider_id(text: &str) -> Result<Uuid, Error> {
    parse(text).ok_or_else(|| {
        Error::new(
            ErrorKind::InvalidInput,
            format!("provider ID {text:?} is not of the form vsphere://<BIOS UUID of the virtual machine>"),
        )
    })
}

/// Whether `text` is a provider ID of vSphere, well formed or not: a Node with a malformed one is still a
/// vSphere Node.
pub(crate) fn is_ours(text: &str) -> bool {
    text.strip_prefix(NAME).is_some_and(|rest| rest.starts_with("://"))
}

fn parse(text: &str) -> Option<Uuid> {
    let rest = text.strip_prefix(NAME)?.strip_prefix("://")?;
    let rest = rest.strip_prefix('/').unwrap_or(rest);
    parse_uuid(rest.trim())
}

/// The UUIDs that a machine may have if its guest shows `uuid`. As in CPI, the swapped one is first.
pub(crate) fn byte_orders(uuid: Uuid) -> [Uuid; 2] {
    [swapped(uuid), uuid]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "422e4956-ad22-1139-6d72-59cc8f26bc90";

    fn uuid() -> Uuid {
        Uuid::try_parse(TEXT).expect("valid")
    }

    #[test]
    fn every_form_is_read() {
        assert_eq!(format_provider_id(uuid()).as_str(), format!("vsphere://{TEXT}"));
        for text in [
            format!("vsphere://{TEXT}"),
            format!("vsphere://{}", TEXT.to_uppercase()),
            format!("vsphere:///{TEXT}"),
            format!("vsphere:// {TEXT} "),
            format!("vsphere://{TEXT}\n"),
            format!("vsphere://{}", TEXT.replace('-', "")),
        ] {
            assert_eq!(parse(&text), Some(uuid()), "{text:?}");
            assert!(is_ours(&text));
        }
    }

    #[test]
    fn foreign_and_broken_ones_are_refused() {
        for text in [
            "",
            "vsphere",
            "vsphere:",
            "vsphere://",
            "vsphere:///",
            "vsphere://node-1",
            "vsphere://422e4956-ad22-1139-6d72-59cc8f26bc9",
            "vsphere://{422e4956-ad22-1139-6d72-59cc8f26bc90}",
            "vsphere:////422e4956-ad22-1139-6d72-59cc8f26bc90",
            "vsphere://vc1/422e4956-ad22-1139-6d72-59cc8f26bc90",
            "VSPHERE://422e4956-ad22-1139-6d72-59cc8f26bc90",
            "libvirt:///422e4956-ad22-1139-6d72-59cc8f26bc90",
            "vsphere2://422e4956-ad22-1139-6d72-59cc8f26bc90",
            TEXT,
        ] {
            assert_eq!(parse_provider_id(text).expect_err(text).kind(), ErrorKind::InvalidInput, "{text:?}");
        }
        assert!(is_ours("vsphere://node-1"));
        assert!(!is_ours("vsphere2://node-1"));
        assert!(!is_ours("vsphere-paravirtual://node-1"));
    }

    #[test]
    fn the_other_byte_order() {
        let shown_by_the_guest = Uuid::try_parse("56492e42-22ad-3911-6d72-59cc8f26bc90").expect("valid");
        assert_eq!(swapped(shown_by_the_guest), uuid());
        assert_eq!(byte_orders(shown_by_the_guest), [uuid(), shown_by_the_guest]);
    }

    proptest! {
        #[test]
        fn round_trip(bits in any::<u128>()) {
            let uuid = Uuid::from_u128(bits);
            prop_assert_eq!(parse(format_provider_id(uuid).as_str()), Some(uuid));
            let written = format_provider_id(uuid);
            prop_assert_eq!(written.as_str().to_lowercase(), written.as_str());
        }

        #[test]
        fn nothing_panics(text in ".{0,60}", rest in ".{0,60}") {
            let _ = (parse(&text), parse(&format!("vsphere://{rest}")));
            let _ = is_ours(&text);
        }
    }
}
