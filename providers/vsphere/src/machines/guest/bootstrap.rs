//! The bootstrap data in the extra configuration.

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{BootstrapData, BootstrapFormat},
};

use super::encoding::encode;
use crate::vim::{Value, machines::OptionValue};

/// The most that vSphere keeps, in bytes: the whole extra configuration has about 1 MiB.
const MAX_BYTES: usize = 900 << 10;

/// The keys of these bootstrap data.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for a format that no guest reads from vSphere; [`ErrorKind::InvalidInput`] if they are
/// larger than vSphere keeps.
pub(crate) fn bootstrap(data: &BootstrapData) -> Result<Vec<OptionValue>> {
    let key = match data.format() {
        BootstrapFormat::CloudConfig => "guestinfo.userdata",
        BootstrapFormat::Ignition => "guestinfo.ignition.config.data",
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
        OptionValue { key: format!("{key}.encoding"), value: Value::AnyString(encoding.to_owned()) },
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
