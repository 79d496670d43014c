//! A machine whose Node is unhealthy is rebooted, and replaced if that does not help: by our health checks and `MachineSet`s, on libvirt's
//! test driver.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{
    life::{FLAGS, TestDriver, kubelets, machine},
    site::Site,
};
use crate::{
    cluster_api::{
        life::Life,
        objects::{Objects, condition, is, name},
    },
    daemon::InProcess,
    support::nodes,
    trial::Outcome,
};

const NAMESPACE: &str = "lifecycle";

/// So long that a machine that heals heals in time, however slow the test is.
const HOUR: u32 = 3600;

/// The fewest that are allowed.
const FEWEST: u32 = 10;

pub(super) fn rebooted() -> Outcome {
    let driver = TestDriver::new()?;
    Site::run(&*driver.provider, "Libvirt", NAMESPACE, async |site, objects| {
        story(site, objects, &driver).await
    })
}

async fn story(site: &Site, objects: &Objects, driver: &TestDriver) -> Result<()> {
    let hypervisors = InProcess::start(&objects.client, Arc::clone(&driver.provider) as _, &FLAGS)?;
    let lifecycle = site.start().await?;
    let _kubelets = kubelets(objects);
    objects.apply_cluster("prod", &site.control_plane, json!({"spec": {}})).await?;
    let life = Life::new(objects, driver);
    let first = life.begins(1, &machine(64)).await?;
    let one = first.first().context("a machine")?;
    is_watched(objects, HOUR).await?;

    // The reboot helps.
    set_ready(objects, one, "False").await?;
    let waits = |one: &Value| one["status"]["phase"] == "Waiting" && is(one, "Rebooted", "True");
    let remediation = objects.becomes("RebootRemediation", one, "waits for the Node", waits).await?;
    ensure!(remediation["status"]["retryCount"] == 1, "{remediation}");
    set_ready(objects, one, "True").await?;
    objects.vanishes("RebootRemediation", one).await?;
    let healed = objects.get("Machine", one).await?.context("it stays")?;
    ensure!(condition(&healed, "OwnerRemediated").is_null(), "{healed}");
    ensure!(life.running(1).await? == first, "it is the same machine");
    life.note("a reboot has healed a machine");

    // It does not help: the MachineSet replaces the Machine.
    is_watched(objects, FEWEST).await?;
    set_ready(objects, one, "False").await?;
    let twice = |one: &Value| one["status"]["retryCount"] == 2;
    objects.becomes("RebootRemediation", one, "is rebooted twice", twice).await?;
    objects.vanishes("Machine", one).await?;
    let second = life.running(1).await?;
    ensure!(second.is_disjoint(&first), "{second:?} after {first:?}");
    // Nothing collects the garbage here.
    objects.delete("RebootRemediation", one).await?;
    life.note("reboots have not healed a machine, and it is replaced");

    objects.delete("MachineHealthCheck", "workers").await?;
    life.ends(&["LibvirtMachine", "LibvirtCluster", "RebootRemediation"], &second).await?;
    lifecycle.process.terminate()?;
    hypervisors.stop().await
}

/// A health check with reboots, after each of which a Node has so many seconds.
async fn is_watched(objects: &Objects, seconds: u32) -> Result<()> {
    let template = json!({"spec": {"template": {"spec": {"retryLimit": 2, "timeoutSeconds": seconds}}}});
    objects.apply("RebootRemediationTemplate", "reboot", template).await?;
    let spec = json!({
        "clusterName": "prod",
        "selector": {"matchLabels": {"cluster.x-k8s.io/deployment-name": "workers"}},
        "checks": {
            "nodeStartupTimeoutSeconds": 0,
            "unhealthyNodeConditions": [{"type": "Ready", "status": "False", "timeoutSeconds": 0}],
        },
        "remediation": {"templateRef": {
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "RebootRemediationTemplate",
            "name": "reboot",
        }},
    });
    objects.apply("MachineHealthCheck", "workers", json!({"spec": spec})).await.map(drop)
}

/// What the kubelet of a machine says of its Node.
async fn set_ready(objects: &Objects, machine: &str, status: &str) -> Result<()> {
    let machine = objects.get("Machine", machine).await?.context("a Machine")?;
    let node = machine["status"]["nodeRef"]["name"].as_str().unwrap_or_else(|| name(&machine)).to_owned();
    let condition = json!({
        "type": "Ready", "status": status, "reason": "Test", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    nodes(&objects.client).patch_status(&node, &PatchParams::default(), &patch).await?;
    Ok(())
}
