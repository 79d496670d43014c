//! The controller of `MachineHealthCheck`s: it finds unhealthy Machines and asks for their remediation. It deletes none itself.
//!
//! | Step of a pass | Module |
//! |---|---|
//! | pause, label, owner, the order of all steps | `pass` |
//! | what the spec says | `limits` |
//! | the Machines, their Nodes, and how each is | `targets` |
//! | conditions of Machines: the result of the check, and the request to their owner | `remediation` |
//! | objects made from `spec.remediation.templateRef`, for a remediation by another controller | `request` |
//! | the status | `status` |
//!
//! The checks themselves are in [`lifecycle::health_check`]. Source of the rules: `core/reconcilers/machinehealthcheck` of Cluster
//! API 1.14.2. Differences:
//!
//! | Upstream | Here |
//! |---|---|
//! | a Node that the cache does not show is gone | the API server of the workload cluster must confirm that |
//! | while the infrastructure of the Cluster is not ready, each Machine with a Node becomes healthy | each keeps its result |
//! | one Machine with a request keeps the ones after it from theirs | each gets its own |
//! | the API version of `templateRef` is read | the version that the definition names for the contract |
//! | the object with a healthy Machine's name is deleted | only if it was made from the template, for this Machine |

mod limits;
mod pass;
mod remediation;
mod request;
mod sources;
mod status;
mod targets;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::{
    core::Core,
    engine::control::{Controller, FailedPass, Source, Then},
};

/// The controller of `MachineHealthCheck`s.
#[derive(Debug)]
pub struct MachineHealthCheckController {
    core: Arc<Core>,
}

impl MachineHealthCheckController {
    /// A controller of all `MachineHealthCheck`s of these caches.
    pub fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// What a pass may change for.
    pub fn sources(&self) -> Vec<Source> {
        sources::of(&self.core)
    }
}

impl Controller for MachineHealthCheckController {
    const KIND: &'static str = "MachineHealthCheck";

    async fn reconcile(&self, key: &str) -> Result<Then, FailedPass> {
        Ok(pass::reconcile(&self.core, key).await?)
    }
}
