//! The cluster and the cloud of a scenario, and a daemon that runs the machine controller. The scenario does what Cluster
//! API's core would do.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ccm::{manifests::ManifestOptions, permissions};
use cloudprovider::testing::FakeCloud;
use controller_kit::cloud::machine_kinds_of;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{
    core::{self, CORE, INFRASTRUCTURE, objects, path_of},
    tape::Tape,
};
use crate::{
    api::Api,
    daemon::parse,
    shipped_roles,
    stage::{self, Life, Replica, eventually_or},
};

/// How long a scenario waits for what should happen at once.
pub(super) const SOON: Duration = Duration::from_secs(30);

/// A wait that lasts so long has its status written.
pub(super) const LASTS: Duration = Duration::from_millis(7_500);

/// The flag with which only the machine controller runs.
pub(super) const ONLY: &str = "--controllers=machine-controller";

/// The annotation with the identity.
pub(super) const IDENTITY: &str = "infrastructure.cluster.x-k8s.io/uid";

/// The annotation with the name of the Cluster that an object was made for.
pub(super) const CLUSTER_NAME: &str = "infrastructure.cluster.x-k8s.io/cluster-name";

/// The annotation that holds a move.
pub(super) const BLOCK_MOVE: &str = "clusterctl.cluster.x-k8s.io/block-move";

/// The finalizer of machines.
pub(super) const FINALIZER: &str = "fakemachine.infrastructure.cluster.x-k8s.io";

pub(super) const NAMESPACE: &str = "default";

/// An API server with Cluster API's kinds, and a cloud with machines.
pub(super) struct World<'a> {
    pub(super) api: &'a Api,
    pub(super) cloud: FakeCloud,
    pub(super) tape: Tape,
    /// How the names of the cloud's kinds begin.
    pub(super) kinds: &'static str,
    /// The Cluster that machines belong to.
    pub(super) cluster: &'static str,
    /// The namespace of the objects.
    pub(super) namespace: &'static str,
    /// The client of daemons. On the real API server it has the permissions that the manifests give, and no others.
    pub(super) client: Client,
}

/// A daemon of a [`World`].
pub(super) type Daemon = Replica;

/// A client for the account of such a daemon.
async fn with_permissions(api: &Api) -> anyhow::Result<Client> {
    let Some(control_plane) = &api.control_plane else { return Ok(api.client.clone()) };
    let options = ManifestOptions { name: "machines".to_owned(), ..ManifestOptions::new("fake") };
    let provider = FakeCloud::new().with_machines().provider();
    let kinds = machine_kinds_of(&*provider).context("the fake cloud has machines")?;
    let flags = parse(&[ONLY])?;
    let needed = [permissions::needed(&flags), permissions::needed_for_machines(&flags, &kinds)].concat();
    let kubeconfig = shipped_roles::bind(control_plane, &options, &needed).await?;
    crate::api::client(&kubeconfig).await
}

/// The world, and daemons.
impl<'a> World<'a> {
    /// With the kinds of Cluster API and of the fake cloud.
    pub(super) async fn new(api: &'a Api) -> anyhow::Result<Self> {
        core::install_core(api, &["v1beta2"]).await?;
        core::install_own(api).await?;
        core::clear(api, &[NAMESPACE]).await?;
        Ok(Self { client: with_permissions(api).await?, ..Self::bare(api) })
    }

    /// Without any kinds.
    pub(super) fn bare(api: &'a Api) -> Self {
        let cloud = FakeCloud::new().with_machines();
        let time = if api.sandbox.is_some() { 10_000 } else { 100 };
        cloud.set_task_time(Duration::from_millis(time));
        cloud.set_address_time(Duration::from_millis(time));
        let (kinds, cluster, namespace) = ("Fake", "prod", NAMESPACE);
        Self { api, cloud, tape: Tape::default(), kinds, cluster, namespace, client: api.client.clone() }
    }

    /// The same API server and cloud, as another tenant sees them.
    pub(super) fn in_namespace(&self, namespace: &'static str) -> Self {
        let (cloud, tape, client) = (self.cloud.clone(), self.tape.clone(), self.client.clone());
        Self { cloud, tape, namespace, client, ..*self }
    }

    /// With a Cluster whose infrastructure is provisioned, and a daemon.
    pub(super) async fn with_cluster(api: &'a Api) -> anyhow::Result<(Self, Daemon)> {
        let world = Self::new(api).await?;
        let daemon = world.start(&[])?;
        world.add_cluster("prod").await?;
        world.cluster_is_ready("prod").await?;
        Ok((world, daemon))
    }

    pub(super) fn start(&self, flags: &[&str]) -> anyhow::Result<Daemon> {
        let flags: Vec<&str> = [ONLY].iter().chain(flags).copied().collect();
        let life = Life::new();
        let client = life.client(&self.tape.client(&self.client));
        stage::start(&client, self.cloud.provider(), &flags, life, false)
    }

    /// Time in which a controller would do what it should not do.
    pub(super) async fn pause(&self) {
        stage::pause(self.api, Duration::from_secs(120)).await;
    }
}

/// What Cluster API's core and its users do.
impl World<'_> {
    /// The cloud's own kind of machines or clusters.
    pub(super) fn kind(&self, what: &str) -> String {
        format!("{}{what}", self.kinds)
    }

    pub(super) fn objects(&self, kind: &str) -> kube::Api<DynamicObject> {
        objects(&self.api.client, kind, self.namespace)
    }

    pub(super) async fn create(&self, kind: &str, name: &str, content: Value) -> anyhow::Result<Value> {
        let mut object = content;
        let [group, version, ..] = core::row_of(kind);
        object["apiVersion"] = format!("{group}/{version}").into();
        object["kind"] = kind.into();
        object["metadata"]["name"] = name.into();
        let object = serde_json::from_value(object)?;
        let made = self.objects(kind).create(&PostParams::default(), &object).await;
        Ok(serde_json::to_value(made.with_context(|| format!("{kind} {name}"))?)?)
    }

    /// The object, or null.
    pub(super) async fn get(&self, kind: &str, name: &str) -> anyhow::Result<Value> {
        let path = format!("{}/{name}", path_of(kind, self.namespace));
        match self.api.client.request(http::Request::get(path).body(Vec::new())?).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Value::Null),
            outcome => Ok(outcome?),
        }
    }

    /// All objects of a kind.
    pub(super) async fn list(&self, kind: &str) -> anyhow::Result<Vec<Value>> {
        let request = http::Request::get(path_of(kind, self.namespace)).body(Vec::new())?;
        let mut list: Value = self.api.client.request(request).await?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            other => bail!("no list of {kind}: {other}"),
        }
    }

    pub(super) async fn change(&self, kind: &str, name: &str, patch: Value) -> anyhow::Result<Value> {
        let changed = self.objects(kind).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        Ok(serde_json::to_value(changed.with_context(|| format!("{kind} {name}: {patch}"))?)?)
    }

    pub(super) async fn change_status(&self, kind: &str, name: &str, status: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        self.objects(kind).patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub(super) async fn delete(&self, kind: &str, name: &str) -> anyhow::Result<()> {
        self.objects(kind).delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// The owner reference that the core puts on the infrastructure of its objects.
    pub(super) async fn owner(&self, kind: &str, name: &str) -> anyhow::Result<Value> {
        let owner = self.get(kind, name).await?;
        let uid = owner["metadata"]["uid"].clone();
        Ok(json!({
            "apiVersion": format!("{CORE}/v1beta2"), "kind": kind, "name": name, "uid": uid, "controller": true,
        }))
    }

    /// A Cluster and its infrastructure, which it owns.
    pub(super) async fn add_cluster(&self, name: &str) -> anyhow::Result<()> {
        let kind = self.kind("Cluster");
        let spec = json!({"infrastructureRef": {"apiGroup": INFRASTRUCTURE, "kind": kind, "name": name}});
        self.create("Cluster", name, json!({"spec": spec})).await?;
        let metadata = json!({
            "labels": {"cluster.x-k8s.io/cluster-name": name},
            "ownerReferences": [self.owner("Cluster", name).await?],
        });
        let spec = json!({"failureDomains": ["a", "b"], "endpoint": true});
        self.create(&kind, name, json!({"metadata": metadata, "spec": spec})).await?;
        Ok(())
    }

    /// Waits for the infrastructure, and lets the Cluster know, as the core does.
    pub(super) async fn cluster_is_ready(&self, name: &str) -> anyhow::Result<()> {
        let infrastructure = self.becomes(&self.kind("Cluster"), name, "is ready", is_ready).await?;
        let endpoint = infrastructure["spec"]["controlPlaneEndpoint"].clone();
        self.change("Cluster", name, json!({"spec": {"controlPlaneEndpoint": endpoint}})).await?;
        let status = json!({"initialization": {"infrastructureProvisioned": true}});
        self.change_status("Cluster", name, status).await
    }

    /// A Machine of the Cluster and its infrastructure, which it owns. There are no bootstrap data yet.
    pub(super) async fn add_machine_without_data(&self, name: &str) -> anyhow::Result<Value> {
        self.add_machine_with(name, json!({}), json!({})).await
    }

    /// The same with more metadata for its infrastructure, and with a spec.
    pub(super) async fn add_machine_with(
        &self,
        name: &str,
        mut metadata: Value,
        spec: Value,
    ) -> anyhow::Result<Value> {
        let machine = json!({
            "metadata": {"labels": {"cluster.x-k8s.io/cluster-name": self.cluster}},
            "spec": {
                "clusterName": self.cluster,
                "infrastructureRef": {"apiGroup": INFRASTRUCTURE, "kind": self.kind("Machine"), "name": name},
            },
        });
        self.create("Machine", name, machine).await?;
        metadata["labels"]["cluster.x-k8s.io/cluster-name"] = self.cluster.into();
        metadata["ownerReferences"] = json!([self.owner("Machine", name).await?]);
        self.create(&self.kind("Machine"), name, json!({"metadata": metadata, "spec": spec})).await
    }

    /// Makes the Secret with the bootstrap data of a machine, and tells its Machine.
    pub(super) async fn add_data(&self, name: &str) -> anyhow::Result<()> {
        self.add_secret(name).await?;
        self.name_secret(name).await
    }

    pub(super) async fn add_secret(&self, name: &str) -> anyhow::Result<()> {
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": format!("{name}-data"), "labels": {"cluster.x-k8s.io/cluster-name": self.cluster}},
            "type": "cluster.x-k8s.io/secret",
            "stringData": {"value": format!("#cloud-config {name} hunter2"), "format": "cloud-config"},
        }))?;
        let secret = with_data(secret);
        let secrets = kube::Api::<Secret>::namespaced(self.api.client.clone(), self.namespace);
        secrets.create(&PostParams::default(), &secret).await?;
        Ok(())
    }

    pub(super) async fn name_secret(&self, name: &str) -> anyhow::Result<()> {
        let spec = json!({"bootstrap": {"dataSecretName": format!("{name}-data")}});
        self.change("Machine", name, json!({"spec": spec})).await.map(drop)
    }

    /// A Machine with everything that it needs.
    pub(super) async fn add_machine(&self, name: &str) -> anyhow::Result<Value> {
        let made = self.add_machine_without_data(name).await?;
        self.add_data(name).await?;
        Ok(made)
    }
}

/// What is seen.
impl World<'_> {
    /// Waits until `check` accepts the object.
    pub(super) async fn becomes(
        &self,
        kind: &str,
        name: &str,
        what: &str,
        check: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let is_it = |object: &Value| !object.is_null() && check(object);
        let look = || async { Ok(Some(self.get(kind, name).await?).filter(is_it)) };
        let what = format!("{kind} {name}: {what}");
        let object = eventually_or(SOON, &what, look, self.describe(kind, name)).await?;
        self.tape.has_writes_of(name).await;
        Ok(object)
    }

    /// A flavor of the fake cloud.
    pub(super) async fn add_flavor(&self, name: &str, cpus: u32) -> anyhow::Result<()> {
        let flavor = serde_json::from_value(json!({
            "apiVersion": format!("{INFRASTRUCTURE}/v1alpha1"), "kind": "FakeFlavor",
            "metadata": {"name": name}, "spec": {"cpus": cpus, "memoryMiB": 512},
        }))?;
        core::flavors(&self.api.client).create(&PostParams::default(), &flavor).await?;
        Ok(())
    }

    /// Waits until the machine is ready.
    pub(super) async fn is_up(&self, name: &str) -> anyhow::Result<Value> {
        self.becomes(&self.kind("Machine"), name, "is ready", is_ready).await
    }

    /// Waits until the machine waits for this reason.
    pub(super) async fn waits_for(&self, name: &str, reason: &str) -> anyhow::Result<Value> {
        let waits = |object: &Value| condition(object, "Ready")["reason"] == reason;
        self.becomes(&self.kind("Machine"), name, reason, waits).await
    }

    /// Waits until the object is gone.
    pub(super) async fn vanishes(&self, kind: &str, name: &str) -> anyhow::Result<()> {
        let look = || async { Ok(self.get(kind, name).await?.is_null().then_some(())) };
        let what = format!("{kind} {name} is gone");
        eventually_or(SOON, &what, look, self.describe(kind, name)).await?;
        self.tape.has_writes_of(name).await;
        Ok(())
    }

    /// Everything about an object, for the message of a failure.
    async fn describe(&self, kind: &str, name: &str) -> String {
        let object = match self.get(kind, name).await {
            Ok(object) => object.to_string(),
            Err(error) => error.to_string(),
        };
        let plural = format!("{}s", kind.to_lowercase());
        format!(
            "{object}; writes {:?}; in the cloud {:?}",
            self.tape.of_object(&plural, name),
            self.cloud.objects()
        )
    }

    /// The controller's events about an object.
    pub(super) async fn events(&self, name: &str) -> anyhow::Result<Vec<(String, String)>> {
        events_in(&self.api.client, self.namespace, name).await
    }

    /// Fails unless these are all objects of the cloud, apart from those of the Cluster.
    pub(super) fn cloud_has(&self, expected: &[&str]) -> anyhow::Result<()> {
        let mut found = self.cloud.objects();
        found.retain(|line| !line.starts_with("endpoint/"));
        let found: Vec<&str> = found.iter().filter_map(|line| line.split(' ').next()).collect();
        ensure!(found == expected, "in the cloud: {:?}", self.cloud.objects());
        Ok(())
    }
}

/// Reasons and messages of the controller's events about an object, in order of time.
pub(super) async fn events(client: &Client, name: &str) -> anyhow::Result<Vec<(String, String)>> {
    events_in(client, NAMESPACE, name).await
}

async fn events_in(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Vec<(String, String)>> {
    let about = format!("involvedObject.name={name}");
    let events = stage::events(client, namespace, &about, "machine-controller").await?;
    let text = |text: Option<String>| text.unwrap_or_default();
    Ok(events.into_iter().map(|event| (text(event.reason), text(event.message))).collect())
}

/// A condition of an object, or null.
pub(super) fn condition(object: &Value, condition_type: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|one| one["type"] == condition_type);
    found.cloned().unwrap_or_default()
}

pub(super) fn is_ready(object: &Value) -> bool {
    condition(object, "Ready")["status"] == "True"
}

/// The sandbox does not turn `stringData` into `data`.
fn with_data(mut secret: Secret) -> Secret {
    let texts = secret.string_data.take().unwrap_or_default();
    let data = texts.into_iter().map(|(key, text)| (key, k8s_openapi::ByteString(text.into_bytes())));
    secret.data = Some(data.collect());
    secret
}
