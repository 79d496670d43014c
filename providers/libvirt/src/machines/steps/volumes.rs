//! Which names the volumes of a machine have, and their deletion.

use std::{iter, slice};

use cloudprovider::{
    Result,
    machines::{MachineRequest, Wait},
};

use crate::machines::{
    identity::is_borrowed,
    libvirt_machines::{Host, LibvirtMachines},
    names::{self, VolumeNames},
    spec::{LibvirtMachineSpec, RootDiskMode},
    storage::{Removal, has_any_volume, has_volume},
};

type Request<C> = MachineRequest<LibvirtMachineSpec, C>;

/// The names that count where no domain tells which volumes are the machine's. The UID of the API server is
/// the object's alone, so with it the older names are, too. A UID from before a move is what the object says,
/// and another namespace's object can say the same.
pub(super) fn possible<C>(request: &Request<C>) -> Vec<VolumeNames> {
    let older = (!is_borrowed(request)).then(|| VolumeNames::older(&request.mark));
    iter::once(VolumeNames::new(&request.mark)).chain(older).collect()
}

/// The names for a machine whose domain is not there yet: those that an earlier step has begun with.
///
/// # Errors
/// If the hypervisor cannot be asked.
pub(super) async fn to_make<C>(host: &Host, request: &Request<C>) -> Result<VolumeNames> {
    let older = VolumeNames::older(&request.mark);
    let is_begun = !is_borrowed(request) && has_root_disk(host, request, slice::from_ref(&older)).await?;
    Ok(if is_begun { older } else { VolumeNames::new(&request.mark) })
}

/// Whether the hypervisor has the root disk of the machine under one of these names. Of copies, any volume:
/// their names are not known.
///
/// # Errors
/// If the hypervisor cannot be asked.
pub(super) async fn has_root_disk<C>(
    host: &Host,
    request: &Request<C>,
    possible: &[VolumeNames],
) -> Result<bool> {
    let (storage, pool) = (&host.storage, request.spec.pool());
    if request.spec.root_disk_mode == RootDiskMode::Copy {
        let is_meant = |volume: &str| possible.iter().any(|names| names.has(volume));
        return has_any_volume(storage, pool, &is_meant).await;
    }
    let root = request.spec.named_disks().next().map(|(name, _)| name).unwrap_or_default();
    for names in possible {
        if has_volume(storage, pool, &names.disk(&root)).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

impl LibvirtMachines {
    /// Deletes the volumes with these names. `None` if the hypervisor confirmed that none is left.
    ///
    /// # Errors
    /// If the hypervisor cannot be asked, or refuses.
    pub(super) async fn remove_volumes(
        &self,
        host: &Host,
        spec: &LibvirtMachineSpec,
        ours: &[VolumeNames],
    ) -> Result<Option<Wait>> {
        let is_ours = |volume: &str| ours.iter().any(|names| names.has(volume));
        match self.storage.remove(&host.storage, &spec.pools(), names::CONSOLE, &is_ours).await? {
            Removal::Gone { .. } => Ok(None),
            Removal::Working(wait) => Ok(Some(wait)),
        }
    }
}
