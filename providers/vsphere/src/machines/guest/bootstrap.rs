//! The bootstrap data in the extra configuration.

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{BootstrapData, BootstrapFormat},
};

use super::encoding::encode;
use crate::vim::{Value, machines::OptionValue};

/// The most that vSphere keeps, in bytes: the whole extra configuration has about 1 MiB.
const MAX_BYTES: usize = 900 << 10;

/// The key of the format `cloud-config`.
const USER_DATA: &str = "guestinfo.userdata";

/// The key of the format `ignition`.
const IGNITION: &str = "guestinfo.ignition.config.data";

/// The key of a second one, which says the encoding of the first.
fn encoding_of(key: &str) -> String {
    format!("{key}.encoding")
}

/// Empties the keys of all bootstrap data, whatever they were. vCenter removes a key without a value.
pub(crate) fn no_bootstrap() -> Vec<OptionValue> {
    let keys = [USER_DATA, IGNITION].into_iter().flat_map(|key| [key.to_owned(), encoding_of(key)]);
    keys.map(|key| OptionValue { key, value: Value::AnyString(String::new()) }).collect()
}

/// The keys of these bootstrap data.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for a format that no guest reads from vSphere; [`ErrorKind::InvalidInput`] if they are
/// larger than vSphere keeps.
pub(crate) fn bootstrap(data: &BootstrapData) -> Result<Vec<OptionValue>> {
    let key = match data.format() {
        BootstrapFormat::CloudConfig => USER_DATA,
        BootstrapFormat::Ignition => IGNITION,
        format => {
            let words = format!("bootstrap data of the format {format} are not possible on vSphere");
            return Err(Error::new(ErrorKind::Unsupported, words));
        }
    };
    let (encoding, text) = encode(data.expose());
    if text.len() > MAX_BYTES {
        let words = format!(
            "the bootstrap data have {} KiB in the encoding {encoding}, and vSphere keeps {} KiB",
            text.len() >> 10,
            MAX_BYTES >> 10
        );
        return Err(Error::new(ErrorKind::InvalidInput, words));
    }
    Ok(vec![
        OptionValue { key: key.to_owned(), value: Value::AnySecret(text) },
        OptionValue { key: encoding_of(key), value: Value::AnyString(encoding.to_owned()) },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_has_keys_of_its_own() {
        for (format, key) in [
            (BootstrapFormat::CloudConfig, "guestinfo.userdata"),
            (BootstrapFormat::Ignition, "guestinfo.ignition.config.data"),
        ] {
            let options = bootstrap(&BootstrapData::new(format, "#!hunter2")).expect("possible");
            let keys: Vec<_> = options.iter().map(|option| option.key.clone()).collect();
            assert_eq!(keys, [key.to_owned(), format!("{key}.encoding")]);
            assert_eq!(options[1].value, Value::AnyString("base64".to_owned()));
            assert_eq!(options[0].value, Value::AnySecret("IyFodW50ZXIy".to_owned()));
            let shown = format!("{options:?}");
            assert!(!shown.contains("IyFodW50ZXIy"), "{shown}");
        }
    }

    #[test]
    fn every_key_of_every_format_is_emptied() {
        let emptied = no_bootstrap();
        assert!(emptied.iter().all(|option| option.value == Value::AnyString(String::new())));
        for format in [BootstrapFormat::CloudConfig, BootstrapFormat::Ignition] {
            for option in bootstrap(&BootstrapData::new(format, "x")).expect("possible") {
                assert!(emptied.iter().any(|one| one.key == option.key), "{}", option.key);
            }
        }
        assert!(emptied.iter().all(|option| !option.key.starts_with("guestinfo.metadata")));
    }

    #[test]
    fn data_that_vsphere_cannot_keep_are_refused() {
        // what cannot be compressed
        let mut random = fastrand::Rng::with_seed(1);
        let data: Vec<u8> = (0..MAX_BYTES).map(|_| random.u8(..)).collect();
        let data = BootstrapData::new(BootstrapFormat::CloudConfig, data);
        let error = bootstrap(&data).expect_err("too large");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("vSphere keeps 900 KiB"), "{error}");
    }
}
