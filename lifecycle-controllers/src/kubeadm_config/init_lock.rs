//! Which machine of a new control plane is the first. The others join it.

use cluster_api::{Cluster, Machine, names::labels};
use controller_kit::writes::WriteError;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use crate::{
    bootstrap::Bootstrap,
    engine::{
        control::Failure,
        object::{Meta as _, key, owner_reference},
        place::{Guard, Place},
        writer::to_json,
    },
};

/// The key in the `ConfigMap`. Cluster API's manager reads the same.
const INFORMATION: &str = "lock-information";

fn place(cluster: &Cluster) -> Place {
    let name = format!("{}-lock", cluster.name_or_empty());
    Place::of_core("configmaps", cluster.namespace_or_empty(), &name)
}

/// Takes the lock for a Machine. A lock of a Machine that is gone is taken over.
pub(super) async fn lock(
    bootstrap: &Bootstrap,
    cluster: &Cluster,
    machine: &Machine,
) -> Result<bool, Failure> {
    let (place, name) = (place(cluster), machine.name_or_empty());
    let owner = to_json(&owner_reference(cluster, false))?;
    let body = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "namespace": place.namespace, "name": place.name, "ownerReferences": [owner],
            "labels": {labels::CLUSTER_NAME: cluster.name_or_empty()},
        },
        "data": {INFORMATION: json!({"machineName": name}).to_string()},
    });
    match bootstrap.writer.create_at::<Value>(&place, &body).await {
        Ok(_) => return Ok(true),
        Err(WriteError::Stale(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let found: ConfigMap = bootstrap.writer.read_at(&place).await?;
    let text = found.data.as_ref().and_then(|data| data.get(INFORMATION));
    let information = text.and_then(|text| serde_json::from_str::<Value>(text).ok()).unwrap_or_default();
    let holder = information["machineName"].as_str().unwrap_or_default();
    if holder == name {
        return Ok(true);
    }
    if bootstrap.machines.get(&key(machine.namespace_or_empty(), holder)).is_none() {
        bootstrap.writer.delete_at(&place, Guard::of(&found)).await?;
        tracing::info!(
            cluster = cluster.name_or_empty(),
            holder,
            "deleted the lock for kubeadm init, since the Machine that holds it does not exist"
        );
        return Err(Failure::Stale);
    }
    Ok(false)
}

/// Releases the lock of any Machine.
pub(super) async fn unlock(bootstrap: &Bootstrap, cluster: &Cluster) -> Result<(), Failure> {
    let place = place(cluster);
    let found: ConfigMap = match bootstrap.writer.read_at(&place).await {
        Ok(found) => found,
        Err(WriteError::Gone) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    match bootstrap.writer.delete_at(&place, Guard::of(&found)).await {
        Ok(()) | Err(WriteError::Gone) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
