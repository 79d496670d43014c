//! The controller of `MachineSet`s: so many Machines of one template.
//!
//! | Step of a pass | Module |
//! |---|---|
//! | finalizer, pause, labels, owner, which Machines are its own | `pass` |
//! | unhealthy Machines replaced | `remediation` |
//! | one of them kept to be looked at | `keep` |
//! | labels, annotations and what else needs no new Machine written to the Machines | `sync` |
//! | Machines created, each with bootstrap config and infrastructure machine, and what was created in vain deleted | `create` |
//! | Machines deleted | `scale_down` |
//! | what holds back new Machines | `preflight` |
//! | the status | `status` |
//!
//! Source of the rules: `core/reconcilers/machineset` of Cluster API 1.14.2.

mod create;
mod keep;
mod pass;
mod preflight;
mod remediation;
pub(crate) mod scale_down;
mod sources;
mod status;
mod sync;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub(crate) use create::{Unusable, unusable_templates};
pub(crate) use pass::deployment_of;

use crate::{
    core::Core,
    engine::control::{Controller, FailedPass, Source, Then},
};

/// The controller of `MachineSet`s.
#[derive(Debug)]
pub struct MachineSetController {
    core: Arc<Core>,
}

impl MachineSetController {
    /// A controller of all `MachineSet`s of these caches.
    pub fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// What a pass may change for.
    pub fn sources(&self) -> Vec<Source> {
        sources::of(&self.core)
    }
}

impl Controller for MachineSetController {
    const KIND: &'static str = "MachineSet";

    async fn reconcile(&self, key: &str) -> Result<Then, FailedPass> {
        pass::reconcile(&self.core, key).await
    }
}
