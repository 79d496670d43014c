//! A provider that is played: it makes of each `FakeMachine` a Node, and of each `FakeConfig` the name of a Secret.

use std::{sync::Arc, time::Duration};

use kube::{
    Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::task::JoinSet;

use super::world::{BOOTSTRAP, INFRASTRUCTURE, api, nodes};
use crate::engine::external::{ExternalKind, Externals, GroupKind};

/// What the provider that is played does.
#[derive(Debug, Default)]
pub(super) struct Play {
    /// No infrastructure is provisioned meanwhile.
    pub(super) holds: tokio::sync::watch::Sender<bool>,
    /// A pause before each step. Objects are provided one after the other then.
    pub(super) pause: parking_lot::Mutex<Duration>,
    turn: tokio::sync::Mutex<()>,
}

/// The provider.
pub(super) struct PlayedProvider {
    pub(super) client: Client,
    pub(super) workload: Client,
    pub(super) externals: Externals,
    pub(super) play: Arc<Play>,
}

impl PlayedProvider {
    pub(super) async fn run(self: Arc<Self>) {
        let (mut changes, mut holds) = (self.externals.changes(), self.play.holds.subscribe());
        let mut kinds = Vec::new();
        for (group, kind) in [(INFRASTRUCTURE, "FakeMachine"), (BOOTSTRAP, "FakeConfig")] {
            let of = GroupKind { group: group.to_owned(), kind: kind.to_owned() };
            kinds.push(self.externals.of(&of).await.expect("the kind"));
        }
        let mut tasks = JoinSet::new();
        loop {
            let found: Vec<(GroupKind, String)> = tokio::select! {
                (kind, keys) = changes.next() => keys.into_iter().map(|key| (kind.clone(), key)).collect(),
                Ok(()) = holds.changed() => {
                    let keys = |kind: &ExternalKind| -> Vec<_> {
                        kind.objects.read().keys().map(|key| (kind.of.clone(), key.clone())).collect()
                    };
                    kinds.iter().flat_map(keys).collect()
                }
            };
            for (kind, key) in found {
                let (this, name) = (Arc::clone(&self), key.split_once('/').expect("a key").1.to_owned());
                tasks.spawn(async move { this.provide(&kind, &name).await });
            }
            while tasks.try_join_next().is_some() {}
        }
    }

    async fn provide(&self, kind: &GroupKind, name: &str) {
        if kind.kind == "FakeMachine" && *self.play.holds.borrow() {
            return;
        }
        let pause = *self.play.pause.lock();
        let _turn = self.play.turn.lock().await;
        let status = match kind.kind.as_str() {
            "FakeMachine" => json!({"initialization": {"provisioned": true}}),
            "FakeConfig" => {
                json!({"initialization": {"dataSecretCreated": true}, "dataSecretName": format!("{name}-data")})
            }
            _ => return,
        };
        let api = api(&self.client, &kind.group, &kind.kind);
        let Ok(Some(object)) = api.get_opt(name).await else { return };
        // A provider waits for the Machine.
        let owners = object.metadata.owner_references.iter().flatten();
        if !owners.into_iter().any(|owner| owner.kind == "Machine") {
            return;
        }
        if object.data["status"]["initialization"].is_object() || object.metadata.deletion_timestamp.is_some()
        {
            return;
        }
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let params = PatchParams::default();
        if kind.kind == "FakeMachine" {
            let id = json!({"spec": {"providerID": format!("fake:///{name}")}});
            drop(api.patch(name, &params, &Patch::Merge(id)).await);
        }
        drop(api.patch_status(name, &params, &Patch::Merge(json!({"status": status}))).await);
        if kind.kind == "FakeMachine" {
            // A machine that goes boots no kubelet.
            let Ok(Some(object)) = api.get_opt(name).await else { return };
            if object.metadata.deletion_timestamp.is_some() {
                return;
            }
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                "spec": {
                    "providerID": format!("fake:///{name}"),
                    "taints": [{"key": "node.cluster.x-k8s.io/uninitialized", "effect": "NoSchedule"}],
                },
            });
            let node: DynamicObject = serde_json::from_value(node).expect("a Node");
            drop(nodes(&self.workload).create(&PostParams::default(), &node).await);
            let times = json!({"lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let condition = |kind: &str, status: &str| {
                let mut condition = times.clone();
                condition["type"] = kind.into();
                condition["status"] = status.into();
                condition["reason"] = "Played".into();
                condition["message"] = "".into();
                condition
            };
            let status = json!({"status": {
                "conditions": [
                    condition("Ready", "True"), condition("MemoryPressure", "False"),
                    condition("DiskPressure", "False"), condition("PIDPressure", "False"),
                ],
            }});
            drop(nodes(&self.workload).patch_status(name, &params, &Patch::Merge(status)).await);
        }
    }
}
