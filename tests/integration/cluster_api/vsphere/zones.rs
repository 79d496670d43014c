//! Failure domains: two deployments, each in a cluster of hosts of its own.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::datacenter::Datacenter;
use crate::cluster_api::objects::{Objects, is, name};

/// How many machines the deployments have together.
pub(super) const MANY: usize = 4;

/// The failure domains, each with its cluster of hosts.
const ALL: [(&str, &str); 2] = [("east-1", "DC0_C0"), ("east-2", "DC0_C1")];

const REGION: &str = "k8s-region";
const ZONE: &str = "k8s-zone";

/// Lets the cluster have two failure domains, and applies a deployment in each.
pub(super) async fn apply(objects: &Objects, datacenter: &Datacenter) -> anyhow::Result<()> {
    datacenter.vcsim.attach_tag(REGION, "east", "Datacenter", "DC0")?;
    for (zone, cluster) in ALL {
        datacenter.vcsim.attach_tag(ZONE, zone, "ClusterComputeResource", cluster)?;
        let domain = json!({
            "region": {"name": "east", "type": "Datacenter", "tagCategory": REGION},
            "zone": {"name": zone, "type": "ComputeCluster", "tagCategory": ZONE},
            "topology": {"datacenter": "DC0", "computeCluster": cluster, "networks": ["VM Network"]},
        });
        objects.apply("VSphereFailureDomain", zone, json!({"spec": domain})).await?;
        let spec = json!({
            "server": datacenter.cluster()["server"],
            "failureDomain": zone,
            "controlPlane": zone == "east-1",
            "placementConstraint": {"resourcePool": format!("{cluster}/Resources")},
        });
        let zone_object = json!({"metadata": {"labels": {"site": "east"}}, "spec": spec});
        objects.apply("VSphereDeploymentZone", zone, zone_object).await?;
    }
    let selector = json!({"spec": {"failureDomainSelector": {"matchLabels": {"site": "east"}}}});
    objects.merge("VSphereCluster", "prod", selector).await?;
    let has_both = |one: &Value| domains(one).len() == ALL.len();
    let infra = objects.becomes("VSphereCluster", "prod", "has failure domains", has_both).await?;
    ensure!(is(&infra, "FailureDomainsReady", "True"), "{infra}");
    let core = objects.becomes("Cluster", "prod", "has failure domains", has_both).await?;
    ensure!(domains(&core) == domains(&infra), "{core} of {infra}");
    ensure!(domains(&core) == [("east-1", true), ("east-2", false)], "{core}");
    for (zone, _) in ALL {
        let is_ready = |one: &Value| one["status"]["ready"] == true && is(one, "Ready", "True");
        objects.becomes("VSphereDeploymentZone", zone, "is ready", is_ready).await?;
        objects.apply_workers_in(Some(zone), "prod", zone, MANY / ALL.len(), "big").await?;
    }
    Ok(())
}

/// The failure domains of a cluster, and whether they are for its control plane.
fn domains(cluster: &Value) -> Vec<(&str, bool)> {
    let all = cluster["status"]["failureDomains"].as_array();
    all.into_iter().flatten().map(|one| (name_of(one), one["controlPlane"] == true)).collect()
}

fn name_of(domain: &Value) -> &str {
    domain["name"].as_str().unwrap_or_default()
}

/// That each machine is where its failure domain is, and says so.
pub(super) async fn check(objects: &Objects, datacenter: &Datacenter) -> anyhow::Result<()> {
    let machines = datacenter.machines()?;
    let mut count = 0;
    for machine in objects.list("Machine").await? {
        let Some(zone) = machine["spec"]["failureDomain"].as_str() else { continue };
        let (_, cluster) = ALL.into_iter().find(|(one, _)| *one == zone).context("no such failure domain")?;
        let vm = machines.get(name(&machine)).context("no virtual machine")?;
        ensure!(vm.cluster == cluster, "{vm:?} in {zone}");
        let infra = objects.get("VSphereMachine", name(&machine)).await?.context("no VSphereMachine")?;
        ensure!(infra["status"]["failureDomain"] == zone, "{infra}");
        let companion = objects.get("VSphereVM", name(&machine)).await?.context("no VSphereVM")?;
        ensure!(companion["spec"]["resourcePool"] == format!("{cluster}/Resources"), "{companion}");
        count += 1;
    }
    ensure!(count == MANY, "{count} machines are in failure domains");
    Ok(())
}

/// Removes what was applied beside the objects of the cluster.
pub(super) async fn remove(objects: &Objects) -> anyhow::Result<()> {
    for (zone, _) in ALL {
        for kind in ["VSphereDeploymentZone", "VSphereFailureDomain"] {
            objects.delete(kind, zone).await?;
        }
    }
    Ok(())
}
