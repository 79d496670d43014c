//! What users write to objects that may be gone by then.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::run::{GROUP, History};

/// What was asked of an object is done, or the object is gone.
pub(super) fn if_there<T>(done: kube::Result<T>) {
    match done {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        done => drop(done.expect("the API server does what a user asks")),
    }
}

impl History {
    pub(super) async fn delete_object(&self, group: &str, kind: &str, name: &str) {
        if_there(self.world.api(group, kind).delete(name, &DeleteParams::default()).await);
    }

    async fn patch_object(&self, kind: &str, name: &str, patch: Value) {
        let api = self.world.api(GROUP, kind);
        if_there(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await);
    }

    pub(super) async fn annotate(&self, kind: &str, name: &str, key: &str, value: Option<&str>) {
        self.patch_object(kind, name, json!({"metadata": {"annotations": {key: value}}})).await;
    }

    pub(super) async fn pause_cluster(&self, paused: bool) {
        self.patch_object("Cluster", "c", json!({"spec": {"paused": paused}})).await;
    }

    pub(super) async fn patch_deployment(&mut self, spec: Value) {
        self.ensure_deployment().await;
        if self.has_deployment() {
            self.patch_object("MachineDeployment", "d", json!({"spec": spec})).await;
        }
    }

    /// A user applies it once more, if it is gone.
    pub(super) async fn ensure_deployment(&mut self) {
        if self.model.lock().deployment(self.world.place).is_none() {
            self.create_deployment().await;
        }
    }
}
