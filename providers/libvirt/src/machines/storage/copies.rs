//! Full copies of images.

use std::sync::Arc;

use cloudprovider::{Error, ErrorKind, Result, machines::Mark};

use super::{
    MachineStorage, Made,
    attempts::{Attempts, marker, new_attempt},
    calls::{CallError, Place, StorageCalls, list},
    disks::{Disk, check_shape, check_size, rounded},
    image::Base,
    limits::Limits,
    volume::{Format, NewVolume},
    work::{Kind, Progress, WorkKey, WorkStatus},
};

impl MachineStorage {
    /// A disk with a copy of an image. `bytes` is its size, and `field` the field of the spec with the size.
    /// `waiter` is the machine. The volume is an attempt of `name`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the image is larger, and why it cannot be copied.
    #[allow(clippy::too_many_arguments, reason = "each is something else")]
    pub(crate) async fn copy(
        &self,
        calls: &Arc<dyn StorageCalls>,
        pool: &str,
        name: &str,
        format: Format,
        (field, bytes): (&str, u64),
        base: &Base,
        waiter: &Mark,
    ) -> Result<Made<Disk>> {
        check_size(field, bytes, base)?;
        let key = WorkKey {
            kind: Kind::Copy,
            namespace: waiter.namespace.clone(),
            hypervisor: calls.hypervisor().to_owned(),
            pool: pool.to_owned(),
            base: name.to_owned(),
        };
        let progress = Progress::new(format!(
            "copy of volume {:?} to pool {pool:?} on hypervisor {:?}",
            base.volume,
            calls.hypervisor()
        ));
        match self.work.status(&key, &waiter.uid, &progress) {
            WorkStatus::Running(wait) => return Ok(Made::Working(wait.with_reason("CopyingImage"))),
            WorkStatus::Failed(error) => return Err(error),
            WorkStatus::Idle => {}
        }
        let wanted = NewVolume::new(name, format, rounded(bytes));
        let names = list(calls, pool).await?;
        if let Some(disk) = complete(calls, pool, &wanted, &names).await? {
            return Ok(Made::Ready(disk));
        }
        let (calls, limits) = (Arc::clone(calls), self.limits);
        let work = Copy { calls, pool: pool.to_owned(), wanted, base: base.clone(), limits };
        match self.work.begin(key, &waiter.uid, progress, work.run()) {
            WorkStatus::Running(wait) => Ok(Made::Working(wait.with_reason("CopyingImage"))),
            WorkStatus::Failed(error) => Err(error),
            WorkStatus::Idle => Err(Error::new(ErrorKind::Internal, "the copy has not begun")),
        }
    }
}

/// The complete copy among these names, if there is one.
async fn complete(
    calls: &Arc<dyn StorageCalls>,
    pool: &str,
    wanted: &NewVolume,
    names: &[String],
) -> Result<Option<Disk>> {
    let place = Place { hypervisor: calls.hypervisor(), pool };
    for (name, length) in Attempts::of(&wanted.name, names.iter().map(String::as_str)).complete {
        let found = match calls.volume(pool, &name).await {
            Ok(found) => found,
            Err(CallError::NoVolume) => continue,
            Err(error) => return Err(error.into_error(format!("cannot look at volume {name:?}"), &place)),
        };
        if found.length < length {
            tracing::warn!(
                hypervisor = place.hypervisor,
                pool,
                volume = name,
                "a copy is damaged and is not used"
            );
            continue;
        }
        check_shape(&found, &NewVolume { name: name.clone(), ..wanted.clone() }, &place)?;
        return Ok(Some(Disk { volume: name, path: found.path, format: wanted.format, backing: None }));
    }
    Ok(None)
}

struct Copy {
    calls: Arc<dyn StorageCalls>,
    pool: String,
    /// With the base of the attempts as its name.
    wanted: NewVolume,
    base: Base,
    limits: Limits,
}

impl Copy {
    /// Copies, unless that was done meanwhile.
    async fn run(self) -> Result<()> {
        let Self { calls, pool, wanted, base, limits } = &self;
        let place = Place { hypervisor: calls.hypervisor(), pool };
        let names = list(calls, pool).await?;
        if complete(calls, pool, wanted, &names).await?.is_some() {
            return Ok(());
        }
        // The machine is this daemon's alone, so these are from before a restart. libvirt refuses to delete
        // one that it still copies to.
        for name in Attempts::of(&wanted.name, names.iter().map(String::as_str)).incomplete {
            match calls.delete(pool, &name).await {
                Ok(()) | Err(CallError::NoVolume) => {}
                Err(error) => {
                    return Err(error.into_error(format!("cannot delete the earlier copy {name:?}"), &place));
                }
            }
        }
        self.check_source().await?;
        // A raw image may have holes, and they take no room in the copy.
        let length = if base.format == Format::Qcow2 { base.length } else { 0 };
        limits.check_room(calls, pool, &format!("a copy of volume {:?}", base.volume), length).await?;
        let attempt = NewVolume { name: new_attempt(&wanted.name), ..wanted.clone() };
        let name = &attempt.name;
        let cannot = |error: CallError| error.into_error(format!("cannot make volume {name:?}"), &place);
        calls.copy(pool, &attempt, &base.pool, &base.volume).await.map_err(cannot)?;
        let copied = calls.volume(pool, name).await.map_err(cannot)?;
        if copied.capacity < attempt.capacity {
            // the copy has the size of its source
            calls.resize(pool, name, attempt.capacity).await.map_err(cannot)?;
        }
        let copied = calls.volume(pool, name).await.map_err(cannot)?;
        check_shape(&copied, &attempt, &place)?;
        calls.create(pool, &NewVolume::empty(marker(name, copied.length))).await.map(drop).map_err(cannot)
    }

    /// Checks that libvirt takes the image for what it is: it copies in the format that it finds, and follows
    /// where that leads.
    async fn check_source(&self) -> Result<()> {
        let Base { pool, volume: name, format, .. } = &self.base;
        let place = Place { hypervisor: self.calls.hypervisor(), pool };
        let found = self.calls.volume(pool, name).await;
        let found =
            found.map_err(|error| error.into_error(format!("cannot look at image {name:?}"), &place))?;
        if found.backing.is_none() && found.format == format.as_str() {
            return Ok(());
        }
        let words = format!(
            "spec.image: volume {name:?} in pool {pool:?} on hypervisor {:?} has the format {} for libvirt instead of {}, or \
             leads to another file; it is not copied",
            place.hypervisor,
            found.format,
            format.as_str()
        );
        Err(Error::new(ErrorKind::InvalidInput, words))
    }
}
