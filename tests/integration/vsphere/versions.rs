//! Objects in both versions, on a real API server whose requests for conversions the daemon answers.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ccm::{daemon::Parts, manifests::ManifestOptions, permissions};
use cloudprovider::{MachineTypes, machines::GROUP, testing::FakeCloud};
use cloudprovider_vsphere::machine_types;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::{
    api::core::v1::Secret,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, WebhookClientConfig},
};
use kube::{
    Client, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams, ValidationDirective, WatchEvent, WatchParams,
    },
};
use machine_controller::{crds::Definitions, read_one_of_each};
use serde_json::{Value, json};
use test_env::built;

use super::{
    LIMIT,
    kinds::{install, rules, templates, uninstall},
    stored,
};
use crate::{
    api::{self, Api},
    daemon::{InProcess, parse},
    scenarios::Trials,
    shipped_roles,
    support::eventually,
    webhook::Webhook,
};

pub(crate) const OLD: &str = "v1beta1";
pub(crate) const NEW: &str = "v1beta2";
const SECRET: &str = "cloud-controller-manager-webhook-ca";

/// How long a daemon may take to be asked, and the API server to trust it.
const CONVERSION_LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn trials() -> Trials {
    Trials::new()
        .api_server("vsphere::objects_are_converted_between_versions", async |api: &Api| {
            converted(api, NEW).await
        })
        .api_server("vsphere::objects_are_converted_where_the_older_version_is_stored", async |api: &Api| {
            converted(api, OLD).await
        })
        .api_server("vsphere::the_stored_version_is_changed_and_changed_back", stored::changed)
}

/// The kinds, stored in this version.
pub(crate) fn types(stored: &str) -> Result<MachineTypes> {
    machine_types().stored_in(stored).with_context(|| format!("{stored} cannot be stored"))
}

/// The daemon's webhook at a port of this machine.
pub(super) struct World<'a> {
    api: &'a Api,
    client: Client,
    pub(super) webhook: Webhook,
    flags: Vec<String>,
    /// The version that is stored, and the other one.
    stored: &'static str,
    other: &'static str,
}

async fn converted(api: &Api, stored: &'static str) -> Result<()> {
    let world = World::new(api, stored).await?;
    let definitions = Definitions::of("vsphere", &types(stored)?)?;
    let crds = world.crds(stored)?;
    install(api, &crds).await?;
    rules::install(api, &definitions.rules).await?;
    let outcome = world.check(&crds).await;
    rules::remove(api, &definitions.rules).await?;
    // The API server reads the objects of a definition that it removes, so somebody has to convert them. Where the check failed, its
    // daemon may still do that, and another one cannot.
    if outcome.is_ok() {
        world.webhook.is_free().await?;
    }
    let daemon = world.start()?;
    let removed = uninstall(api, &crds).await;
    outcome?;
    removed?;
    daemon.stop().await?;
    world.forget().await
}

/// A client for the account of the shipped manifests, with exactly its permissions.
async fn with_permissions(api: &Api, flags: &[String]) -> Result<Client> {
    let control_plane = api.control_plane.as_ref().context("a real API server")?;
    let options = ManifestOptions { name: "conversion".to_owned(), ..ManifestOptions::new("vsphere") };
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let flags = parse(&flags)?;
    let needed =
        [permissions::needed(&flags), permissions::needed_for_conversion(&flags, &machine_types())].concat();
    let kubeconfig = shipped_roles::bind(control_plane, &options, &needed).await?;
    api::client(&kubeconfig).await
}

impl<'a> World<'a> {
    /// Without definitions. `stored` is the version that will be stored first.
    pub(super) async fn new(api: &'a Api, stored: &'static str) -> Result<Self> {
        let webhook = Webhook::new()?;
        let flags = [&["--controllers=machine-controller".to_owned()], &webhook.flags()[..]].concat();
        let client = with_permissions(api, &flags).await?;
        let other = if stored == NEW { OLD } else { NEW };
        Ok(Self { api, client, webhook, flags, stored, other })
    }
}

impl World<'_> {
    /// The definitions that store this version, whose conversion leads to the webhook.
    pub(super) fn crds(&self, stored: &str) -> Result<Vec<CustomResourceDefinition>> {
        let mut definitions = Definitions::of("vsphere", &types(stored)?)?;
        let url = Some(self.webhook.url());
        definitions.set_conversion(&WebhookClientConfig { url, ..WebhookClientConfig::default() });
        Ok(definitions.crds().into_iter().cloned().collect())
    }

    /// Removes the authority of the daemons.
    pub(super) async fn forget(&self) -> Result<()> {
        kube::Api::<Secret>::namespaced(self.api.client.clone(), "kube-system")
            .delete(SECRET, &DeleteParams::default())
            .await?;
        Ok(())
    }

    /// The object, once the API server reaches the webhook.
    pub(super) async fn get_soon(&self, kind: &str, version: &str, name: &str) -> Result<Value> {
        eventually(CONVERSION_LIMIT, "an object is converted", || async move {
            Ok(self.get(kind, version, name).await.ok())
        })
        .await
    }

    pub(super) fn start(&self) -> Result<InProcess> {
        let provider = FakeCloud::new().provider();
        let parts =
            Parts { machine_types: vec![machine_types()], ..Parts::new(self.client.clone(), provider)? };
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        InProcess::start_parts(parts, &flags)
    }

    fn objects(&self, kind: &str, version: &str) -> kube::Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, version, kind));
        kube::Api::namespaced_with(self.api.client.clone(), "default", &resource)
    }

    pub(super) async fn get(&self, kind: &str, version: &str, name: &str) -> Result<Value> {
        Ok(serde_json::to_value(self.objects(kind, version).get(name).await?)?)
    }

    pub(super) async fn apply(&self, version: &str, object: &Value) -> Result<Value> {
        let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
        let (kind, name) = (kind.as_str().unwrap_or_default(), name.as_str().unwrap_or_default());
        let params = PatchParams {
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::apply("test").force()
        };
        let mut object = object.clone();
        object["apiVersion"] = json!(format!("{GROUP}/{version}"));
        let applied = self.objects(kind, version).patch(name, &params, &Patch::Apply(&object)).await;
        Ok(serde_json::to_value(applied.with_context(|| format!("{kind} {name} in {version}"))?)?)
    }

    /// Waits until an object can be read in the version that is not stored.
    pub(super) async fn is_converted(&self, name: &str) -> Result<()> {
        eventually(CONVERSION_LIMIT, "an object is converted", || async move {
            Ok(self.get("VSphereMachine", self.other, name).await.ok().map(drop))
        })
        .await
    }

    /// As the command `check` reads them.
    pub(super) async fn one_of_each(&self) -> std::result::Result<(), String> {
        read_one_of_each(&self.api.client, &machine_types().kinds, Some("default")).await
    }

    async fn check(&self, crds: &[CustomResourceDefinition]) -> Result<()> {
        // Without a daemon, the stored version is there, and the other one is refused with the reason.
        let old = json!({
            "kind": "VSphereMachine", "metadata": {"name": "first"},
            "spec": {"template": "t", "network": {"devices": [{"networkName": "n", "dhcp4": true}]}},
        });
        self.apply(self.stored, &old).await?;
        let error = match self.get("VSphereMachine", self.other, "first").await {
            Err(error) => format!("{error:#}"),
            Ok(object) => bail!("converted by nobody: {object}"),
        };
        ensure!(error.contains("conversion webhook"), "{error}");
        let read = self.one_of_each().await;
        if self.stored == NEW {
            ensure!(read.is_ok(), "the controller needs nobody: {read:?}");
        } else {
            let error = read.err().context("the check reads what nobody converts")?;
            ensure!(error.contains("vspheremachines in v1beta2 cannot be read: "), "{error}");
            ensure!(error.contains("conversion webhook"), "{error}");
        }

        let daemon = self.start()?;
        self.is_converted("first").await.with_context(|| "after the daemon started")?;
        // The API server begins a list that could not be converted again in its own time.
        eventually(CONVERSION_LIMIT, "an object of each kind is read", || async move {
            Ok(self.one_of_each().await.ok())
        })
        .await?;
        for kind in crds {
            let labels = kind.labels();
            for version in [OLD, NEW] {
                let label = labels.get(&format!("cluster.x-k8s.io/{version}"));
                ensure!(label.is_some_and(|label| label == version), "{labels:?}");
            }
        }
        self.templates_in_both_versions().await?;
        self.what_one_version_lacks_is_kept().await?;
        self.nothing_is_invented().await?;
        self.what_v1beta2_requires_is_asked_for_there_alone().await?;
        self.statuses_are_kept().await?;
        self.columns()?;

        // A watch in the other version goes on over a restart of the daemon.
        let mut watch = self.watch().await?;
        daemon.crash().await;
        self.webhook.is_free().await?;
        let daemon = self.start()?;
        self.is_converted("first").await.with_context(|| "after a restart")?;
        let label = json!({"metadata": {"labels": {"after": "restart"}}});
        self.objects("VSphereMachine", self.stored)
            .patch("first", &PatchParams::default(), &Patch::Merge(&label))
            .await?;
        let seen = async {
            while let Some(event) = watch.try_next().await? {
                if let WatchEvent::Modified(object) = event
                    && object.labels().contains_key("after")
                {
                    return Ok(object);
                }
            }
            bail!("the watch ended")
        };
        let seen = tokio::time::timeout(LIMIT, seen).await.context("the change is not seen")??;
        ensure!(seen.types.is_some_and(|types| types.api_version.ends_with(self.other)), "another version");

        self.definitions_are_mended(crds).await?;
        for kind in ["VSphereMachine", "VSphereMachineTemplate"] {
            self.objects(kind, self.stored)
                .delete_collection(&DeleteParams::default(), &ListParams::default())
                .await?;
        }
        daemon.stop().await
    }

    /// Every template is read in the other version as the conversion says, and comes back as it was.
    async fn templates_in_both_versions(&self) -> Result<()> {
        let folder = built("capv").map_err(|error| anyhow::anyhow!("{error}"))?.join("templates");
        for (file, object) in templates::objects(&folder)? {
            let kind = object["kind"].as_str().context("a kind")?;
            let name = object["metadata"]["name"].as_str().context("a name")?;
            let made = self.apply(OLD, &object).await.with_context(|| file.clone())?;
            // The API server takes a while until it trusts the authority that a definition names.
            let read = eventually(CONVERSION_LIMIT, "an object is converted", || async move {
                Ok(self.get(kind, NEW, name).await.ok())
            });
            let read = read.await.with_context(|| file.clone())?;
            let expected = cloudprovider_vsphere::convert(made.clone(), NEW)?;
            ensure!(read["spec"] == expected["spec"], "{file}: {} is not {}", read["spec"], expected["spec"]);
            // What is written in the other version changes nothing.
            let same = json!({"kind": kind, "metadata": {"name": name}, "spec": read["spec"]});
            self.apply(NEW, &same).await.with_context(|| file.clone())?;
            let back = self.get(kind, OLD, name).await?;
            ensure!(back["spec"] == made["spec"], "{file}: {} became {}", made["spec"], back["spec"]);
            let generation = &back["metadata"]["generation"];
            ensure!(*generation == made["metadata"]["generation"], "{file}: generation {generation}");
            self.objects(kind, OLD).delete(name, &DeleteParams::default()).await?;
        }
        Ok(())
    }

    async fn what_one_version_lacks_is_kept(&self) -> Result<()> {
        let new = json!({
            "kind": "VSphereMachine", "metadata": {"name": "new"},
            "spec": {
                "template": "t", "nestedHV": true, "naming": {"template": "{{ .machine.name }}"},
                "powerOffMode": "trySoft", "guestSoftPowerOffTimeoutSeconds": 90,
                "network": {"devices": [{"networkName": "n", "dhcp4": true, "routes": [{"to": "192.0.2.0/24", "via": "192.0.2.1"}]}]},
            },
        });
        let made = self.apply(NEW, &new).await?;
        let old = self.get("VSphereMachine", OLD, "new").await?;
        ensure!(old["spec"]["guestSoftPowerOffTimeout"] == "1m30s", "{old}");
        ensure!(old["spec"]["namingStrategy"]["template"] == "{{ .machine.name }}", "{old}");
        ensure!(old["spec"]["nestedHV"] == true, "{old}");
        ensure!(old["spec"]["network"]["devices"][0]["routes"][0]["metric"] == 0, "{old}");
        // Somebody who knows the old version only changes something else.
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        self.objects("VSphereMachine", OLD)
            .patch("new", &PatchParams::default(), &Patch::Merge(&label))
            .await?;
        let read = self.get("VSphereMachine", NEW, "new").await?;
        ensure!(read["spec"] == made["spec"], "{} became {}", made["spec"], read["spec"]);
        ensure!(read["metadata"].get("annotations").is_none(), "{}", read["metadata"]);
        // Each version has its rules.
        let change = json!({"spec": {"template": "other"}});
        let (objects, change) = (self.objects("VSphereMachine", NEW), Patch::Merge(&change));
        let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
        // A policy is in force some time after it was made.
        eventually(CONVERSION_LIMIT, "the policy is in force", || async {
            Ok(objects.patch("new", &dry_run, &change).await.err().map(drop))
        })
        .await?;
        let refused = objects.patch("new", &PatchParams::default(), &change).await;
        let refused = refused.err().context("the spec of a machine changed")?.to_string();
        ensure!(refused.contains("spec cannot change"), "{refused}");
        Ok(())
    }

    /// The API server adds defaults to what is in v1beta1, also where it is stored. Objects of v1beta2 come back without them, and can be
    /// replaced by what they were made from.
    async fn nothing_is_invented(&self) -> Result<()> {
        let machine = json!({"template": "t", "network": {"devices": [{"networkName": "n", "dhcp4": true}]}});
        for (kind, spec) in [
            ("VSphereMachine", machine.clone()),
            ("VSphereMachineTemplate", json!({"template": {"spec": machine}})),
            ("VSphereVM", machine),
        ] {
            let objects = self.objects(kind, NEW);
            let new = json!({
                "apiVersion": format!("{GROUP}/{NEW}"), "kind": kind, "metadata": {"name": "bare"}, "spec": spec,
            });
            let new: DynamicObject = serde_json::from_value(new)?;
            objects.create(&PostParams::default(), &new).await.with_context(|| kind)?;
            let read = objects.get("bare").await?;
            ensure!(read.data["spec"] == spec, "{kind}: {spec} became {}", read.data["spec"]);
            let same = DynamicObject { metadata: read.metadata.clone(), ..new };
            let replaced = objects.replace("bare", &PostParams::default(), &same).await;
            let replaced = replaced.with_context(|| format!("{kind} by its own file"))?;
            ensure!(replaced.metadata.generation == read.metadata.generation, "{kind} changed: {replaced:?}");
            objects.delete("bare", &DeleteParams::default()).await?;
        }
        Ok(())
    }

    /// What v1beta2 refuses is accepted in v1beta1, and the controller can write such an object in its version.
    async fn what_v1beta2_requires_is_asked_for_there_alone(&self) -> Result<()> {
        let pool = json!([{"kind": "InClusterIPPool", "name": "p"}]);
        let devices = json!([{"networkName": "n", "addressesFromPools": pool}]);
        let machine = json!({"template": "t", "folder": "", "network": {"devices": devices}});
        let object = json!({"kind": "VSphereMachine", "metadata": {"name": "lax"}, "spec": machine});
        let refused =
            self.apply(NEW, &object).await.err().context("an empty folder, and a pool without group")?;
        let refused = format!("{refused:#}");
        ensure!(refused.contains("spec.folder") && refused.contains("apiGroup"), "{refused}");
        self.apply(OLD, &object).await?;
        let read = self.get("VSphereMachine", NEW, "lax").await?;
        ensure!(read["spec"].get("folder").is_none(), "{read}");
        self.objects("VSphereMachine", NEW)
            .patch(
                "lax",
                &PatchParams::default(),
                &Patch::Merge(&json!({"spec": {"providerID": "vsphere://2"}})),
            )
            .await
            .context("the provider ID of a machine whose pool has no group")?;
        let back = self.get("VSphereMachine", OLD, "lax").await?;
        ensure!(back["spec"]["folder"] == "" && back["spec"]["providerID"] == "vsphere://2", "{back}");

        let status = Patch::Merge(json!({"status": {"ready": false}}));
        for (kind, field) in
            [("VSphereDeploymentZone", "failureDomain"), ("VSphereClusterIdentity", "secretName")]
        {
            let of = |version: &str| {
                let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, version, kind));
                kube::Api::<DynamicObject>::all_with(self.api.client.clone(), &resource)
            };
            let made = async |version: &str| {
                let spec = json!({"placementConstraint": {"folder": "k8s"}});
                let spec = if kind == "VSphereDeploymentZone" { spec } else { json!({}) };
                let object = json!({
                    "apiVersion": format!("{GROUP}/{version}"), "kind": kind, "metadata": {"name": "lax"}, "spec": spec,
                });
                let object = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
                of(version).create(&PostParams::default(), &object).await
            };
            let refused =
                made(NEW).await.err().with_context(|| format!("{kind} without {field}"))?.to_string();
            ensure!(refused.contains(field), "{refused}");
            made(OLD).await.with_context(|| format!("{kind} without {field} in {OLD}"))?;
            let told = of(NEW).patch_status("lax", &PatchParams::default(), &status).await;
            told.with_context(|| format!("the status of a {kind} without {field}"))?;
            of(OLD).delete("lax", &DeleteParams::default()).await?;
        }
        Ok(())
    }

    /// What the controller writes in its version is stored, and what readers of the other one look for is there.
    async fn statuses_are_kept(&self) -> Result<()> {
        let condition = json!({
            "type": "Ready", "status": "True", "reason": "Provisioned", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let of_readers = json!({
            "type": "VMProvisioned", "status": "False", "severity": "Info", "reason": "Cloning", "message": "by task-1",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = json!({"status": {
            "initialization": {"provisioned": true}, "ready": true, "taskRef": "task-1", "cloneMode": "linkedClone",
            "addresses": [{"type": "InternalIP", "address": "192.0.2.7"}], "failureDomain": "fd",
            "conditions": [condition], "deprecated": {"v1beta1": {"conditions": [of_readers]}},
        }});
        let machines = self.objects("VSphereMachine", NEW);
        machines.patch_status("new", &PatchParams::default(), &Patch::Merge(&status)).await?;
        let read = self.get("VSphereMachine", NEW, "new").await?;
        ensure!(read["status"] == status["status"], "{} became {}", status["status"], read["status"]);
        ensure!(read["spec"]["nestedHV"] == true, "{}", read["spec"]);
        let old = self.get("VSphereMachine", OLD, "new").await?;
        ensure!(old["status"]["ready"] == true && old["status"]["taskRef"] == "task-1", "{}", old["status"]);
        ensure!(old["status"]["v1beta2"]["conditions"][0] == condition, "{}", old["status"]);
        ensure!(old["status"]["conditions"] == json!([of_readers]), "{}", old["status"]);
        let provider_id = json!({"spec": {"providerID": "vsphere://1"}});
        machines.patch("new", &PatchParams::default(), &Patch::Merge(&provider_id)).await?;
        Ok(())
    }

    fn columns(&self) -> Result<()> {
        let control_plane = self.api.control_plane.as_ref().context("a real API server")?;
        for (version, columns) in [
            (OLD, &["NAME", "CLUSTER", "READY", "PROVIDERID", "AGE"][..]),
            (NEW, &["NAME", "CLUSTER", "MACHINE", "READY", "REASON", "PROVISIONED", "AGE"]),
        ] {
            let resource = format!("vspheremachines.{version}.{GROUP}");
            let table = control_plane.kubectl_output(&["get", &resource, "-n", "default"])?;
            let head: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
            ensure!(head == columns, "{version}: {table}");
            let table = control_plane.kubectl_output(&["get", &resource, "-n", "default", "-o", "wide"])?;
            ensure!(table.contains("vsphere://1"), "{version}: {table}");
        }
        Ok(())
    }

    async fn watch(
        &self,
    ) -> Result<impl futures::Stream<Item = kube::Result<WatchEvent<DynamicObject>>> + Unpin + use<>> {
        let machines = self.objects("VSphereMachine", self.other);
        // The API server's own list may still wait for its next attempt, after one that nobody converted. Until then it refuses.
        let when_ready = async || -> kube::Result<_> {
            let list = machines.list(&ListParams::default()).await?;
            let version = list.metadata.resource_version.unwrap_or_default();
            Ok(machines.watch(&WatchParams::default(), &version).await?.boxed())
        };
        eventually(CONVERSION_LIMIT, "the API server can watch", || async {
            match when_ready().await {
                Err(kube::Error::Api(status)) if status.code == 429 => Ok(None),
                watch => Ok(Some(watch?)),
            }
        })
        .await
    }

    /// Somebody replaces a definition by one without the authority.
    async fn definitions_are_mended(&self, crds: &[CustomResourceDefinition]) -> Result<()> {
        let all = kube::Api::<CustomResourceDefinition>::all(self.api.client.clone());
        let mut crd = crds[0].clone();
        let bundle = |crd: &CustomResourceDefinition| {
            let webhook = crd.spec.conversion.as_ref().and_then(|conversion| conversion.webhook.as_ref());
            webhook.and_then(|webhook| webhook.client_config.as_ref()?.ca_bundle.clone())
        };
        crd.metadata.resource_version = all.get(&crd.name_any()).await?.metadata.resource_version;
        let replaced = all.replace(&crd.name_any(), &PostParams::default(), &crd).await?;
        ensure!(bundle(&replaced).is_none(), "the authority was taken out");
        let name = crd.name_any();
        eventually(CONVERSION_LIMIT, "the authority is in the definition", || async {
            Ok(bundle(&all.get(&name).await?).map(drop))
        })
        .await?;
        self.is_converted("first").await.with_context(|| "after a definition was replaced")
    }
}
