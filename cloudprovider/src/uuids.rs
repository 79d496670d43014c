//! UUIDs that identify a machine and its Node: from the firmware, as kubelets report them, and from clouds.

pub use uuid::Uuid;

/// Parses a UUID as clouds, kubelets and people write it: with or without dashes, in either case.
pub fn parse_uuid(text: &str) -> Option<Uuid> {
    // The library also accepts braces and `urn:`, which are not used here.
    matches!(text.len(), 32 | 36).then(|| Uuid::try_parse(text).ok())?
}

/// Parses a UUID that identifies a machine. Firmware without its own UUID shows all zeros or all ones.
pub fn identifying_uuid(text: &str) -> Option<Uuid> {
    parse_uuid(text.trim()).filter(|uuid| !uuid.is_nil() && !uuid.is_max())
}

/// The same UUID in the other byte order of SMBIOS: the first three fields swapped.
///
/// Up to SMBIOS 2.5 the fields were big endian. Since 2.6 they are little endian. Which order a guest shows
/// depends on its kernel and its virtual hardware, while a cloud always shows the same one.
pub fn swapped(uuid: Uuid) -> Uuid {
    Uuid::from_bytes_le(*uuid.as_bytes())
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
        for text in [TEXT.to_owned(), TEXT.to_uppercase(), TEXT.replace('-', "")] {
            assert_eq!(parse_uuid(&text), Some(uuid()), "{text}");
        }
        for text in [format!("{{{TEXT}}}"), format!("urn:uuid:{TEXT}"), format!(" {TEXT}"), String::new()] {
            assert_eq!(parse_uuid(&text), None, "{text}");
        }
    }

    #[test]
    fn the_other_byte_order() {
        let other = Uuid::try_parse("56492e42-22ad-3911-6d72-59cc8f26bc90").expect("valid");
        assert_eq!((swapped(other), swapped(uuid())), (uuid(), other));
    }

    #[test]
    fn uuids_that_tell_nothing() {
        for text in
            ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "not a uuid", ""]
        {
            assert_eq!(identifying_uuid(text), None, "{text}");
        }
        assert_eq!(identifying_uuid(&format!(" {TEXT}\n")), Some(uuid()));
    }

    proptest! {
        #[test]
        fn swapped_twice_is_the_same(bits in any::<u128>()) {
            let uuid = Uuid::from_u128(bits);
            prop_assert_eq!(swapped(swapped(uuid)), uuid);
        }

        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let _ = identifying_uuid(&text);
        }
    }
}
