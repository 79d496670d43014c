//! The Lease of Cluster API's core manager.

use anyhow::{Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use test_env::PATIENCE;

use super::{
    life::{TestDriver, machine},
    site::Site,
};
use crate::{
    cluster_api::objects::{Objects, reference},
    shipped_roles,
    support::eventually,
    trial::Outcome,
};

const NAMESPACE: &str = "gate";
const MANAGER: &str = "capi-system";
const LEASE: &str = "controller-leader-election-capi";
const HOLDER: &str = "capi-controller-manager-0_1";

pub(super) fn held() -> Outcome {
    let driver = TestDriver::new()?;
    Site::run(&*driver.provider, "Libvirt", NAMESPACE, story)
}

async fn story(site: &Site, objects: &Objects) -> Result<()> {
    site.control_plane.kubectl_output(&["create", "namespace", MANAGER])?;
    let leases = kube::Api::<Lease>::namespaced(objects.client.clone(), MANAGER);
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let lease = json!({
        "metadata": {"name": LEASE},
        "spec": {
            "holderIdentity": HOLDER, "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now,
            "leaseTransitions": 0,
        },
    });
    leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    objects.apply_cluster("prod", &site.control_plane, json!({"spec": {}})).await?;
    let before = apply_workers(objects).await?;

    let lifecycle = site.start().await?;
    let state_is = async |wanted: &str| {
        eventually(PATIENCE, &format!("the core part: {wanted}"), || async {
            Ok((lifecycle.state_of_core().await? == wanted).then_some(()))
        })
        .await
    };
    state_is(&format!("held by {HOLDER}")).await?;
    ensure!(lifecycle.ready().await? == 500, "ready while it does nothing");
    // Three renewals of the daemon's own Lease later it would have written, if it did not wait.
    let since = site.control_plane.audit_position();
    eventually(PATIENCE, "the daemon renews its own Lease", || async {
        let writes = site.control_plane.writes_after(since, shipped_roles::USER)?;
        let renewals: u64 =
            writes.iter().filter(|(what, _)| what.contains("leases")).map(|(_, count)| count).sum();
        Ok((renewals >= 3).then_some(()))
    })
    .await?;
    let writes = site.control_plane.writes_after(0, shipped_roles::USER)?;
    let is_about_itself = |what: &str| what.contains("leases") || what.contains("events");
    ensure!(writes.keys().all(|what| is_about_itself(what)), "{writes:?}");
    ensure!(objects.get("MachineDeployment", "workers").await? == Some(before), "it was written");
    objects.none_are_left_of(&["MachineSet", "Machine", "LibvirtMachine"]).await?;

    // As client-go's elector releases it.
    let released = json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}});
    leases.patch(LEASE, &PatchParams::default(), &Patch::Merge(released)).await?;
    state_is("works").await?;
    eventually(PATIENCE, "it is ready", || async { Ok((lifecycle.ready().await? == 200).then_some(())) })
        .await?;
    objects.all_become("LibvirtMachine", "there is one", |all: &[Value]| all.len() == 1).await?;
    let held = leases.get(LEASE).await?.spec.unwrap_or_default();
    let holder = held.holder_identity.unwrap_or_default();
    ensure!(!holder.is_empty() && holder != HOLDER, "held by {holder:?}");
    ensure!(held.lease_transitions == Some(1), "{:?} transitions", held.lease_transitions);

    lifecycle.process.terminate()?;
    let left = leases.get(LEASE).await?.spec.unwrap_or_default().holder_identity;
    ensure!(left.as_deref().is_none_or(str::is_empty), "not released at SIGTERM: {left:?}");
    Ok(())
}

/// A deployment of one machine whose bootstrap data a user has written.
async fn apply_workers(objects: &Objects) -> Result<Value> {
    objects.apply_template("small", &machine(64)).await?;
    let labels =
        json!({"cluster.x-k8s.io/cluster-name": "prod", "cluster.x-k8s.io/deployment-name": "workers"});
    let spec = json!({
        "clusterName": "prod",
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {
            "clusterName": "prod",
            "bootstrap": {"dataSecretName": "data"},
            "infrastructureRef": reference("LibvirtMachineTemplate", "small"),
        }},
    });
    objects.apply("MachineDeployment", "workers", json!({"spec": spec})).await
}
