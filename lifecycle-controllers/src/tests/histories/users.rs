//! What users do to objects, which may be gone by then.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{
    acts::Act,
    rules::{STRANGER, is_kept, says},
    run::{GROUP, History},
};

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

    /// Nodes become Ready again, and Machines without a Node and those that are kept are deleted.
    pub(super) async fn heal(&mut self) {
        let kept: Vec<_> = {
            let state = self.model.lock();
            let kept = state.all(self.world.place, "machines").filter(|(_, machine)| is_kept(machine));
            kept.map(|(name, _)| name.to_owned()).collect()
        };
        for name in kept {
            self.model.note(&format!("    a user deletes {name}, which is kept"));
            self.delete_object(GROUP, "Machine", &name).await;
        }
        let (broken, lost): (Vec<_>, Vec<_>) = {
            let state = self.model.lock();
            let place = self.world.place;
            let machines = state.names(place, "machines").into_iter();
            let machines = machines.filter(|name| !name.starts_with(STRANGER) && !state.works(place, name));
            machines.partition(|name| state.get(place, "nodes", name).is_some())
        };
        for name in broken {
            self.strike(Act::Ready { machine: 0, is_ready: true }, &name).await;
        }
        for name in lost {
            self.model.note(&format!("    a user deletes {name}, which has no Node"));
            self.delete_object(GROUP, "Machine", &name).await;
        }
    }

    /// With the strategy `OnDelete` that is for users.
    pub(super) async fn replace_outdated(&mut self) {
        let outdated: Vec<_> = {
            let state = self.model.lock();
            let place = self.world.place;
            let Some(deployment) = state.deployment(place) else { return };
            if deployment["spec"]["rollout"]["strategy"]["type"] != "OnDelete" {
                return;
            }
            let machines = state.all(place, "machines").filter(|(name, _)| !name.starts_with(STRANGER));
            machines
                .filter(|(_, one)| !says(one, "UpToDate", "True"))
                .map(|(name, _)| name.to_owned())
                .collect()
        };
        for name in outdated {
            self.model.note(&format!("    a user deletes {name}, which is outdated"));
            self.delete_object(GROUP, "Machine", &name).await;
        }
    }
}
