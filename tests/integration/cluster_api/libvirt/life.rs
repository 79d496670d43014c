//! The life of a cluster on libvirt: guests of a deployment boot, run their bootstrap data and become Nodes, are scaled,
//! replaced, healed and deleted, by Cluster API's own managers and one daemon in both of its roles.

use std::{collections::BTreeSet, fs, sync::Arc};

use anyhow::{Context, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

use super::{
    LIMIT, PATIENCE, guests,
    hypervisor::{Hypervisor, ZONE},
};
use crate::{
    cluster_api::{
        installed::Installed,
        management::Management,
        objects::{Objects, condition, name, reference},
        workload::greeting,
    },
    machines::libvirt::sha256,
    shipped_roles,
    support::{addresses, eventually, label, node_vanishes, provider_id, tail},
    trial::{Outcome, runtime},
    vsphere::SOON,
};

const NAMESPACE: &str = "lab";

pub(super) fn whole() -> Outcome {
    let hypervisor = Arc::new(Hypervisor::start()?);
    let management = Management::start()?;
    let folder = TempDir::new().context("a folder")?;
    let control_plane = &management.control_plane;
    let installed = Installed::apply(control_plane, "libvirt", hypervisor.config())?;
    let log = folder.path().join("daemon.log");
    let daemon = installed.start(control_plane, &SOON, &log)?;
    let outcome = runtime(false)?.block_on(async {
        let objects = management.namespace(NAMESPACE).await?.on("Libvirt", PATIENCE);
        let life = Life { objects, management: &management, hypervisor };
        timeout(LIMIT, life.whole()).await.with_context(|| format!("not done within {LIMIT:?}"))?
    });
    outcome
        .with_context(|| format!("the managers said: {}", management.words_about(NAMESPACE)))
        .with_context(|| format!("the daemon said: {}", tail(&daemon.log())))?;
    daemon.terminate()?;
    Ok(management.nothing_was_refused(shipped_roles::USER)?)
}

struct Life<'m> {
    objects: Objects,
    management: &'m Management,
    hypervisor: Arc<Hypervisor>,
}

impl Life<'_> {
    async fn whole(&self) -> anyhow::Result<()> {
        let Self { objects, hypervisor, .. } = self;
        let _guests = guests::start(&objects.client, hypervisor);
        let began = Instant::now();
        let told = |what: &str| println!("{what} after {:.1?}", began.elapsed());

        objects.apply_cluster("prod", &self.management.control_plane, json!({"spec": {}})).await?;
        objects.apply_template("small", &hypervisor.machine(160)?).await?;
        objects.apply_workers("prod", "workers", 3, "small").await?;
        let first = self.running(3).await?;
        told("three machines run");

        objects.merge("MachineDeployment", "workers", json!({"spec": {"replicas": 1}})).await?;
        let left = self.running(1).await?;
        ensure!(left.is_subset(&first), "{left:?} of {first:?}");
        for gone in first.difference(&left) {
            node_vanishes(&objects.client, gone, PATIENCE).await?;
        }
        told("one of them is left");

        // Another template: a machine of it comes first, and the old one goes then.
        objects.apply_template("big", &hypervisor.machine(192)?).await?;
        let template = json!({"spec": {"infrastructureRef": reference("LibvirtMachineTemplate", "big")}});
        objects.merge("MachineDeployment", "workers", json!({"spec": {"template": template}})).await?;
        objects
            .all_become("LibvirtMachine", "all of the new template", |all| {
                all.iter().all(|one| one["spec"]["memoryMiB"] == 192) && all.len() == 1
            })
            .await?;
        let rolled = self.running(1).await?;
        ensure!(rolled.is_disjoint(&left), "{rolled:?} after {left:?}");
        told("one of another template runs");

        let healed = self.heal(&rolled).await?;
        told("a lost one is replaced");

        objects.delete("Cluster", "prod").await?;
        objects.vanishes("Cluster", "prod").await?;
        objects.none_are_left(&["LibvirtMachine", "LibvirtCluster"]).await?;
        hypervisor.is_empty()?;
        for name in healed {
            node_vanishes(&objects.client, &name, PATIENCE).await?;
        }
        told("everything is gone");
        Ok(())
    }

    /// Waits until this many machines run, and checks everything about them. Returns their names.
    async fn running(&self, count: usize) -> anyhow::Result<BTreeSet<String>> {
        let all = self.objects.machines_run(count).await?;
        let names = all.keys().cloned().collect();
        self.hypervisor.runs(&names)?;
        for (name, machine) in &all {
            self.check(machine).await.with_context(|| name.clone())?;
        }
        Ok(names)
    }

    /// What a machine is on libvirt, as an object of the provider, as a Machine of the core, and as a Node.
    async fn check(&self, machine: &Value) -> anyhow::Result<()> {
        let name = name(machine);
        let domain = self.hypervisor.domains()?.remove(name).context("no domain")?;
        // A second address may have come since.
        let what = format!("{name} has the addresses of its LibvirtMachine");
        let (machine, infra) = &eventually(PATIENCE, &what, || async {
            let infra = self.objects.get("LibvirtMachine", name).await?;
            let machine = self.objects.get("Machine", name).await?;
            Ok(machine
                .zip(infra)
                .filter(|(one, other)| one["status"]["addresses"] == other["status"]["addresses"]))
        })
        .await?;
        let id = format!("libvirt:///{}", domain.uuid);
        ensure!(infra["spec"]["providerID"] == id.as_str(), "{infra}");
        ensure!(machine["spec"]["providerID"] == id.as_str(), "{machine}");
        ensure!(machine["status"]["failureDomain"] == ZONE, "{machine}");
        ensure!(machine["status"]["nodeRef"]["name"] == name, "{machine}");

        let node = self.objects.node_of(name).await?;
        ensure!(provider_id(&node) == Some(id), "{node:?}");
        ensure!(system_uuid(&node) == Some(domain.uuid.as_str()), "{node:?}");
        ensure!(label(&node, "topology.kubernetes.io/zone") == Some(ZONE), "{node:?}");
        let addresses = addresses(&node);
        let internal =
            addresses.iter().find_map(|one| one.strip_prefix("InternalIP ")).context("an address")?;
        ensure!(self.hypervisor.has_leased(internal)?, "{internal} is not leased");
        let of_machine = machine["status"]["addresses"].to_string();
        ensure!(of_machine.contains(&format!("{internal:?}")), "{internal} is not in {of_machine}");

        let printed = self.hypervisor.consoles()?.remove(&domain.uuid).context("no console log")?;
        ensure!(printed.contains(&greeting(name)), "{printed}");
        let sum = self.sum_of_bootstrap_data(machine).await?;
        ensure!(printed.contains(&format!("GUEST user-data SHA-256 {sum}")), "{sum} is not in {printed}");
        Ok(())
    }

    /// The checksum of what the bootstrap manager made for a machine.
    async fn sum_of_bootstrap_data(&self, machine: &Value) -> anyhow::Result<String> {
        let secret = machine["spec"]["bootstrap"]["dataSecretName"].as_str().context("bootstrap data")?;
        let secret = self.objects.get("Secret", secret).await?.context("no Secret")?;
        let data = BASE64_STANDARD.decode(secret["data"]["value"].as_str().context("a value")?)?;
        let file = tempfile::NamedTempFile::new()?;
        fs::write(file.path(), data)?;
        Ok(sha256(file.path())?.trim_start_matches("sha256:").to_owned())
    }

    /// A domain is undefined by hand. Its machine says so and is not made again, and a health check replaces it.
    async fn heal(&self, before: &BTreeSet<String>) -> anyhow::Result<BTreeSet<String>> {
        let objects = &self.objects;
        for name in before {
            self.hypervisor.undefine(name)?;
            objects
                .becomes("Machine", name, "is lost", |machine| {
                    condition(machine, "InfrastructureReady")["reason"] == "MachineLost"
                })
                .await?;
        }
        ensure!(self.hypervisor.domains()?.is_empty(), "{:?}", self.hypervisor.domains()?);
        // The Node is gone too, which counts at once. The condition is also false while a machine is being made.
        let spec = json!({
            "clusterName": "prod",
            "selector": {"matchLabels": {"cluster.x-k8s.io/deployment-name": "workers"}},
            "checks": {
                "nodeStartupTimeoutSeconds": 0,
                "unhealthyMachineConditions": [
                    {"type": "InfrastructureReady", "status": "False", "timeoutSeconds": 600},
                ],
            },
        });
        objects.apply("MachineHealthCheck", "workers", json!({"spec": spec})).await?;
        for name in before {
            objects.vanishes("Machine", name).await?;
            node_vanishes(&objects.client, name, PATIENCE).await?;
        }
        let after = self.running(1).await?;
        ensure!(after.is_disjoint(before), "{after:?} after {before:?}");
        Ok(after)
    }
}

fn system_uuid(node: &Node) -> Option<&str> {
    Some(node.status.as_ref()?.node_info.as_ref()?.system_uuid.as_str())
}
