//! Finds the image that a machine asks for, or has it imported.

mod import;

use std::sync::Arc;

use cloudprovider::{Error, ErrorKind, Result};

use super::{
    MachineStorage, Made,
    calls::{CallError, Place, StorageCalls, list},
    image::{Base, Image, complete},
    volume::Format,
    work::{Progress, Standing, WorkKey},
};

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
        Ok(Base::new(pool, name, volume, format))
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
        let progress = Progress::new(format!(
            "import of {} to pool {pool:?} on hypervisor {:?}",
            image.origin,
            calls.hypervisor()
        ));
        match self.work.standing(&key, waiter, &progress) {
            Standing::Running(wait) => return Ok(Made::Working(wait.with_reason("ImportingImage"))),
            Standing::Failed(error) => return Err(error),
            Standing::Idle => {}
        }
        let names = list(calls, pool).await?;
        self.sweep_leftovers(calls, pool, &names);
        if let Some(base) = complete(calls, pool, &base_name, image.format, &names).await? {
            return Ok(Made::Ready(base));
        }
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
