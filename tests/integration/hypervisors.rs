//! The libvirt provider on libvirt's own test driver: several hypervisors, of which one is unreachable.

use std::{fmt::Write, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use cloudprovider_libvirt::{Config, LibvirtProvider};
use sandbox::kubelet;
use tempfile::TempDir;

use crate::{api::Api, daemon::InProcess, scenarios::Trials, support::*};

const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn trials() -> Trials {
    // The hypervisors' threads use real time.
    Trials::in_real_time().sandbox("libvirt::one_of_two_hypervisors_is_unreachable", one_unreachable)
}

/// A file for the test driver: running domains with these numbers, on a network whose addresses the driver
/// generates.
pub(crate) fn test_driver_file(numbers: impl Iterator<Item = usize>) -> anyhow::Result<String> {
    let mut xml = String::from(
        "<node><cpu><mhz>2000</mhz><model>x86_64</model><active>16</active><nodes>1</nodes><sockets>4</sockets>\
         <cores>4</cores><threads>1</threads></cpu><memory>16777216</memory>\
         <network><name>default</name><forward mode='nat'/><bridge name='virbr0'/>\
         <ip address='10.10.0.1' netmask='255.255.0.0'><dhcp><range start='10.10.0.2' end='10.10.255.250'/></dhcp></ip></network>",
    );
    for number in numbers {
        write!(
            xml,
            "<domain type='test'><name>{}</name><uuid>{}</uuid><memory unit='MiB'>4096</memory><vcpu>2</vcpu>\
             <os><type>hvm</type></os><devices><interface type='network'><mac address='52:54:00:{:02x}:{:02x}:{:02x}'/>\
             <source network='default'/></interface></devices></domain>",
            name(number),
            uuid(number),
            number >> 16,
            (number >> 8) & 0xff,
            number & 0xff,
        )?;
    }
    xml.push_str("</node>");
    Ok(xml)
}

pub(crate) fn name(number: usize) -> String {
    format!("vm-{number}")
}

pub(crate) fn provider(config: &str) -> anyhow::Result<Arc<LibvirtProvider>> {
    Ok(Arc::new(LibvirtProvider::new(Config::parse(config, None)?)))
}

async fn one_unreachable(api: &Api) -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let file = folder.path().join("kvm1.xml");
    std::fs::write(&file, test_driver_file(0..4)?)?;
    let provider = provider(&format!(
        "hypervisors:\n- {{name: kvm1, uri: 'test://{}', zone: rack-a, region: lab}}\n\
         - {{name: kvm2, uri: 'qemu+unix:///system?socket={}/not-there', zone: rack-b, region: lab}}\n",
        file.display(),
        folder.path().display()
    ))?;
    let flags =
        ["--node-monitor-period=500ms", "--node-deletion-grace-period=1s", "--node-deletion-minimum-age=0s"];
    let daemon = InProcess::start(&api.daemon_client, provider.clone(), &flags)?;

    // Nodes on the working hypervisor are initialised, though the other one is unreachable.
    for number in 0..4 {
        kubelet::register(&api.client, &kubelet::node(&name(number), &uuid(number))).await?;
    }
    for number in 0..4 {
        let done = node_becomes(&api.client, &name(number), LIMIT, "initialized", is_initialized).await?;
        ensure!(provider_id(&done) == Some(format!("libvirt:///{}", uuid(number))));
        ensure!(label(&done, "topology.kubernetes.io/zone") == Some("rack-a"));
        ensure!(label(&done, "node.kubernetes.io/instance-type") == Some("2c-4096m"));
        ensure!(
            addresses(&done).iter().any(|a| a.starts_with("InternalIP 10.10.")),
            "{:?}",
            addresses(&done)
        );
    }
    // Nodes on the other one: an initialised Node that has long been NotReady, and a new one.
    let mut old = kubelet::node("old", &uuid(100));
    let spec = old.spec.get_or_insert_default();
    spec.provider_id = Some(format!("libvirt:///{}", uuid(100)));
    spec.taints = None;
    kubelet::register(&api.client, &old).await?;
    set_ready_unknown(&api.client, "old").await?;
    kubelet::register(&api.client, &kubelet::node("new", &uuid(101))).await?;

    let doubt = |node: &_| {
        condition(node, "CloudProviderInstanceExists")
            .is_some_and(|(s, _, words)| s == "Unknown" && words.contains("kvm2"))
    };
    node_becomes(&api.client, "old", LIMIT, "says which hypervisor is away", doubt).await?;
    let waits = |node: &_| {
        condition(node, "CloudProviderInitialized")
            .is_some_and(|(s, _, words)| s == "False" && words.contains("kvm2"))
    };
    node_becomes(&api.client, "new", LIMIT, "says which hypervisor is away", waits).await?;
    node_stays(&api.client, "old", Duration::from_secs(5)).await?;

    // The working one is still followed: a stop is noticed at once.
    let kvm1 = provider.hypervisor("kvm1").context("kvm1")?;
    let victim = name(1);
    kvm1.with_connection(move |connection| {
        connection.lookup_domain_by_name(&victim).and_then(|domain| domain.destroy())
    })
    .await??;
    set_ready_unknown(&api.client, &name(1)).await?;
    let tainted = |node: &_| has_taint(node, SHUTDOWN);
    node_becomes(&api.client, &name(1), LIMIT, "has the shutdown taint", tainted).await?;
    daemon.stop().await
}
