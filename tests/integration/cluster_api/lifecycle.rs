//! The life of a cluster: machines of a deployment become Nodes, are scaled, replaced, healed and deleted, by
//! Cluster API's own managers and one daemon in both of its roles.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::{
    kubelets::{Kubelets, machines},
    life::{Infrastructure, Life},
    management::Management,
    objects::{Objects, is, name},
};
use crate::{
    daemon::InProcess,
    fake_cloud::FakeCloud,
    support::{eventually, provider_id},
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
    let (infrastructure, deployed) = (Cloud(cloud.clone()), async |count: usize| {
        let is_deployed =
            |one: &Value| is(one, "Available", "True") && one["status"]["availableReplicas"] == count;
        objects.becomes("MachineDeployment", "workers", "available", is_deployed).await
    });
    let life = Life::new(&objects, &infrastructure);
    let first = life.begins(3, &json!({"cpus": 2})).await?;
    deployed(3).await?;
    let left = life.is_scaled(&first, 1).await?;
    deployed(1).await?;
    let rolled = life.is_rolled(&left, &json!({"cpus": 4}), "cpus").await?;
    deployed(1).await?;

    // A machine vanishes behind our back. It is told, and a health check replaces it.
    life.is_watched().await?;
    let is_healthy = |check: &Value| check["status"]["currentHealthy"] == 1;
    objects.becomes("MachineHealthCheck", "workers", "sees a healthy machine", is_healthy).await?;
    for uid in machines(&cloud).into_keys() {
        cloud.remove(&uid);
    }
    let healed = life.is_healed(&rolled, &rolled).await?;
    deployed(1).await?;
    life.ends(&["FakeMachine", "FakeCluster"], &healed).await?;
    daemon.stop().await
}

/// The fake cloud, in whose first failure domain all machines are.
pub(crate) struct Cloud(pub(crate) FakeCloud);

impl Infrastructure for Cloud {
    fn runs(&self, names: &BTreeSet<String>) -> anyhow::Result<()> {
        let in_cloud: BTreeSet<_> = machines(&self.0).into_values().collect();
        ensure!(in_cloud == *names, "in the cloud {in_cloud:?}, wanted {names:?}");
        // each is an instance and a disk
        ensure!(self.0.objects().len() == 2 * names.len(), "{:?}", self.0.objects());
        Ok(())
    }

    fn is_empty(&self) -> anyhow::Result<()> {
        ensure!(self.0.objects().is_empty(), "left in the cloud: {:?}", self.0.objects());
        Ok(())
    }

    /// What the core copies from the machine of the provider, and what it does to the Node.
    async fn check(&self, objects: &Objects, machine: &Value) -> anyhow::Result<()> {
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
}
