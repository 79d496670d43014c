//! Images: what they are, and how the volumes of a pool say that one is complete.

use std::sync::Arc;

use cloudprovider::Result;

use super::{
    attempts::Attempts,
    calls::{CallError, Place, StorageCalls},
    checksum::Checksum,
    fetch::Origin,
    volume::{Format, Volume},
};

/// The beginning of the names of all imported images, and of no other volume.
pub(super) const IMAGE_PREFIX: &str = "ccm-image-";

/// An image that a root disk is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    /// The pool that it is in.
    pub(crate) pool: String,
    /// The name of its volume.
    pub(crate) volume: String,
    /// Its path on the hypervisor.
    pub(crate) path: String,
    /// Its format.
    pub(crate) format: Format,
    /// The size of the disk in it, in bytes.
    pub(crate) capacity: u64,
    /// The length of its file, in bytes.
    pub(crate) length: u64,
}

impl Base {
    /// The image in this volume.
    pub(super) fn new(pool: &str, name: &str, volume: Volume, format: Format) -> Self {
        let capacity = match format {
            Format::Qcow2 => volume.capacity,
            // libvirt looks into raw images too, and may take something in them for another format
            Format::Raw => volume.length.max(volume.capacity),
        };
        let (pool, name, length) = (pool.to_owned(), name.to_owned(), volume.length);
        Self { pool, volume: name, path: volume.path, format, capacity, length }
    }
}

/// An image that is a volume already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Existing {
    /// The field of the spec that names it, for messages.
    pub(crate) field: String,
    /// The pool that it is in.
    pub(crate) pool: String,
    /// The name of its volume.
    pub(crate) name: String,
    /// The format that it is said to have. What is found in it is never taken instead: a guest may have
    /// written that.
    pub(crate) format: Format,
}

/// An image to import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// Where it comes from.
    pub(crate) origin: Origin,
    /// The checksum of its bytes.
    pub(crate) checksum: Checksum,
    /// The format that it is said to have.
    pub(crate) format: Format,
}

impl Image {
    /// What the names of its volumes begin with. Wherever it comes from, equal images are one.
    pub(super) fn base_name(&self) -> String {
        format!("{IMAGE_PREFIX}{}-{}", self.checksum.joined('-'), self.format.as_str())
    }
}

/// The complete image among these names, if there is one.
pub(super) async fn complete(
    calls: &Arc<dyn StorageCalls>,
    pool: &str,
    base_name: &str,
    format: Format,
    names: &[String],
) -> Result<Option<Base>> {
    let place = Place { hypervisor: calls.hypervisor(), pool };
    for (name, length) in Attempts::of(base_name, names.iter().map(String::as_str)).complete {
        let volume = match calls.volume(pool, &name).await {
            Ok(volume) => volume,
            Err(CallError::NoVolume) => continue,
            Err(error) => return Err(error.into_error(format!("cannot look at image {name:?}"), &place)),
        };
        let is_whole = volume.length >= length;
        if is_whole && (format == Format::Raw || volume.format == format.as_str()) {
            return Ok(Some(Base::new(pool, &name, volume, format)));
        }
        tracing::warn!(
            hypervisor = place.hypervisor,
            pool,
            volume = name,
            length = volume.length,
            wanted = length,
            format = volume.format,
            "an image is damaged and is not used; delete it when no disk is an overlay on it"
        );
    }
    Ok(None)
}
