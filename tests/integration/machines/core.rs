//! What Cluster API's core does, as far as a provider sees it: its kinds, and what it writes about Machines and Clusters.

use std::time::Duration;

use anyhow::Context;
use cloudprovider::{
    machines::AuxiliaryKind,
    testing::{FAKE_FLAVOR, FAKE_GUEST, FAKE_REGION, FakeCloud},
};
use k8s_openapi::{
    api::core::v1::Secret, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Client,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
};
use machine_controller::{crds::Definitions, reboot};
use serde_json::{Value, json};

use super::kinds::Kinds;
use crate::{api::Api, support::eventually};

pub(super) const CORE: &str = "cluster.x-k8s.io";
pub(super) const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";

/// How long the API server may take until a kind is served.
const PATIENCE: Duration = Duration::from_secs(60);

/// Group, version, kind and plural of the kinds of a scenario.
const KINDS: [[&str; 4]; 7] = [
    [INFRASTRUCTURE, "v1alpha1", "FakeMachine", "fakemachines"],
    [INFRASTRUCTURE, "v1alpha1", "FakeCluster", "fakeclusters"],
    [INFRASTRUCTURE, "v1alpha1", "FakeMachineTemplate", "fakemachinetemplates"],
    [INFRASTRUCTURE, "v1alpha1", "FakeGuest", "fakeguests"],
    [INFRASTRUCTURE, "v1alpha1", "RebootRemediation", "rebootremediations"],
    [CORE, "v1beta2", "Machine", "machines"],
    [CORE, "v1beta2", "Cluster", "clusters"],
];

/// The kinds of a second provider.
const OTHER_KINDS: [[&str; 4]; 3] = [
    [INFRASTRUCTURE, "v1alpha1", "OtherMachine", "othermachines"],
    [INFRASTRUCTURE, "v1alpha1", "OtherCluster", "otherclusters"],
    [INFRASTRUCTURE, "v1alpha1", "OtherMachineTemplate", "othermachinetemplates"],
];

pub(super) fn row_of(kind: &str) -> [&'static str; 4] {
    KINDS.into_iter().chain(OTHER_KINDS).find(|row| row[2] == kind).expect("a kind")
}

/// Where the objects of one kind in a namespace are.
pub(super) fn path_of(kind: &str, namespace: &str) -> String {
    let [group, version, _, plural] = row_of(kind);
    format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}")
}

/// The objects of one kind in a namespace.
pub(super) fn objects(client: &Client, kind: &str, namespace: &str) -> kube::Api<DynamicObject> {
    let [group, version, kind, plural] = row_of(kind);
    let gvk = GroupVersionKind::gvk(group, version, kind);
    kube::Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&gvk, plural))
}

/// The definitions of the fake cloud's kinds.
pub(super) fn definitions() -> anyhow::Result<Definitions> {
    let provider = FakeCloud::new().with_machines().provider();
    let machines = provider.machines().context("the fake cloud has machines")?;
    Ok(Definitions::new("fake", &machines.kinds(), &machines.schemas())?)
}

/// A definition of a kind, with any fields.
pub(super) fn definition_of(
    (group, kind, plural, scope): (&str, &str, &str, &str),
    versions: &[&str],
) -> anyhow::Result<CustomResourceDefinition> {
    let versions: Vec<Value> = versions
        .iter()
        .enumerate()
        .map(|(number, version)| {
            json!({
                "name": version, "served": true, "storage": number == 0, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            })
        })
        .collect();
    Ok(serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"), "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
        "spec": {
            "group": group, "scope": scope, "versions": versions,
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
        },
    }))?)
}

/// Installs the kinds of the core in these versions.
pub(super) async fn install_core(api: &Api, versions: &[&str]) -> anyhow::Result<()> {
    for crd in core_definitions(versions)? {
        install(api, &crd).await?;
    }
    Ok(())
}

/// The definitions of the kinds of the core in these versions.
pub(super) fn core_definitions(versions: &[&str]) -> anyhow::Result<Vec<CustomResourceDefinition>> {
    let kinds = [("Machine", "machines"), ("Cluster", "clusters")];
    kinds
        .into_iter()
        .map(|(kind, plural)| definition_of((CORE, kind, plural, "Namespaced"), versions))
        .collect()
}

/// Installs the kinds of the fake cloud, and those of the controller.
pub(super) async fn install_own(api: &Api) -> anyhow::Result<()> {
    for crd in reboot::definitions()? {
        install(api, &crd).await?;
    }
    for kind in [FAKE_FLAVOR, FAKE_GUEST, FAKE_REGION] {
        install(api, &auxiliary_definition(&kind)?).await?;
    }
    install_all(api, &definitions()?).await
}

/// Installs the kinds of a provider.
pub(super) async fn install_all(api: &Api, definitions: &Definitions) -> anyhow::Result<()> {
    if api.sandbox.is_none() {
        return Kinds::new(api.client.clone()).establish(definitions).await;
    }
    for crd in definitions.crds() {
        install(api, crd).await?;
    }
    Ok(())
}

/// The definition of an auxiliary kind.
pub(super) fn auxiliary_definition(kind: &AuxiliaryKind) -> anyhow::Result<CustomResourceDefinition> {
    let scope = if kind.is_namespaced { "Namespaced" } else { "Cluster" };
    definition_of((kind.group, kind.kind, kind.plural, scope), &[kind.version])
}

/// The flavors of the fake cloud, which are in no namespace.
pub(super) fn flavors(client: &Client) -> kube::Api<DynamicObject> {
    auxiliary_objects(client, &FAKE_FLAVOR)
}

/// The objects of an auxiliary kind that is in no namespace.
pub(super) fn auxiliary_objects(client: &Client, kind: &AuxiliaryKind) -> kube::Api<DynamicObject> {
    let AuxiliaryKind { group, version, kind, plural, .. } = *kind;
    let gvk = GroupVersionKind::gvk(group, version, kind);
    kube::Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&gvk, plural))
}

/// Installs a kind.
pub(super) async fn install(api: &Api, crd: &CustomResourceDefinition) -> anyhow::Result<()> {
    let all = kube::Api::<CustomResourceDefinition>::all(api.client.clone());
    match all.create(&PostParams::default(), crd).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        outcome => outcome.map(drop)?,
    }
    if api.sandbox.is_some() {
        return Ok(());
    }
    let name = crd.metadata.name.clone().unwrap_or_default();
    eventually(PATIENCE, &format!("{name} is established"), || async {
        let found = all.get(&name).await?;
        let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
        Ok(conditions.iter().any(|one| one.type_ == "Established" && one.status == "True").then_some(()))
    })
    .await
}

/// Deletes all objects, with their finalizers, that an earlier scenario has left on a real API server.
pub(super) async fn clear(api: &Api, namespaces: &[&str]) -> anyhow::Result<()> {
    for kind in [FAKE_FLAVOR, FAKE_REGION] {
        let all = auxiliary_objects(&api.client, &kind);
        let listed = eventually(PATIENCE, "the kinds can be listed", || async {
            Ok(all.list(&ListParams::default()).await.ok())
        });
        for one in listed.await? {
            forget(&all, &one.metadata.name.unwrap_or_default()).await?;
        }
    }
    for namespace in namespaces {
        for [.., kind, _] in KINDS {
            clear_kind(api, kind, namespace).await?;
        }
        clear_secrets(api, namespace).await?;
    }
    Ok(())
}

/// Deletes all objects of the core's kinds, as [`clear`] does.
pub(super) async fn clear_core(api: &Api, namespace: &str) -> anyhow::Result<()> {
    for kind in ["Machine", "Cluster"] {
        clear_kind(api, kind, namespace).await?;
    }
    clear_secrets(api, namespace).await
}

async fn clear_secrets(api: &Api, namespace: &str) -> anyhow::Result<()> {
    let secrets = kube::Api::<Secret>::namespaced(api.client.clone(), namespace);
    let ours = ListParams::default().labels("cluster.x-k8s.io/cluster-name");
    for secret in secrets.list(&ours).await? {
        secrets.delete(&secret.metadata.name.unwrap_or_default(), &DeleteParams::default()).await?;
    }
    Ok(())
}

/// Deletes all objects of the kinds of the second provider.
pub(super) async fn clear_others(api: &Api, namespace: &str) -> anyhow::Result<()> {
    for [.., kind, _] in OTHER_KINDS {
        clear_kind(api, kind, namespace).await?;
    }
    Ok(())
}

async fn clear_kind(api: &Api, kind: &str, namespace: &str) -> anyhow::Result<()> {
    let all = objects(&api.client, kind, namespace);
    // A kind that is new is served a moment later.
    let listed = eventually(PATIENCE, "the kinds can be listed", || async {
        Ok(all.list(&ListParams::default()).await.ok())
    });
    for object in listed.await? {
        let name = object.metadata.name.unwrap_or_default();
        forget(&all, &name).await?;
    }
    Ok(())
}

/// Deletes an object with its finalizers, as `clusterctl move` does at the source.
pub(super) async fn forget(all: &kube::Api<DynamicObject>, name: &str) -> anyhow::Result<()> {
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let outcomes = [
        all.patch(name, &PatchParams::default(), &free).await.map(drop),
        all.delete(name, &DeleteParams::default()).await.map(drop),
    ];
    for outcome in outcomes {
        match outcome {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            outcome => outcome?,
        }
    }
    Ok(())
}
