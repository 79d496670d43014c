//! A provider whose cloud makes machines for Cluster API: instances and machines on one inventory.
//!
//! `cargo run -p cloudprovider --example machine_provider`

mod lab;
mod machines;

use std::sync::{Arc, OnceLock};

use cloudprovider::{
    CloudProvider, DynMachines, Instance, InstanceLookup, InstanceMetadata, InstanceStream, Instances,
    NodeAddress, NodeIdentity, PowerState, ProviderId, Result, StartContext, async_trait, instance_stream,
    machines::{BootstrapData, BootstrapFormat, ClusterContext, MachineRequest, Mark, ObjectLocks, Record},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::lab::{Lab, Vm};

const NAME: &str = "lab";

/// The only place that writes provider IDs.
fn provider_id(uuid: &str) -> ProviderId {
    ProviderId::new(NAME, &format!("/{uuid}"))
}

/// What is known of a machine, for its Node as well as for its object.
fn instance(vm: &Vm) -> Instance {
    let mut addresses: Vec<_> = vm.address.iter().map(NodeAddress::internal_ip).collect();
    addresses.push(NodeAddress::hostname(&vm.name));
    let state = if vm.is_running { PowerState::Running } else { PowerState::Off };
    Instance::new(provider_id(&vm.uuid), state).with_metadata(InstanceMetadata {
        instance_type: Some(format!("{}c", vm.cpus)),
        addresses,
        zone: vm.rack.clone(),
        ..InstanceMetadata::default()
    })
}

#[derive(Debug)]
struct LabProvider {
    lab: Arc<Lab>,
    stop: OnceLock<CancellationToken>,
    object_locks: ObjectLocks,
}

impl LabProvider {
    fn new(lab: Arc<Lab>) -> Self {
        Self { lab, stop: OnceLock::new(), object_locks: ObjectLocks::default() }
    }
}

#[async_trait]
impl Instances for LabProvider {
    fn owns(&self, provider_id: &str) -> bool {
        provider_id.parse::<ProviderId>().is_ok_and(|id| id.provider() == NAME)
    }
    async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup> {
        let find = |node: &NodeIdentity| match &node.provider_id {
            Some(id) => self.lab.by_uuid(id.rsplit('/').next().unwrap_or_default()),
            None => {
                let uuid = node.system_uuid.as_deref().unwrap_or_default().to_ascii_lowercase();
                self.lab.by_uuid(&uuid).or_else(|| self.lab.by_name(&node.name))
            }
        };
        let answer = |vm: Option<Vm>| vm.map_or(InstanceLookup::Absent, |vm| instance(&vm).into());
        nodes.iter().map(|node| answer(find(node))).collect()
    }
    fn changes(&self) -> Option<InstanceStream> {
        let stop = self.stop.get().cloned().unwrap_or_default();
        Some(instance_stream(self.lab.changes.subscribe(), stop))
    }
}

#[async_trait]
impl CloudProvider for LabProvider {
    fn name(&self) -> &str {
        NAME
    }
    async fn start(&self, context: StartContext) -> Result<()> {
        self.stop.get_or_init(|| context.stop);
        Ok(())
    }
    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }
    fn machines(&self) -> Option<&dyn DynMachines> {
        Some(self)
    }
}

/// Makes a machine, as the controller does. A real controller waits for changes between the steps.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let provider = LabProvider::new(Lab::new());
    let Some(machines) = provider.machines() else { return Ok(()) };
    let mark = Mark::machine("5d0b0b0e-3c53-4c5c-9b5e-2f0f6c9a7a10", "default", "prod", "node-1");
    let cluster = ClusterContext::new(json!({ "racks": ["rack-a", "rack-b"] }));
    let request = MachineRequest::new(mark, json!({ "cpus": 4 }), cluster)
        .with_bootstrap(BootstrapData::new(BootstrapFormat::CloudConfig, "#cloud-config\n"));
    let mut record = Record::default();
    loop {
        let report = machines.ensure_machine(&request, &mut record).await?;
        #[expect(clippy::print_stdout, reason = "an example talks to a person")]
        {
            println!("{report:?}");
        }
        if report.is_done() {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[cfg(test)]
mod tests;
