//! Reads a provider's types from JSON and writes them back, and lets one step of an object run at a time.

use async_trait::async_trait;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    Capacity, ClusterContext, ClusterReport, ClusterRequest, Deletion, DynMachines, Kinds, MachineReport,
    MachineRequest, Machines, ObserveRequest, Record, Reset, Schemas, Status, StatusReport,
};
use crate::{Error, ErrorKind, InstanceStream, Result};

/// Fields of a spec that belong to the controller, not to the provider's type.
const OF_THE_MACHINE: &str = "providerID";
const OF_THE_CLUSTER: &str = "controlPlaneEndpoint";

/// The schemas of the types of an implementation of [`Machines`].
pub fn schemas_of<M: Machines>() -> Schemas {
    Schemas {
        machine_spec: schema_of::<M::MachineSpec>(),
        machine_status: status_schema::<M::MachineStatus>(),
        cluster_spec: schema_of::<M::ClusterSpec>(),
        cluster_status: status_schema::<M::ClusterStatus>(),
    }
}

#[async_trait]
impl<M: Machines> DynMachines for M {
    fn kinds(&self) -> Kinds {
        M::KINDS
    }

    fn schemas(&self) -> Schemas {
        schemas_of::<M>()
    }

    async fn ensure_machine(
        &self,
        request: &MachineRequest<Value, Value>,
        record: &mut Record<Value>,
    ) -> Result<MachineReport> {
        let request = machine_request::<M, _>(request, read_cluster)?;
        let lock = self.object_locks().lock(&request.mark).await?;
        let mut typed = typed(record);
        let answer = lock.scope(Machines::ensure_machine(self, &request, &mut typed)).await;
        untyped(typed, record)?;
        answer
    }

    async fn delete_machine(
        &self,
        request: &MachineRequest<Value, Value>,
        record: &mut Record<Value>,
    ) -> Result<Deletion> {
        let request = machine_request::<M, _>(request, |spec| Ok(read_cluster_for_deletion(spec)))?;
        let lock = self.object_locks().lock(&request.mark).await?;
        let mut typed = typed(record);
        let answer = lock.scope(Machines::delete_machine(self, &request, &mut typed)).await;
        untyped(typed, record)?;
        answer
    }

    async fn identify_machine(&self, request: &MachineRequest<Value, Value>) -> Result<Option<String>> {
        let request = machine_request::<M, _>(request, |spec| Ok(read_cluster_for_deletion(spec)))?;
        Machines::identify_machine(self, &request).await
    }

    async fn reset_machine(
        &self,
        request: &MachineRequest<Value, Value>,
        record: &Record<Value>,
    ) -> Result<Reset> {
        let request = machine_request::<M, _>(request, read_cluster)?;
        let lock = self.object_locks().lock(&request.mark).await?;
        lock.scope(Machines::reset_machine(self, &request, &typed(record))).await
    }

    async fn ensure_cluster(
        &self,
        request: &ClusterRequest<Value>,
        record: &mut Record<Value>,
    ) -> Result<ClusterReport> {
        let request = cluster_request::<M>(request)?;
        let lock = self.object_locks().lock(&request.mark).await?;
        let mut typed = typed(record);
        let answer = lock.scope(Machines::ensure_cluster(self, &request, &mut typed)).await;
        untyped(typed, record)?;
        answer
    }

    async fn delete_cluster(
        &self,
        request: &ClusterRequest<Value>,
        record: &mut Record<Value>,
    ) -> Result<Deletion> {
        let request = cluster_request::<M>(request)?;
        let lock = self.object_locks().lock(&request.mark).await?;
        let mut typed = typed(record);
        let answer = lock.scope(Machines::delete_cluster(self, &request, &mut typed)).await;
        untyped(typed, record)?;
        answer
    }

    async fn capacity(&self, spec: &Value) -> Result<Capacity> {
        Machines::capacity(self, &read("spec", spec, OF_THE_MACHINE)?).await
    }

    async fn observe(&self, request: &ObserveRequest) -> Result<StatusReport> {
        Machines::observe(self, request).await
    }

    fn forget(&self, uid: &str) {
        Machines::forget(self, uid);
    }

    fn changes(&self) -> Option<InstanceStream> {
        Machines::changes(self)
    }
}

fn read_cluster<C: DeserializeOwned>(spec: &Value) -> Result<C> {
    read("spec of the cluster", spec, OF_THE_CLUSTER)
}

/// `None` without a cluster, and also if its spec cannot be read: a deletion goes on with what the machine
/// itself says.
fn read_cluster_for_deletion<C: DeserializeOwned>(spec: &Value) -> Option<C> {
    if spec.is_null() {
        return None;
    }
    let warn =
        |error: &Error| tracing::warn!(error = error.report(), "a machine is deleted without its cluster");
    read_cluster(spec).inspect_err(warn).ok()
}

fn machine_request<M: Machines, C>(
    request: &MachineRequest<Value, Value>,
    cluster_spec: impl FnOnce(&Value) -> Result<C>,
) -> Result<MachineRequest<M::MachineSpec, C>> {
    let ClusterContext { spec, control_plane_endpoint, is_reconciled } = &request.cluster;
    let cluster = ClusterContext::new(cluster_spec(spec)?)
        .with_control_plane_endpoint(control_plane_endpoint.clone())
        .reconciled(*is_reconciled);
    let spec = read("spec", &request.spec, OF_THE_MACHINE)?;
    Ok(MachineRequest::new(request.mark.clone(), spec, cluster)
        .with_object_uid(request.object_uid.clone())
        .with_machine_name(request.machine_name.clone())
        .with_provider_id(request.provider_id.clone())
        .provisioned(request.is_provisioned)
        .with_node(request.has_node)
        .with_failure_domain(request.failure_domain.clone())
        .control_plane(request.is_control_plane)
        .with_group(request.group.clone())
        .with_objects(request.objects.clone())
        .with_bootstrap(request.bootstrap.clone()))
}

fn cluster_request<M: Machines>(request: &ClusterRequest<Value>) -> Result<ClusterRequest<M::ClusterSpec>> {
    let spec = read("spec", &request.spec, OF_THE_CLUSTER)?;
    let endpoint = request.control_plane_endpoint.clone();
    Ok(ClusterRequest::new(request.mark.clone(), spec)
        .with_object_uid(request.object_uid.clone())
        .with_control_plane_endpoint(endpoint)
        .with_objects(request.objects.clone()))
}

/// Reads a spec without the field of the controller. `what` names the spec in messages.
fn read<T: DeserializeOwned>(what: &'static str, spec: &Value, of_the_controller: &str) -> Result<T> {
    let mut spec = match spec {
        // An object without a spec is one whose spec says nothing.
        Value::Null => Value::Object(serde_json::Map::new()),
        spec => spec.clone(),
    };
    if let Value::Object(fields) = &mut spec {
        fields.remove(of_the_controller);
    }
    serde_path_to_error::deserialize(spec).map_err(|error| {
        let words = match error.path().to_string() {
            path if path == "." => format!("{what}: {}", error.inner()),
            path => format!("{what}.{path}: {}", error.inner()),
        };
        Error::new(ErrorKind::InvalidInput, words)
    })
}

fn typed<S: Status>(record: &Record<Value>) -> Record<S> {
    let mut typed = Record::new(serde_json::from_value(record.status.clone()).unwrap_or_default());
    typed.conditions.clone_from(&record.conditions);
    typed.changed.clone_from(&record.changed);
    typed
}

fn untyped<S: Status>(typed: Record<S>, record: &mut Record<Value>) -> Result<()> {
    record.changed.clone_from(&typed.changed);
    record.wanted.clone_from(&typed.wanted);
    record.conditions = typed.conditions;
    record.status = serde_json::to_value(&typed.status).map_err(|error| {
        Error::new(ErrorKind::Internal, "the status cannot be written").with_source(error)
    })?;
    Ok(())
}

/// The schema of a type, as in [`Schemas`].
pub fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        // CRDs know no `$schema`.
        settings.meta_schema = None;
    });
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// The schema of a status. That of `()`, a status without fields, is an object without fields.
fn status_schema<T: JsonSchema>() -> Value {
    let schema = schema_of::<T>();
    if schema["type"] == "object" { schema } else { json!({ "type": "object" }) }
}

#[cfg(test)]
mod tests;
