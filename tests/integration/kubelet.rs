//! A real kubelet with `--cloud-provider=external` and the daemon.

use std::time::Duration;

use anyhow::{Context, ensure};
use kube::Client;
use tempfile::TempDir;
use test_env::{
    ControlPlane, ControlPlaneOptions, Kubelet, KubeletOptions, Libvirtd, MicroGuest, MicroGuestOptions,
};
use tokio::time::{Instant, sleep};

use crate::{
    api,
    daemon::{DaemonProcess, binary},
    guest::{GUEST_PATIENCE, command_line, write_config},
    scenarios::Trials,
    support::*,
    trial::{Outcome, runtime},
};

const SOON: Duration = Duration::from_secs(30);

/// How long kubelet and daemon run together: the kubelet looks at its own status every ten seconds.
const TOGETHER: Duration = Duration::from_secs(45);

/// The versions of the Node in this time. In each ten seconds, two writers in conflict make two.
const MAX_VERSIONS: usize = 6;

pub(crate) fn trials() -> Trials {
    Trials::new().trial("apiserver::kubelet::registers_and_lives_on_without_a_write_war", side_by_side)
}

fn side_by_side() -> Outcome {
    binary()?;
    let libvirtd = Libvirtd::start()?;
    let control_plane = ControlPlane::start(&ControlPlaneOptions::default())?;
    let guest = MicroGuest::define(&libvirtd, "kubelet-1", &MicroGuestOptions::default())?;
    guest.start()?;
    let lease = guest.wait_for_lease(GUEST_PATIENCE)?;
    // The Node would follow a later address, which would count as a change below.
    guest.wait_for_ipv6_lease(GUEST_PATIENCE)?;
    let folder = TempDir::new()?;
    let config = write_config(folder.path(), &libvirtd)?;
    let log = folder.path().join("daemon.log");
    let daemon = DaemonProcess::start(&command_line(&control_plane, &config)?, &log)?;
    // The kubelet reports that it runs in this guest.
    let options = KubeletOptions {
        system_uuid: Some(guest.uuid().to_owned()),
        network_ready: true,
        ..KubeletOptions::default()
    };
    let kubelet = Kubelet::start(&control_plane, guest.name(), &options)?;
    let outcome = runtime(false)?.block_on(async {
        let client = api::client(control_plane.kubeconfig()).await?;
        let done = node_becomes(&client, guest.name(), SOON, "initialized", is_initialized).await?;
        ensure!(provider_id(&done) == Some(format!("libvirt:///{}", guest.uuid())));
        ensure!(addresses(&done).contains(&format!("InternalIP {lease}")), "{:?}", addresses(&done));
        lives_on(&client, guest.name()).await.context("kubelet and daemon live side by side")?;
        guest.destroy()?;
        guest.undefine()?;
        lease_decides(&client, guest.name(), &kubelet).await.context("the domain is undefined")
    });
    outcome.with_context(|| format!("the daemon's log: {}", daemon.log()))?;
    ensure_quiet(&daemon)?;
    daemon.terminate()?;
    Ok(())
}

/// Some of the kubelet's own status updates: our fields are kept, and the two do not overwrite each
/// other in turns.
async fn lives_on(client: &Client, name: &str) -> anyhow::Result<()> {
    let before = nodes(client).get(name).await?;
    let version = |node: &k8s_openapi::api::core::v1::Node| -> anyhow::Result<u64> {
        Ok(node.metadata.resource_version.as_deref().context("a version")?.parse()?)
    };
    let mut versions = std::collections::BTreeSet::from([version(&before)?]);
    let end = Instant::now() + TOGETHER;
    while Instant::now() < end {
        let node = nodes(client).get(name).await?;
        versions.insert(version(&node)?);
        ensure!(is_initialized(&node), "the taint came back");
        ensure!(provider_id(&node) == provider_id(&before));
        ensure!(addresses(&node) == addresses(&before), "{:?}", addresses(&node));
        for key in [
            "topology.kubernetes.io/zone",
            "topology.kubernetes.io/region",
            "node.kubernetes.io/instance-type",
        ] {
            ensure!(label(&node, key) == label(&before, key), "{key} changed to {:?}", label(&node, key));
        }
        sleep(Duration::from_millis(500)).await;
    }
    println!("versions of the node within {TOGETHER:?}: {}", versions.len());
    // A kubelet reports every change, and otherwise every five minutes. Conflicting writers would make two versions
    // with each of the kubelet's looks.
    ensure!(versions.len() <= MAX_VERSIONS, "{} versions in {TOGETHER:?}", versions.len());
    Ok(())
}

/// The cloud reports that the machine is gone, and the kubelet shows that it is not.
async fn lease_decides(client: &Client, name: &str, kubelet: &Kubelet) -> anyhow::Result<()> {
    node_stays(client, name, Duration::from_secs(35)).await?;
    let node = nodes(client).get(name).await?;
    let reason = condition(&node, "CloudProviderInstanceExists").map(|(_, reason, _)| reason);
    ensure!(reason.as_deref() == Some("KubeletAlive"), "{reason:?}");
    event(client, "default", name, "DeletionHeldBack").await?;
    kubelet.stop()?;
    let stopped = Instant::now();
    // The deletion has been held back for so long that the lease is read only once in each pass.
    node_vanishes(client, name, Duration::from_secs(60)).await?;
    println!("from the kubelet's end to the node's: {:?}", stopped.elapsed());
    Ok(())
}

/// Checks that there were few conflicts: each is a debug line in the daemon's log.
fn ensure_quiet(daemon: &DaemonProcess) -> anyhow::Result<()> {
    let log = daemon.log();
    let conflicts = log.lines().filter(|line| line.contains("changed meanwhile")).count();
    ensure!(conflicts < 5, "{conflicts} conflicts: {log}");
    Ok(())
}
