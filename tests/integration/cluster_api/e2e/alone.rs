//! With nothing of Cluster API running: the daemon makes Machines and their bootstrap data too.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _, api::ListParams};

use super::{
    LIMIT,
    arrival::from_apply_to_nodes,
    drain::one_is_drained,
    failures::{one_is_lost, one_is_rebooted},
    manifest::{MEMORY, machine},
    world::World,
};
use crate::{
    cluster_api::{
        life::Life,
        objects::{Objects, name},
    },
    support::eventually,
    trial::Outcome,
};

/// The variable with the number of machines: one, as among the tests, or more, which are then drained, rebooted, replaced and rolled too.
const MACHINES: &str = "CCM_E2E_MACHINES";

pub(super) fn whole() -> Outcome {
    let count = std::env::var(MACHINES).ok().map(|text| text.parse::<usize>()).transpose();
    let count = count.context(MACHINES)?.unwrap_or(1);
    World::of_the_daemon()?.run(async |world, objects| story(world, objects, count).await)
}

async fn story(world: &World, objects: &Objects, count: usize) -> Result<()> {
    let life = Life::new(objects, &world.hypervisor);
    // `kubeadm init` has made one.
    let before = tokens(objects).await?;
    let mut machines = from_apply_to_nodes(world, &life, count).await?;
    are_tokens(objects, &before).await?;
    if count > 1 {
        machines = one_is_drained(world, &life, &machines).await?;
        one_is_rebooted(world, &life, &machines).await?;
        machines = one_is_lost(world, &life, &machines).await?;
        machines = life.is_rolled(&machines, &machine(world, MEMORY + 64)?, "memoryMiB").await?;
    }
    life.ends(&["LibvirtMachine", "LibvirtCluster"], &machines).await?;
    // These two are of the control plane, which is hosted elsewhere.
    let left: BTreeSet<_> = objects.list("Secret").await?.iter().map(|one| name(one).to_owned()).collect();
    ensure!(left.iter().eq(["prod-ca", "prod-kubeconfig"]), "{left:?}");
    are_tokens(objects, &before).await
}

/// The tokens with which machines join, by the names of their Secrets.
async fn tokens(objects: &Objects) -> Result<BTreeSet<String>> {
    let secrets: Api<Secret> = Api::namespaced(objects.client.clone(), "kube-system");
    let names = secrets.list(&ListParams::default()).await?.items.into_iter().map(|one| one.name_any());
    Ok(names.filter(|name| name.starts_with("bootstrap-token-")).collect())
}

/// The tokens of machines that have joined are deleted in their cluster.
async fn are_tokens(objects: &Objects, wanted: &BTreeSet<String>) -> Result<()> {
    eventually(LIMIT, "the tokens of machines are deleted", || async {
        Ok((tokens(objects).await? == *wanted).then_some(()))
    })
    .await
}
