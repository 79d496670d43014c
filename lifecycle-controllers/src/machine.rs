//! The controller of Machines: it follows bootstrap config, infrastructure and Node of each, says in the status what a Machine waits
//! for, and deletes what belongs to it in order.
//!
//! | Step of a pass | Module |
//! |---|---|
//! | finalizer, pause, labels, owner | `pass` |
//! | bootstrap config and infrastructure machine: owned by the Machine, and what they say copied | `related` |
//! | what a pass works with | `facts` |
//! | the Node: found by provider ID, labels, annotations and taints written to it | `node` |
//! | a failed Machine that is kept to be looked at: its Node is cordoned, its end | `kept` |
//! | a deletion: hooks, drain, volumes, infrastructure, bootstrap config, Node | `deletion` |
//! | the status | `status` |
//!
//! Source of the rules: `core/reconcilers/machine` of Cluster API 1.14.2.

mod deletion;
mod facts;
mod kept;
mod node;
mod pass;
mod related;
mod sources;
mod status;

use std::sync::Arc;

use crate::{
    core::Core,
    engine::control::{Controller, FailedPass, Source, Then},
};

/// The controller of Machines.
#[derive(Debug)]
pub struct MachineController {
    core: Arc<Core>,
}

impl MachineController {
    /// A controller of all Machines of these caches.
    pub fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// What a pass may change for.
    pub fn sources(&self) -> Vec<Source> {
        sources::of(&self.core)
    }
}

impl Controller for MachineController {
    const KIND: &'static str = "Machine";

    async fn reconcile(&self, key: &str) -> Result<Then, FailedPass> {
        pass::reconcile(&self.core, key).await
    }
}
