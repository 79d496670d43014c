//! Objects of Cluster API in a namespace, as users write them and as tests read them.

use std::time::Duration;

use anyhow::Context;
use kube::{
    Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::support::eventually;

/// Longer than anything takes here. The managers wait up to 30 s before they look again.
const LIMIT: Duration = Duration::from_secs(90);

/// The objects of a namespace.
pub(super) struct Objects {
    pub(super) client: Client,
    pub(super) namespace: String,
}

/// The API version of a kind.
fn api_version(kind: &str) -> &'static str {
    match kind {
        "Secret" => "v1",
        "HostedControlPlane" => "controlplane.cluster.x-k8s.io/v1alpha1",
        _ if kind.starts_with("Fake") => "infrastructure.cluster.x-k8s.io/v1alpha1",
        _ if kind.starts_with("Kubeadm") => "bootstrap.cluster.x-k8s.io/v1beta2",
        _ => "cluster.x-k8s.io/v1beta2",
    }
}

/// A reference as Cluster API has it.
pub(super) fn reference(kind: &str, name: &str) -> Value {
    let group = api_version(kind).split('/').next();
    json!({"apiGroup": group, "kind": kind, "name": name})
}

/// The condition of this type, `null` if there is none.
pub(super) fn condition<'o>(object: &'o Value, kind: &str) -> &'o Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|one| one["type"] == kind).unwrap_or(&Value::Null)
}

/// Whether the condition of this type has this status.
pub(super) fn is(object: &Value, kind: &str, status: &str) -> bool {
    condition(object, kind)["status"] == status
}

/// The name of an object.
pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

impl Objects {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned() }
    }

    fn of(&self, kind: &str) -> kube::Api<DynamicObject> {
        let version = api_version(kind);
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        kube::Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// Applies an object with these fields beside its name.
    pub(super) async fn apply(&self, kind: &str, name: &str, mut fields: Value) -> anyhow::Result<Value> {
        fields["apiVersion"] = api_version(kind).into();
        fields["kind"] = kind.into();
        fields["metadata"]["name"] = name.into();
        let params = PatchParams::apply("user").force();
        let made = self.of(kind).patch(name, &params, &Patch::Apply(fields)).await;
        Ok(serde_json::to_value(made.with_context(|| format!("{kind} {name}"))?)?)
    }

    /// Changes an object.
    pub(super) async fn merge(&self, kind: &str, name: &str, fields: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(fields);
        let outcome = self.of(kind).patch(name, &PatchParams::default(), &patch).await;
        outcome.map(drop).with_context(|| format!("{kind} {name}"))
    }

    /// Changes the status of an object.
    pub(super) async fn merge_status(&self, kind: &str, name: &str, status: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        let outcome = self.of(kind).patch_status(name, &PatchParams::default(), &patch).await;
        outcome.map(drop).with_context(|| format!("{kind} {name}"))
    }

    /// Begins to delete an object.
    pub(super) async fn delete(&self, kind: &str, name: &str) -> anyhow::Result<()> {
        let outcome = self.of(kind).delete(name, &DeleteParams::default()).await;
        outcome.map(drop).with_context(|| format!("{kind} {name}"))
    }

    /// All objects of a kind.
    pub(super) async fn list(&self, kind: &str) -> anyhow::Result<Vec<Value>> {
        let found = self.of(kind).list(&ListParams::default()).await?;
        Ok(found.items.into_iter().map(serde_json::to_value).collect::<Result<_, _>>()?)
    }

    /// An object.
    pub(super) async fn get(&self, kind: &str, name: &str) -> anyhow::Result<Option<Value>> {
        let found = self.of(kind).get_opt(name).await?;
        Ok(found.map(serde_json::to_value).transpose()?)
    }

    /// Waits until the object is as wanted.
    pub(super) async fn becomes(
        &self,
        kind: &str,
        name: &str,
        what: &str,
        check: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let what = format!("{kind} {name}: {what}");
        let found = eventually(LIMIT, &what, || async {
            Ok(self.get(kind, name).await?.filter(|object| check(object)))
        });
        match found.await {
            Ok(object) => Ok(object),
            Err(error) => Err(error.context(format!("it is {:?}", self.get(kind, name).await?))),
        }
    }

    /// Waits until the objects of a kind are as wanted.
    pub(super) async fn all_become(
        &self,
        kind: &str,
        what: &str,
        check: impl Fn(&[Value]) -> bool,
    ) -> anyhow::Result<Vec<Value>> {
        let what = format!("all of {kind}: {what}");
        let found = eventually(LIMIT, &what, || async {
            Ok(Some(self.list(kind).await?).filter(|objects| check(objects)))
        });
        match found.await {
            Ok(objects) => Ok(objects),
            Err(error) => Err(error.context(format!("they are {:?}", self.list(kind).await?))),
        }
    }

    /// Waits until the object is gone.
    pub(super) async fn vanishes(&self, kind: &str, name: &str) -> anyhow::Result<()> {
        let what = format!("{kind} {name} is gone");
        let gone =
            eventually(LIMIT, &what, || async { Ok(self.get(kind, name).await?.is_none().then_some(())) });
        match gone.await {
            Ok(()) => Ok(()),
            Err(error) => Err(error.context(format!("it is {:?}", self.get(kind, name).await?))),
        }
    }
}
