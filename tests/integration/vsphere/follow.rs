//! Changes in vCenter appear on the Node at once.

use std::time::Duration;

use anyhow::ensure;
use sandbox::kubelet;
use serde_json::json;
use test_env::VcsimOptions;

use super::*;
use crate::{daemon::InProcess, scenarios::Trials};

pub(super) fn trials() -> Trials {
    Trials::new().api_server("vsphere::the_node_follows_its_machine", follow)
}

async fn follow(api: &Api) -> anyhow::Result<()> {
    let options = VcsimOptions { datacenters: 2, ..VcsimOptions::default() };
    let vcsim = simulator(&options).map_err(|error| anyhow::anyhow!("{error}"))?;
    vcsim.attach_tag("k8s-zone", "z1", "HostSystem", "DC0_C0_H1")?;
    vcsim.attach_tag("k8s-zone", "z9", "ClusterComputeResource", "DC1_C0")?;
    vcsim.attach_tag("k8s-region", "r9", "Datacenter", "DC1")?;
    let provider =
        VSphereProvider::new(Config::parse(&with_zones(&config(&[&vcsim])?), &Environment::default())?);
    let provider = Arc::new(provider.with_tag_refresh(Duration::from_secs(1)));
    let daemon = InProcess::start(&api.daemon_client, shared(&provider), &SOON)?;
    for number in 0..4 {
        kubelet::register(&api.client, &kubelet::node(&name(number), &uuid(number))).await?;
    }
    let mut zones = Vec::new();
    for number in 0..4 {
        let node = node_becomes(&api.client, &name(number), LIMIT, "initialized", is_initialized).await?;
        zones.push(label(&node, ZONE).unwrap_or_default().to_owned());
        ensure!(
            label(&node, "node.kubernetes.io/instance-type")
                .is_some_and(|t| t.starts_with("vsphere-vm.cpu-"))
        );
    }

    // an address
    let nics = json!({"nics": [{"network": "VM Network", "ips": ["10.20.9.9/16"]}]});
    followed(
        api,
        &name(0),
        "another address",
        || vcsim.set_guest(&machine(0), nics),
        |node| addresses(node).contains(&"InternalIP 10.20.9.9".to_owned()),
    )
    .await?;

    // a move to the host with its own zone, or away from it
    let (host, zone) = if zones[0] == "z1" { ("DC0_C0_H0", "z0") } else { ("DC0_C0_H1", "z1") };
    followed(
        api,
        &name(0),
        "moved to another host",
        || vcsim.act(&machine(0), "move", host),
        |node| label(node, ZONE) == Some(zone),
    )
    .await?;

    // to another datacenter
    let is_there = |node: &Node| label(node, ZONE) == Some("z9") && label(node, REGION) == Some("r9");
    let go = || vcsim.act(&machine(0), "move", "DC1_C0_H0");
    followed(api, &name(0), "moved to another datacenter", go, is_there).await?;

    // another tag, which vCenter does not push
    let retag = || {
        vcsim.detach_tag("k8s-region", "r0", "Datacenter", "DC0")?;
        vcsim.attach_tag("k8s-region", "r1", "Datacenter", "DC0")
    };
    followed(api, &name(1), "another tag", retag, |node| label(node, REGION) == Some("r1")).await?;

    // a rename: the machine's name in vCenter does not identify a Node
    vcsim.act(&machine(1), "rename", "another-name")?;
    node_stays(&api.client, &name(1), Duration::from_secs(3)).await?;
    let node = nodes(&api.client).get(&name(1)).await?;
    ensure!(is_initialized(&node) && !has_taint(&node, SHUTDOWN));

    // powered off and on
    set_ready_unknown(&api.client, &name(2)).await?;
    followed(
        api,
        &name(2),
        "powered off",
        || vcsim.act(&machine(2), "power-off", ""),
        |node| has_taint(node, SHUTDOWN),
    )
    .await?;
    node_stays(&api.client, &name(2), Duration::from_secs(2)).await?;
    // as with upstream, the taint is removed with the kubelet's first report
    vcsim.act(&machine(2), "power-on", "")?;
    let began = Instant::now();
    kubelet::heartbeat(&api.client, &name(2), true).await?;
    let is_free = |node: &Node| !has_taint(node, SHUTDOWN);
    node_becomes(&api.client, &name(2), LIMIT, "powered on", is_free).await?;
    println!("powered on: the Node shows it after {} ms", began.elapsed().as_millis());

    // a machine that vCenter cannot reach is not gone
    set_ready_unknown(&api.client, &name(2)).await?;
    for state in ["inaccessible", "disconnected", "orphaned"] {
        vcsim.set_guest(&machine(2), json!({"connection": state}))?;
        node_stays(&api.client, &name(2), Duration::from_secs(2)).await?;
    }

    // the machine is gone
    set_ready_unknown(&api.client, &name(3)).await?;
    let began = Instant::now();
    vcsim.act(&machine(3), "destroy", "")?;
    node_vanishes(&api.client, &name(3), LIMIT).await?;
    println!("destroyed: the Node is gone after {} ms, of which 1 s is grace", began.elapsed().as_millis());
    daemon.stop().await?;
    provider.ended().await;
    ensure!(vcsim.sessions()?.0 == 0, "logged out");
    Ok(())
}
