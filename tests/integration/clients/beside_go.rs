//! The first step of a migration: a dry run beside a working Go cloud-controller-manager.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::{Context, ensure};
use futures::FutureExt;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use sandbox::kubelet;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_env::FrameworkCcm;
use tokio::time::sleep;

use super::allow;
use crate::{
    api::Api,
    daemon::{DaemonProcess, binary},
    hypervisors::{name, test_driver_file},
    scenarios::Trials,
    support::*,
};

const LIMIT: Duration = Duration::from_secs(60);

/// The two daemons agree about the first Node and differ about the second one.
const SAME: usize = 1;
const DIFFERENT: usize = 2;

pub(crate) fn trials() -> Trials {
    Trials::new().api_server("clients::a_dry_run_beside_the_go_ccm", scenario)
}

async fn scenario(api: &Api) -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let states = initialized_by_us(api, &folder).boxed_local().await?;
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let instances: serde_json::Map<String, Value> =
        states.into_iter().map(|(number, state)| (name(number), state)).collect();
    let cloud = json!({"instances": instances}).to_string();
    let go = FrameworkCcm::start(control_plane.kubeconfig(), &cloud, &["--node-status-update-frequency=1s"])?;
    beside(api, &folder, &go).boxed_local().await
}

fn arguments(folder: &TempDir, kubeconfig: &std::path::Path) -> Vec<String> {
    vec![
        "--cloud-provider=libvirt".to_owned(),
        format!("--cloud-config={}", folder.path().join("cloud.yaml").display()),
        format!("--kubeconfig={}", kubeconfig.display()),
        "--node-status-update-frequency=1s".to_owned(),
        "--node-monitor-period=1s".to_owned(),
    ]
}

/// Our fields of two Nodes, in the format of the Go daemon's cloud. That cloud has other values for the
/// second Node.
async fn initialized_by_us(api: &Api, folder: &TempDir) -> anyhow::Result<BTreeMap<usize, Value>> {
    binary()?;
    let machines = folder.path().join("machines.xml");
    fs::write(&machines, test_driver_file([SAME, DIFFERENT].into_iter())?)?;
    fs::write(
        folder.path().join("cloud.yaml"),
        format!(
            "hypervisors:\n- {{name: kvm1, uri: 'test://{}', zone: by-us, region: lab}}\n",
            machines.display()
        ),
    )?;
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let first =
        DaemonProcess::start(&arguments(folder, control_plane.kubeconfig()), &folder.path().join("first"))?;
    let mut states = BTreeMap::new();
    for number in [SAME, DIFFERENT] {
        kubelet::register(&api.client, &kubelet::node(&name(number), &uuid(number))).await?;
        kubelet::heartbeat(&api.client, &name(number), true).await?;
        let node = node_becomes(&api.client, &name(number), LIMIT, "initialized", is_initialized).await?;
        let zone = if number == SAME { "by-us" } else { "by-go" };
        let mut addresses = json!(node.status.as_ref().and_then(|status| status.addresses.clone()));
        if number == DIFFERENT {
            addresses = json!([{"type": "InternalIP", "address": "192.0.2.1"}, {"type": "Hostname", "address": name(number)}]);
        }
        let state = json!({
            "providerID": provider_id(&node),
            "type": label(&node, "node.kubernetes.io/instance-type"),
            "zone": zone,
            "region": "lab",
            "addresses": addresses,
        });
        states.insert(number, state);
    }
    first.terminate()?;
    // The Go daemon labels Nodes only when it initialises them.
    delete_and_register_again(api, DIFFERENT).await?;
    Ok(states)
}

async fn delete_and_register_again(api: &Api, number: usize) -> anyhow::Result<()> {
    crate::api::delete_node(&api.client, &name(number)).await?;
    kubelet::register(&api.client, &kubelet::node(&name(number), &uuid(number))).await?;
    kubelet::heartbeat(&api.client, &name(number), true).await?;
    Ok(())
}

async fn beside(api: &Api, folder: &TempDir, go: &FrameworkCcm) -> anyhow::Result<()> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let lease = || async {
        let leases = kube::Api::<Lease>::namespaced(api.client.clone(), "kube-system");
        let spec = leases.get("cloud-controller-manager").await?.spec.unwrap_or_default();
        anyhow::Ok((spec.holder_identity.unwrap_or_default(), spec.lease_transitions))
    };
    // Its addresses come after its labels.
    let by_go = |node: &Node| {
        label(node, "topology.kubernetes.io/zone") == Some("by-go")
            && addresses(node).first().is_some_and(|first| first == "InternalIP 192.0.2.1")
    };
    node_becomes(&api.client, &name(DIFFERENT), LIMIT, "initialized by the Go one", by_go)
        .await
        .with_context(|| go.log())?;
    let held = lease().await?;
    let before = versions(api).await?;

    let user = "only-looks";
    allow(&api.client, user, "- {apiGroups: [\"\"], resources: [nodes], verbs: [get, list, watch]}").await?;
    let mut arguments = arguments(folder, &control_plane.kubeconfig_for(user, &[])?);
    arguments.push("--dry-run".to_owned());
    let ours = DaemonProcess::start(&arguments, &folder.path().join("dry"))?;
    let said = || -> Vec<String> {
        ours.log().lines().filter(|line| line.contains("would write")).map(str::to_owned).collect()
    };
    eventually(LIMIT, "it says where the two differ", || async {
        let said = said();
        let has = |what: &str| said.iter().any(|line| line.contains(what));
        Ok((has("topology.kubernetes.io/zone") && has("nodes/status")).then_some(()))
    })
    .await
    .with_context(|| ours.log())?;
    sleep(Duration::from_secs(10)).await;
    let nodes_said: Vec<String> = said().into_iter().filter(|line| !line.contains("events")).collect();
    println!("{}", nodes_said.join("\n"));
    ensure!(nodes_said.len() == 2, "labels and addresses, once each: {nodes_said:#?}");
    ensure!(nodes_said.iter().all(|line| line.contains(&name(DIFFERENT))), "{nodes_said:#?}");
    ensure!(!ours.log().contains("forbidden"), "{}", ours.log());
    ensure!(versions(api).await? == before, "nobody writes");
    ensure!(lease().await? == held, "the Go one leads");
    ours.terminate()
}

/// The Nodes' resource versions. No kubelet runs that would change them.
async fn versions(api: &Api) -> anyhow::Result<BTreeMap<String, Option<String>>> {
    let list = nodes(&api.client).list(&kube::api::ListParams::default()).await?;
    Ok(list
        .items
        .into_iter()
        .map(|node| (node.metadata.name.unwrap_or_default(), node.metadata.resource_version))
        .collect())
}
