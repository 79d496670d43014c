//! What a mutating webhook fills in when an object is written, so that it is stored. Pure.
//!
//! These are the defaults that Cluster API's webhooks store and a schema cannot: they depend on other fields, on the name of
//! the object or on what was there before. Users and tools rely on them: clusterctl's templates have deployments without
//! selectors. An object comes as it was sent, before its schema is checked, so nothing is assumed about its shape: what is
//! not as it should be is left to the schema.
//!
//! What is written in metadata is not seen by rules of a schema. What is wrong there is refused here.

mod changes;
mod machines;
mod replicas;

use serde_json::{Value, json};

use self::changes::{Changes, cluster_label};
pub use self::changes::{Operation, Refused};
pub use self::machines::{NODE_DELETION_TIMEOUT_SECONDS, version_with_v};

/// A kind whose objects get defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defaulted {
    /// The kind Machine.
    Machine,
    /// The kind `MachineSet`.
    MachineSet,
    /// The kind `MachineDeployment`.
    MachineDeployment,
    /// The kind `MachineHealthCheck`.
    MachineHealthCheck,
    /// The kind `ClusterResourceSet`.
    ClusterResourceSet,
}

impl Defaulted {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Machine,
        Self::MachineSet,
        Self::MachineDeployment,
        Self::MachineHealthCheck,
        Self::ClusterResourceSet,
    ];

    /// The kind with this group and resource, such as `cluster.x-k8s.io` and `machines`.
    pub fn find(group: &str, resource: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.resource() == (group, resource))
    }

    /// The group and the resource, as an API server names them.
    pub fn resource(self) -> (&'static str, &'static str) {
        match self {
            Self::Machine => ("cluster.x-k8s.io", "machines"),
            Self::MachineSet => ("cluster.x-k8s.io", "machinesets"),
            Self::MachineDeployment => ("cluster.x-k8s.io", "machinedeployments"),
            Self::MachineHealthCheck => ("cluster.x-k8s.io", "machinehealthchecks"),
            Self::ClusterResourceSet => ("addons.cluster.x-k8s.io", "clusterresourcesets"),
        }
    }

    /// What to change in `object`, which was sent to the API server, so that it has its defaults; in the order of JSON Patch.
    /// `old` is what is stored, none when it is being made. Nothing changes in an object that has its defaults already.
    ///
    /// # Errors
    /// [`Refused`] if the object has metadata that cannot be.
    pub fn defaults(self, object: &Value, old: Option<&Value>) -> Result<Vec<Operation>, Refused> {
        let mut changes = Changes::new(object);
        match self {
            Self::Machine => machines::machine(&mut changes)?,
            Self::MachineSet => machines::machine_set(&mut changes, old)?,
            Self::MachineDeployment => machines::machine_deployment(&mut changes, old)?,
            Self::MachineHealthCheck => {
                cluster_label(&mut changes);
                // ten minutes
                changes.fill("/spec/checks/nodeStartupTimeoutSeconds", json!(600));
            }
            Self::ClusterResourceSet => changes.fill("/spec/strategy", json!("ApplyOnce")),
        }
        Ok(changes.into_operations())
    }
}

#[cfg(test)]
mod tests;
