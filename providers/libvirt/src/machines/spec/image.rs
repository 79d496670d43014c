//! What a user says about the image of a root disk.

use cloudprovider::{Error, ErrorKind, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the root disk is made from. Give one of `volume`, `url` and `file`.
///
/// An image from a URL or a file is imported once for each storage pool, as a volume that all machines with the
/// same checksum share. It stays there when they are deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "(has(self.volume) ? 1 : 0) + (has(self.url) ? 1 : 0) + (has(self.file) ? 1 : 0) == 1",
     "message": "give one of volume, url and file"},
    {"rule": "has(self.volume) != has(self.checksum)",
     "message": "checksum is required with url and file, and not possible with volume"},
    {"rule": "self == oldSelf", "message": "cannot change; make a new template"},
]))]
pub(crate) struct ImageSpec {
    /// A volume that is there already, on every hypervisor that may have the machine. It must not change while
    /// machines use it. The provider's configuration names the volumes that a namespace may use.
    #[serde(default)]
    pub(crate) volume: Option<VolumeSpec>,
    /// An http or https URL without credentials, from which the provider downloads the image. The host has public
    /// addresses, or is in the provider's configuration.
    #[serde(default)]
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^https?://[^\s@]+$"))]
    pub(crate) url: Option<String>,
    /// The absolute path of a file that the controller can read, below a folder that the provider's configuration names.
    #[serde(default)]
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^/"))]
    pub(crate) file: Option<String>,
    /// The checksum of what `url` or `file` gives: `sha256:` or `sha512:` and the digits. Other contents are
    /// refused.
    #[serde(default)]
    #[schemars(length(max = 135), regex(pattern = r"^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$"))]
    pub(crate) checksum: Option<String>,
    /// The format of the image. Others are refused. Default: `qcow2`.
    #[serde(default)]
    pub(crate) format: ImageFormat,
}

/// A volume on a hypervisor.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct VolumeSpec {
    /// The storage pool. Default: that of the root disk.
    #[serde(default)]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[^/]+$"))]
    pub(crate) pool: Option<String>,
    /// The volume's name.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[^/]+$"))]
    pub(crate) name: String,
}

/// The format of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ImageFormat {
    /// QEMU's own.
    #[default]
    Qcow2,
    /// The bytes of the disk as they are.
    Raw,
}

/// What an [`ImageSpec`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageSource<'a> {
    /// A volume that is there.
    Volume(&'a VolumeSpec),
    /// A URL to import from, and the checksum.
    Url(&'a str, &'a str),
    /// A file to import from, and the checksum.
    File(&'a str, &'a str),
}

impl ImageSpec {
    /// What the spec names.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if it does not name exactly one image.
    pub(crate) fn source(&self) -> Result<ImageSource<'_>> {
        match (&self.volume, &self.url, &self.file, &self.checksum) {
            (Some(volume), None, None, None) => Ok(ImageSource::Volume(volume)),
            (None, Some(url), None, Some(checksum)) => Ok(ImageSource::Url(url, checksum)),
            (None, None, Some(file), Some(checksum)) => Ok(ImageSource::File(file, checksum)),
            (None, Some(_), None, None) | (None, None, Some(_), None) => {
                let words = "spec.image.checksum: is missing; give \"sha256:\" and the digits";
                Err(Error::new(ErrorKind::InvalidInput, words))
            }
            _ => {
                let words = "spec.image: give one of volume, url with checksum, and file with checksum";
                Err(Error::new(ErrorKind::InvalidInput, words))
            }
        }
    }
}

impl ImageFormat {
    /// The format as libvirt names it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Qcow2 => "qcow2",
            Self::Raw => "raw",
        }
    }
}
