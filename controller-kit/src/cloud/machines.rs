//! Calls of the provider's machines.

use std::sync::Arc;

use cloudprovider::{
    DynMachines, Error, Result,
    machines::{
        Capacity, ClusterReport, ClusterRequest, Deletion, Kinds, MachineReport, MachineRequest,
        ObserveRequest, Record, Reset, StatusReport,
    },
};
use serde_json::Value;

use super::{Cloud, Started, caught, guarded::CALL_TIMEOUT};

/// The kinds of a provider's machines. `None` where it has none, or panics when it is asked.
pub fn machine_kinds_of(provider: &dyn cloudprovider::CloudProvider) -> Option<Kinds> {
    caught(|| provider.machines().map(DynMachines::kinds)).flatten()
}

/// A step that fails, panics or takes longer than a minute is an error.
impl Cloud {
    /// Whether the provider makes machines.
    pub fn has_machines(&self) -> bool {
        self.machine_kinds().is_some()
    }

    /// The kinds of the provider's machines, if it makes any.
    pub fn machine_kinds(&self) -> Option<Kinds> {
        machine_kinds_of(&*self.provider())
    }

    /// One step of a machine towards existing.
    ///
    /// # Errors
    /// The provider's own error, a panic, or no answer within a minute. So for the other calls.
    pub async fn ensure_machine(
        &self,
        request: &MachineRequest<Value, Value>,
        record: &mut Record<Value>,
    ) -> Result<MachineReport> {
        let call = async |current: Arc<Started>| machines_of(&current)?.ensure_machine(request, record).await;
        self.guarded("ensure_machine", CALL_TIMEOUT, call).await
    }

    /// One step of a machine towards gone.
    pub async fn delete_machine(
        &self,
        request: &MachineRequest<Value, Value>,
        record: &mut Record<Value>,
    ) -> Result<Deletion> {
        let call = async |current: Arc<Started>| machines_of(&current)?.delete_machine(request, record).await;
        self.guarded("delete_machine", CALL_TIMEOUT, call).await
    }

    /// Which machine in the cloud belongs to an object that another program has worked on.
    pub async fn identify_machine(&self, request: &MachineRequest<Value, Value>) -> Result<Option<String>> {
        let call = async |current: Arc<Started>| machines_of(&current)?.identify_machine(request).await;
        self.guarded("identify_machine", CALL_TIMEOUT, call).await
    }

    /// Resets a machine. [`Reset::may_have_happened`] says what an error leaves open: a call that panics, or takes longer than
    /// a minute, may have reset it.
    pub async fn reset_machine(
        &self,
        request: &MachineRequest<Value, Value>,
        record: &Record<Value>,
    ) -> Result<Reset> {
        let call = async |current: Arc<Started>| machines_of(&current)?.reset_machine(request, record).await;
        self.guarded("reset_machine", CALL_TIMEOUT, call).await
    }

    /// One step of a cluster towards existing.
    pub async fn ensure_cluster(
        &self,
        request: &ClusterRequest<Value>,
        record: &mut Record<Value>,
    ) -> Result<ClusterReport> {
        let call = async |current: Arc<Started>| machines_of(&current)?.ensure_cluster(request, record).await;
        self.guarded("ensure_cluster", CALL_TIMEOUT, call).await
    }

    /// One step of a cluster towards gone.
    pub async fn delete_cluster(
        &self,
        request: &ClusterRequest<Value>,
        record: &mut Record<Value>,
    ) -> Result<Deletion> {
        let call = async |current: Arc<Started>| machines_of(&current)?.delete_cluster(request, record).await;
        self.guarded("delete_cluster", CALL_TIMEOUT, call).await
    }

    /// What a machine with this spec will have.
    pub async fn machine_capacity(&self, spec: &Value) -> Result<Capacity> {
        let call = async |current: Arc<Started>| machines_of(&current)?.capacity(spec).await;
        self.guarded("machine_capacity", CALL_TIMEOUT, call).await
    }

    /// What the status of an object of an auxiliary kind is to say.
    pub async fn observe(&self, request: &ObserveRequest) -> Result<StatusReport> {
        let call = async |current: Arc<Started>| machines_of(&current)?.observe(request).await;
        self.guarded("look_at", CALL_TIMEOUT, call).await
    }

    /// There is no object with this identity any more.
    pub fn forget_object(&self, uid: &str) {
        let provider = self.provider();
        caught(|| provider.machines().map(|machines| machines.forget(uid)));
    }
}

fn machines_of(current: &Started) -> Result<&dyn DynMachines> {
    let machines = current.provider.machines();
    machines.ok_or_else(|| Error::unsupported("the cloud provider does not support machines"))
}
