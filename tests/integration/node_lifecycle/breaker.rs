//! Too many machines vanish at once.

use anyhow::ensure;
use ccm::controllers::node_lifecycle::NodeLifecycleMetrics;
use sandbox::kubelet;
use serde_json::json;
use tokio::time::sleep;

use super::{kubelets::renewals, *};
use crate::{beating::Beating, scenarios::Trials};

pub(super) fn trials() -> Trials {
    Trials::new()
        .sandbox("the_breaker_stops_mass_deletion", breaker)
        .sandbox("a_decision_on_one_node_releases_no_other", one_decision)
        .both("a_new_leader_keeps_what_the_breaker_held_back", new_leader)
        .sandbox("the_breaker_counts_ready_nodes_too", breaker_of_ready_nodes)
}

async fn breaker(api: &Api) -> anyhow::Result<()> {
    let (cloud, daemon) = silent_nodes(api, 10, &QUICK).await?;
    // The cloud reports all instances as absent, as with wrong credentials or an empty project.
    cloud.fail_lookups(Fault::Absent);
    node_stays(&api.client, "n0", Duration::from_secs(8)).await?;
    ensure!(daemon.counted::<NodeLifecycleMetrics>().deletion_breaker_open.get() == 1);
    event(&api.client, "kube-system", "cloud-controller-manager", "DeletionBreakerOpened").await?;
    let held_back = |node: &_| {
        condition(node, "CloudProviderInstanceExists").is_some_and(|(_, reason, _)| reason == "BreakerOpen")
    };
    node_becomes(&api.client, "n3", SOON, "says that the breaker is open", held_back).await?;
    // An operator allows this deletion.
    let allow =
        json!({"metadata": {"annotations": {"node.cloudprovider.kubernetes.io/allow-deletion": "true"}}});
    merge(&api.client, "n3", allow).await?;
    node_vanishes(&api.client, "n3", SOON).await?;
    // The cloud reports the instances again.
    cloud.fail_lookups(None);
    eventually(SOON, "the breaker closes", || async {
        Ok((daemon.counted::<NodeLifecycleMetrics>().deletion_breaker_open.get() == 0).then_some(()))
    })
    .await?;
    let recovered =
        |node: &_| condition_status(node, "CloudProviderInstanceExists").as_deref() == Some("True");
    node_becomes(&api.client, "n0", SOON, "recovers", recovered).await?;
    ensure!(nodes(&api.client).list(&kube::api::ListParams::default()).await?.items.len() == 9);
    // The deletion of three of nine Nodes is within the limits.
    for number in 0..3 {
        cloud.remove(&uuid(number));
    }
    for name in ["n0", "n1", "n2"] {
        node_vanishes(&api.client, name, SOON).await?;
    }
    daemon.stop().await
}

/// A Ready Node is looked up once a minute. If all instances are absent, the breaker has to open before the
/// silent Node is deleted.
async fn breaker_of_ready_nodes(api: &Api) -> anyhow::Result<()> {
    let (cloud, daemon) = silent_nodes(api, 10, &QUICK).await?;
    for number in 1..10 {
        kubelet::heartbeat(&api.client, &format!("n{number}"), true).await?;
    }
    cloud.fail_lookups(Fault::Absent);
    node_stays(&api.client, "n0", Duration::from_secs(12)).await?;
    ensure!(daemon.counted::<NodeLifecycleMetrics>().deletion_breaker_open.get() == 1);
    daemon.stop().await
}

async fn one_decision(api: &Api) -> anyhow::Result<()> {
    let (cloud, daemon) = silent_nodes(api, 10, &QUICK).await?;
    for number in 0..4 {
        cloud.remove(&uuid(number));
    }
    let breaker_is_open = || async {
        Ok((daemon.counted::<NodeLifecycleMetrics>().deletion_breaker_open.get() == 1).then_some(()))
    };
    eventually(SOON, "the breaker opens", breaker_is_open).await?;
    let keep =
        json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-lifecycle-management": "true"}}});
    merge(&api.client, "n0", keep).await?;
    // Its kubelet lives, so the deletion is wrong even if an operator allows it.
    kubelet::heartbeat(&api.client, "n1", true).await?;
    let kubelet = Beating::start(api, &["n1"], Duration::from_secs(3));
    eventually(SOON, "its kubelet renews", || async {
        Ok(renewals(&api.client, "n1").await.is_ok().then_some(()))
    })
    .await?;
    let allow =
        json!({"metadata": {"annotations": {"node.cloudprovider.kubernetes.io/allow-deletion": "true"}}});
    merge(&api.client, "n1", allow).await?;
    sleep(Duration::from_secs(18)).await;
    for name in ["n0", "n1", "n2", "n3"] {
        nodes(&api.client).get(name).await?;
    }
    drop(kubelet);
    daemon.stop().await
}

/// Six of ten machines vanish, an operator allows four deletions, and the leader ends. The remaining two are
/// far below the limits.
async fn new_leader(api: &Api) -> anyhow::Result<()> {
    let (cloud, daemon) = silent_nodes(api, 10, &QUICK).await?;
    for number in 0..6 {
        cloud.remove(&uuid(number));
    }
    let is_held = |node: &_| {
        condition(node, "CloudProviderInstanceExists").is_some_and(|(_, reason, _)| reason == "BreakerOpen")
    };
    for name in ["n0", "n1"] {
        node_becomes(&api.client, name, SOON, "is held back", is_held).await?;
    }
    let allow =
        json!({"metadata": {"annotations": {"node.cloudprovider.kubernetes.io/allow-deletion": "true"}}});
    for name in ["n2", "n3", "n4", "n5"] {
        merge(&api.client, name, allow.clone()).await?;
        node_vanishes(&api.client, name, SOON).await?;
    }
    daemon.crash().await;

    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &QUICK)?;
    node_stays(&api.client, "n0", Duration::from_secs(8)).await?;
    nodes(&api.client).get("n1").await?;
    ensure!(daemon.counted::<NodeLifecycleMetrics>().deletion_breaker_open.get() == 1);
    // While the cloud cannot tell, the Nodes' conditions must stay: the next leader has no other source.
    cloud.fail_lookups(unavailable("kvm1 is unreachable"));
    sleep(Duration::from_secs(2)).await;
    ensure!(is_held(&nodes(&api.client).get("n0").await?));
    daemon.crash().await;

    cloud.fail_lookups(None);
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &QUICK)?;
    node_stays(&api.client, "n1", Duration::from_secs(5)).await?;
    // An operator allows one deletion, and the machine of the other Node returns.
    merge(&api.client, "n0", allow).await?;
    node_vanishes(&api.client, "n0", SOON).await?;
    nodes(&api.client).get("n1").await?;
    cloud.put(&uuid(1), running(1));
    eventually(SOON, "the breaker closes", || async {
        Ok((daemon.counted::<NodeLifecycleMetrics>().deletion_breaker_open.get() == 0).then_some(()))
    })
    .await?;
    let recovered =
        |node: &_| condition_status(node, "CloudProviderInstanceExists").as_deref() == Some("True");
    node_becomes(&api.client, "n1", SOON, "recovers", recovered).await?;
    daemon.stop().await
}
