//! A tenant, and what it writes and reads in its namespace.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Namespace, Secret, Service};
use kube::{
    Client,
    api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use test_env::Vcsim;

use super::{
    objects::{self, Hostile, Kind},
    until,
};
use crate::{
    machines::{
        core::{CORE, INFRASTRUCTURE},
        libvirt_many::IMAGE,
        world::{condition, is_ready},
    },
    support::eventually,
};

/// The test driver has no contents of volumes, so a machine on it ends where the header of its image is read.
const NO_CONTENT: &str = "virStorageVolDownload";

const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";

/// A tenant with one namespace, and there with a cluster of each infrastructure.
pub(super) struct Tenant {
    client: Client,
    namespace: &'static str,
}

impl Tenant {
    pub(super) async fn new(client: &Client, namespace: &'static str, vcsim: &Vcsim) -> Result<Self> {
        let tenant = Self { client: client.clone(), namespace };
        let object: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
        Api::all(client.clone()).create(&PostParams::default(), &object).await?;
        for kind in Kind::ALL {
            let (name, mut spec) = (cluster_of(kind), json!({}));
            if kind == Kind::VSphere {
                spec["server"] = format!("127.0.0.1:{}", vcsim.port()).into();
            }
            tenant.add_cluster(kind, name, spec).await?;
            let status = json!({"status": {"initialization": {"infrastructureProvisioned": true}}});
            let clusters = tenant.objects("Cluster");
            clusters.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
            until(name, || async { Ok(is_ready(&tenant.get(&kind.of("Cluster"), name).await?)) }).await?;
            tenant
                .add_secret(
                    &format!("{name}-data"),
                    name,
                    json!({"value": "#cloud-config\n", "format": "cloud-config"}),
                )
                .await?;
        }
        Ok(tenant)
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    fn objects(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), self.namespace, &resource(kind))
    }

    pub(super) async fn get(&self, kind: &str, name: &str) -> Result<Value> {
        Ok(self.objects(kind).get_opt(name).await?.map(serde_json::to_value).transpose()?.unwrap_or_default())
    }

    /// `None` if the API server refuses the object as invalid. It is tried again while nobody converts objects yet.
    async fn create(&self, kind: &str, mut object: Value) -> Result<Option<Value>> {
        let of = resource(kind);
        object["apiVersion"] = of.api_version.into();
        object["kind"] = kind.into();
        let object: DynamicObject = serde_json::from_value(object)?;
        let (objects, params) = (self.objects(kind), PostParams::default());
        eventually(test_env::PATIENCE, kind, || async {
            match objects.create(&params, &object).await {
                Ok(made) => Ok(Some(Some(serde_json::to_value(made)?))),
                Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => Ok(Some(None)),
                Err(kube::Error::Api(status)) if status.message.contains("webhook") => Ok(None),
                Err(error) => Err(error).with_context(|| format!("{kind} of {}", self.namespace)),
            }
        })
        .await
    }

    async fn add_secret(&self, name: &str, cluster: &str, data: Value) -> Result<()> {
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {CLUSTER_NAME: cluster}},
            "type": "cluster.x-k8s.io/secret", "stringData": data,
        }))?;
        Api::namespaced(self.client.clone(), self.namespace).create(&PostParams::default(), &secret).await?;
        Ok(())
    }

    /// A Cluster of the core with its infrastructure.
    async fn add_cluster(&self, kind: Kind, name: &str, mut spec: Value) -> Result<bool> {
        let infrastructure = json!({"apiGroup": INFRASTRUCTURE, "kind": kind.of("Cluster"), "name": name});
        let core = json!({"metadata": {"name": name}, "spec": {"infrastructureRef": infrastructure}});
        let owner = self.create("Cluster", core).await?.context("a Cluster")?;
        spec["controlPlaneEndpoint"] = json!({"host": "192.0.2.1", "port": 6443});
        let own = json!({"metadata": owned(&owner, "Cluster", name), "spec": spec});
        Ok(self.create(&kind.of("Cluster"), own).await?.is_some())
    }

    /// A Machine of the core with its infrastructure. Gives whether the API server takes that.
    async fn add_machine_with(&self, kind: Kind, name: &str, spec: Value) -> Result<bool> {
        let (cluster, full_name) = (cluster_of(kind), format!("{name}-{}", kind.of("").to_lowercase()));
        let infrastructure = json!({"apiGroup": INFRASTRUCTURE, "kind": kind.of("Machine"), "name": name});
        let core = json!({
            "metadata": {"name": full_name, "labels": {CLUSTER_NAME: cluster}},
            "spec": {
                "clusterName": cluster, "infrastructureRef": infrastructure,
                "bootstrap": {"dataSecretName": format!("{cluster}-data")},
            },
        });
        let owner = self.create("Machine", core).await?.context("a Machine")?;
        let mut metadata = owned(&owner, "Machine", cluster);
        metadata["name"] = name.into();
        let own = json!({"metadata": metadata, "spec": spec});
        Ok(self.create(&kind.of("Machine"), own).await?.is_some())
    }

    /// A machine as its tenant may have it.
    pub(super) async fn add_machine(&self, kind: Kind, name: &str) -> Result<()> {
        let spec = match kind {
            Kind::Libvirt => objects::libvirt_machine(json!({"volume": {"name": IMAGE}, "format": "raw"})),
            Kind::VSphere => objects::vsphere_machine("DC0_C0_RP0_VM0"),
        };
        ensure!(self.add_machine_with(kind, name, spec).await?, "{kind:?} {name} is refused");
        Ok(())
    }

    /// Waits until a machine is ready or, with libvirt, has come as far as the hypervisor lets it.
    pub(super) async fn is_done(&self, kind: Kind, name: &str) -> Result<()> {
        let outcome = until(name, || async {
            let object = self.get(&kind.of("Machine"), name).await?;
            Ok(match kind {
                Kind::Libvirt => condition(&object, "Ready")["message"].to_string().contains(NO_CONTENT),
                Kind::VSphere => is_ready(&object),
            })
        });
        outcome.await.with_context(|| format!("{kind:?} {name}"))
    }

    /// Writes an object of the attacker. Gives whether the API server takes it.
    pub(super) async fn write(&self, object: &Hostile) -> Result<bool> {
        match object {
            Hostile::Machine(kind, name, spec) => self.add_machine_with(*kind, name, spec.clone()).await,
            Hostile::Cluster(name, spec) => {
                self.add_secret(name, name, json!({"username": name, "password": "guessed"})).await?;
                let mut spec = spec.clone();
                spec["identityRef"] = json!({"kind": "Secret", "name": name});
                self.add_cluster(Kind::VSphere, name, spec).await
            }
            Hostile::Service(name, annotations, spec) => {
                let metadata = json!({"name": name, "annotations": annotations});
                let service: Service = serde_json::from_value(json!({"metadata": metadata, "spec": spec}))?;
                Api::namespaced(self.client.clone(), self.namespace)
                    .create(&PostParams::default(), &service)
                    .await?;
                Ok(true)
            }
        }
    }

    /// All objects of this kind. In one list, which the API server gives from its cache: page by page, it has each object converted.
    async fn all(&self, of: &ApiResource) -> Result<Vec<Value>> {
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), self.namespace, of);
        let with_kind = |one: DynamicObject| -> Result<Value> {
            let mut one = serde_json::to_value(one)?;
            // A list says that once.
            one["kind"] = (&*of.kind).into();
            Ok(one)
        };
        api.list(&ListParams::default()).await?.items.into_iter().map(with_kind).collect()
    }

    /// The objects that could have got something.
    pub(super) async fn infrastructure(&self) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        for kind in ["LibvirtMachine", "VSphereMachine", "VSphereCluster", "VSphereVM"] {
            all.extend(self.all(&resource(kind)).await?);
        }
        all.extend(self.all(&ApiResource::erase::<Service>(&())).await?);
        let is_ordinary =
            |one: &Value| Kind::ALL.iter().any(|kind| one["metadata"]["name"] == cluster_of(*kind));
        all.retain(|one| !is_ordinary(one));
        Ok(all)
    }

    /// Neither conditions nor events have one of these words, unless the tenant wrote it into the object itself.
    pub(super) async fn names_nothing_foreign(&self, words: &[String]) -> Result<()> {
        let mut events = HashMap::<String, Vec<String>>::new();
        for event in self.all(&ApiResource::erase::<Event>(&())).await? {
            let of = &event["involvedObject"];
            let key = format!(
                "{} {}",
                of["kind"].as_str().unwrap_or_default(),
                of["name"].as_str().unwrap_or_default()
            );
            events.entry(key).or_default().push(event["message"].to_string());
        }
        for object in self.infrastructure().await? {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let key = format!("{} {name}", object["kind"].as_str().unwrap_or_default());
            let own = format!("{} {}", object["spec"], object["metadata"]["annotations"]);
            let said = texts(&object).into_iter().chain(events.remove(&key).unwrap_or_default());
            for text in said {
                let foreign = words.iter().find(|word| text.contains(*word) && !own.contains(*word));
                ensure!(foreign.is_none(), "{key} names {foreign:?}: {text}");
            }
        }
        Ok(())
    }
}

/// The Cluster of a tenant's machines.
fn cluster_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Libvirt => "on-libvirt",
        Kind::VSphere => "on-vsphere",
    }
}

pub(super) fn resource(kind: &str) -> ApiResource {
    let of = Kind::ALL.into_iter().find(|of| kind.starts_with(&of.of("")));
    let (group, version) = of.map_or((CORE, "v1beta2"), |of| (INFRASTRUCTURE, of.version()));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// The metadata of what an object of the core owns.
fn owned(owner: &Value, kind: &str, cluster: &str) -> Value {
    let metadata = &owner["metadata"];
    let reference = json!({
        "apiVersion": format!("{CORE}/v1beta2"), "kind": kind, "name": metadata["name"], "uid": metadata["uid"],
        "controller": true,
    });
    json!({"name": metadata["name"], "labels": {CLUSTER_NAME: cluster}, "ownerReferences": [reference]})
}

/// The texts of an object that its tenant did not write.
fn texts(object: &Value) -> Vec<String> {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.map(|one| format!("{} {}", one["reason"], one["message"])).collect()
}
