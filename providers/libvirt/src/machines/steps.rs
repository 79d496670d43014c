//! The steps of machines and clusters.
//!
//! ```text
//!  find the domain by the mark ─┬─ it is there: see that it runs, wait for its address         (present)
//!                               ├─ it was there, and all hypervisors deny it: lost
//!                               └─ choose a hypervisor ─> image ─> disks ─> seed ─> define and start   (create)
//! ```
//!
//! Only one hypervisor ever has parts of a machine. The choice is written to the status before the first call, and kept in
//! memory. Where both are lost, the root disk tells: it is the first thing that is made, and its name is made
//! from the mark.

mod bootstrap;
mod cluster;
mod create;
mod delete;
mod elsewhere;
mod image;
mod places;
mod present;
mod reservations;
mod reset;
mod volumes;

use super::{
    identity::Identity,
    libvirt_machines::{Host, LibvirtMachines},
    spec::{LibvirtClusterSpec, LibvirtMachineSpec},
};
use crate::worker_pool::in_turn_of;
use cloudprovider::{
    Machines, Result, async_trait,
    machines::{
        Capacity, ClusterReport, ClusterRequest, Deletion, Kind, Kinds, MachineDeletionRequest,
        MachineReport, MachineRequest, NodeInfo, ObjectLocks, Record, Reset,
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(test)]
pub(crate) use self::bootstrap::wipe;

pub(crate) type Request = MachineRequest<LibvirtMachineSpec, LibvirtClusterSpec>;
pub(crate) type DeletionRequest = MachineDeletionRequest<LibvirtMachineSpec, LibvirtClusterSpec>;
pub(crate) type MachineRecord = Record<LibvirtMachineStatus>;

// It only has hints: a step finds everything again in libvirt.
/// The provider's part of the status of a `LibvirtMachine`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LibvirtMachineStatus {
    /// The hypervisor that was chosen for the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hypervisor: Option<String>,
    /// When the guest was asked to shut down before the machine is deleted, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) soft_power_off_since: Option<i64>,
    /// Whether the bootstrap data were wiped from the hypervisor.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_bootstrap_data_removed: bool,
}

/// The provider's part of the status of a `LibvirtCluster`: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LibvirtClusterStatus {}

#[async_trait]
impl Machines for LibvirtMachines {
    type MachineSpec = LibvirtMachineSpec;
    type MachineStatus = LibvirtMachineStatus;
    type ClusterSpec = LibvirtClusterSpec;
    type ClusterStatus = LibvirtClusterStatus;

    const KINDS: Kinds = Kinds::new(
        "v1alpha1",
        Kind::new("LibvirtMachine", "libvirtmachines"),
        Kind::new("LibvirtCluster", "libvirtclusters"),
    )
    .with_reset();

    fn object_locks(&self) -> &ObjectLocks {
        &self.object_locks
    }

    async fn ensure_machine(&self, request: &Request, record: &mut MachineRecord) -> Result<MachineReport> {
        let machine = Identity::of(&request.mark)?;
        in_turn_of(&machine.namespace, ensure(self, &machine, request, record)).await
    }

    async fn delete_machine(
        &self,
        request: &DeletionRequest,
        record: &mut MachineRecord,
    ) -> Result<Deletion> {
        let machine = Identity::of(&request.mark)?;
        in_turn_of(&machine.namespace, self.delete(&machine, request, record)).await
    }

    async fn reset_machine(&self, request: &Request, record: &MachineRecord) -> Result<Reset> {
        let machine = Identity::of(&request.mark)?;
        in_turn_of(&machine.namespace, self.reset(&machine, request, record)).await
    }

    async fn ensure_cluster(
        &self,
        request: &ClusterRequest<LibvirtClusterSpec>,
        _: &mut Record<LibvirtClusterStatus>,
    ) -> Result<ClusterReport> {
        let cluster = Identity::of(&request.mark)?;
        in_turn_of(&cluster.namespace, self.make_cluster(cluster.uid, request)).await
    }

    async fn delete_cluster(
        &self,
        request: &ClusterRequest<LibvirtClusterSpec>,
        _: &mut Record<LibvirtClusterStatus>,
    ) -> Result<Deletion> {
        let cluster = Identity::of(&request.mark)?;
        in_turn_of(&cluster.namespace, self.remove_cluster(cluster.uid, request)).await
    }

    async fn capacity(&self, spec: &LibvirtMachineSpec) -> Result<Capacity> {
        let mut capacity = Capacity::default()
            .with_resource("cpu", spec.vcpus.to_string())
            .with_resource("memory", format!("{}Mi", spec.memory_mib));
        if let Some(root) = spec.disks.first() {
            capacity = capacity.with_resource("ephemeral-storage", format!("{}Gi", root.size_gib));
        }
        let node_info = NodeInfo {
            architecture: self.architecture(spec.hypervisor.as_deref()).await,
            operating_system: Some("linux".to_owned()),
        };
        Ok(capacity.with_node_info(node_info))
    }
}

async fn ensure(
    machines: &LibvirtMachines,
    machine: &Identity,
    request: &Request,
    record: &mut MachineRecord,
) -> Result<MachineReport> {
    let uid = machine.uid;
    let copies = machines.copies(machine, request, record);
    if let Some((host, domain)) = machines.find(uid, &request.mark)?
        && !copies.contains(&host.name())
    {
        return machines.present(host, &domain, machine, request, record).await;
    }
    match &request.provider_id {
        None => machines.create(machine, request, record).await,
        Some(_) => {
            let others: Vec<_> =
                machines.hosts.iter().filter(|host| !copies.contains(&host.name())).collect();
            machines.confirm_absent(&others, uid).await?;
            if let Some(name) = machines.left(request, record) {
                return Err(LibvirtMachines::elsewhere(&request.mark, "the machine", &name));
            }
            Ok(MachineReport::lost(format!("no hypervisor has the machine's domain {uid} any more")))
        }
    }
}

impl LibvirtMachines {
    /// The architecture of a machine's Node in Go's words, if all hypervisors that may have it are the same.
    async fn architecture(&self, pinned: Option<&str>) -> Option<String> {
        let mut found = None;
        for host in self.hosts.iter().filter(|host| pinned.is_none_or(|name| name == host.name())) {
            let arch = host.domains.capabilities().await.ok()?.go_arch()?;
            if found.is_some_and(|other| other != arch) {
                return None;
            }
            found = Some(arch);
        }
        found.map(str::to_owned)
    }

    /// The hypervisors that may have parts of a machine: only what cannot change decides.
    pub(super) fn candidates(&self, request: &Request) -> Vec<&Host> {
        let pinned = request.spec.hypervisor.as_deref();
        let domain = request.failure_domain.as_deref();
        self.hosts
            .iter()
            .filter(|host| pinned.is_none_or(|name| name == host.name()))
            .filter(|host| domain.is_none_or(|name| host.failure_domain() == name))
            .collect()
    }
}
