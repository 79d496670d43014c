//! The rules of Cluster API's contract for infrastructure providers, each as its own core manager keeps it.

use std::time::Duration;

use anyhow::{Context, ensure};
use cloudprovider::{
    Error, ErrorKind,
    testing::{Fault, Operation},
};
use serde_json::{Value, json};

use super::{
    management::{Management, machine_daemon},
    objects::{Objects, condition, is, name},
};
use crate::{daemon::InProcess, fake_cloud::FakeCloud, scenarios::Trials};

pub(super) fn trials() -> Trials {
    Trials::new()
        .rule("references-have-no-version", references)
        .rule("owner-and-label", owner)
        .rule("machine-is-provisioned", provisioned)
        .rule("conditions-are-mirrored", mirrored)
        .rule("bootstrap-data-come-first", bootstrap)
        .rule("cluster-comes-first", cluster_first)
        .rule("endpoint-and-failure-domains", endpoint)
        .rule("failure-domain-is-obeyed", failure_domain)
        .rule("paused", paused)
        .rule("watch-filter", watch_filter)
        .rule("managed-elsewhere", managed_elsewhere)
        .rule("deletion-is-confirmed", deletion)
        .rule("lost-is-told", lost)
        .rule("metadata-of-others-stay", metadata)
}

impl Trials {
    /// A rule of the contract. `name` is also its namespace.
    fn rule(
        self,
        name: &'static str,
        scenario: impl AsyncFnOnce(&Management) -> anyhow::Result<()> + Send + 'static,
    ) -> Self {
        self.on_management(&format!("contract::{name}"), name, scenario)
    }
}

/// A Cluster `one` in a namespace of its own, with a cloud and a daemon for it.
struct World {
    objects: Objects,
    cloud: FakeCloud,
    daemon: InProcess,
}

impl World {
    async fn new(
        management: &Management,
        namespace: &str,
        infrastructure: Value,
        flags: &[&str],
    ) -> anyhow::Result<Self> {
        let objects = management.namespace(namespace).await?;
        let cloud = FakeCloud::new().with_machines();
        let daemon = machine_daemon(&objects.client, &cloud, namespace, flags)?;
        objects.apply_cluster("one", &management.control_plane, infrastructure).await?;
        Ok(Self { objects, cloud, daemon })
    }

    async fn plain(management: &Management, namespace: &str) -> anyhow::Result<Self> {
        Self::new(management, namespace, json!({}), &[]).await
    }

    async fn machine(&self, more: Value) -> anyhow::Result<Value> {
        self.objects.apply_machine("one", "m", &more).await
    }

    async fn machine_becomes(&self, what: &str, check: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        self.objects.becomes("Machine", "m", what, check).await
    }

    async fn infra(&self) -> anyhow::Result<Value> {
        self.objects.get("FakeMachine", "m").await?.context("no FakeMachine")
    }

    /// Waits until the daemon has handled all changes of infrastructure clusters so far: another Cluster is provisioned, and is gone
    /// again.
    async fn handles_clusters(&self, management: &Management, infrastructure: Value) -> anyhow::Result<()> {
        let objects = &self.objects;
        let is_owned = |one: &Value| one["metadata"]["ownerReferences"].is_array();
        objects.becomes("FakeCluster", "one", "owned by its Cluster", is_owned).await?;
        objects.apply_cluster("later", &management.control_plane, infrastructure).await?;
        let is_ready = |one: &Value| is(one, "InfrastructureReady", "True");
        objects.becomes("Cluster", "later", "provisioned", is_ready).await?;
        objects.delete("Cluster", "later").await?;
        objects.vanishes("Cluster", "later").await
    }

    /// The same of the machines of the cluster: another Machine is provisioned and is gone again.
    async fn handles_machines(&self) -> anyhow::Result<()> {
        self.objects.apply_machine("one", "later", &json!({})).await?;
        self.objects.becomes("Machine", "later", "provisioned", is_provisioned).await?;
        self.objects.delete("Machine", "later").await?;
        self.objects.vanishes("Machine", "later").await
    }

    /// Waits until the Machine says this about its infrastructure, and checks that its words are the provider's.
    async fn mirrors(&self, status: &str, reason: &str) -> anyhow::Result<()> {
        let wanted = |one: &Value| {
            let found = condition(one, "InfrastructureReady");
            found["status"] == status && found["reason"] == reason
        };
        let machine = self.machine_becomes(&format!("{status} for {reason}"), wanted).await?;
        let infra = self.infra().await?;
        let (mirror, said) = (condition(&machine, "InfrastructureReady"), condition(&infra, "Ready"));
        ensure!(mirror["message"] == said["message"] && said["reason"] == reason, "{mirror} of {said}");
        Ok(())
    }

    /// Deletes the cluster, and expects that nothing is left of it.
    async fn end(self) -> anyhow::Result<()> {
        self.objects.delete("Cluster", "one").await?;
        self.objects.vanishes("Cluster", "one").await?;
        for kind in ["Machine", "FakeMachine", "FakeCluster"] {
            let left = self.objects.list(kind).await?;
            ensure!(left.is_empty(), "{kind}: {left:?}");
        }
        ensure!(self.cloud.objects().is_empty(), "{:?}", self.cloud.objects());
        self.daemon.stop().await
    }
}

fn is_provisioned(machine: &Value) -> bool {
    machine["status"]["initialization"]["infrastructureProvisioned"] == true
}

/// References name a kind without its version: the core finds that in the labels of the definition. Its conversion to
/// v1beta1 shows which it found.
async fn references(management: &Management) -> anyhow::Result<()> {
    let world = World::plain(management, "references-have-no-version").await?;
    world.machine(json!({})).await?;
    world.machine_becomes("provisioned", is_provisioned).await?;
    let path = "/apis/cluster.x-k8s.io/v1beta1/namespaces/references-have-no-version/machines/m";
    let old: Value = serde_json::from_str(&management.control_plane.get(path)?)?;
    let version = &old["spec"]["infrastructureRef"]["apiVersion"];
    ensure!(version == "infrastructure.cluster.x-k8s.io/v1alpha1", "{old}");
    ensure!(old["status"]["infrastructureReady"] == true, "{old}");
    world.end().await
}

/// The core makes the Machine the owner and writes the label, and both are enough for the provider.
async fn owner(management: &Management) -> anyhow::Result<()> {
    let world = World::plain(management, "owner-and-label").await?;
    world.objects.apply("FakeMachine", "alone", json!({"spec": {}})).await?;
    let machine = world.machine(json!({})).await?;
    world.machine_becomes("provisioned", is_provisioned).await?;
    let infra = world.infra().await?;
    let owner = &infra["metadata"]["ownerReferences"][0];
    ensure!(owner["kind"] == "Machine" && owner["controller"] == true, "{infra}");
    ensure!(owner["uid"] == machine["metadata"]["uid"], "{infra}");
    ensure!(infra["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == "one", "{infra}");
    let alone = world.objects.get("FakeMachine", "alone").await?.context("it is there")?;
    ensure!(alone["metadata"]["finalizers"].is_null() && alone["status"].is_null(), "{alone}");
    world.objects.delete("FakeMachine", "alone").await?;
    world.end().await
}

/// `status.initialization.provisioned` and `spec.providerID` make the Machine provisioned, with addresses.
async fn provisioned(management: &Management) -> anyhow::Result<()> {
    let world = World::plain(management, "machine-is-provisioned").await?;
    // longer than a wait lasts of which nothing is said
    world.cloud.set_address_time(Duration::from_secs(12));
    world.machine(json!({})).await?;
    let waiting = |one: &Value| condition(one, "InfrastructureReady")["reason"] == "WaitingForAddress";
    let machine = world.machine_becomes("waits for its address", waiting).await?;
    ensure!(!is_provisioned(&machine), "{machine}");
    ensure!(machine["spec"]["providerID"].is_null(), "{machine}");
    let machine = world.machine_becomes("provisioned", is_provisioned).await?;
    let infra = world.infra().await?;
    ensure!(machine["spec"]["providerID"] == infra["spec"]["providerID"], "{machine}");
    ensure!(machine["status"]["addresses"][0]["type"] == "InternalIP", "{machine}");
    ensure!(machine["status"]["addresses"] == infra["status"]["addresses"], "{machine}");
    world.machine_becomes("in the next phase", |one| one["status"]["phase"] == "Provisioned").await?;
    world.mirrors("True", "Ready").await?;
    world.end().await
}

/// The core shows the provider's `Ready`, word for word, in good times and bad.
async fn mirrored(management: &Management) -> anyhow::Result<()> {
    let world = World::plain(management, "conditions-are-mirrored").await?;
    let full = Error::new(ErrorKind::Unavailable, "no hypervisor has room");
    world.cloud.fail(Operation::CreateMachine, Fault::Error(full));
    world.machine(json!({})).await?;
    let told = |one: &Value| {
        let found = condition(one, "InfrastructureReady");
        found["message"].as_str().is_some_and(|words| words.contains("no hypervisor has room"))
    };
    let machine = world.machine_becomes("tells the error", told).await?;
    let reason = condition(&machine, "InfrastructureReady")["reason"].clone();
    world.mirrors("False", reason.as_str().unwrap_or_default()).await?;
    world.cloud.mend();
    world.mirrors("True", "Ready").await?;
    world.end().await
}

/// Nothing is made before the bootstrap data are there, and what waits for them can be deleted.
async fn bootstrap(management: &Management) -> anyhow::Result<()> {
    let world = World::plain(management, "bootstrap-data-come-first").await?;
    world.machine(json!({"bootstrap": {"dataSecretName": "later"}})).await?;
    world.mirrors("False", "WaitingForBootstrapData").await?;
    ensure!(world.cloud.objects().is_empty(), "{:?}", world.cloud.objects());
    world.objects.delete("Machine", "m").await?;
    world.objects.vanishes("Machine", "m").await?;

    world.machine(json!({"bootstrap": {"dataSecretName": "later"}})).await?;
    world.mirrors("False", "WaitingForBootstrapData").await?;
    let secret = json!({
        "metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "one"}},
        "type": "cluster.x-k8s.io/secret",
        "stringData": {"value": "{}", "format": "ignition"},
    });
    world.objects.apply("Secret", "later", secret).await?;
    let machine = world.machine_becomes("provisioned", is_provisioned).await?;
    let id = machine["spec"]["providerID"].as_str().unwrap_or_default();
    let data = world.cloud.bootstrap_of(id.rsplit('/').next().unwrap_or_default()).context("data")?;
    ensure!(data.format().as_str() == "ignition" && data.expose() == b"{}");
    world.end().await
}

/// Machines wait for the infrastructure of their Cluster.
async fn cluster_first(management: &Management) -> anyhow::Result<()> {
    let world = World::plain(management, "cluster-comes-first").await?;
    world
        .objects
        .becomes("Cluster", "one", "provisioned", |one| is(one, "InfrastructureReady", "True"))
        .await?;
    let trouble = Error::new(ErrorKind::Unavailable, "the network is not there");
    world.cloud.fail(Operation::EnsureCluster, Fault::Error(trouble));
    let second = json!({"spec": {"failureDomains": ["rack-c"]}});
    world.objects.apply_cluster("two", &management.control_plane, second).await?;
    let told = |one: &Value| {
        let found = condition(one, "InfrastructureReady");
        found["message"].as_str().is_some_and(|words| words.contains("the network is not there"))
    };
    world.objects.becomes("Cluster", "two", "tells the error", told).await?;
    world.objects.apply_machine("two", "m", &json!({})).await?;
    world.mirrors("False", "WaitingForClusterInfrastructureReady").await?;
    ensure!(world.cloud.objects().is_empty(), "{:?}", world.cloud.objects());
    world.cloud.mend();
    world.machine_becomes("provisioned", is_provisioned).await?;
    world.objects.delete("Cluster", "two").await?;
    world.objects.vanishes("Cluster", "two").await?;
    world.end().await
}

/// The provider makes the endpoint, and tells the failure domains as a list.
async fn endpoint(management: &Management) -> anyhow::Result<()> {
    let namespace = "endpoint-and-failure-domains";
    let infrastructure = json!({"endpoint": true, "failureDomains": ["rack-a", "rack-b"]});
    let objects = management.namespace(namespace).await?;
    let cloud = FakeCloud::new().with_machines();
    let daemon = machine_daemon(&objects.client, &cloud, namespace, &[])?;
    objects.apply("FakeCluster", "one", json!({"spec": infrastructure})).await?;
    let spec = json!({"infrastructureRef": super::objects::reference("FakeCluster", "one")});
    objects.apply("Cluster", "one", json!({"spec": spec})).await?;
    let cluster = objects
        .becomes("Cluster", "one", "provisioned", |one| {
            one["status"]["initialization"]["infrastructureProvisioned"] == true
        })
        .await?;
    let endpoint = &cluster["spec"]["controlPlaneEndpoint"];
    ensure!(endpoint["host"] == "one.clusters.example.org" && endpoint["port"] == 6443, "{cluster}");
    let domains = &cluster["status"]["failureDomains"];
    ensure!(domains[0]["name"] == "rack-a" && domains[1]["name"] == "rack-b", "{cluster}");
    World { objects, cloud, daemon }.end().await
}

/// The Machine says where, and the provider says where it is.
async fn failure_domain(management: &Management) -> anyhow::Result<()> {
    let domains = json!({"spec": {"failureDomains": ["rack-a", "rack-b"]}});
    let world = World::new(management, "failure-domain-is-obeyed", domains, &[]).await?;
    world.machine(json!({"failureDomain": "rack-b"})).await?;
    let machine = world.machine_becomes("provisioned", is_provisioned).await?;
    ensure!(machine["status"]["failureDomain"] == "rack-b", "{machine}");
    world.end().await
}

/// A paused Cluster and a paused object stay as they are, also while they are being deleted.
async fn paused(management: &Management) -> anyhow::Result<()> {
    let world = World::plain(management, "paused").await?;
    let pause = |paused: bool| json!({"spec": {"paused": paused}});
    world
        .objects
        .becomes("Cluster", "one", "provisioned", |one| is(one, "InfrastructureReady", "True"))
        .await?;
    world.objects.merge("Cluster", "one", pause(true)).await?;
    world.objects.becomes("FakeCluster", "one", "paused", |one| is(one, "Paused", "True")).await?;
    world.objects.merge("Cluster", "one", pause(false)).await?;
    world.objects.becomes("FakeCluster", "one", "goes on", |one| is(one, "Paused", "False")).await?;

    world.machine(json!({})).await?;
    world.machine_becomes("provisioned", is_provisioned).await?;
    let annotation = |value: Value| json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": value}}});
    world.objects.merge("FakeMachine", "m", annotation("".into())).await?;
    world.objects.becomes("FakeMachine", "m", "paused", |one| is(one, "Paused", "True")).await?;
    let before = world.cloud.objects();
    world.objects.delete("Machine", "m").await?;
    let is_deleted = |one: &Value| one["metadata"]["deletionTimestamp"].is_string();
    world.objects.becomes("FakeMachine", "m", "being deleted", is_deleted).await?;
    world.handles_machines().await?;
    ensure!(world.cloud.objects() == before, "{:?}", world.cloud.objects());
    world.objects.merge("FakeMachine", "m", annotation(Value::Null)).await?;
    world.objects.vanishes("Machine", "m").await?;
    world.end().await
}

/// Only objects with the label are touched.
async fn watch_filter(management: &Management) -> anyhow::Result<()> {
    let world = World::new(management, "watch-filter", json!({}), &["--watch-filter=ours"]).await?;
    let label = json!({"metadata": {"labels": {"cluster.x-k8s.io/watch-filter": "ours"}}});
    world.handles_clusters(management, label.clone()).await?;
    let cluster = world.objects.get("FakeCluster", "one").await?.context("it is there")?;
    ensure!(cluster["metadata"]["finalizers"].is_null() && cluster["status"].is_null(), "{cluster}");
    world.objects.merge("FakeCluster", "one", label).await?;
    world
        .objects
        .becomes("Cluster", "one", "provisioned", |one| is(one, "InfrastructureReady", "True"))
        .await?;
    world.end().await
}

/// The infrastructure of a cluster can be somebody else's: they fill in its status, and machines are made.
async fn managed_elsewhere(management: &Management) -> anyhow::Result<()> {
    let managed = json!({"metadata": {"annotations": {"cluster.x-k8s.io/managed-by": "somebody"}}});
    let world = World::new(management, "managed-elsewhere", managed, &[]).await?;
    let objects = &world.objects;
    world.handles_clusters(management, json!({})).await?;
    let cluster = objects.get("FakeCluster", "one").await?.context("it is there")?;
    ensure!(cluster["metadata"]["finalizers"].is_null() && cluster["status"].is_null(), "{cluster}");
    objects.merge_status("FakeCluster", "one", json!({"initialization": {"provisioned": true}})).await?;
    world.machine(json!({})).await?;
    world.machine_becomes("provisioned", is_provisioned).await?;
    world.end().await
}

/// The core waits until the provider's object is gone, and that is when the cloud has confirmed it.
async fn deletion(management: &Management) -> anyhow::Result<()> {
    let world = World::plain(management, "deletion-is-confirmed").await?;
    world.machine(json!({})).await?;
    world.machine_becomes("provisioned", is_provisioned).await?;
    world.cloud.set_task_time(Duration::from_secs(4));
    world.objects.delete("Machine", "m").await?;
    let waits = |one: &Value| condition(one, "Deleting")["reason"] == "WaitingForInfrastructureDeletion";
    world.machine_becomes("waits for its infrastructure", waits).await?;
    ensure!(!world.cloud.objects().is_empty(), "the task still runs");
    world.objects.vanishes("Machine", "m").await?;
    ensure!(world.cloud.objects().is_empty(), "{:?}", world.cloud.objects());
    world.end().await
}

/// A machine that vanished is told. It stays provisioned, and is not made again under its name.
async fn lost(management: &Management) -> anyhow::Result<()> {
    let world = World::plain(management, "lost-is-told").await?;
    world.machine(json!({})).await?;
    let machine = world.machine_becomes("provisioned", is_provisioned).await?;
    let id = machine["spec"]["providerID"].as_str().unwrap_or_default().to_owned();
    world.cloud.remove(id.rsplit('/').next().unwrap_or_default());
    world.mirrors("False", "MachineLost").await?;
    world.handles_machines().await?;
    let machine = world.machine_becomes("still provisioned", is_provisioned).await?;
    ensure!(machine["spec"]["providerID"] == id.as_str(), "{machine}");
    let instances = world.cloud.objects().into_iter().filter(|one| one.starts_with("instance/")).count();
    ensure!(instances == 0, "{:?}", world.cloud.objects());
    world.end().await
}

/// Labels and annotations that the core and people write on a machine's object stay.
async fn metadata(management: &Management) -> anyhow::Result<()> {
    let world = World::plain(management, "metadata-of-others-stay").await?;
    world.objects.apply_template("small", &json!({})).await?;
    world.objects.apply_workers("one", "workers", 1, "small").await?;
    world
        .objects
        .all_become("Machine", "provisioned", |all| all.len() == 1 && all.iter().all(is_provisioned))
        .await?;
    let change = json!({"metadata": {"labels": {"room": "7"}, "annotations": {"owner": "anna"}}});
    world.objects.merge("MachineDeployment", "workers", json!({"spec": {"template": change}})).await?;
    let machines = world
        .objects
        .all_become("FakeMachine", "labelled", |all| {
            all.iter().all(|one| one["metadata"]["labels"]["room"] == "7")
        })
        .await?;
    let machine = machines.first().context("one machine")?;
    ensure!(machine["metadata"]["annotations"]["owner"] == "anna", "{machine}");
    let cloned = &machine["metadata"]["annotations"]["cluster.x-k8s.io/cloned-from-name"];
    ensure!(cloned == "small", "{machine}");
    let change = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}});
    world.objects.merge("FakeMachine", name(machine), change).await?;
    let seen = |one: &Value| is(one, "Paused", "True") && one["metadata"]["labels"]["room"] == "7";
    world.objects.becomes("FakeMachine", name(machine), "paused with its labels", seen).await?;
    let change = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": null}}});
    world.objects.merge("FakeMachine", name(machine), change).await?;
    world.end().await
}
