//! The life of a cluster: machines of a deployment become Nodes, are scaled, replaced, healed and deleted, by
//! Cluster API's own managers and one daemon in both of its roles.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::{
    kubelets::{Kubelets, machines},
    management::Management,
    objects::{Objects, is, name, reference},
};
use crate::{
    daemon::InProcess,
    fake_cloud::FakeCloud,
    support::{eventually, is_initialized, node_becomes, node_vanishes, provider_id},
};

const NAMESPACE: &str = "life";

/// Both roles of the daemon, with short times.
const FLAGS: [&str; 5] = [
    "--controllers=cloud-node-controller,cloud-node-lifecycle-controller,machine-controller",
    "--namespace=life",
    "--node-monitor-period=500ms",
    "--node-deletion-grace-period=1s",
    "--node-deletion-minimum-age=0s",
];

/// How long a Node may take that the managers have to do something about.
const SOON: Duration = Duration::from_secs(60);

pub(super) async fn life(management: &Management) -> anyhow::Result<()> {
    let objects = management.namespace(NAMESPACE).await?;
    let cloud = FakeCloud::new().with_machines();
    cloud.set_task_time(Duration::from_millis(300));
    cloud.set_address_time(Duration::from_millis(300));
    let daemon = InProcess::start(&objects.client, cloud.provider(), &FLAGS)?;
    let _kubelets = Kubelets::start(&objects.client, &cloud);

    let domains = json!({"spec": {"failureDomains": ["rack-a", "rack-b"]}});
    objects.apply_cluster("prod", &management.control_plane, domains).await?;
    objects.apply_template("small", &json!({"cpus": 2})).await?;
    objects.apply_workers("prod", "workers", 3, "small").await?;
    let first = running(&objects, &cloud, 3).await?;

    objects.merge("MachineDeployment", "workers", json!({"spec": {"replicas": 1}})).await?;
    let left = running(&objects, &cloud, 1).await?;
    ensure!(left.is_subset(&first), "{left:?} of {first:?}");
    for gone in first.difference(&left) {
        node_vanishes(&objects.client, gone, SOON).await?;
    }

    // Another template: a machine of it comes first, and the old one goes then.
    objects.apply_template("big", &json!({"cpus": 4})).await?;
    let template = json!({"spec": {"infrastructureRef": reference("FakeMachineTemplate", "big")}});
    objects.merge("MachineDeployment", "workers", json!({"spec": {"template": template}})).await?;
    objects
        .all_become("FakeMachine", "all of the new template", |all| {
            all.iter().all(|one| one["spec"]["cpus"] == 4) && all.len() == 1
        })
        .await?;
    let rolled = running(&objects, &cloud, 1).await?;
    ensure!(rolled.is_disjoint(&left), "{rolled:?} after {left:?}");

    let healed = heal(&objects, &cloud, &rolled).await?;

    objects.delete("Cluster", "prod").await?;
    objects.vanishes("Cluster", "prod").await?;
    for kind in ["MachineDeployment", "MachineSet", "Machine", "KubeadmConfig", "FakeMachine", "FakeCluster"]
    {
        let left = objects.list(kind).await?;
        ensure!(left.is_empty(), "{kind}: {left:?}");
    }
    ensure!(cloud.objects().is_empty(), "left in the cloud: {:?}", cloud.objects());
    for name in healed {
        // The core leaves the Nodes of a cluster that goes away as a whole. The lifecycle controller does not.
        node_vanishes(&objects.client, &name, SOON).await?;
    }
    daemon.stop().await
}

/// Waits until this many machines run, and checks everything about them. Returns their names.
async fn running(objects: &Objects, cloud: &FakeCloud, count: usize) -> anyhow::Result<BTreeSet<String>> {
    let all = objects
        .all_become("Machine", &format!("{count} are running"), |all| {
            let run = |one: &Value| one["status"]["phase"] == "Running" && is(one, "Available", "True");
            all.len() == count && all.iter().all(run)
        })
        .await?;
    for machine in &all {
        check(objects, machine).await?;
    }
    objects
        .becomes("MachineDeployment", "workers", "available", |one| {
            is(one, "Available", "True") && one["status"]["availableReplicas"] == count
        })
        .await?;
    let names: BTreeSet<_> = all.iter().map(|machine| name(machine).to_owned()).collect();
    let in_cloud: BTreeSet<_> = machines(cloud).into_values().collect();
    ensure!(in_cloud == names, "in the cloud {in_cloud:?}, wanted {names:?}");
    // each is an instance and a disk
    ensure!(cloud.objects().len() == 2 * count, "{:?}", cloud.objects());
    Ok(names)
}

/// What the core copies from the machine of the provider, and what it does to the Node.
async fn check(objects: &Objects, machine: &Value) -> anyhow::Result<()> {
    let name = name(machine);
    // The core may have read the object before its last address came.
    let what = format!("{name} has the addresses of its FakeMachine");
    let (machine, infra) = &eventually(SOON, &what, || async {
        let infra = objects.get("FakeMachine", name).await?;
        let machine = objects.get("Machine", name).await?;
        Ok(machine
            .zip(infra)
            .filter(|(one, other)| one["status"]["addresses"] == other["status"]["addresses"]))
    })
    .await?;
    let id = machine["spec"]["providerID"].as_str().context("a provider ID")?;
    ensure!(infra["spec"]["providerID"] == id, "{infra}");
    ensure!(machine["status"]["failureDomain"] == "rack-a", "{machine}");
    ensure!(machine["status"]["nodeRef"]["name"] == name, "{machine}");
    let node = objects.node_of(name).await?;
    ensure!(provider_id(&node).as_deref() == Some(id), "{node:?}");
    Ok(())
}

/// A machine vanishes behind our back. It is told, and a health check replaces it.
async fn heal(
    objects: &Objects,
    cloud: &FakeCloud,
    before: &BTreeSet<String>,
) -> anyhow::Result<BTreeSet<String>> {
    let spec = json!({
        "clusterName": "prod",
        "selector": {"matchLabels": {"cluster.x-k8s.io/deployment-name": "workers"}},
        "checks": {
            "nodeStartupTimeoutSeconds": 0,
            // The Node of a lost machine is gone too, which counts at once. The condition is also false while a machine is being made.
            "unhealthyMachineConditions": [{"type": "InfrastructureReady", "status": "False", "timeoutSeconds": 600}],
        },
    });
    objects.apply("MachineHealthCheck", "workers", json!({"spec": spec})).await?;
    objects
        .becomes("MachineHealthCheck", "workers", "sees a healthy machine", |check| {
            check["status"]["currentHealthy"] == 1
        })
        .await?;
    for uid in machines(cloud).into_keys() {
        cloud.remove(&uid);
    }
    for name in before {
        objects.vanishes("Machine", name).await?;
        node_vanishes(&objects.client, name, SOON).await?;
    }
    let after = running(objects, cloud, 1).await?;
    ensure!(after.is_disjoint(before), "{after:?} after {before:?}");
    for name in &after {
        node_becomes(&objects.client, name, SOON, "initialized", is_initialized).await?;
    }
    Ok(after)
}
