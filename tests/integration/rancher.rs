//! The Rancher provider. With Rancher 1.6, which cannot run any more, the server is a fake in the process.

#[path = "../../providers/rancher/tests/testing/mod.rs"]
#[allow(dead_code, reason = "the provider's own tests use the rest")]
mod fake_cattle;
mod harvester;
mod management;
mod reload;
mod services;

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use cloudprovider::FactoryInput;
use cloudprovider_rancher::{Config, Environment, RancherProvider};
use sandbox::kubelet;
use serde_json::json;

use self::fake_cattle::{FakeCattle, Fault};
use crate::{api::Api, daemon::InProcess, scenarios::Trials, support::*};

const LIMIT: Duration = Duration::from_secs(60);

/// Flags for quick deletions.
const SOON: [&str; 3] =
    ["--node-monitor-period=500ms", "--node-deletion-grace-period=1s", "--node-deletion-minimum-age=0s"];

pub(crate) fn trials() -> Trials {
    // The servers of Rancher use real connections.
    Trials::in_real_time()
        .sandbox("rancher::a_node_lives_and_dies_with_its_host", life)
        .sandbox("rancher::services_have_load_balancers", services::life)
        .sandbox("rancher::a_server_in_trouble_loses_no_load_balancer", services::trouble)
        .sandbox("rancher::url_and_key_are_followed", reload::reload)
        .and(harvester::trials())
        .and(management::trials())
}

async fn life(api: &Api) -> anyhow::Result<()> {
    let server = FakeCattle::start().await;
    let mut ids = Vec::new();
    for number in 0..3 {
        let id = server.add_host(&format!("node-{number}.example.org"), &format!("10.0.0.{number}"));
        server.change_host(&id, json!({"labels": {"topology.kubernetes.io/zone": "rack-1"}}));
        ids.push(id);
    }
    let config = Config::read(&FactoryInput::new(server.config("")), &Environment::default())?;
    let provider = Arc::new(RancherProvider::new(&config)?);
    let daemon = InProcess::start(&api.daemon_client, provider, &SOON)?;
    for number in 0..3 {
        let name = format!("node-{number}");
        kubelet::register(&api.client, &kubelet::node(&name, &uuid(number))).await?;
    }
    for (number, id) in ids.iter().enumerate() {
        let name = format!("node-{number}");
        let node = node_becomes(&api.client, &name, LIMIT, "initialized", is_initialized).await?;
        let host = server.cloud().objects[&("host", id.clone())]["uuid"].clone();
        ensure!(provider_id(&node) == host.as_str().map(|uuid| format!("rancher://{uuid}")));
        ensure!(label(&node, "topology.kubernetes.io/zone") == Some("rack-1"));
        ensure!(label(&node, "node.kubernetes.io/instance-type") == Some("rancher"));
        ensure!(addresses(&node).contains(&format!("InternalIP 10.0.0.{number}")), "{:?}", addresses(&node));
    }

    // A host that is deactivated counts as shut down.
    set_ready_unknown(&api.client, "node-1").await?;
    server.change_host(&ids[1], json!({"state": "inactive"}));
    node_becomes(&api.client, "node-1", LIMIT, "shut down", |node| has_taint(node, SHUTDOWN)).await?;
    server.change_host(&ids[1], json!({"state": "active"}));
    // As with upstream, the taint is removed with the kubelet's first report.
    kubelet::heartbeat(&api.client, "node-1", true).await?;
    node_becomes(&api.client, "node-1", LIMIT, "on again", |node| !has_taint(node, SHUTDOWN)).await?;

    // Nothing that the server says in trouble deletes a Node, and neither does its silence.
    set_ready_unknown(&api.client, "node-2").await?;
    for fault in [Fault::error(401, "Unauthorized"), Fault::login_page(), Fault::error(404, "NotFound")] {
        server.set_fault(Some(fault));
        node_stays(&api.client, "node-2", Duration::from_secs(3)).await?;
    }
    server.set_fault(None);
    server.go_away();
    let doubt = |node: &_| {
        condition(node, "CloudProviderInstanceExists").is_some_and(|(status, _, _)| status == "Unknown")
    };
    node_becomes(&api.client, "node-2", LIMIT, "says that it cannot tell", doubt).await?;
    node_stays(&api.client, "node-2", Duration::from_secs(3)).await?;

    // The host is removed meanwhile: the Node goes when the server is back and says so.
    server.remove_host(&ids[2]);
    server.come_back();
    node_vanishes(&api.client, "node-2", LIMIT).await?;
    node_stays(&api.client, "node-0", Duration::from_secs(1)).await?;
    daemon.stop().await
}
