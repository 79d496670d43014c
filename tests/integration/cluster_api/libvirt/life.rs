//! The life of a cluster on libvirt: guests of a deployment boot, run their bootstrap data and become Nodes, are scaled,
//! replaced, healed and deleted, by Cluster API's own managers and one daemon in both of its roles.

use std::{collections::BTreeSet, fs, sync::Arc};

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use test_env::ControlPlane;

use super::{
    PATIENCE, guests,
    hypervisor::{Hypervisor, ZONE},
};
use crate::{
    cluster_api::{
        installed::{beside_the_daemon, by_the_daemon_alone},
        life::{Infrastructure, Life},
        objects::{Objects, condition, name},
        workload::greeting,
    },
    machines::libvirt::sha256,
    support::{addresses, eventually, label, provider_id},
    trial::Outcome,
    vsphere::SOON,
};

pub(super) fn whole() -> Outcome {
    let hypervisor = Arc::new(Hypervisor::start()?);
    let story = async |api: &ControlPlane, objects: &Objects| life(api, objects, &hypervisor).await;
    beside_the_daemon("libvirt", "Libvirt", hypervisor.config(), &SOON, "lab", story)
}

/// The same without Cluster API's managers.
pub(super) fn whole_without_managers() -> Outcome {
    let hypervisor = Arc::new(Hypervisor::start()?);
    let story = async |api: &ControlPlane, objects: &Objects| life(api, objects, &hypervisor).await;
    by_the_daemon_alone("libvirt", "Libvirt", hypervisor.config(), &SOON, "lab", story)
}

async fn life(
    control_plane: &ControlPlane,
    objects: &Objects,
    hypervisor: &Arc<Hypervisor>,
) -> anyhow::Result<()> {
    let _guests = guests::start(&objects.client, hypervisor);
    let life = Life::new(objects, &**hypervisor);
    objects.apply_cluster("prod", control_plane, json!({"spec": {}})).await?;
    let first = life.begins(3, &hypervisor.machine(160)?).await?;
    life.note("three machines run");
    let left = life.is_scaled(&first, 1).await?;
    let rolled = life.is_rolled(&left, &hypervisor.machine(192)?, "memoryMiB").await?;

    // A domain is undefined by hand. Its machine says so and is not made again, and a health check replaces it.
    for name in &rolled {
        hypervisor.undefine(name)?;
        let is_lost = |machine: &Value| condition(machine, "InfrastructureReady")["reason"] == "MachineLost";
        objects.becomes("Machine", name, "is lost", is_lost).await?;
    }
    ensure!(hypervisor.domains()?.is_empty(), "{:?}", hypervisor.domains()?);
    life.is_watched().await?;
    let healed = life.is_healed(&rolled, &rolled).await?;
    life.ends(&["LibvirtMachine", "LibvirtCluster"], &healed).await
}

impl Infrastructure for Hypervisor {
    fn runs(&self, names: &BTreeSet<String>) -> anyhow::Result<()> {
        self.runs(names)
    }

    fn is_empty(&self) -> anyhow::Result<()> {
        self.is_empty()
    }

    async fn check(&self, objects: &Objects, machine: &Value) -> anyhow::Result<()> {
        let name = name(machine);
        let domain = self.domains()?.remove(name).context("no domain")?;
        // A second address may have come since.
        let what = format!("{name} has the addresses of its LibvirtMachine");
        let (machine, infra) = &eventually(PATIENCE, &what, || async {
            let infra = objects.get("LibvirtMachine", name).await?;
            let machine = objects.get("Machine", name).await?;
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

        let node = objects.node_of(name).await?;
        ensure!(provider_id(&node) == Some(id), "{node:?}");
        ensure!(system_uuid(&node) == Some(domain.uuid.as_str()), "{node:?}");
        ensure!(label(&node, "topology.kubernetes.io/zone") == Some(ZONE), "{node:?}");
        let addresses = addresses(&node);
        let internal =
            addresses.iter().find_map(|one| one.strip_prefix("InternalIP ")).context("an address")?;
        ensure!(self.has_leased(internal)?, "{internal} is not leased");
        let of_machine = machine["status"]["addresses"].to_string();
        ensure!(of_machine.contains(&format!("{internal:?}")), "{internal} is not in {of_machine}");

        let printed = self.consoles()?.remove(&domain.uuid).context("no console log")?;
        ensure!(printed.contains(&greeting(name)), "{printed}");
        let sum = sum_of_bootstrap_data(objects, machine).await?;
        ensure!(printed.contains(&format!("GUEST user-data SHA-256 {sum}")), "{sum} is not in {printed}");
        Ok(())
    }
}

/// The checksum of what the bootstrap manager made for a machine.
async fn sum_of_bootstrap_data(objects: &Objects, machine: &Value) -> anyhow::Result<String> {
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), objects.bootstrap_data(machine).await?)?;
    Ok(sha256(file.path())?.trim_start_matches("sha256:").to_owned())
}

fn system_uuid(node: &Node) -> Option<&str> {
    Some(node.status.as_ref()?.node_info.as_ref()?.system_uuid.as_str())
}
