//! A second provider, whose kinds have other names than those of the fake cloud.

use std::sync::Arc;

use cloudprovider::{
    CloudProvider, DynMachines, Error, InstanceStream, Instances, Result, StartContext, async_trait,
    machines::{
        Capacity, ClusterReport, ClusterRequest, Deletion, Kind, Kinds, MachineReport, MachineRequest,
        ObserveRequest, Record, Reset, Schemas, StatusReport,
    },
    testing::{FAKE_FLAVOR, FAKE_GUEST},
};
use serde_json::Value;

/// The kinds of the second provider.
pub(super) const KINDS: Kinds = Kinds::new(
    "v1alpha1",
    Kind::new("OtherMachine", "othermachines"),
    Kind::new("OtherCluster", "otherclusters"),
)
.with_auxiliary(&[FAKE_FLAVOR, FAKE_GUEST]);

/// A provider with machines, under these kinds.
#[derive(Debug)]
pub(super) struct Other(pub(super) Arc<dyn CloudProvider>);

impl Other {
    fn inner(&self) -> Result<&dyn DynMachines> {
        self.0.machines().ok_or_else(|| Error::unsupported("there are no machines"))
    }
}

#[async_trait]
impl CloudProvider for Other {
    fn name(&self) -> &str {
        self.0.name()
    }

    async fn start(&self, context: StartContext) -> Result<()> {
        self.0.start(context).await
    }

    async fn ended(&self) {
        self.0.ended().await;
    }

    fn instances(&self) -> Option<&dyn Instances> {
        self.0.instances()
    }

    fn machines(&self) -> Option<&dyn DynMachines> {
        Some(self)
    }
}

#[async_trait]
impl DynMachines for Other {
    fn kinds(&self) -> Kinds {
        KINDS
    }

    fn schemas(&self) -> Schemas {
        self.0.machines().expect("the fake cloud has machines").schemas()
    }

    async fn ensure_machine(
        &self,
        request: &MachineRequest<Value, Value>,
        record: &mut Record<Value>,
    ) -> Result<MachineReport> {
        self.inner()?.ensure_machine(request, record).await
    }

    async fn delete_machine(
        &self,
        request: &MachineRequest<Value, Value>,
        record: &mut Record<Value>,
    ) -> Result<Deletion> {
        self.inner()?.delete_machine(request, record).await
    }

    async fn identify_machine(&self, request: &MachineRequest<Value, Value>) -> Result<Option<String>> {
        self.inner()?.identify_machine(request).await
    }

    async fn reset_machine(
        &self,
        request: &MachineRequest<Value, Value>,
        record: &Record<Value>,
    ) -> Result<Reset> {
        self.inner()?.reset_machine(request, record).await
    }

    fn changes(&self) -> Option<InstanceStream> {
        self.inner().ok()?.changes()
    }

    fn forget(&self, uid: &str) {
        if let Ok(inner) = self.inner() {
            inner.forget(uid);
        }
    }

    async fn ensure_cluster(
        &self,
        request: &ClusterRequest<Value>,
        record: &mut Record<Value>,
    ) -> Result<ClusterReport> {
        self.inner()?.ensure_cluster(request, record).await
    }

    async fn delete_cluster(
        &self,
        request: &ClusterRequest<Value>,
        record: &mut Record<Value>,
    ) -> Result<Deletion> {
        self.inner()?.delete_cluster(request, record).await
    }

    async fn capacity(&self, spec: &Value) -> Result<Capacity> {
        self.inner()?.capacity(spec).await
    }

    async fn observe(&self, request: &ObserveRequest) -> Result<StatusReport> {
        self.inner()?.observe(request).await
    }
}
