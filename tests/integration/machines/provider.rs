//! A provider of which only the types are used.

use cloudprovider::{
    Error, ErrorKind, Machines, Result, async_trait,
    machines::{
        Capacity, ClusterReport, ClusterRequest, Deletion, Kind, Kinds, MachineDeletionRequest,
        MachineReport, MachineRequest, ObjectLocks, Record,
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A group of this test alone.
pub(super) const GROUP: &str = "infrastructure.definitions.test";

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "only the schema is used")]
pub(super) struct MachineSpec {
    /// How many processors it has.
    #[schemars(range(min = 1))]
    cpus: u32,
    /// How it is switched off.
    #[serde(default)]
    power_off_mode: PowerOffMode,
    /// Its disks.
    #[serde(default)]
    disks: Vec<Disk>,
    /// Where its first disk comes from.
    source: Option<Source>,
    /// Its interface.
    interface: Option<Interface>,
    /// Addresses of DNS servers.
    name_servers: Option<std::collections::BTreeSet<String>>,
}

#[derive(Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum PowerOffMode {
    /// At once.
    #[default]
    Hard,
    /// By the guest.
    Soft,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.sizeGiB > 0", "message": "a disk has a size", "fieldPath": ".sizeGiB",
}]))]
#[expect(dead_code, reason = "only the schema is used")]
struct Disk {
    #[serde(rename = "sizeGiB")]
    size: u32,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only the schema is used")]
enum Source {
    Url { address: String },
    Volume(String),
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", tag = "type")]
#[expect(dead_code, reason = "only the schema is used")]
enum Interface {
    Network { network: String },
    Bridge { bridge: String },
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct MachineStatus {
    task_ref: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only the schema is used")]
pub(super) struct ClusterSpec {
    #[serde(default)]
    pools: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Provider {
    object_locks: ObjectLocks,
}

fn unused<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "only the types are used"))
}

#[async_trait]
impl Machines for Provider {
    type MachineSpec = MachineSpec;
    type MachineStatus = MachineStatus;
    type ClusterSpec = ClusterSpec;
    type ClusterStatus = ();
    const KINDS: Kinds = Kinds::new(
        "v1alpha1",
        Kind::new("ExampleMachine", "examplemachines").with_short_names(&["exm"]),
        Kind::new("ExampleCluster", "exampleclusters").with_short_names(&["exc"]),
    )
    .in_group(GROUP);

    fn object_locks(&self) -> &ObjectLocks {
        &self.object_locks
    }

    async fn ensure_machine(
        &self,
        _: &MachineRequest<MachineSpec, ClusterSpec>,
        _: &mut Record<MachineStatus>,
    ) -> Result<MachineReport> {
        unused()
    }

    async fn delete_machine(
        &self,
        _: &MachineDeletionRequest<MachineSpec, ClusterSpec>,
        _: &mut Record<MachineStatus>,
    ) -> Result<Deletion> {
        unused()
    }

    async fn ensure_cluster(
        &self,
        _: &ClusterRequest<ClusterSpec>,
        _: &mut Record<()>,
    ) -> Result<ClusterReport> {
        unused()
    }

    async fn delete_cluster(&self, _: &ClusterRequest<ClusterSpec>, _: &mut Record<()>) -> Result<Deletion> {
        unused()
    }

    async fn capacity(&self, _: &MachineSpec) -> Result<Capacity> {
        unused()
    }
}
