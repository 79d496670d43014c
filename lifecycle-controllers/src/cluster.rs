//! The controller of Clusters: it owns the infrastructure cluster and the control plane of each, copies where the API server is, says in
//! the status how all of it is, and deletes what belongs to a Cluster in order.
//!
//! | Step of a pass | Module |
//! |---|---|
//! | finalizer, pause, the connection to the workload cluster, the endpoint | `pass` |
//! | infrastructure cluster and control plane: owned by the Cluster | `related` |
//! | `MachineDeployment`s, `MachineSet`s and Machines | `descendants` |
//! | the Secret with the kubeconfig of a Cluster without a control plane object | `kubeconfig` |
//! | a deletion: workers, control plane, infrastructure | `deletion` |
//! | the status | `status` |
//!
//! `spec.topology` is not reconciled; a condition and an event say so.
//!
//! Source of the rules: `core/reconcilers/cluster` of Cluster API 1.14.2.

mod deletion;
mod descendants;
mod kubeconfig;
mod options;
mod pass;
mod related;
mod sources;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use basics::LogOnce;
pub use options::ClusterOptions;
use parking_lot::Mutex;

use crate::{
    core::Core,
    engine::control::{Controller, FailedPass, Source, Then},
};

/// The controller of Clusters.
#[derive(Debug)]
pub struct ClusterController {
    core: Arc<Core>,
    options: ClusterOptions,
    /// The Clusters that wait for their certificate authority, by their keys.
    waits: Mutex<LogOnce>,
}

impl ClusterController {
    /// A controller of all Clusters of these caches.
    pub fn new(core: Arc<Core>, options: ClusterOptions) -> Self {
        Self { core, options, waits: Mutex::default() }
    }

    /// What a pass may change for.
    pub fn sources(&self) -> Vec<Source> {
        sources::of(&self.core)
    }
}

impl Controller for ClusterController {
    const KIND: &'static str = "Cluster";

    async fn reconcile(&self, key: &str) -> Result<Then, FailedPass> {
        Ok(pass::reconcile(&self.core, &self.options, &self.waits, key).await?)
    }
}
