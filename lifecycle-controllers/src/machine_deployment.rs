//! The controller of `MachineDeployment`s: which `MachineSet`s there are, and how many Machines each has.
//!
//! | Step of a pass | Module |
//! |---|---|
//! | finalizer, pause, labels, owner, deletion | `pass` |
//! | its `MachineSet`s and Machines, and adoption | `sets` |
//! | one step of a rollout: what is planned, and what is written | `rollout` |
//! | a `MachineSet` as its deployment wants it | `desired` |
//! | the status | `status` |
//!
//! [`lifecycle::rollout`] plans. Source of the rules: `core/reconcilers/machinedeployment` of Cluster API 1.14.2.

mod desired;
mod pass;
mod rollout;
mod sets;
mod sources;
mod status;

use std::sync::Arc;

use crate::{
    core::Core,
    engine::control::{Controller, FailedPass, Source, Then},
};

/// The controller of `MachineDeployment`s.
#[derive(Debug)]
pub struct MachineDeploymentController {
    core: Arc<Core>,
}

impl MachineDeploymentController {
    /// A controller of all `MachineDeployment`s of these caches.
    pub fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// What a pass may change for.
    pub fn sources(&self) -> Vec<Source> {
        sources::of(&self.core)
    }
}

impl Controller for MachineDeploymentController {
    const KIND: &'static str = "MachineDeployment";

    async fn reconcile(&self, key: &str) -> Result<Then, FailedPass> {
        pass::reconcile(&self.core, key).await
    }
}
