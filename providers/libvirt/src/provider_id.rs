//! Parses and formats provider IDs of libvirt.

use cloudprovider::{Error, ErrorKind, ProviderId, uuids::parse_uuid};
use uuid::Uuid;

use crate::NAME;

/// What identifies a domain, in a provider ID or in a call to libvirt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DomainId {
    /// `libvirt:///<uuid>`, the form that this provider writes, or `libvirt://<hypervisor>/<uuid>`. The host
    /// is only a hint about where the domain once was: a migrated domain is still found.
    Uuid(Uuid),
    /// `libvirt:///<name>`, as other components write it.
    Name(String),
}

/// The provider ID of the domain with this UUID: `libvirt:///<uuid>`, lower case with dashes.
///
/// The ID does not contain the hypervisor, so a migration does not change it. A new name of the domain does
/// not either.
pub fn format_provider_id(uuid: Uuid) -> ProviderId {
    ProviderId::new(NAME, &format!("/{}", uuid.hyphenated()))
}

/// The form that this provider writes, for messages.
pub(crate) const FORM: &str = "libvirt:///<domain uuid>";

/// Reads any form of provider ID that this provider writes or reads.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for any other text, including provider IDs of other clouds.
pub fn parse_provider_id(text: &str) -> Result<DomainId, Error> {
    parse(text).ok_or_else(|| {
        Error::new(ErrorKind::InvalidInput, format!("provider ID {text:?} is not of the form {FORM}"))
    })
}

fn parse(text: &str) -> Option<DomainId> {
    let id: ProviderId = text.parse().ok()?;
    if id.provider() != NAME {
        return None;
    }
    let (host, domain) = id.rest().split_once('/')?;
    match parse_uuid(domain) {
        Some(uuid) if !host.contains(char::is_whitespace) => Some(DomainId::Uuid(uuid)),
        None if host.is_empty() && is_domain_name(domain) => Some(DomainId::Name(domain.to_owned())),
        _ => None,
    }
}

/// libvirt's rule for domain names: not empty, no slash, no line break.
pub(crate) fn is_domain_name(text: &str) -> bool {
    !text.is_empty() && !text.contains('/') && !text.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "01234567-89ab-cdef-0123-456789abcdef";

    #[test]
    fn every_form_is_read() {
        let uuid = Uuid::try_parse(TEXT).expect("valid");
        assert_eq!(format_provider_id(uuid).as_str(), format!("libvirt:///{TEXT}"));
        for rest in [
            format!("/{TEXT}"),
            format!("/{}", TEXT.to_uppercase()),
            format!("/{}", TEXT.replace('-', "")),
            format!("kvm1/{TEXT}"),
            format!("kvm1.example.org:16514/{TEXT}"),
        ] {
            assert_eq!(parse(&format!("libvirt://{rest}")), Some(DomainId::Uuid(uuid)), "{rest}");
        }
        assert_eq!(parse("libvirt:///node-1"), Some(DomainId::Name("node-1".into())));
        assert_eq!(parse("libvirt:///my node"), Some(DomainId::Name("my node".into())));
    }

    #[test]
    fn foreign_and_broken_ones_are_refused() {
        for text in [
            "",
            "libvirt",
            "libvirt://",
            "libvirt:///",
            "libvirt://node-1",
            "libvirt://kvm1/node-1",
            "libvirt:///a/b",
            "libvirt:////a",
            "libvirt:///a\nb",
            "vsphere://01234567-89ab-cdef-0123-456789abcdef",
            "LIBVIRT:///a",
            " libvirt:///a",
            "libvirt-2:///a",
        ] {
            let error = parse_provider_id(text).expect_err(text);
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn braces_and_urns_are_names_not_uuids() {
        for name in [format!("{{{TEXT}}}"), format!("urn:uuid:{TEXT}")] {
            assert_eq!(parse(&format!("libvirt:///{name}")), Some(DomainId::Name(name)));
        }
    }

    proptest! {
        #[test]
        fn round_trip(bits in any::<u128>()) {
            let uuid = Uuid::from_u128(bits);
            prop_assert_eq!(parse(format_provider_id(uuid).as_str()), Some(DomainId::Uuid(uuid)));
        }

        #[test]
        fn nothing_panics(text in ".{0,60}", rest in ".{0,60}") {
            let _ = parse(&text);
            let _ = parse(&format!("libvirt://{rest}"));
        }
    }
}
