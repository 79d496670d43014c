//! The cloud reports a machine as gone, and its kubelet lives or not.

use anyhow::ensure;
use ccm::controllers::node_lifecycle::NodeLifecycleMetrics;
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::{
    Client,
    api::{Patch, PatchParams},
};
use sandbox::{Action, Fault, Matcher, kubelet};
use serde_json::json;
use test_env::{ControlPlane, ControlPlaneOptions};
use tokio::time::sleep;

use super::*;
use crate::{
    api,
    beating::Beating,
    faults::faults,
    lag,
    scenarios::Trials,
    shipped_roles,
    trial::{Outcome, runtime},
};

const EXCLUDE: &str = "node.kubernetes.io/exclude-from-lifecycle-management";
const ALLOW: &str = "node.cloudprovider.kubernetes.io/allow-deletion";

pub(super) fn trials() -> Trials {
    Trials::new()
        .sandbox("a_living_kubelet_keeps_its_node", living_kubelet)
        .sandbox("a_ready_node_without_a_lease_stays", ready_without_lease)
        .both("a_label_that_goes_during_a_look_deletes_nothing", label_goes)
        .sandbox("a_deletion_allowed_during_a_look_waits_for_the_lease", allowed)
        .sandbox("a_lease_of_endless_duration_pins_no_node", endless)
        .sandbox("a_lease_read_that_hangs_is_no_silence", hanging_read)
        .sandbox("a_node_that_is_held_back_for_ever_costs_little", held_for_ever)
        .sandbox("silence_of_all_kubelets_deletes_none", all_silent)
        .trial("apiserver::a_frozen_api_server_is_no_silence_of_kubelets", frozen)
}

/// When the kubelet last renewed its Lease.
pub(super) async fn renewals(client: &Client, name: &str) -> anyhow::Result<Option<MicroTime>> {
    let leases: kube::Api<Lease> = kube::Api::namespaced(client.clone(), "kube-node-lease");
    Ok(leases.get(name).await?.spec.and_then(|spec| spec.renew_time))
}

fn is_held_back(reason: &'static str) -> impl Fn(&k8s_openapi::api::core::v1::Node) -> bool {
    move |node| {
        condition(node, "CloudProviderInstanceExists")
            .is_some_and(|(status, now, _)| status == "False" && now == reason)
    }
}

async fn living_kubelet(api: &Api) -> anyhow::Result<()> {
    let (cloud, daemon) = silent_nodes(api, 1, &QUICK).await?;
    kubelet::heartbeat(&api.client, "n0", true).await?;
    let kubelet = Beating::start(api, &["n0"], Duration::from_secs(10));
    let begins = || async { Ok(renewals(&api.client, "n0").await.is_ok().then_some(())) };
    eventually(SOON, "its kubelet renews", begins).await?;
    cloud.remove(&uuid(0));
    node_stays(&api.client, "n0", Duration::from_secs(30)).await?;
    let held_back = |node: &_| {
        condition(node, "CloudProviderInstanceExists")
            .is_some_and(|(status, reason, _)| status == "False" && reason == "KubeletAlive")
    };
    node_becomes(&api.client, "n0", SOON, "says that its kubelet lives", held_back).await?;
    event(&api.client, "default", "n0", "DeletionHeldBack").await?;
    ensure!(
        daemon
            .counted::<NodeLifecycleMetrics>()
            .deletions_held_back
            .with_label_values(&["KubeletAlive"])
            .get()
            == 1
    );
    // The kubelet stops, and the Node has not been marked NotReady yet.
    kubelet.end().await;
    let stopped = Instant::now();
    kubelet::renew_lease(&api.client, "n0").await?;
    node_vanishes(&api.client, "n0", Duration::from_secs(28)).await?;
    ensure!(stopped.elapsed() >= Duration::from_secs(20), "took {:?}", stopped.elapsed());
    eventually(SOON, "the metric follows", || async {
        Ok((daemon
            .counted::<NodeLifecycleMetrics>()
            .deletions_held_back
            .with_label_values(&["KubeletAlive"])
            .get()
            == 0)
            .then_some(()))
    })
    .await?;
    daemon.stop().await
}

/// The cloud is wrong about two machines, and stays wrong.
async fn held_for_ever(api: &Api) -> anyhow::Result<()> {
    let flags = ["--node-deletion-grace-period=1s", "--node-deletion-minimum-age=0s"];
    let (cloud, daemon) = silent_nodes(api, 6, &flags).await?;
    let names = ["n0", "n2", "n3", "n4", "n5"];
    for name in ["n0", "n1", "n2", "n3", "n4", "n5"] {
        kubelet::heartbeat(&api.client, name, true).await?;
    }
    let kubelets = Beating::start(api, &names[1..], Duration::from_secs(10));
    let kubelet = Beating::start(api, &names[..1], Duration::from_secs(10));
    cloud.remove(&uuid(0));
    // This Node has no lease.
    cloud.remove(&uuid(1));
    node_becomes(&api.client, "n0", SOON, "its kubelet lives", is_held_back("KubeletAlive")).await?;
    node_becomes(&api.client, "n1", SOON, "it is Ready", is_held_back("NodeReady")).await?;
    sleep(Duration::from_secs(60)).await;
    let reads = async |time| {
        api.requests.reset();
        sleep(time).await;
        api.requests.of("GET leases")
    };
    let minutes = 10;
    let read = reads(Duration::from_secs(60 * minutes)).await;
    // Two leases in each period of 5 s, and the leases whose renewal is due.
    ensure!(read <= 30 * usize::try_from(minutes)?, "{read} reads in {minutes} minutes");
    let reasons = ["KubeletAlive", "NodeReady"];
    for (name, reason) in ["n0", "n1"].into_iter().zip(reasons) {
        let node = nodes(&api.client).get(name).await?;
        ensure!(is_held_back(reason)(&node), "{name}: {:?}", node.status);
        let told = daemon
            .counted::<NodeLifecycleMetrics>()
            .deletions_held_back_total
            .with_label_values(&[reason])
            .get();
        ensure!(told == 1, "{reason} was told {told} times");
    }
    // The kubelet ends, and is found dead. Its silence is measured from the first missing renewal on.
    drop(kubelet);
    let stopped = Instant::now();
    node_vanishes(&api.client, "n0", Duration::from_secs(70)).await?;
    ensure!(stopped.elapsed() > Duration::from_secs(20), "deleted after {:?}", stopped.elapsed());
    drop(kubelets);
    daemon.stop().await
}

async fn ready_without_lease(api: &Api) -> anyhow::Result<()> {
    let (cloud, daemon) = silent_nodes(api, 1, &QUICK).await?;
    kubelet::heartbeat(&api.client, "n0", true).await?;
    cloud.remove(&uuid(0));
    node_stays(&api.client, "n0", Duration::from_secs(15)).await?;
    // The kubelet itself reports NotReady, so upstream's rule applies.
    kubelet::heartbeat(&api.client, "n0", false).await?;
    node_vanishes(&api.client, "n0", SOON).await?;
    daemon.stop().await
}

/// The change that makes a Node deletable comes during a look-up, long after the leases to read were chosen.
async fn comes_during_a_look(
    api: &Api,
    flags: &[&str],
    before: serde_json::Value,
    held_back: &'static str,
    during: serde_json::Value,
) -> anyhow::Result<()> {
    let (cloud, daemon) = silent_nodes(api, 2, &[&QUICK[..], flags].concat()).await?;
    merge(&api.client, "n0", before).await?;
    let kubelets = Beating::start(api, &["n0"], Duration::from_secs(2));
    // The second machine keeps the breaker open, in the test with a breaker.
    cloud.remove(&uuid(0));
    cloud.remove(&uuid(1));
    node_becomes(&api.client, "n0", SOON, "is held back", is_held_back(held_back)).await?;
    let held = cloud.hold(Operation::Lookup);
    let calls = cloud.calls().len();
    eventually(SOON, "it is being looked up", || async {
        let since = cloud.calls().split_off(calls);
        Ok(since.iter().any(|call| call.nodes.iter().any(|name| name == "n0")).then_some(()))
    })
    .await?;
    merge(&api.client, "n0", during).await?;
    changes_are_known(api, &cloud, "fence").await?;
    drop(held);
    node_stays(&api.client, "n0", Duration::from_secs(6)).await?;
    node_becomes(&api.client, "n0", SOON, "its kubelet lives", is_held_back("KubeletAlive")).await?;
    drop(kubelets);
    node_vanishes(&api.client, "n0", Duration::from_secs(30)).await?;
    daemon.stop().await
}

async fn label_goes(api: &Api) -> anyhow::Result<()> {
    let label = |value: Option<&str>| json!({"metadata": {"labels": {EXCLUDE: value}}});
    comes_during_a_look(api, &[], label(Some("")), "Excluded", label(None)).await
}

async fn allowed(api: &Api) -> anyhow::Result<()> {
    let flags = ["--node-deletion-breaker-count=0", "--node-deletion-breaker-percent=0"];
    let allow = |value: &str| json!({"metadata": {"annotations": {ALLOW: value}}});
    comes_during_a_look(api, &flags, allow("false"), "BreakerOpen", allow("true")).await
}

async fn set_duration(client: &Client, name: &str, seconds: i32) -> anyhow::Result<()> {
    let leases: kube::Api<Lease> = kube::Api::namespaced(client.clone(), "kube-node-lease");
    let patch = json!({"spec": {"leaseDurationSeconds": seconds}});
    leases.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

async fn endless(api: &Api) -> anyhow::Result<()> {
    let (cloud, daemon) = silent_nodes(api, 1, &QUICK).await?;
    kubelet::renew_lease(&api.client, "n0").await?;
    set_duration(&api.client, "n0", i32::MAX).await?;
    cloud.remove(&uuid(0));
    let start = Instant::now();
    let limit = Duration::from_secs(40);
    node_becomes(&api.client, "n0", limit, "says why it is kept", is_held_back("LeaseRecent")).await?;
    event(&api.client, "default", "n0", "DeletionHeldBack").await?;
    ensure!(
        daemon
            .counted::<NodeLifecycleMetrics>()
            .deletions_held_back
            .with_label_values(&["LeaseRecent"])
            .get()
            == 1
    );
    node_vanishes(&api.client, "n0", Duration::from_secs(300)).await?;
    ensure!(start.elapsed() > Duration::from_secs(187), "deleted after {:?}", start.elapsed());
    ensure!(start.elapsed() < Duration::from_secs(195), "deleted after {:?}", start.elapsed());
    daemon.stop().await
}

/// A read is answered late, with an old state, and the kubelet could not renew in all that time.
async fn hanging_read(api: &Api) -> anyhow::Result<()> {
    for hang in [3.0, 8.0, 9.5, 60.0].map(Duration::from_secs_f64) {
        let (cloud, daemon) = silent_nodes(api, 1, &QUICK).await?;
        cloud.remove(&uuid(0));
        for _ in 0..2 {
            kubelet::renew_lease(&api.client, "n0").await?;
            sleep(Duration::from_secs(5)).await;
        }
        kubelet::renew_lease(&api.client, "n0").await?;
        // It is about to renew when the API server freezes.
        sleep(Duration::from_secs(10)).await;
        faults(api)?.inject(Fault::new(Matcher::any().resource("leases"), Action::Delay(hang)));
        sleep(hang).await;
        faults(api)?.clear();
        node_stays(&api.client, "n0", Duration::from_millis(70)).await?;
        for _ in 0..3 {
            kubelet::renew_lease(&api.client, "n0").await?;
            node_stays(&api.client, "n0", Duration::from_secs(10)).await?;
        }
        node_vanishes(&api.client, "n0", Duration::from_secs(60)).await?;
        daemon.stop().await?;
    }
    Ok(())
}

/// The API server answers us, but no kubelet.
async fn all_silent(api: &Api) -> anyhow::Result<()> {
    let (cloud, daemon) = silent_nodes(api, 3, &QUICK).await?;
    let names = ["n0", "n1", "n2"];
    for name in names {
        kubelet::heartbeat(&api.client, name, true).await?;
    }
    let kubelets = Beating::start(api, &names, Duration::from_secs(10));
    cloud.remove(&uuid(0));
    node_becomes(&api.client, "n0", SOON, "its kubelet lives", is_held_back("KubeletAlive")).await?;
    drop(kubelets);
    // kube-controller-manager marks all of them as unknown.
    sleep(Duration::from_secs(50)).await;
    for name in names {
        set_ready_unknown(&api.client, name).await?;
    }
    node_becomes(&api.client, "n0", SOON, "says why it is kept", is_held_back("NoKubeletHeard")).await?;
    node_stays(&api.client, "n0", Duration::from_secs(300)).await?;
    // The other kubelets are back. This one still has as long as the outage took, up to the 40 s of its
    // lease.
    let _kubelets = Beating::start(api, &["n1", "n2"], Duration::from_secs(10));
    node_stays(&api.client, "n0", Duration::from_secs(30)).await?;
    node_vanishes(&api.client, "n0", Duration::from_secs(40)).await?;
    daemon.stop().await
}

/// The cloud is wrong about three Nodes, which their kubelets keep. Then no kubelet can renew for a while.
fn frozen() -> Outcome {
    let control_plane = ControlPlane::start(&ControlPlaneOptions::default())?;
    runtime(false)?.block_on(async {
        let client = api::client(control_plane.kubeconfig()).await?;
        let kubeconfig = shipped_roles::kubeconfig(&control_plane).await?;
        let daemon_client = api::client(&kubeconfig).await?;
        let cloud = FakeCloud::new();
        let names: Vec<String> = (0..4).map(|number| format!("n{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            cloud.put(&uuid(number), running(number));
            kubelet::register(&client, &kubelet::node(name, &uuid(number))).await?;
        }
        let daemon = InProcess::start(&daemon_client, cloud.provider(), &QUICK)?;
        for name in &names {
            node_becomes(&client, name, SOON, "initialized", is_initialized).await?;
        }
        let renew = async || -> anyhow::Result<()> {
            for name in &names {
                kubelet::renew_lease(&client, name).await?;
            }
            Ok(())
        };
        renew().await?;
        for (number, name) in names.iter().enumerate().take(3) {
            set_ready_unknown(&client, name).await?;
            cloud.lose(&uuid(number));
        }
        sleep(Duration::from_secs(3)).await;
        renew().await?;
        for name in &names[..3] {
            node_becomes(&client, name, SOON, "its kubelet lives", is_held_back("KubeletAlive")).await?;
        }
        let renewed = Instant::now();
        renew().await?;
        // Shorter than the interval between two renewals.
        sleep(Duration::from_secs(6)).await;
        control_plane.freeze_api_server()?;
        sleep(Duration::from_millis(9_300)).await;
        control_plane.thaw_api_server()?;
        sleep(Duration::from_millis(300)).await;
        // Less than the silence after which a kubelet is dead, unless the machine was late.
        let mut silence = None;
        for _ in 0..3 {
            renew().await?;
            silence.get_or_insert_with(|| renewed.elapsed());
            sleep(Duration::from_secs(2)).await;
        }
        let left = nodes(&client).list(&kube::api::ListParams::default()).await?.items.len();
        if left != names.len() {
            let silence = silence.unwrap_or_default();
            ensure!(
                silence > Duration::from_secs(18),
                "{left} nodes are left after {silence:?} without a renewal"
            );
            lag::not_judged(format!(
                "a frozen API server: the kubelets were silent for {silence:?}, 16 s were meant"
            ));
        }
        daemon.stop().await
    })?;
    Ok(())
}
