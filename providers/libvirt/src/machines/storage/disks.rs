//! Disks of machines that libvirt makes at once: overlays and blank ones.

use std::sync::Arc;

use cloudprovider::{Error, ErrorKind, Result};

use super::{
    MachineStorage,
    calls::{CallError, CallResult, Place, StorageCalls},
    image::Base,
    volume::{Backing, Format, NewVolume, SIZE_UNIT, Volume, size_text},
};

/// A disk that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    /// The name of its volume.
    pub(crate) volume: String,
    /// Its path on the hypervisor.
    pub(crate) path: String,
    /// Its format.
    pub(crate) format: Format,
    /// What it has the differences to.
    pub(crate) backing: Option<Backing>,
}

/// The size that a disk gets: whole MiB.
pub(super) fn rounded(bytes: u64) -> u64 {
    bytes.div_ceil(SIZE_UNIT).saturating_mul(SIZE_UNIT)
}

/// The error of a disk that is smaller than its image. `field` is that of the size in the spec.
///
/// # Errors
/// [`ErrorKind::InvalidInput`].
pub(super) fn check_size(field: &str, bytes: u64, base: &Base) -> Result<()> {
    if bytes >= base.capacity {
        return Ok(());
    }
    let words = format!(
        "{field}: {} is smaller than the disk in the image, which has {}",
        size_text(bytes),
        size_text(base.capacity)
    );
    Err(Error::new(ErrorKind::InvalidInput, words))
}

impl MachineStorage {
    /// A disk with the differences to an image. `bytes` is its size, and `field` the field of the spec with
    /// the size.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the image is larger, and [`ErrorKind::Conflict`] if there is a volume
    /// of this name that is something else.
    pub(crate) async fn overlay(
        &self,
        calls: &Arc<dyn StorageCalls>,
        pool: &str,
        name: &str,
        (field, bytes): (&str, u64),
        base: &Base,
    ) -> Result<Disk> {
        check_size(field, bytes, base)?;
        let backing = Backing { path: base.path.clone(), format: base.format };
        let wanted =
            NewVolume { backing: Some(backing), ..NewVolume::new(name, Format::Qcow2, rounded(bytes)) };
        ensure(calls, pool, &wanted).await
    }

    /// An empty disk of this many bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if there is a volume of this name that is something else.
    pub(crate) async fn blank(
        &self,
        calls: &Arc<dyn StorageCalls>,
        pool: &str,
        name: &str,
        format: Format,
        bytes: u64,
    ) -> Result<Disk> {
        ensure(calls, pool, &NewVolume::new(name, format, rounded(bytes))).await
    }
}

/// Makes a volume, or takes the one that an earlier step has made.
async fn ensure(calls: &Arc<dyn StorageCalls>, pool: &str, wanted: &NewVolume) -> Result<Disk> {
    let place = Place { hypervisor: calls.hypervisor(), pool };
    let name = &wanted.name;
    let cannot = |error: CallError| error.into_error(format!("cannot make volume {name:?}"), &place);
    let found = make(calls, pool, wanted).await.map_err(cannot)?;
    check_shape(&found, wanted, &place)?;
    let NewVolume { name, format, backing, .. } = wanted.clone();
    Ok(Disk { volume: name, path: found.path, format, backing })
}

/// Makes a volume, unless there is one of its name. The result is what is there then.
async fn make(calls: &Arc<dyn StorageCalls>, pool: &str, wanted: &NewVolume) -> CallResult<Volume> {
    match calls.create(pool, wanted).await {
        Err(CallError::Exists) => match calls.volume(pool, &wanted.name).await {
            Ok(found) if is_torso(&found, wanted) => calls.delete(pool, &wanted.name).await?,
            Ok(found) => return Ok(found),
            // Somebody has deleted the file, and libvirt has not noticed it.
            Err(CallError::NoVolume) => calls.refresh(pool).await?,
            Err(error) => return Err(error),
        },
        // This is also what libvirt says if there is a file that it does not know.
        Err(CallError::Busy(_)) => calls.refresh(pool).await?,
        other => return other,
    }
    match calls.create(pool, wanted).await {
        Err(CallError::Exists) => calls.volume(pool, &wanted.name).await,
        other => other,
    }
}

/// Whether a file has no content at all, as after a crash of libvirtd in the middle of the call. Nothing is
/// lost with it.
fn is_torso(found: &Volume, wanted: &NewVolume) -> bool {
    found.length == 0 && wanted.capacity > 0 && found.capacity == 0
}

/// Whether a volume is what is wanted. A raw one may look like anything, since its guest may have written
/// anything.
pub(super) fn check_shape(found: &Volume, wanted: &NewVolume, place: &Place<'_>) -> Result<()> {
    let path = wanted.backing.as_ref().map(|backing| backing.path.as_str());
    let mut differences = Vec::new();
    if wanted.format == Format::Qcow2 && found.format != Format::Qcow2.as_str() {
        differences.push(format!("its format is {} instead of qcow2", found.format));
    }
    if found.capacity != wanted.capacity {
        let [is, wants] = [found.capacity, wanted.capacity].map(size_text);
        differences.push(format!("its size is {is} instead of {wants}"));
    }
    if found.backing.as_deref() != path {
        let [is, wants] = [found.backing.as_deref(), path].map(|path| path.unwrap_or("nothing"));
        differences.push(format!("it is an overlay on {is} instead of {wants}"));
    }
    if differences.is_empty() {
        return Ok(());
    }
    let words = format!(
        "volume {:?} in pool {:?} on hypervisor {:?} exists and is not the disk that the machine needs: {}; it is left \
         alone",
        wanted.name,
        place.pool,
        place.hypervisor,
        differences.join(", ")
    );
    Err(Error::new(ErrorKind::Conflict, words))
}
