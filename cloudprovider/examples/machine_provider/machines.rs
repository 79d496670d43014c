//! The machines of the lab: all that a provider writes for Cluster API.

use cloudprovider::{
    Error, ErrorKind, Machines, Result, async_trait,
    machines::{
        Capacity, ClusterReport, ClusterRequest, Deletion, FailureDomain, Kind, Kinds,
        MachineDeletionRequest, MachineReport, MachineRequest, Mark, ObjectLocks, PresentMachine, Record,
        Wait,
    },
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{LabProvider, instance, lab::Vm};

/// What a user says about a machine: `spec` of a `LabMachine`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct LabMachineSpec {
    /// How many CPUs it has.
    #[schemars(range(min = 1, max = 64))]
    cpus: u32,
}

/// What a user says about a cluster: `spec` of a `LabCluster`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct LabClusterSpec {
    /// The racks that its machines may be in, sorted.
    #[serde(default)]
    racks: Vec<String>,
}

type Request = MachineRequest<LabMachineSpec, LabClusterSpec>;
type DeletionRequest = MachineDeletionRequest<LabMachineSpec, LabClusterSpec>;

impl LabProvider {
    /// The machine with this mark. Its UUID is the identity of its object, so it is found however the last step
    /// ended.
    fn find(&self, mark: &Mark) -> Result<Option<Vm>> {
        match self.lab.by_uuid(&mark.uid) {
            Some(vm) if !mark.owns(vm.mark.as_ref()) => {
                Err(mark.conflict(format!("machine {:?}", vm.name), vm.mark.as_ref()))
            }
            found => Ok(found),
        }
    }

    fn create(&self, request: &Request) -> Result<MachineReport> {
        let mark = &request.mark;
        if request.bootstrap.is_none() {
            return Ok(MachineReport::Creating(Wait::bootstrap_data()));
        }
        if let Some(vm) = self.lab.by_name(mark.name()) {
            return Err(mark.conflict(format!("machine {:?}", vm.name), vm.mark.as_ref()));
        }
        let racks = &request.cluster.spec.racks;
        let rack = match &request.failure_domain {
            None => racks.first().cloned(),
            Some(name) if racks.contains(name) => Some(name.clone()),
            Some(name) => {
                let words = format!("failureDomain: unknown rack {name:?}, known: {}", racks.join(", "));
                return Err(Error::new(ErrorKind::InvalidInput, words));
            }
        };
        // A real cloud gets the bootstrap data here too. The mark is part of the call that creates the machine.
        self.lab.create(Vm {
            uuid: mark.uid.clone(),
            name: mark.name().to_owned(),
            rack,
            cpus: request.spec.cpus,
            is_running: true,
            mark: Some(mark.clone()),
            address: None,
        });
        Ok(MachineReport::Creating(Wait::task(format!("{} is being created", mark.name()))))
    }
}

#[async_trait]
impl Machines for LabProvider {
    type MachineSpec = LabMachineSpec;
    // The lab has no tasks, so there is nothing to remember.
    type MachineStatus = ();
    type ClusterSpec = LabClusterSpec;
    type ClusterStatus = ();

    const KINDS: Kinds = Kinds::new(
        "v1alpha1",
        Kind::new("LabMachine", "labmachines"),
        Kind::new("LabCluster", "labclusters"),
    );

    fn object_locks(&self) -> &ObjectLocks {
        &self.object_locks
    }

    async fn ensure_machine(&self, request: &Request, _: &mut Record<()>) -> Result<MachineReport> {
        let Some(vm) = self.find(&request.mark)? else {
            return match &request.provider_id {
                Some(id) => Ok(MachineReport::lost(format!("there is no {id} any more"))),
                None => self.create(request),
            };
        };
        let wait = vm.address.is_none().then(|| Wait::address(format!("{} boots", vm.name)));
        // The same function answers look-ups of its Node.
        Ok(PresentMachine::new(instance(&vm)).with_failure_domain(vm.rack).with_wait(wait).into())
    }

    async fn delete_machine(&self, request: &DeletionRequest, _: &mut Record<()>) -> Result<Deletion> {
        // What has another mark is not ours to delete.
        if let Ok(Some(vm)) = self.find(&request.mark) {
            self.lab.destroy(&vm.uuid);
        }
        Ok(Deletion::Gone)
    }

    async fn ensure_cluster(
        &self,
        request: &ClusterRequest<LabClusterSpec>,
        _: &mut Record<()>,
    ) -> Result<ClusterReport> {
        let racks = request.spec.racks.iter().map(FailureDomain::new);
        let endpoint = request.control_plane_endpoint.clone();
        Ok(ClusterReport::done().with_failure_domains(racks).with_control_plane_endpoint(endpoint))
    }

    async fn delete_cluster(
        &self,
        _: &ClusterRequest<LabClusterSpec>,
        _: &mut Record<()>,
    ) -> Result<Deletion> {
        Ok(Deletion::Gone)
    }

    async fn capacity(&self, spec: &LabMachineSpec) -> Result<Capacity> {
        Ok(Capacity::default().with_resource("cpu", spec.cpus.to_string()))
    }
}
