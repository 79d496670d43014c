//! `--dry-run`: everything runs, and nothing is written.

use std::{fs, time::Duration};

use anyhow::{Context, ensure};
use ccm::{
    api_client::{ClientMetrics, ClientOptions},
    controllers::{node::NodeMetrics, node_lifecycle::NodeLifecycleMetrics},
    manifests::ManifestOptions,
    permissions,
};
use cloudprovider::{PowerState, testing::FakeInstance};
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use sandbox::kubelet;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::sleep;

use super::over;
use crate::{
    api::Api,
    daemon::{DaemonProcess, InProcess, binary, parse},
    fake_cloud::{FakeCloud, running},
    scenarios::Trials,
    shipped_roles,
    support::*,
};

/// What is said late is not said in each of so many rounds. What is said again and again is.
const ROUNDS: usize = 4;

pub(crate) fn trials() -> Trials {
    Trials::new()
        .both("clients::a_dry_run_says_each_write_once_and_writes_nothing", said)
        .api_server("clients::a_dry_run_needs_no_right_to_write", read_only)
}

async fn said(api: &Api) -> anyhow::Result<()> {
    let cloud = FakeCloud::new();
    cloud.put(&uuid(1), running(1));
    cloud.put(&uuid(2), FakeInstance { power_state: PowerState::Off, ..running(2) });
    cloud.put(&uuid(4), running(4));
    // One Node to be initialised, one that is off, one that is gone, and one that differs from the cloud.
    kubelet::register(&api.client, &kubelet::node("new", &uuid(1))).await?;
    for number in [2, 3, 4] {
        let mut node = kubelet::node(&format!("n{number}"), &uuid(number));
        let spec = node.spec.get_or_insert_default();
        spec.taints = None;
        spec.provider_id = Some(format!("fake:///{}", uuid(number)));
        kubelet::register(&api.client, &node).await?;
        if number != 4 {
            set_ready_unknown(&api.client, &format!("n{number}")).await?;
        }
    }
    api.requests.reset();

    let options = ClientOptions { dry_run: true, ..ClientOptions::default() };
    let parts = over(&api.daemon_client, options, cloud.provider())?;
    let flags = [
        "--dry-run",
        "--node-deletion-minimum-age=0s",
        "--node-deletion-breaker-percent=100",
        "--node-deletion-unseen-grace-period=0s",
        "--node-monitor-period=1s",
    ];
    let daemon = InProcess::start_parts(parts, &flags)?;
    let counter = daemon.counted::<ClientMetrics>().dry_run_writes.clone();
    let said = |verb: &str, resource: &str| counter.with_label_values(&[verb, resource]).get();
    eventually(Duration::from_secs(60), "everything is said", || async {
        let all =
            said("patch", "nodes") >= 2 && said("patch", "nodes/status") >= 1 && said("delete", "nodes") == 1;
        Ok(all.then_some(()))
    })
    .await?;
    let sum = || {
        [("patch", "nodes"), ("patch", "nodes/status"), ("delete", "nodes"), ("create", "events")]
            .map(|(verb, resource)| said(verb, resource))
    };
    let mut round = 0;
    let new = loop {
        let before = sum();
        sleep(Duration::from_secs(20)).await;
        // The kubelet labels its Node, and the cloud is asked again.
        let labels = json!({"metadata": {"labels": {"example.com/disk": format!("disk-{round}")}}});
        let new = merge(&api.client, "new", labels.clone()).await?;
        merge(&api.client, "n4", labels).await?;
        sleep(Duration::from_secs(5)).await;
        cloud.put(&uuid(1), running(1));
        sleep(Duration::from_secs(10)).await;
        if sum() == before {
            break new;
        }
        round += 1;
        ensure!(round < ROUNDS, "each is said once: {before:?}, later {:?}", sum());
    };
    for reason in ["WriteFailed", "InstanceNotFound"] {
        let waiting = daemon.counted::<NodeMetrics>().uninitialized_nodes.with_label_values(&[reason]).get();
        ensure!(waiting == 0, "{waiting} nodes wait: {reason}");
    }
    ensure!(
        daemon.counted::<NodeMetrics>().taint_removal_delay.get_sample_count() == 0,
        "no taint was removed"
    );
    ensure!(
        daemon.counted::<NodeLifecycleMetrics>().deleted_nodes.with_label_values(&["deleted"]).get() == 0,
        "none was deleted"
    );
    ensure!(api.requests.writes().is_empty(), "{:?}", api.requests.writes());
    let now = nodes(&api.client).get("new").await?;
    ensure!(now.metadata.resource_version == new.metadata.resource_version, "nobody wrote it");
    for namespace in ["default", "kube-system"] {
        let events = kube::Api::<Event>::namespaced(api.client.clone(), namespace);
        ensure!(events.list(&ListParams::default()).await?.items.is_empty(), "no events");
    }
    daemon.stop().await
}

/// The binary, as a user with the documented permissions of a dry run, while another daemon holds the Lease.
async fn read_only(api: &Api) -> anyhow::Result<()> {
    binary()?;
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let flags = ["--dry-run", "--secure-port=0"];
    let options = ManifestOptions { name: "only-reads".into(), ..ManifestOptions::new("libvirt") };
    let needed = permissions::needed(&parse(&flags)?);
    ensure!(needed.iter().all(|one| ["get", "list", "watch"].contains(&&*one.verb)), "{needed:?}");
    let kubeconfig = shipped_roles::bind(control_plane, &options, &needed).await?;
    let folder = TempDir::new()?;
    let config = folder.path().join("cloud.yaml");
    fs::write(&config, "hypervisors:\n- name: kvm1\n  uri: test:///default\n")?;
    // the UUID of the only machine of libvirt's test driver
    let uuid = "6695eb01-f6a4-8304-79aa-97f2502e193f";
    let registered = kubelet::register(&api.client, &kubelet::node("test", uuid)).await?;
    let arguments = [
        "--cloud-provider=libvirt".to_owned(),
        format!("--cloud-config={}", config.display()),
        format!("--kubeconfig={}", kubeconfig.display()),
    ];
    let arguments: Vec<String> = arguments.into_iter().chain(flags.map(str::to_owned)).collect();
    let daemon = DaemonProcess::start(&arguments, &folder.path().join("log"))?;
    eventually(Duration::from_secs(30), "it says what it would write", || async {
        Ok((daemon.log().contains("would write") && daemon.log().contains("nodes")).then_some(()))
    })
    .await?;
    // Long enough for the daemon to report a write that fails.
    sleep(Duration::from_secs(8)).await;
    let log = daemon.log();
    for words in ["forbidden", "WriteFailed", "not initialized", "node initialized", "follows the cloud"] {
        ensure!(!log.contains(words), "{words}: {log}");
    }
    let refused = api.refused_to(&["system:serviceaccount:kube-system:only-reads"])?;
    ensure!(refused.is_empty(), "{refused:?}");
    let now = nodes(&api.client).get("test").await?;
    ensure!(now.metadata.resource_version == registered.metadata.resource_version, "nobody wrote it");
    daemon.terminate()
}
