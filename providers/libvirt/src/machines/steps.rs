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
mod image;
mod present;
mod reservations;

use cloudprovider::{
    Error, ErrorKind, Machines, Result, async_trait,
    machines::{
        Capacity, ClusterReport, ClusterRequest, Deletion, Kinds, MachineDeletionRequest, MachineReport,
        MachineRequest, Mark, NodeInfo, Record,
    },
};
use uuid::Uuid;

use super::{
    fleet::{Fleet, Host},
    kinds::KINDS,
    spec::{LibvirtClusterSpec, LibvirtMachineSpec},
    status::{LibvirtClusterStatus, LibvirtMachineStatus},
};

#[cfg(test)]
pub(crate) use self::bootstrap::wipe;

pub(crate) type Request = MachineRequest<LibvirtMachineSpec, LibvirtClusterSpec>;
pub(crate) type DeletionRequest = MachineDeletionRequest<LibvirtMachineSpec, LibvirtClusterSpec>;
pub(crate) type MachineRecord = Record<LibvirtMachineStatus>;

#[async_trait]
impl Machines for Fleet {
    type MachineSpec = LibvirtMachineSpec;
    type MachineStatus = LibvirtMachineStatus;
    type ClusterSpec = LibvirtClusterSpec;
    type ClusterStatus = LibvirtClusterStatus;

    const KINDS: Kinds = KINDS;

    async fn ensure_machine(&self, request: &Request, record: &mut MachineRecord) -> Result<MachineReport> {
        let uid = uid_of(&request.mark)?;
        self.one_step(uid, ensure(self, uid, request, record)).await
    }

    async fn delete_machine(
        &self,
        request: &DeletionRequest,
        record: &mut MachineRecord,
    ) -> Result<Deletion> {
        let uid = uid_of(&request.mark)?;
        self.one_step(uid, self.delete(uid, request, record)).await
    }

    async fn ensure_cluster(
        &self,
        request: &ClusterRequest<LibvirtClusterSpec>,
        _: &mut Record<LibvirtClusterStatus>,
    ) -> Result<ClusterReport> {
        let uid = uid_of(&request.mark)?;
        self.one_step(uid, self.make_cluster(uid, request)).await
    }

    async fn delete_cluster(
        &self,
        request: &ClusterRequest<LibvirtClusterSpec>,
        _: &mut Record<LibvirtClusterStatus>,
    ) -> Result<Deletion> {
        let uid = uid_of(&request.mark)?;
        self.one_step(uid, self.remove_cluster(uid, request)).await
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
    fleet: &Fleet,
    uid: Uuid,
    request: &Request,
    record: &mut MachineRecord,
) -> Result<MachineReport> {
    if let Some((host, domain)) = fleet.find(uid)? {
        return fleet.present(host, &domain, request, record).await;
    }
    match &request.provider_id {
        None => fleet.create(uid, request, record).await,
        Some(_) => {
            let all: Vec<_> = fleet.hosts.iter().collect();
            fleet.confirm_absent(&all, uid).await?;
            Ok(MachineReport::lost(format!("no hypervisor has domain {uid} any more")))
        }
    }
}

/// The UID. That of a machine is the UUID of its domain.
fn uid_of(mark: &Mark) -> Result<Uuid> {
    Uuid::parse_str(&mark.uid).map_err(|_| {
        let words = format!("the UID of the object, {:?}, is not a UUID", mark.uid);
        Error::new(ErrorKind::InvalidInput, words)
    })
}

impl Fleet {
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
