//! Leader migration: a second Lease for controllers that another manager may run as well.

use std::{fs, time::Duration};

use anyhow::{Context, ensure};
use ccm::leader_election::{ElectionMetrics, LeaderElectionOptions, Lost};
use cloudprovider::PowerState;
use jiff::Timestamp;
use tempfile::TempDir;
use test_env::{Process, built};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    ENDLESS, NAME, elector, initialized, leads, leases, options, record_of, rivals, terms, write_to,
};
use crate::{
    api::Api,
    daemon::{DaemonProcess, InProcess, binary},
    fake_cloud::{FakeCloud, running},
    scenarios::Trials,
    support::*,
};

/// Upstream's default name of the second Lease.
const MIGRATION: &str = "cloud-provider-extraction-migration";
const LIMIT: Duration = Duration::from_secs(20);

pub(crate) fn trials() -> Trials {
    Trials::new()
        .both("leader_election::migration::controllers_wait_for_the_second_lock", second_lock)
        .sandbox("leader_election::migration::losing_the_second_lock_ends_the_daemon", lost)
        .sandbox("leader_election::migration::what_another_component_runs_is_left_alone", elsewhere)
        .api_server("leader_election::migration::beside_client_go", beside_client_go)
}

const MIGRATES: [&str; 2] = ["--enable-leader-migration", "--node-monitor-period=500ms"];

fn start(api: &Api, cloud: &FakeCloud, more: &[&str]) -> anyhow::Result<InProcess> {
    ENDLESS.start(&api.client, cloud.provider(), &[&MIGRATES, more].concat())
}

/// A machine that is off, with an initialised Node and a silent kubelet, which the lifecycle controller
/// taints.
async fn switch_off(api: &Api, cloud: &FakeCloud) -> anyhow::Result<()> {
    cloud.change(&uuid(0), |machine| machine.power_state = PowerState::Off);
    set_ready_unknown(&api.client, "n0").await
}

async fn is_tainted(api: &Api) -> anyhow::Result<bool> {
    Ok(has_taint(&nodes(&api.client).get("n0").await?, SHUTDOWN))
}

async fn becomes_tainted(api: &Api) -> anyhow::Result<()> {
    let tainted = |node: &_| has_taint(node, SHUTDOWN);
    node_becomes(&api.client, "n0", LIMIT, "has the shutdown taint", tainted).await.map(drop)
}

async fn second_lock(api: &Api) -> anyhow::Result<()> {
    // Held as kube-controller-manager of an older release holds it.
    let never = CancellationToken::new();
    let rival = LeaderElectionOptions { name: MIGRATION.to_owned(), ..options("kcm") };
    let mut rival = elector(&api.client, rival)?.acquire(&never).await.context("the rival")?;

    let cloud = FakeCloud::new();
    cloud.put(&uuid(0), running(0));
    // The shipped roles contain the second Lease only if the flags need it.
    let daemon = start(api, &cloud, &[])?;
    leads(&daemon, LIMIT).await?;
    initialized(api, 0).await?;
    switch_off(api, &cloud).await?;
    // Longer than a term.
    ensure!(timeout(terms().and_some(), rival.renew()).await.is_err());
    ensure!(!is_tainted(api).await?, "the lifecycle controller has to wait for the second lock");
    let status = daemon.counted::<ElectionMetrics>().leader_election_master_status.clone();
    let status = |name| status.with_label_values(&[name]).get();
    ensure!(status(NAME) == 1 && status(MIGRATION) == 0);

    let start = Instant::now();
    rival.release().await;
    becomes_tainted(api).await?;
    println!("from the other manager's release to the first write took {:?}", start.elapsed());
    ensure!(status(NAME) == 1 && status(MIGRATION) == 1);
    let (main, migration) = (record_of(&api.client, NAME).await?, record_of(&api.client, MIGRATION).await?);
    ensure!(main.holder == migration.holder && migration.transitions == 1, "{main:?} {migration:?}");
    for lease in [NAME, MIGRATION] {
        let became = events_on(api, lease, &format!("{} became leader", main.holder)).await?;
        ensure!(became, "no event on {lease}");
    }

    daemon.stop().await?;
    ensure!(status(NAME) == 0 && status(MIGRATION) == 0);
    let versions = [MIGRATION, NAME].map(|name| {
        let api = leases(&api.client);
        async move {
            let lease = api.get(name).await?;
            let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
            ensure!(holder.is_empty(), "{name} is held by {holder}");
            Ok(lease.metadata.resource_version.context("a version")?.parse::<u64>()?)
        }
    });
    let versions = futures::future::try_join_all(versions).await?;
    ensure!(versions.is_sorted(), "the second lock is given back first: {versions:?}");
    Ok(())
}

async fn events_on(api: &Api, lease: &str, message: &str) -> anyhow::Result<bool> {
    let events: kube::Api<k8s_openapi::api::core::v1::Event> =
        kube::Api::namespaced(api.client.clone(), "kube-system");
    eventually(LIMIT, message, || async {
        let events = events.list(&kube::api::ListParams::default()).await?;
        let found = events.items.iter().any(|event| {
            event.involved_object.name.as_deref() == Some(lease)
                && event.message.as_deref() == Some(message)
                && event.reason.as_deref() == Some("LeaderElection")
        });
        Ok(found.then_some(true))
    })
    .await
}

async fn lost(api: &Api) -> anyhow::Result<()> {
    let cloud = FakeCloud::new();
    let daemon = start(api, &cloud, &[])?;
    let status = daemon.counted::<ElectionMetrics>().leader_election_master_status.clone();
    eventually(LIMIT, "holds the second lock", || async {
        Ok((status.with_label_values(&[MIGRATION]).get() == 1).then_some(()))
    })
    .await?;
    write_to(&api.client, MIGRATION, &rivals(Timestamp::now())).await?;
    let error = timeout(patience(Duration::from_secs(10)), daemon.ended()).await?.expect_err("it has to end");
    ensure!(error.is::<Lost>() && format!("{error:#}") == "migration leaderelection lost", "{error:#}");
    ensure!(record_of(&api.client, MIGRATION).await?.holder == "rival", "the rival's lease is left alone");
    Ok(())
}

async fn elsewhere(api: &Api) -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let file = folder.path().join("migration.yaml");
    fs::write(
        &file,
        "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\n\
         leaderName: cloud-provider-extraction-migration\ncontrollerLeaders:\n\
         - {name: cloud-node-lifecycle, component: kube-controller-manager}\n\
         - {name: nodeipam, component: '*'}\n",
    )?;
    let cloud = FakeCloud::new();
    cloud.put(&uuid(0), running(0));
    let config = format!("--leader-migration-config={}", file.display());
    let daemon = start(api, &cloud, &[&config])?;
    initialized(api, 0).await?;
    switch_off(api, &cloud).await?;
    sleep(Duration::from_secs(6)).await;
    ensure!(!is_tainted(api).await?, "that is kube-controller-manager's");
    ensure!(leases(&api.client).get_opt(MIGRATION).await?.is_none(), "a lock without use is not taken");
    daemon.stop().await
}

/// The binary, and client-go's own elector in place of kube-controller-manager on the second Lease.
async fn beside_client_go(api: &Api) -> anyhow::Result<()> {
    binary()?;
    let program = built("leader")?.join("leader");
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let folder = TempDir::new()?;
    let mut command = std::process::Command::new(program);
    command
        .arg(format!("-kubeconfig={}", control_plane.kubeconfig().display()))
        .args([&format!("-name={MIGRATION}"), "-identity=kube-controller-manager", "-release"])
        .args(["-lease-duration=10s", "-renew-deadline=8s", "-retry-period=500ms"]);
    let start = || Process::spawn("client-go", &command, folder.path().join("client-go"));
    let kubeconfig = control_plane.kubeconfig().display().to_string();
    hand_over(api, &folder, &kubeconfig, &start).await
}

async fn hand_over(
    api: &Api,
    folder: &TempDir,
    kubeconfig: &str,
    start_other: &dyn Fn() -> anyhow::Result<Process>,
) -> anyhow::Result<()> {
    let config = folder.path().join("cloud.yaml");
    fs::write(&config, "hypervisors:\n- name: kvm1\n  uri: test:///default\n")?;
    let held = |by_other: bool| async move {
        let found = record_of(&api.client, MIGRATION).await.ok();
        let is_other = |holder: &str| holder == "kube-controller-manager";
        Ok(found.filter(|record| !record.holder.is_empty() && is_other(&record.holder) == by_other))
    };
    let mut other = start_other()?;
    eventually(LIMIT, "the other manager leads", || held(true)).await?;

    let mut arguments = vec![
        "--cloud-provider=libvirt".to_owned(),
        format!("--cloud-config={}", config.display()),
        format!("--kubeconfig={kubeconfig}"),
        "--secure-port=0".to_owned(),
    ];
    arguments.extend(ENDLESS.flags().into_iter().chain(MIGRATES.map(str::to_owned)));
    let ours = DaemonProcess::start(&arguments, &folder.path().join("ours"))?;
    let started = |controller: &str| {
        ours.log().lines().any(|line| line.contains("started") && line.contains(controller))
    };
    eventually(LIMIT, "the main lock is ours", || async {
        Ok(started("cloud-node-controller").then_some(()))
    })
    .await?;
    sleep(Duration::from_secs(5)).await;
    ensure!(!started("cloud-node-lifecycle-controller"), "not before the other lets go: {}", ours.log());

    let start = Instant::now();
    other.stop()?;
    eventually(LIMIT, "the second lock is ours", || held(false)).await?;
    eventually(LIMIT, "the migrated controller starts", || async {
        Ok(started("cloud-node-lifecycle-controller").then_some(()))
    })
    .await?;
    println!("the migrated controller is ours {:?} after the other manager ended", start.elapsed());

    // And in the other direction.
    let _other = start_other()?;
    let start = Instant::now();
    ours.terminate()?;
    eventually(LIMIT, "the other manager leads", || held(true)).await?;
    // Our term would not have ended.
    println!("the other manager leads {:?} after SIGTERM to us", start.elapsed());
    Ok(())
}
