//! What the guest is told at its first boot, by keys of the extra configuration (`guestinfo.*`). Pure.
//!
//! | Key | What |
//! |---|---|
//! | `guestinfo.metadata` | the name of the machine and its network configuration, for cloud-init |
//! | `guestinfo.userdata` | bootstrap data of the format `cloud-config` |
//! | `guestinfo.ignition.config.data` | bootstrap data of the format `ignition` |
//!
//! Each has a second key, with `.encoding` added, which is `base64` or `gzip+base64`.

mod metadata;

use std::io::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{BootstrapData, BootstrapFormat},
};
use flate2::{Compression, write::GzEncoder};

pub(crate) use self::metadata::{mac_of, metadata, shape, static_ips, written};
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

/// The encoding of a text, and the text in it: compressed where that is shorter. Nothing is guessed about what the
/// text is.
fn encode(text: &[u8]) -> (&'static str, String) {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    let compressed = gzip.write_all(text).and_then(|()| gzip.finish());
    match compressed {
        Ok(compressed) if compressed.len() < text.len() => ("gzip+base64", STANDARD.encode(compressed)),
        // writing to memory does not fail
        _ => ("base64", STANDARD.encode(text)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

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

    #[test]
    fn a_text_is_compressed_where_that_is_shorter() {
        assert_eq!(encode(b"#!"), ("base64", "IyE=".to_owned()));
        let long = "a: b\n".repeat(1000);
        let (encoding, text) = encode(long.as_bytes());
        assert_eq!(encoding, "gzip+base64");
        let mut read = String::new();
        let bytes = STANDARD.decode(text).expect("base64");
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut read).expect("gzip");
        assert_eq!(read, long);
    }

    #[test]
    fn a_text_that_is_base64_already_is_encoded_like_any_other() {
        assert_eq!(encode(b"IyE=").1, STANDARD.encode("IyE="));
    }
}
