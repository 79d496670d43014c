//! Cluster API's objects and those of libvirt's machines.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cloudprovider::CloudProvider;
use cloudprovider_libvirt::{Config, LibvirtProvider};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::{
    api::core::v1::Secret, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ListMeta,
};
use kube::{
    Api,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
};
use machine_controller::crds::Definitions;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Cluster, POSTERS, STUCK};

pub(super) const NAMESPACE: &str = "default";
const CORE: &str = "cluster.x-k8s.io";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
/// The resource of libvirt's machines.
pub(crate) const LIBVIRT_MACHINES: &str = "libvirtmachines";
/// The pause between two reads of all machines.
pub(super) const POLL_ALL: Duration = Duration::from_millis(500);
/// Machines in one answer of the API server, so that neither side has to hold thousands of them at once.
pub(super) const MAX_PAGE: u32 = 200;

/// A page of a list, of which only its place in the list is decoded.
#[derive(Deserialize)]
struct Page {
    metadata: ListMeta,
}

/// A definition of a kind of Cluster API's core, with any fields.
fn core_definition(kind: &str, plural: &str) -> Result<CustomResourceDefinition> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{CORE}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, a measurement"},
        },
        "spec": {
            "group": CORE, "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{
                "name": "v1beta2", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    }))?)
}

/// The labels of everything in the cluster.
fn labels() -> Value {
    json!({"cluster.x-k8s.io/cluster-name": "prod"})
}

/// The name of machine number N.
fn name(number: usize) -> String {
    format!("machine-{number}")
}

impl Cluster {
    fn objects(&self, group: &str, kind: &str) -> Api<DynamicObject> {
        let version = if group == CORE { "v1beta2" } else { "v1alpha1" };
        let gvk = GroupVersionKind::gvk(group, version, kind);
        Api::namespaced_with(self.client.0.clone(), NAMESPACE, &ApiResource::from_gvk(&gvk))
    }

    fn machines(&self) -> Api<DynamicObject> {
        self.objects(INFRASTRUCTURE, "LibvirtMachine")
    }

    async fn make(&self, group: &str, kind: &str, mut content: Value) -> Result<DynamicObject> {
        let all = self.objects(group, kind);
        let version = if group == CORE { "v1beta2" } else { "v1alpha1" };
        content["apiVersion"] = format!("{group}/{version}").into();
        content["kind"] = kind.into();
        let object = serde_json::from_value(content)?;
        all.create(&PostParams::default(), &object).await.with_context(|| kind.to_owned())
    }

    /// Makes an object of Cluster API's core, and its infrastructure, which it owns.
    async fn make_pair(&self, kind: &str, name: &str, mut spec: Value, own: &Value) -> Result<()> {
        let infrastructure = format!("Libvirt{kind}");
        spec["infrastructureRef"] = json!({"apiGroup": INFRASTRUCTURE, "kind": infrastructure, "name": name});
        let object = json!({"metadata": {"name": name, "labels": labels()}, "spec": spec});
        let owner = self.make(CORE, kind, object).await?;
        let reference = json!({
            "apiVersion": format!("{CORE}/v1beta2"), "kind": kind, "name": name, "uid": owner.metadata.uid,
            "controller": true,
        });
        let metadata = json!({"name": name, "labels": labels(), "ownerReferences": [reference]});
        self.make(INFRASTRUCTURE, &infrastructure, json!({"metadata": metadata, "spec": own})).await?;
        Ok(())
    }

    /// Installs the kinds, and makes a cluster whose infrastructure is provisioned.
    pub(crate) async fn prepare_machines(&self) -> Result<()> {
        let config = Config::parse("hypervisors: [{name: a, uri: 'test:///default'}]", None)?;
        let provider = LibvirtProvider::new(config);
        let machines = provider.machines().context("libvirt has machines")?;
        let own = Definitions::new("libvirt", &machines.kinds(), &machines.schemas())?;
        let mut definitions: Vec<_> = own.crds().into_iter().cloned().collect();
        definitions.push(core_definition("Machine", "machines")?);
        definitions.push(core_definition("Cluster", "clusters")?);
        let all = Api::<CustomResourceDefinition>::all(self.client.0.clone());
        for definition in &definitions {
            all.create(&PostParams::default(), definition).await?;
        }
        for kind in ["Machine", "Cluster"] {
            for (group, kind) in [(CORE, kind.to_owned()), (INFRASTRUCTURE, format!("Libvirt{kind}"))] {
                let began = Instant::now();
                while self.objects(group, &kind).list(&ListParams::default().limit(1)).await.is_err() {
                    ensure!(began.elapsed() < STUCK, "{kind} is not served");
                    sleep(POLL_ALL).await;
                }
            }
        }
        let endpoint = json!({"controlPlaneEndpoint": {"host": "192.0.2.1", "port": 6443}});
        self.make_pair("Cluster", "prod", json!({}), &endpoint).await?;
        let status = json!({"status": {"initialization": {"infrastructureProvisioned": true}}});
        let clusters = self.objects(CORE, "Cluster");
        clusters.patch_status("prod", &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    /// Posts Machines with their bootstrap data and their infrastructure, which has the spec that `spec` makes of the number.
    pub(crate) async fn post_machines(&self, count: usize, spec: impl Fn(usize) -> Value) -> Result<()> {
        let spec = &spec;
        stream::iter(0..count)
            .map(Ok)
            .try_for_each_concurrent(POSTERS, |number| async move {
                let (name, data) = (name(number), format!("machine-{number}-data"));
                let secret: Secret = serde_json::from_value(json!({
                    "metadata": {"name": data, "labels": labels()}, "type": "cluster.x-k8s.io/secret",
                    "stringData": {"value": "#cloud-config\n", "format": "cloud-config"},
                }))?;
                let secrets = Api::<Secret>::namespaced(self.client.0.clone(), NAMESPACE);
                secrets.create(&PostParams::default(), &secret).await?;
                let machine = json!({"clusterName": "prod", "bootstrap": {"dataSecretName": data}});
                self.make_pair("Machine", &name, machine, &spec(number)).await
            })
            .await
    }

    /// The machines that are provisioned. They are not decoded: what is measured runs on the same CPUs.
    async fn count_provisioned(&self) -> Result<usize> {
        let (mut count, mut next) = (0, String::new());
        loop {
            // The API server makes this text so that it can be in a URL.
            let path = format!(
                "/apis/{INFRASTRUCTURE}/v1alpha1/namespaces/{NAMESPACE}/{LIBVIRT_MACHINES}?limit={MAX_PAGE}&continue={next}"
            );
            let text = self.client.0.request_text(http::Request::get(path).body(Vec::new())?).await?;
            count += text.matches("\"initialization\":{\"provisioned\":true}").count();
            match serde_json::from_str::<Page>(&text)?.metadata.continue_ {
                Some(more) if !more.is_empty() => next = more,
                _ => return Ok(count),
            }
        }
    }

    /// Waits until as many machines are provisioned. Returns when that was seen.
    pub(crate) async fn all_provisioned(&self, count: usize) -> Result<Instant> {
        let (mut before, mut changed) = (0, Instant::now());
        loop {
            let provisioned = self.count_provisioned().await?;
            let now = Instant::now();
            if provisioned >= count {
                return Ok(now);
            }
            if provisioned != before {
                (before, changed) = (provisioned, now);
            }
            ensure!(changed.elapsed() < STUCK, "only {provisioned} of {count} machines are provisioned");
            sleep(POLL_ALL).await;
        }
    }

    /// Deletes as many machines, and waits until they are gone. Returns when that was seen.
    pub(crate) async fn delete_machines(&self, count: usize) -> Result<Instant> {
        let machines = &self.machines();
        stream::iter(0..count)
            .map(Ok)
            .try_for_each_concurrent(POSTERS, |number| async move {
                machines.delete(&name(number), &DeleteParams::default()).await?;
                anyhow::Ok(())
            })
            .await?;
        let (mut before, mut changed) = (0, Instant::now());
        loop {
            let page = machines.list_metadata(&ListParams::default().limit(MAX_PAGE)).await?;
            let more = page.metadata.remaining_item_count.unwrap_or_default();
            let left = page.items.len() + usize::try_from(more)?;
            let now = Instant::now();
            if left == 0 {
                return Ok(now);
            }
            if left != before {
                (before, changed) = (left, now);
            }
            ensure!(changed.elapsed() < STUCK, "{left} machines are still there");
            sleep(POLL_ALL).await;
        }
    }
}
