//! The whole system without simulation: a QEMU guest on a real libvirtd, a Node on a real API server, the
//! daemon as a separate process.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use sandbox::kubelet;
use tempfile::TempDir;
use test_env::{ControlPlane, ControlPlaneOptions, Libvirtd, MicroGuest, MicroGuestOptions};
use tokio::time::Instant;

use crate::{
    api,
    daemon::{DaemonProcess, binary},
    hypervisors::{name, test_driver_file},
    scenarios::Trials,
    shipped_roles,
    support::*,
    trial::{Outcome, runtime},
};

const SOON: Duration = Duration::from_secs(30);

/// An emulated machine boots and halts slowly while other tests need the cores.
pub(crate) const GUEST_PATIENCE: Duration = test_env::PATIENCE;

pub(crate) fn trials() -> Trials {
    Trials::new().trial("apiserver::qemu::from_power_on_to_deletion", from_power_on_to_deletion)
}

/// A configuration file with two hypervisors: the real one, and one of libvirt's test driver.
pub(crate) fn write_config(folder: &Path, libvirtd: &Libvirtd) -> anyhow::Result<String> {
    let (path, domains) = (folder.join("cloud.yaml"), folder.join("kvm2.xml"));
    fs::write(&domains, test_driver_file(50..51)?)?;
    fs::write(
        &path,
        format!(
            "hypervisors:\n- {{name: kvm1, uri: '{}', region: lab, zone: rack-a}}\n\
             - {{name: kvm2, uri: 'test://{}', region: lab, zone: rack-b}}\n\
             keepalive: {{interval: 1s, count: 2}}\n",
            libvirtd.uri(),
            domains.display()
        ),
    )?;
    Ok(path.display().to_string())
}

/// The daemon's command line for these tests, as the shipped service account.
pub(crate) fn command_line(control_plane: &ControlPlane, config: &str) -> anyhow::Result<Vec<String>> {
    let kubeconfig = runtime(false)?.block_on(shipped_roles::kubeconfig(control_plane))?;
    Ok(vec![
        "--cloud-provider=libvirt".into(),
        format!("--cloud-config={config}"),
        format!("--kubeconfig={}", kubeconfig.display()),
        "-v=4".into(),
    ])
}

fn from_power_on_to_deletion() -> Outcome {
    binary()?;
    let libvirtd = Libvirtd::start()?;
    let control_plane = ControlPlane::start(&ControlPlaneOptions::default())?;
    let options = MicroGuestOptions::default();
    let guest = MicroGuest::define(&libvirtd, "worker-1", &options)?;
    let folder = TempDir::new()?;
    let config = write_config(folder.path(), &libvirtd)?;
    let log = folder.path().join("daemon.log");
    let daemon = DaemonProcess::start(&command_line(&control_plane, &config)?, &log)?;
    let outcome = runtime(false)?.block_on(async {
        let client = api::client(control_plane.kubeconfig()).await?;
        boots(&client, &guest).await.context("a guest boots")?;
        reload(&client, &config).await.context("the configuration changes")?;
        stops_and_starts(&client, &guest).await.context("the guest stops and starts")?;
        outage(&client, &libvirtd).await.context("libvirtd is away")?;
        freeze(&client, &libvirtd, &guest).await.context("libvirtd is frozen")?;
        is_undefined(&client, &guest).await.context("the domain is undefined")
    });
    outcome.with_context(|| format!("the daemon's log: {}", daemon.log()))?;
    daemon.terminate()?;
    Ok(())
}

/// The Node is registered as the guest's kubelet would do, before the guest has an address.
async fn boots(client: &Client, guest: &MicroGuest) -> anyhow::Result<()> {
    let posted = kubelet::register(client, &kubelet::node(guest.name(), guest.uuid())).await?;
    let mut history = History::record(client, &posted)?;
    guest.start()?;
    let lease = guest.wait_for_lease(GUEST_PATIENCE)?;
    let leased = Instant::now();
    let done = node_becomes(client, guest.name(), SOON, "initialized", is_initialized).await?;
    println!("from the lease to a complete node: {:?}", leased.elapsed());

    ensure!(provider_id(&done) == Some(format!("libvirt:///{}", guest.uuid())), "{:?}", provider_id(&done));
    let found = addresses(&done);
    ensure!(found.first() == Some(&format!("InternalIP {lease}")), "{found:?}");
    ensure!(found.last() == Some(&format!("Hostname {}", guest.name())), "{found:?}");
    for (key, value) in [
        ("topology.kubernetes.io/zone", "rack-a"),
        ("topology.kubernetes.io/region", "lab"),
        ("node.kubernetes.io/instance-type", "1c-160m"),
    ] {
        ensure!(label(&done, key) == Some(value), "{key} is {:?}", label(&done, key));
    }
    check_order(&history.up_to(&done).await?)?;
    kubelet::heartbeat(client, guest.name(), true).await?;
    Ok(())
}

/// Other connections to the same hypervisors do not change the Node.
async fn reload(client: &Client, config: &str) -> anyhow::Result<()> {
    let node = async || nodes(client).get("worker-1").await;
    let version = |node: &Node| node.metadata.resource_version.clone();
    // Further addresses of its guest come some seconds after the first one.
    let mut before = node().await?;
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let now = node().await?;
        if version(&now) == version(&before) {
            break;
        }
        before = now;
    }
    fs::write(config, format!("{}callTimeout: 11s\n", fs::read_to_string(config)?))?;
    event(client, "kube-system", "cloud-controller-manager", "ConfigReloaded").await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let now = node().await?;
    // Some of them may come even later.
    let [had, has] = [&before, &now].map(|node| addresses(node).into_iter().collect::<BTreeSet<_>>());
    let has_more = has.len() > had.len() && has.is_superset(&had);
    ensure!(version(&now) == version(&before) || has_more, "the Node was written: {before:?}, {now:?}");
    Ok(())
}

async fn stops_and_starts(client: &Client, guest: &MicroGuest) -> anyhow::Result<()> {
    let tainted = |node: &_| has_taint(node, SHUTDOWN);
    guest.shutdown()?;
    guest.wait_for_state("shut off", GUEST_PATIENCE)?;
    set_ready_unknown(client, guest.name()).await?;
    node_becomes(client, guest.name(), SOON, "has the shutdown taint", tainted).await?;

    guest.start()?;
    guest.wait_for_lease(GUEST_PATIENCE)?;
    kubelet::heartbeat(client, guest.name(), true).await?;
    node_becomes(client, guest.name(), SOON, "has no shutdown taint", |node| !tainted(node)).await?;
    Ok(())
}

async fn outage(client: &Client, libvirtd: &Libvirtd) -> anyhow::Result<()> {
    set_ready_unknown(client, "worker-1").await?;
    libvirtd.stop()?;
    kubelet::register(client, &kubelet::node("worker-2", &uuid(2))).await?;
    let waits = |node: &_| {
        condition(node, "CloudProviderInitialized")
            .is_some_and(|(s, _, words)| s == "False" && words.contains("kvm1"))
    };
    node_becomes(client, "worker-2", SOON, "says that kvm1 is away", waits).await?;
    let doubt = |node: &_| {
        condition(node, "CloudProviderInstanceExists")
            .is_some_and(|(s, _, words)| s == "Unknown" && words.contains("kvm1"))
    };
    node_becomes(client, "worker-1", SOON, "says that kvm1 is away", doubt).await?;
    node_stays(client, "worker-1", Duration::from_secs(30)).await?;

    libvirtd.start_again()?;
    let recovered =
        |node: &_| condition_status(node, "CloudProviderInstanceExists").as_deref() == Some("True");
    node_becomes(client, "worker-1", Duration::from_secs(60), "recovers without a restart", recovered)
        .await?;
    // Its machine does not exist, which is known again now that libvirtd answers.
    let absent = |node: &_| {
        condition(node, "CloudProviderInitialized").is_some_and(|(_, reason, _)| reason == "InstanceNotFound")
    };
    node_becomes(client, "worker-2", Duration::from_secs(60), "has no instance", absent).await?;
    Ok(())
}

/// A libvirtd that does not answer delays only its own machines, and is used again when it answers, even with
/// a guest agent that hangs.
async fn freeze(client: &Client, libvirtd: &Libvirtd, guest: &MicroGuest) -> anyhow::Result<()> {
    guest.freeze()?;
    libvirtd.freeze()?;
    kubelet::register(client, &kubelet::node(&name(50), &uuid(50))).await?;
    let limit = Duration::from_secs(10);
    let done =
        node_becomes(client, &name(50), limit, "initialized by the other hypervisor", is_initialized).await?;
    ensure!(label(&done, "topology.kubernetes.io/zone") == Some("rack-b"));
    let doubt =
        |node: &_| condition_status(node, "CloudProviderInstanceExists").as_deref() == Some("Unknown");
    node_becomes(client, "worker-1", SOON, "says that kvm1 does not answer", doubt).await?;
    node_stays(client, "worker-1", Duration::from_secs(10)).await?;
    libvirtd.thaw()?;
    let recovered =
        |node: &_| condition_status(node, "CloudProviderInstanceExists").as_deref() == Some("True");
    node_becomes(client, "worker-1", SOON, "recovers without a restart", recovered).await?;
    guest.thaw()?;
    Ok(())
}

async fn is_undefined(client: &Client, guest: &MicroGuest) -> anyhow::Result<()> {
    guest.destroy()?;
    // A domain that is off but defined still exists.
    node_stays(client, guest.name(), Duration::from_secs(7)).await?;
    guest.undefine()?;
    let undefined = Instant::now();
    node_stays(client, guest.name(), Duration::from_millis(4500)).await?;
    node_vanishes(client, guest.name(), SOON).await?;
    println!("from undefined to deleted: {:?}", undefined.elapsed());
    event(client, "default", guest.name(), "DeletingNode").await?;
    Ok(())
}
