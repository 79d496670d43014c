//! The bootstrap data of a machine, on its hypervisor.

use std::sync::Arc;

use cloudprovider::{
    ControlPlaneEndpoint, Error, ErrorKind, Result,
    machines::{BootstrapData, BootstrapFormat},
};

use uuid::Uuid;

use super::{MachineRecord, Request};
use crate::{
    machines::{
        domain_xml::PlannedBootstrap,
        libvirt_machines::{Host, LibvirtMachines},
        names::VolumeNames,
        seed::{Seed, check_ignition},
        storage::{StorageCalls, ensure_small},
    },
    worker_pool::Namespace,
};

/// What takes the place of user data that have served. cloud-init runs once for each instance ID, which
/// stays.
const NOTHING_FOR_CLOUD_INIT: &str = "#cloud-config\n";

/// What takes the place of a configuration of Ignition, which runs at the first boot only.
const NOTHING_FOR_IGNITION: &[u8] = br#"{"ignition":{"version":"3.0.0"}}"#;

/// Where the API server of the machine's cluster is reached.
fn endpoint(request: &Request) -> Option<&ControlPlaneEndpoint> {
    request.cluster.control_plane_endpoint.as_ref()
}

/// Puts the bootstrap data on the hypervisor. No domain uses them yet.
pub(super) async fn upload(
    host: &Host,
    request: &Request,
    names: &VolumeNames,
    data: &BootstrapData,
) -> Result<PlannedBootstrap> {
    let pool = request.spec.pool();
    match data.format() {
        BootstrapFormat::CloudConfig => {
            let _permit = host.seeds.acquire(Namespace::from(&*request.mark.namespace)).await;
            let seed = Seed::nocloud(&request.mark, data, endpoint(request))?;
            let path = ensure_small(&host.storage, pool, &names.seed(), seed.expose()).await?;
            Ok(PlannedBootstrap::Seed(path))
        }
        BootstrapFormat::Ignition => {
            check_ignition(data)?;
            let path = ensure_small(&host.storage, pool, &names.ignition(), data.expose()).await?;
            Ok(PlannedBootstrap::Ignition(path))
        }
        format => {
            let words = format!("bootstrap data of the format {format} are not possible on libvirt");
            Err(Error::new(ErrorKind::Unsupported, words))
        }
    }
}

impl LibvirtMachines {
    /// Replaces bootstrap data that have served, if the spec asks for it. The volume stays, or the domain
    /// could not be started again.
    pub(super) async fn wipe_bootstrap_data(
        &self,
        host: &Host,
        uuid: Uuid,
        request: &Request,
        record: &mut MachineRecord,
    ) -> Result<()> {
        let status = &mut record.status;
        if !request.spec.remove_bootstrap_data || !request.has_node || status.is_bootstrap_data_removed {
            return Ok(());
        }
        // Which volume it is cannot be told by what is there: a wipe that was cut off may have left none.
        let Some(found) = host.domains.find(uuid, None).await? else { return Ok(()) };
        let _permit = host.seeds.acquire(Namespace::from(&*request.mark.namespace)).await;
        let names = VolumeNames::of_domain(&request.mark, found.volume.as_deref());
        wipe(&host.storage, request, &names, found.has_ignition).await?;
        status.is_bootstrap_data_removed = true;
        Ok(())
    }
}

/// Replaces the bootstrap data of a machine.
pub(crate) async fn wipe(
    storage: &Arc<dyn StorageCalls>,
    request: &Request,
    names: &VolumeNames,
    has_ignition: bool,
) -> Result<()> {
    let pool = request.spec.pool();
    if has_ignition {
        ensure_small(storage, pool, &names.ignition(), NOTHING_FOR_IGNITION).await?;
    } else {
        let nothing = BootstrapData::new(BootstrapFormat::CloudConfig, NOTHING_FOR_CLOUD_INIT);
        let seed = Seed::nocloud(&request.mark, &nothing, endpoint(request))?;
        ensure_small(storage, pool, &names.seed(), seed.expose()).await?;
    }
    Ok(())
}
