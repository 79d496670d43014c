//! The controllers of `ClusterResourceSet`s and of their bindings: objects from `ConfigMap`s and Secrets, in every workload cluster that a
//! set selects.
//!
//! | Step of a pass | Module |
//! |---|---|
//! | pause, finalizer, deletion, the order of all steps | `pass` |
//! | the `ConfigMap`s and Secrets: read, owned by the set, hashed | `resources` |
//! | their YAML as objects, in the order of creation | `manifest` |
//! | the objects in a workload cluster | `apply` |
//! | what was applied: the `ClusterResourceSetBinding` of each Cluster | `binding` |
//! | the condition `ResourcesApplied` | `status` |
//! | `ConfigMap`s and Secrets that change | `watch` |
//!
//! Source of the rules: `core/reconcilers/clusterresourceset` and `clusterresourcesetbinding` of Cluster API 1.14.2. Differences:
//!
//! | Upstream | Here |
//! |---|---|
//! | `Reconcile` replaces objects by a merge patch | server-side apply: fields of other managers stay |
//! | a namespaced object without a namespace is refused | it goes to `default`, as with `kubectl` |
//! | a resource that does not exist counts as applied | `ResourcesApplied` is `False` until it exists |
//! | a deleted set leaves the bindings of Clusters that it does not select any more | it leaves all of them |
//! | errors are in the log | the condition's message has them too, without anything of a Secret |
//!
//! A user who may write `ConfigMap`s and Secrets of one namespace decides what is read here. So a resource costs a bounded amount:
//!
//! | What | Limit |
//! |---|---|
//! | resources of a set | 100, one in memory at a time |
//! | a resource | 4 MiB; 1,000 objects; depth 64; aliases count with all that they stand for |
//! | one resource in one cluster | 5 minutes; the first request without an answer ends it |

mod apply;
mod binding;
mod manifest;
mod pass;
mod resources;
mod sources;
mod status;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;

use kube::Client;

use crate::{
    core::Core,
    engine::control::{Controller, FailedPass, Source, Then},
};

/// The controller of `ClusterResourceSet`s.
#[derive(Debug)]
pub struct ClusterResourceSetController {
    core: Arc<Core>,
}

impl ClusterResourceSetController {
    /// A controller of all `ClusterResourceSet`s of these caches.
    pub fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// What a pass may change for. `client` watches the metadata of `ConfigMap`s, and of Secrets of the sets' type.
    pub fn sources(&self, client: &Client) -> Vec<Source> {
        sources::of(&self.core, client)
    }
}

impl Controller for ClusterResourceSetController {
    const KIND: &'static str = "ClusterResourceSet";

    async fn reconcile(&self, key: &str) -> Result<Then, FailedPass> {
        Ok(pass::reconcile(&self.core, key).await?)
    }
}

/// The controller of `ClusterResourceSetBinding`s: it deletes those whose Cluster is gone or goes.
#[derive(Debug)]
pub struct ClusterResourceSetBindingController {
    core: Arc<Core>,
}

impl ClusterResourceSetBindingController {
    /// A controller of all `ClusterResourceSetBinding`s of these caches.
    pub fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// What a pass may change for.
    pub fn sources(&self) -> Vec<Source> {
        sources::of_bindings(&self.core)
    }
}

impl Controller for ClusterResourceSetBindingController {
    const KIND: &'static str = "ClusterResourceSetBinding";

    async fn reconcile(&self, key: &str) -> Result<Then, FailedPass> {
        Ok(binding::reconcile(&self.core, key).await?)
    }
}
