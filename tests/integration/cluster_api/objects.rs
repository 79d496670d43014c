//! Objects of Cluster API in a namespace, as users write them and as tests read them.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
    core::Status,
};
use serde_json::{Value, json};

use super::kubelets::NOT_SEEN_BY_CORE;
use crate::support::{eventually, has_taint, is_initialized, node_becomes};

/// Longer than anything takes on the fake cloud. The managers wait up to 30 s before they look again.
const LIMIT: Duration = Duration::from_secs(90);

/// The objects of a namespace.
pub(crate) struct Objects {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// What the names of the infrastructure's kinds begin with.
    infrastructure: &'static str,
    /// The version of these kinds, if it is not the usual one.
    version: Option<&'static str>,
    /// How long something may take.
    limit: Duration,
    /// The token in the kubeconfigs of workload clusters, if it is not an administrator's.
    pub(super) token: Option<String>,
}

/// The kinds that are in no namespace.
const IN_NO_NAMESPACE: [&str; 2] = ["VSphereDeploymentZone", "VSphereFailureDomain"];

/// The API version of a kind.
fn api_version(kind: &str) -> &'static str {
    match kind {
        "ConfigMap" | "Secret" | "Pod" => "v1",
        _ if kind.starts_with("ClusterResourceSet") => "addons.cluster.x-k8s.io/v1beta2",
        "HostedControlPlane" => "controlplane.cluster.x-k8s.io/v1alpha1",
        "KubeadmControlPlane" => "controlplane.cluster.x-k8s.io/v1beta2",
        _ if ["Fake", "Libvirt", "Reboot"].iter().any(|prefix| kind.starts_with(prefix)) => {
            "infrastructure.cluster.x-k8s.io/v1alpha1"
        }
        _ if kind.starts_with("VSphere") || kind.starts_with("Dev") => {
            "infrastructure.cluster.x-k8s.io/v1beta2"
        }
        _ if kind.starts_with("Kubeadm") => "bootstrap.cluster.x-k8s.io/v1beta2",
        _ => "cluster.x-k8s.io/v1beta2",
    }
}

/// A reference as Cluster API has it.
pub(crate) fn reference(kind: &str, name: &str) -> Value {
    let group = api_version(kind).split('/').next();
    json!({"apiGroup": group, "kind": kind, "name": name})
}

/// The condition of this type, `null` if there is none.
pub(crate) fn condition<'o>(object: &'o Value, kind: &str) -> &'o Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|one| one["type"] == kind).unwrap_or(&Value::Null)
}

/// Whether the condition of this type has this status.
pub(crate) fn is(object: &Value, kind: &str, status: &str) -> bool {
    condition(object, kind)["status"] == status
}

/// The name of an object.
pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Whether the API server asks for patience: after a change of its definition it reads a kind anew, it takes a while until it trusts a
/// daemon that has just started, and a manager may not answer in time.
fn is_passing(error: &kube::Error) -> bool {
    let is_of_a_webhook = |status: &Status| status.code == 500 && status.message.contains("webhook");
    matches!(error, kube::Error::Api(status) if status.code == 429 || is_of_a_webhook(status))
}

impl Objects {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            infrastructure: "Fake",
            version: None,
            limit: LIMIT,
            token: None,
        }
    }

    /// The same on another infrastructure, where something may take so long.
    pub(crate) fn on(self, infrastructure: &'static str, limit: Duration) -> Self {
        Self { infrastructure, limit, ..self }
    }

    /// The same, with another version of the infrastructure's kinds, such as `infrastructure.cluster.x-k8s.io/v1beta1`.
    pub(crate) fn in_version(self, version: &'static str) -> Self {
        Self { version: Some(version), ..self }
    }

    /// The same, with kubeconfigs of workload clusters that have this token.
    pub(crate) fn reached_with(self, token: String) -> Self {
        Self { token: Some(token), ..self }
    }

    fn api_version(&self, kind: &str) -> &'static str {
        self.version.filter(|_| kind.starts_with(self.infrastructure)).unwrap_or_else(|| api_version(kind))
    }

    /// A kind of the infrastructure, such as `FakeMachine`.
    pub(crate) fn kind(&self, kind: &str) -> String {
        format!("{}{kind}", self.infrastructure)
    }

    fn of(&self, kind: &str) -> kube::Api<DynamicObject> {
        let version = self.api_version(kind);
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        if IN_NO_NAMESPACE.contains(&kind) {
            return kube::Api::all_with(self.client.clone(), &resource);
        }
        kube::Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// Applies an object with these fields beside its name.
    pub(crate) async fn apply(&self, kind: &str, name: &str, mut fields: Value) -> anyhow::Result<Value> {
        fields["apiVersion"] = self.api_version(kind).into();
        fields["kind"] = kind.into();
        fields["metadata"]["name"] = name.into();
        let params = PatchParams::apply("user").force();
        let made = self
            .patiently(&format!("{kind} {name} is applied"), || async {
                self.of(kind).patch(name, &params, &Patch::Apply(&fields)).await
            })
            .await?;
        Ok(serde_json::to_value(made)?)
    }

    /// Asks again while the API server is not ready to answer.
    async fn patiently<T, F>(&self, what: &str, ask: impl Fn() -> F) -> anyhow::Result<T>
    where
        F: Future<Output = kube::Result<T>>,
    {
        eventually(self.limit, what, || async {
            match ask().await {
                Err(error) if is_passing(&error) => Ok(None),
                answer => Ok(Some(answer.with_context(|| what.to_owned())?)),
            }
        })
        .await
    }

    /// Changes an object.
    pub(crate) async fn merge(&self, kind: &str, name: &str, fields: Value) -> anyhow::Result<()> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(fields));
        let what = format!("{kind} {name} is changed");
        self.patiently(&what, || async { self.of(kind).patch(name, &params, &patch).await }).await.map(drop)
    }

    /// Changes the status of an object.
    pub(crate) async fn merge_status(&self, kind: &str, name: &str, status: Value) -> anyhow::Result<()> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(json!({"status": status})));
        let what = format!("the status of {kind} {name} is changed");
        let change = || async { self.of(kind).patch_status(name, &params, &patch).await };
        self.patiently(&what, change).await.map(drop)
    }

    /// Begins to delete an object.
    pub(crate) async fn delete(&self, kind: &str, name: &str) -> anyhow::Result<()> {
        let (params, what) = (DeleteParams::default(), format!("{kind} {name} is deleted"));
        self.patiently(&what, || async { self.of(kind).delete(name, &params).await }).await.map(drop)
    }

    /// All objects of a kind.
    pub(crate) async fn list(&self, kind: &str) -> anyhow::Result<Vec<Value>> {
        let (params, what) = (ListParams::default(), format!("the list of {kind}"));
        let found = self.patiently(&what, || async { self.of(kind).list(&params).await }).await?;
        Ok(found.items.into_iter().map(serde_json::to_value).collect::<Result<_, _>>()?)
    }

    /// That nothing is left of a cluster: of Cluster API's own kinds, and of those of the infrastructure.
    pub(crate) async fn none_are_left(&self, infrastructure: &[&str]) -> anyhow::Result<()> {
        self.none_are_left_of(&["MachineDeployment", "MachineSet", "Machine", "KubeadmConfig"]).await?;
        self.none_are_left_of(infrastructure).await
    }

    /// That there are no objects of these kinds.
    pub(crate) async fn none_are_left_of(&self, kinds: &[&str]) -> anyhow::Result<()> {
        for kind in kinds {
            let left = self.list(kind).await?;
            ensure!(left.is_empty(), "{kind}: {left:?}");
        }
        Ok(())
    }

    /// An object.
    pub(crate) async fn get(&self, kind: &str, name: &str) -> anyhow::Result<Option<Value>> {
        let what = format!("{kind} {name} is read");
        let found = self.patiently(&what, || async { self.of(kind).get_opt(name).await }).await?;
        Ok(found.map(serde_json::to_value).transpose()?)
    }

    /// Waits until the object is as wanted.
    pub(crate) async fn becomes(
        &self,
        kind: &str,
        name: &str,
        what: &str,
        check: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let what = format!("{kind} {name}: {what}");
        let found = eventually(self.limit, &what, || async {
            Ok(self.get(kind, name).await?.filter(|object| check(object)))
        });
        match found.await {
            Ok(object) => Ok(object),
            Err(error) => Err(error.context(format!("it is {:?}", self.get(kind, name).await?))),
        }
    }

    /// Waits until the objects of a kind are as wanted.
    pub(crate) async fn all_become(
        &self,
        kind: &str,
        what: &str,
        check: impl Fn(&[Value]) -> bool,
    ) -> anyhow::Result<Vec<Value>> {
        let what = format!("all of {kind}: {what}");
        let found = eventually(self.limit, &what, || async {
            Ok(Some(self.list(kind).await?).filter(|objects| check(objects)))
        });
        match found.await {
            Ok(objects) => Ok(objects),
            Err(error) => Err(error.context(format!("they are {:?}", self.list(kind).await?))),
        }
    }

    /// Waits until there are this many Machines, and all of them run. Gives them by their names.
    pub(crate) async fn machines_run(&self, count: usize) -> anyhow::Result<BTreeMap<String, Value>> {
        let all = self
            .all_become("Machine", &format!("{count} are running"), |all| {
                let run = |one: &Value| one["status"]["phase"] == "Running" && is(one, "Available", "True");
                all.len() == count && all.iter().all(run)
            })
            .await?;
        Ok(all.into_iter().map(|machine| (name(&machine).to_owned(), machine)).collect())
    }

    /// Waits until the Node of a Machine is initialized and the core has written what it has to say about it. The core tells
    /// a Machine as running also where its write of the Node meets a conflict, and writes again later.
    pub(crate) async fn node_of(&self, machine: &str) -> anyhow::Result<Node> {
        let is_seen = |node: &Node| is_initialized(node) && !has_taint(node, NOT_SEEN_BY_CORE);
        node_becomes(&self.client, machine, self.limit, "initialized, and seen by the core", is_seen).await
    }

    /// Waits until the object is gone.
    pub(crate) async fn vanishes(&self, kind: &str, name: &str) -> anyhow::Result<()> {
        let what = format!("{kind} {name} is gone");
        let gone = eventually(self.limit, &what, || async {
            Ok(self.get(kind, name).await?.is_none().then_some(()))
        });
        match gone.await {
            Ok(()) => Ok(()),
            Err(error) => Err(error.context(format!("it is {:?}", self.get(kind, name).await?))),
        }
    }
}
