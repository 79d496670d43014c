//! Images: volumes that are there already, and imports.

mod import;

use std::sync::Arc;

use cloudprovider::{Error, ErrorKind, Result};

use super::{
    MachineStorage, Made,
    attempts::Attempts,
    calls::{CallError, Place, StorageCalls},
    checksum::Checksum,
    fetch::Origin,
    volume::{Format, Volume},
    work::{Progress, Standing, WorkKey},
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
    fn base_name(&self) -> String {
        format!("{IMAGE_PREFIX}{}-{}", self.checksum.joined('-'), self.format.as_str())
    }
}

impl MachineStorage {
    /// A volume that somebody else has made. `field` names the field of the spec in messages.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the hypervisor confirms that there is no such volume, and
    /// [`ErrorKind::InvalidInput`] if its format cannot be used.
    pub(crate) async fn existing_image(
        &self,
        calls: &Arc<dyn StorageCalls>,
        field: &str,
        pool: &str,
        name: &str,
    ) -> Result<Base> {
        let place = Place { hypervisor: calls.hypervisor(), pool };
        let what = format!("{field}: volume {name:?}");
        let mut found = calls.volume(pool, name).await;
        if matches!(found, Err(CallError::NoVolume)) {
            // a file that was copied into the folder of the pool is known after a refresh
            calls.refresh(pool).await.map_err(|error| error.into_error(&what, &place))?;
            found = calls.volume(pool, name).await;
        }
        let volume = found.map_err(|error| error.into_error(&what, &place))?;
        let format = Format::parse(&volume.format).ok_or_else(|| {
            let words = format!(
                "{what} in pool {pool:?} on hypervisor {:?} has the format {}; qcow2 and raw are possible",
                place.hypervisor, volume.format
            );
            Error::new(ErrorKind::InvalidInput, words)
        })?;
        Ok(base(pool, name, volume, format))
    }

    /// An image in this pool, which is imported if it is not there. `waiter` is the identity (UID) of the machine that
    /// asks.
    ///
    /// # Errors
    /// Why it cannot be imported, which is tried again after the time that the error says. Also what cannot be seen on
    /// the hypervisor.
    pub(crate) async fn imported_image(
        &self,
        calls: &Arc<dyn StorageCalls>,
        pool: &str,
        image: &Image,
        waiter: &str,
    ) -> Result<Made<Base>> {
        let base_name = image.base_name();
        let key = WorkKey {
            hypervisor: calls.hypervisor().to_owned(),
            pool: pool.to_owned(),
            base: base_name.clone(),
        };
        match self.work.standing(&key, waiter) {
            Standing::Running(wait) => return Ok(Made::Working(wait.with_reason("ImportingImage"))),
            Standing::Failed(error) => return Err(error),
            Standing::Idle => {}
        }
        let names = list(calls, pool).await?;
        self.sweep_leftovers(calls, pool, &names);
        if let Some(base) = complete(calls, pool, &base_name, image.format, &names).await? {
            return Ok(Made::Ready(base));
        }
        let progress = Progress::new(format!(
            "import of {} to pool {pool:?} on hypervisor {:?}",
            image.origin,
            calls.hypervisor()
        ));
        let work = import::import(
            Arc::clone(&self.fetch),
            Arc::clone(calls),
            pool.to_owned(),
            image.clone(),
            Arc::clone(&progress),
        );
        match self.work.begin(key, waiter, progress, work) {
            Standing::Running(wait) => Ok(Made::Working(wait.with_reason("ImportingImage"))),
            Standing::Failed(error) => Err(error),
            Standing::Idle => Err(Error::new(ErrorKind::Internal, "the import has not begun")),
        }
    }
}

fn base(pool: &str, name: &str, volume: Volume, format: Format) -> Base {
    let capacity = match format {
        Format::Qcow2 => volume.capacity,
        // libvirt looks into raw images too, and may take something in them for another format
        Format::Raw => volume.length.max(volume.capacity),
    };
    Base { pool: pool.to_owned(), volume: name.to_owned(), path: volume.path, format, capacity }
}

/// The names of all volumes of a pool.
pub(super) async fn list(calls: &Arc<dyn StorageCalls>, pool: &str) -> Result<Vec<String>> {
    let place = Place { hypervisor: calls.hypervisor(), pool };
    calls.list(pool).await.map_err(|error| error.into_error("cannot list the volumes", &place))
}

/// The complete image among these names, if there is one.
async fn complete(
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
            return Ok(Some(base(pool, &name, volume, format)));
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
