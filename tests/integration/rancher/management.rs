//! The Rancher provider with Rancher 2.x. Its server is a fake; the management cluster behind it is a real API server
//! with Rancher's custom resources.

#[path = "../../../providers/rancher/tests/management/testing/mod.rs"]
#[allow(dead_code, reason = "the provider's own tests use the rest")]
mod testing;

use std::{fs, sync::Arc, time::Duration};

use anyhow::ensure;
use cloudprovider::{FactoryInput, Registry};
use cloudprovider_rancher::{Config, Environment, RancherProvider};
use k8s_openapi::api::core::v1::Node;
use sandbox::kubelet;
use serde_json::json;
use test_env::ControlPlane;
use tokio::time::sleep;

use self::testing::{
    management_cluster::{ManagementCluster, options},
    rancher::{FakeRancher, NEXT_TOKEN, NEXT_VIEWER, TOKEN, VIEWER},
};
use super::{LIMIT, SOON};
use crate::{api::Api, daemon::InProcess, scenarios::Trials, support::*};

const MACHINES: &str = "cluster.x-k8s.io/v1beta1";

/// How long a Node that must not be deleted is looked at. A deletion takes less than half of that.
const LOOK: Duration = Duration::from_secs(4);

pub(super) fn trials() -> Trials {
    Trials::in_real_time()
        .both("rancher::a_node_lives_and_dies_with_its_machine", async |api: &Api| {
            in_cluster(api, life).await
        })
        .sandbox("rancher::a_management_server_in_trouble_loses_no_node", async |api: &Api| {
            in_cluster(api, trouble).await
        })
        .sandbox("rancher::url_and_token_are_followed", async |api: &Api| in_cluster(api, reload).await)
        .sandbox("rancher::nodes_of_an_imported_cluster_are_initialised_and_never_deleted", life_of_imported)
        .sandbox(
            "rancher::a_token_of_no_administrator_serves_an_imported_cluster",
            life_without_administrator,
        )
}

/// A scenario whose Nodes are on one API server and whose Machines are on another.
async fn in_cluster(
    api: &Api,
    scenario: impl AsyncFnOnce(&Cluster<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let control_plane = ControlPlane::start(&options())?;
    let management = ManagementCluster::on(&control_plane, "prod").await;
    scenario(&Cluster { management, api }).await
}

/// How long the server is away.
const OUTAGE: Duration = Duration::from_secs(60);

/// A cluster that Rancher provisions: its Machines, and its own API server.
struct Cluster<'a> {
    management: ManagementCluster,
    api: &'a Api,
}

impl Cluster<'_> {
    fn daemon(&self) -> anyhow::Result<InProcess> {
        let text = self.management.rancher.config(&self.management.id, "");
        let config = Config::read(&FactoryInput::new(text), &Environment::default())?;
        InProcess::start(&self.api.daemon_client, Arc::new(RancherProvider::new(&config)?), &SOON)
    }

    /// Adds a machine that joins as `node-<number>`, with the label that Rancher's agent gives. Returns the UID of its
    /// Machine.
    async fn join(&self, number: usize) -> anyhow::Result<String> {
        let (machine, name) = (format!("custom-{number}"), format!("node-{number}"));
        let uid = self
            .management
            .add_custom_machine(&machine, &name, &format!("10.0.0.{number},fd00::1{number}"))
            .await;
        let mut node = kubelet::node(&name, &uuid(number));
        node.metadata.labels.get_or_insert_default().insert("rke.cattle.io/machine".to_owned(), uid.clone());
        kubelet::register(&self.api.client, &node).await?;
        Ok(uid)
    }

    /// Waits until the Node is initialised, and checks that it has everything.
    async fn is_complete(&self, number: usize, uid: &str) -> anyhow::Result<()> {
        let name = format!("node-{number}");
        let node = node_becomes(&self.api.client, &name, LIMIT, "initialized", is_initialized).await?;
        ensure!(provider_id(&node) == Some(format!("rancher://{}/{uid}", self.management.id)), "{node:?}");
        ensure!(label(&node, "topology.kubernetes.io/zone") == Some("rack-7"));
        ensure!(label(&node, "topology.kubernetes.io/region") == Some("hall-1"));
        ensure!(label(&node, "node.kubernetes.io/instance-type") == Some("CustomMachine"));
        let addresses = addresses(&node);
        let expected = [format!("InternalIP 10.0.0.{number}"), format!("InternalIP fd00::1{number}")];
        ensure!(expected.iter().all(|one| addresses.contains(one)), "{addresses:?}");
        ensure!(addresses.contains(&"ExternalIP 203.0.113.1".to_owned()), "{addresses:?}");
        Ok(())
    }

    /// Does what Rancher does with a Node that has its provider ID.
    async fn takes_over(&self, number: usize, uid: &str) {
        let id = format!("rancher://{}/{uid}", self.management.id);
        let status = json!({"nodeRef": {"name": format!("node-{number}")}, "phase": "Running"});
        let change = json!({"spec": {"providerID": id}, "status": status});
        self.management.patch(MACHINES, "machines", &format!("custom-{number}"), &change).await;
    }

    /// Nodes whose kubelets went silent.
    async fn fall_silent(&self, names: &[&str]) -> anyhow::Result<()> {
        for name in names {
            set_ready_unknown(&self.api.client, name).await?;
        }
        Ok(())
    }

    async fn becomes(&self, name: &str, what: &str, check: fn(&Node) -> bool) -> anyhow::Result<Node> {
        node_becomes(&self.api.client, name, LIMIT, what, check).await
    }

    async fn stay(&self, names: &[&str], time: Duration) -> anyhow::Result<()> {
        for name in names {
            node_stays(&self.api.client, name, time / u32::try_from(names.len())?).await?;
        }
        Ok(())
    }
}

fn is_in_doubt(node: &Node) -> bool {
    condition_status(node, "CloudProviderInstanceExists").as_deref() == Some("Unknown")
}

fn exists(node: &Node) -> bool {
    condition_status(node, "CloudProviderInstanceExists").as_deref() == Some("True")
}

async fn life(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let (api, management) = (&cluster.api, &cluster.management);
    let mut foreign = kubelet::node("foreign", &uuid(9));
    let spec = foreign.spec.get_or_insert_default();
    (spec.provider_id, spec.taints) = (Some("rke2://foreign".to_owned()), None);
    kubelet::register(&api.client, &foreign).await?;
    management.add_custom_machine("custom-9", "foreign", "10.0.0.9").await;
    let daemon = cluster.daemon()?;
    for number in 0..3 {
        let uid = cluster.join(number).await?;
        cluster.is_complete(number, &uid).await?;
        cluster.takes_over(number, &uid).await;
    }

    // A zone that changes is followed.
    let change = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "rack-8"}}});
    management.patch(MACHINES, "machines", "custom-0", &change).await;
    let moved = |node: &_| label(node, "topology.kubernetes.io/zone") == Some("rack-8");
    cluster.becomes("node-0", "in the other zone", moved).await?;

    // Silence alone is no reason for anything: Rancher knows no power state.
    cluster.fall_silent(&["node-0", "node-1", "foreign"]).await?;
    cluster.stay(&["node-0", "node-1", "foreign"], LOOK).await?;

    // A Machine that is being deleted is there, and so is one whose CustomMachine is left.
    let hold = json!({"metadata": {"finalizers": ["machine.cluster.x-k8s.io"]}});
    management.patch(MACHINES, "machines", "custom-1", &hold).await;
    management.delete(MACHINES, "machines", "custom-1").await;
    cluster.stay(&["node-1"], LOOK).await?;
    for name in ["node-0", "node-1", "foreign"] {
        ensure!(!has_taint(&nodes(&api.client).get(name).await?, SHUTDOWN), "{name}");
    }
    management.patch(MACHINES, "machines", "custom-1", &json!({"metadata": {"finalizers": null}})).await;
    cluster.becomes("node-1", "in doubt", is_in_doubt).await?;
    cluster.stay(&["node-1"], LOOK).await?;
    management.delete("rke.cattle.io/v1", "custommachines", "custom-1").await;
    node_vanishes(&api.client, "node-1", LIMIT).await?;

    // The Machine of the foreign Node goes. The Node is not judged.
    management.delete_custom_machine("custom-9").await;
    cluster.stay(&["foreign", "node-0", "node-2"], LOOK).await?;
    let foreign = nodes(&api.client).get("foreign").await?;
    ensure!(provider_id(&foreign).as_deref() == Some("rke2://foreign") && !exists(&foreign), "{foreign:?}");
    daemon.stop().await
}

async fn life_of_imported(api: &Api) -> anyhow::Result<()> {
    let control_plane = ControlPlane::start(&options())?;
    let management = ManagementCluster::imported(&control_plane, "imported").await;
    let cluster = &Cluster { management, api };
    let (api, management) = (&cluster.api, &cluster.management);
    let daemon = cluster.daemon()?;
    for number in 0..2 {
        let name = format!("node-{number}");
        let mut node = kubelet::node(&name, &uuid(number));
        let provided = ("alpha.kubernetes.io/provided-node-ip".to_owned(), format!("10.0.0.{number}"));
        node.metadata.annotations.get_or_insert_default().extend([provided]);
        kubelet::register(&api.client, &node).await?;
        // Rancher's agent runs on the tainted Node, and so the server knows it a moment later.
        let id = management.mirror(&format!("machine-{number}"), &name).await;
        let node = cluster.becomes(&name, "initialized", is_initialized).await?;
        ensure!(provider_id(&node) == Some(id), "{node:?}");
    }
    // The mirror loses a silent Node, as it does when somebody deletes it there: that proves nothing.
    cluster.fall_silent(&["node-0"]).await?;
    management.delete("management.cattle.io/v3", "nodes", "machine-0").await;
    cluster.becomes("node-0", "in doubt", is_in_doubt).await?;
    cluster.stay(&["node-0", "node-1"], LOOK).await?;
    ensure!(!management.rancher.server().calls.contains_key("nodes"), "the nodes were watched");
    daemon.stop().await
}

/// An imported cluster, and the token of a user who is no administrator. It expires, and a good one takes its place while a Node
/// waits that Rancher does not know.
async fn life_without_administrator(api: &Api) -> anyhow::Result<()> {
    let rancher = FakeRancher::start().await;
    rancher.add_cluster("c-abcde", "imported", "fleet-default");
    let folder = tempfile::tempdir()?;
    let (config, token) = (folder.path().join("config.yaml"), folder.path().join("token"));
    fs::write(
        &config,
        format!("url: {}\ntokenFile: token\nclusterID: c-abcde\npollInterval: 5s\n", rancher.url()),
    )?;
    fs::write(&token, VIEWER)?;
    let mut registry = Registry::new();
    registry.register("test", cloudprovider_rancher::factory)?;
    let path = format!("--cloud-config={}", config.display());
    let flags: Vec<_> = SOON.iter().copied().chain([path.as_str()]).collect();
    let daemon = InProcess::start_configured(&api.daemon_client, &registry, &flags, false)?;
    let joins = async |number: usize| {
        let name = format!("node-{number}");
        let mut node = kubelet::node(&name, &uuid(number));
        let provided = ("alpha.kubernetes.io/provided-node-ip".to_owned(), format!("10.0.0.{number}"));
        node.metadata.annotations.get_or_insert_default().extend([provided]);
        kubelet::register(&api.client, &node).await?;
        let id = rancher.add_node("c-abcde", &name).replace(':', "/");
        let node = node_becomes(&api.client, &name, LIMIT, "initialized", is_initialized).await?;
        ensure!(provider_id(&node) == Some(format!("rancher://{id}")), "{node:?}");
        anyhow::Ok(())
    };
    joins(0).await?;
    kubelet::register(&api.client, &kubelet::node("unknown", &uuid(9))).await?;
    rancher.server().expired.insert(VIEWER);
    rancher.break_connections();
    set_ready_unknown(&api.client, "node-0").await?;
    node_becomes(&api.client, "node-0", LIMIT, "says that it cannot tell", is_in_doubt).await?;
    fs::write(&token, NEXT_VIEWER)?;
    // A version that is in doubt takes longer.
    joins(1).await?;
    node_becomes(&api.client, "node-0", LIMIT, "is known again", exists).await?;
    ensure!(!is_initialized(&nodes(&api.client).get("unknown").await?));
    daemon.stop().await
}

/// A token that expires, and a server that is away.
async fn trouble(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let (api, management) = (&cluster.api, &cluster.management);
    let rancher = &management.rancher;
    let daemon = cluster.daemon()?;
    let all = ["node-0", "node-1", "node-2"];
    for number in 0..3 {
        let uid = cluster.join(number).await?;
        cluster.is_complete(number, &uid).await?;
    }

    cluster.fall_silent(&all).await?;
    rancher.server().expired.insert(TOKEN);
    rancher.break_connections();
    for name in all {
        let node = cluster.becomes(name, "says that it cannot tell", is_in_doubt).await?;
        let (_, _, message) = condition(&node, "CloudProviderInstanceExists").unwrap_or_default();
        ensure!(message.contains("must authenticate") && !message.contains("battery"), "{message}");
    }
    // A Machine goes meanwhile.
    management.delete_custom_machine("custom-2").await;
    cluster.stay(&all, LOOK).await?;
    rancher.server().expired.clear();
    node_vanishes(&api.client, "node-2", LIMIT).await?;
    let left = ["node-0", "node-1"];
    for name in left {
        cluster.becomes(name, "is known again", exists).await?;
    }

    rancher.go_away();
    for name in left {
        cluster.becomes(name, "says that it cannot tell", is_in_doubt).await?;
    }
    management.delete_custom_machine("custom-1").await;
    let late = cluster.join(3).await?;
    sleep(OUTAGE).await;
    cluster.stay(&left, Duration::ZERO).await?;
    ensure!(!is_initialized(&nodes(&api.client).get("node-3").await?), "nobody knows its machine yet");
    rancher.come_back();
    cluster.is_complete(3, &late).await?;
    node_vanishes(&api.client, "node-1", LIMIT).await?;
    cluster.becomes("node-0", "is known again", exists).await?;
    daemon.stop().await
}

/// The token and the URL change while the daemon runs.
async fn reload(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let management = &cluster.management;
    let first = &management.rancher;
    // Another address of the same installation.
    let second = FakeRancher::start_with(None, Some(management.upstream.clone())).await;
    second.add_cluster(&management.id, "prod", &management.namespace);
    let folder = tempfile::tempdir()?;
    let (config, token) = (folder.path().join("config.yaml"), folder.path().join("token"));
    let text = |server: &FakeRancher| {
        format!("url: {}\ntokenFile: token\nclusterID: {}\n", server.url(), management.id)
    };
    fs::write(&config, text(first))?;
    fs::write(&token, format!("{TOKEN}\n"))?;
    let mut registry = Registry::new();
    registry.register("test", cloudprovider_rancher::factory)?;
    let path = format!("--cloud-config={}", config.display());
    let flags: Vec<_> = SOON.iter().copied().chain([path.as_str()]).collect();
    let daemon = InProcess::start_configured(&cluster.api.daemon_client, &registry, &flags, false)?;
    let uid = cluster.join(0).await?;
    cluster.is_complete(0, &uid).await?;

    // The token expires. Nothing is deleted for that, and a new one in the file is taken.
    first.server().expired.insert(TOKEN);
    first.break_connections();
    cluster.fall_silent(&["node-0"]).await?;
    cluster.becomes("node-0", "says that it cannot tell", is_in_doubt).await?;
    fs::write(&token, NEXT_TOKEN)?;
    let uid = cluster.join(1).await?;
    cluster.is_complete(1, &uid).await?;
    cluster.becomes("node-0", "is known again", exists).await?;

    // Another URL. The old one is asked no more.
    ensure!(second.calls() == 0);
    fs::write(&config, text(&second))?;
    eventually(LIMIT, "the other address is asked", || async { Ok((second.calls() > 0).then_some(())) })
        .await?;
    first.go_away();
    let uid = cluster.join(2).await?;
    cluster.is_complete(2, &uid).await?;
    cluster.becomes("node-0", "is still known", exists).await?;
    daemon.stop().await
}
