//! The image of a root disk.

use cloudprovider::Result;

use super::Request;
use crate::{
    allow::Allow,
    machines::{
        libvirt_machines::{Host, LibvirtMachines},
        spec::{ImageFormat, ImageSource},
        storage::{Base, Checksum, Existing, Format, Image, Made, Origin},
    },
};

/// Where the image of a machine comes from.
pub(super) enum Source {
    /// A volume that is there.
    Volume(Existing),
    /// It is imported.
    Import(Image),
}

/// What the spec names, if the configuration lets the machine's namespace name it.
///
/// # Errors
/// What is wrong with the spec, or that the namespace may not name it.
pub(super) fn source(allow: &Allow, request: &Request) -> Result<Source> {
    let spec = &request.spec;
    let allowed = allow.of(&request.mark.namespace);
    let format = match spec.image.format {
        ImageFormat::Qcow2 => Format::Qcow2,
        ImageFormat::Raw => Format::Raw,
    };
    let (origin, checksum) = match spec.image.source()? {
        ImageSource::Volume(volume) => {
            let (pool, field) = match volume.pool.as_deref() {
                Some(pool) => (pool, "spec.image.volume"),
                None => (spec.pool(), "spec.image.volume, in the pool of spec.disks[0]"),
            };
            allowed.image_volume(field, pool, &volume.name)?;
            let (field, pool, name) = (field.to_owned(), pool.to_owned(), volume.name.clone());
            return Ok(Source::Volume(Existing { field, pool, name, format }));
        }
        ImageSource::Url(url, checksum) => {
            (Origin::url("spec.image.url", url, allowed.image_hosts())?, checksum)
        }
        ImageSource::File(file, checksum) => {
            (Origin::File(allowed.image_file("spec.image.file", file)?), checksum)
        }
    };
    let checksum = Checksum::parse("spec.image.checksum", checksum)?;
    Ok(Source::Import(Image { origin, checksum, format }))
}

impl LibvirtMachines {
    /// The image of the root disk.
    pub(super) async fn image(&self, host: &Host, request: &Request) -> Result<Made<Base>> {
        match source(&self.config.allow, request)? {
            Source::Volume(volume) => {
                self.storage.existing_image(&host.storage, &volume).await.map(Made::Ready)
            }
            Source::Import(image) => {
                self.storage.imported_image(&host.storage, request.spec.pool(), &image, &request.mark).await
            }
        }
    }
}
