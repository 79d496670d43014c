//! Finds the image that a machine asks for, or has it imported.

mod import;

use std::sync::Arc;

use cloudprovider::{Error, ErrorKind, Result, machines::Mark};

use super::{
    MachineStorage, Made,
    calls::{CallError, Place, StorageCalls, list},
    header::{self, Unusable},
    image::{Base, Existing, Image, complete},
    work::{Kind, Progress, WorkKey, WorkStatus},
};

impl MachineStorage {
    /// A volume that is there already.
    ///
    /// libvirt and QEMU follow what the content of a volume says. So it is used only in the format that the
    /// spec names, and if neither its first bytes nor libvirt's description of it lead to another file.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the hypervisor confirms that there is no such volume, and
    /// [`ErrorKind::InvalidInput`] if it cannot be used.
    pub(crate) async fn existing_image(
        &self,
        calls: &Arc<dyn StorageCalls>,
        wanted: &Existing,
    ) -> Result<Base> {
        let Existing { field, pool, name, format } = wanted;
        let place = Place { hypervisor: calls.hypervisor(), pool };
        let what = format!("{field}: volume {name:?}");
        let mut found = calls.volume(pool, name).await;
        if matches!(found, Err(CallError::NoVolume)) {
            // a file that was copied into the folder of the pool is known after a refresh
            calls.refresh(pool).await.map_err(|error| error.into_error(&what, &place))?;
            found = calls.volume(pool, name).await;
        }
        let volume = found.map_err(|error| error.into_error(&what, &place))?;
        let beginning = calls.download(pool, name, header::ENOUGH).await;
        let beginning = beginning.map_err(|error| error.into_error(&what, &place))?;
        let unusable = |why: &str| {
            let words = format!("{what} in pool {pool:?} on hypervisor {:?} {why}", place.hypervisor);
            Error::new(ErrorKind::InvalidInput, words)
        };
        let header = header::read(&beginning).map_err(|why| unusable(&why.to_string()))?;
        if volume.backing.is_some() {
            return Err(unusable(&Unusable::BackingFile.to_string()));
        }
        if header.format != *format {
            let words = format!(
                "spec.image.format: is {}, and {what} in pool {pool:?} on hypervisor {:?} has the format {}",
                format.as_str(),
                place.hypervisor,
                header.format.as_str()
            );
            return Err(Error::new(ErrorKind::InvalidInput, words));
        }
        if volume.format != format.as_str() {
            let why = format!("has the format {} for libvirt; qcow2 and raw are possible", volume.format);
            return Err(unusable(&why));
        }
        Ok(Base::new(pool, name, volume, *format))
    }

    /// An image in this pool, which is imported if it is not there. `waiter` is the machine that asks.
    ///
    /// # Errors
    /// Why it cannot be imported, which is tried again after the time that the error says. Also what cannot
    /// be seen on the hypervisor.
    pub(crate) async fn imported_image(
        &self,
        calls: &Arc<dyn StorageCalls>,
        pool: &str,
        image: &Image,
        waiter: &Mark,
    ) -> Result<Made<Base>> {
        let base_name = image.base_name();
        let key = WorkKey {
            kind: Kind::Import,
            namespace: waiter.namespace.clone(),
            hypervisor: calls.hypervisor().to_owned(),
            pool: pool.to_owned(),
            base: base_name.clone(),
        };
        let progress = Progress::new(format!(
            "import of {} to pool {pool:?} on hypervisor {:?}",
            image.origin,
            calls.hypervisor()
        ));
        match self.work.status(&key, &waiter.uid, &progress) {
            WorkStatus::Running(wait) => return Ok(Made::Working(wait.with_reason("ImportingImage"))),
            WorkStatus::Failed(error) => return Err(error),
            WorkStatus::Idle => {}
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
            self.limits,
        );
        match self.work.begin(key, &waiter.uid, progress, work) {
            WorkStatus::Running(wait) => Ok(Made::Working(wait.with_reason("ImportingImage"))),
            WorkStatus::Failed(error) => Err(error),
            WorkStatus::Idle => Err(Error::new(ErrorKind::Internal, "the import has not begun")),
        }
    }
}
