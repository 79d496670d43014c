//! Machines that fail are rebooted, or replaced.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::{LIMIT, world::World};
use crate::{
    cluster_api::{
        libvirt::hypervisor::Hypervisor,
        life::Life,
        objects::{Objects, is},
    },
    support::{condition_status, node_becomes},
};

/// The label of the one machine that a health check is about: on a busy machine the kubelets of others may be late too.
const WATCHED: &str = "watched";

/// A kubelet that does not answer any more comes back by a reset of its machine.
pub(super) async fn one_is_rebooted(
    world: &World,
    life: &Life<'_, Hypervisor>,
    machines: &BTreeSet<String>,
) -> Result<()> {
    let objects = life.objects;
    let ill = machines.first().context("a machine")?;
    let before = objects.get("Machine", ill).await?.context("a Machine")?;
    let boot = boot_id(&objects.node_of(ill).await?);
    world.hypervisor.run_in(ill, "/bin/busybox", &["killall", "-STOP", "kubelet"])?;
    is_silent(objects, ill).await?;

    // So long that the Node is back in time, however slow the test is
    let template = json!({"spec": {"template": {"spec": {"retryLimit": 1, "timeoutSeconds": 3600}}}});
    objects.apply("RebootRemediationTemplate", "reboot", template).await?;
    let remediation = json!({"templateRef": {
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "RebootRemediationTemplate",
        "name": "reboot",
    }});
    is_watched(objects, ill, Some(remediation)).await?;
    let is_rebooted = |one: &Value| is(one, "Rebooted", "True") && one["status"]["retryCount"] == 1;
    objects.becomes("RebootRemediation", ill, "has made its reboot", is_rebooted).await?;
    let is_back =
        |node: &Node| condition_status(node, "Ready").as_deref() == Some("True") && boot_id(node) != boot;
    node_becomes(&objects.client, ill, LIMIT, "ready after another boot", is_back).await?;
    objects.vanishes("RebootRemediation", ill).await?;
    // The health check writes what it finds after that, and nothing else writes it.
    let is_healthy = |one: &Value| is(one, "HealthCheckSucceeded", "True");
    objects.becomes("Machine", ill, "is healthy", is_healthy).await?;
    is_not_watched(objects, ill).await?;
    ensure!(life.running(machines.len()).await? == *machines, "they are the same");
    let after = objects.get("Machine", ill).await?.context("a Machine")?;
    ensure!(after["metadata"]["uid"] == before["metadata"]["uid"], "{after}, before {before}");
    life.note("a reset has brought a kubelet back");
    Ok(())
}

/// A guest that is off stays off, and its Machine is replaced.
pub(super) async fn one_is_lost(
    world: &World,
    life: &Life<'_, Hypervisor>,
    machines: &BTreeSet<String>,
) -> Result<BTreeSet<String>> {
    let objects = life.objects;
    let lost = machines.first().context("a machine")?;
    world.hypervisor.destroy(lost)?;
    is_silent(objects, lost).await?;
    is_watched(objects, lost, None).await?;
    let after = life.is_healed(machines, &BTreeSet::from([lost.clone()])).await?;
    objects.delete("MachineHealthCheck", "watched").await?;
    Ok(after)
}

/// kube-controller-manager says so.
async fn is_silent(objects: &Objects, node: &str) -> Result<()> {
    let is_unknown = |node: &Node| condition_status(node, "Ready").as_deref() == Some("Unknown");
    node_becomes(&objects.client, node, LIMIT, "silent", is_unknown).await.map(drop)
}

/// A health check for this machine alone.
async fn is_watched(objects: &Objects, machine: &str, remediation: Option<Value>) -> Result<()> {
    objects.merge("Machine", machine, json!({"metadata": {"labels": {WATCHED: "yes"}}})).await?;
    let mut spec = json!({
        "clusterName": "prod",
        "selector": {"matchLabels": {WATCHED: "yes"}},
        "checks": {
            "nodeStartupTimeoutSeconds": 0,
            "unhealthyNodeConditions": [{"type": "Ready", "status": "Unknown", "timeoutSeconds": 0}],
        },
    });
    if let Some(remediation) = remediation {
        spec["remediation"] = remediation;
    }
    objects.apply("MachineHealthCheck", "watched", json!({"spec": spec})).await.map(drop)
}

async fn is_not_watched(objects: &Objects, machine: &str) -> Result<()> {
    objects.delete("MachineHealthCheck", "watched").await?;
    objects.merge("Machine", machine, json!({"metadata": {"labels": {WATCHED: null}}})).await
}

/// Another one after each boot of a Node.
fn boot_id(node: &Node) -> Option<String> {
    Some(node.status.as_ref()?.node_info.as_ref()?.boot_id.clone())
}
