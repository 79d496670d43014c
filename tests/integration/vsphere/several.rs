//! Several vCenters, copied machines, guests without VMware Tools, and both address families.

use std::time::Duration;

use anyhow::ensure;
use sandbox::kubelet;
use serde_json::json;
use test_env::VcsimOptions;

use super::*;
use crate::{daemon::InProcess, scenarios::Trials};

pub(super) fn trials() -> Trials {
    Trials::new()
        .api_server("vsphere::one_of_two_vcenters_is_unreachable", unreachable)
        .api_server("vsphere::copies_and_silent_guests", odd_machines)
}

async fn unreachable(api: &Api) -> anyhow::Result<()> {
    let options = VcsimOptions::default();
    let others = VcsimOptions { first_node: 100, ..VcsimOptions::default() };
    let vc0 = Vcsim::start(&options).map_err(|error| anyhow::anyhow!("{error}"))?;
    let mut vc1 = Vcsim::start(&others).map_err(|error| anyhow::anyhow!("{error}"))?;
    let provider = provider(&config(&[&vc0, &vc1])?)?;
    let daemon = InProcess::start(&api.daemon_client, shared(&provider), &SOON)?;
    for number in [0, 1, 100] {
        kubelet::register(&api.client, &kubelet::node(&name(number), &uuid(number))).await?;
        node_becomes(&api.client, &name(number), LIMIT, "initialized", is_initialized).await?;
    }
    vc1.kill()?;
    set_ready_unknown(&api.client, &name(100)).await?;
    let doubt = |node: &Node| {
        condition(node, "CloudProviderInstanceExists")
            .is_some_and(|(status, _, words)| status == "Unknown" && words.contains("vc1"))
    };
    node_becomes(&api.client, &name(100), LIMIT, "says which vCenter is away", doubt).await?;
    node_stays(&api.client, &name(100), Duration::from_secs(3)).await?;
    // a machine that is gone from the reachable vCenter might be in the other one
    set_ready_unknown(&api.client, &name(1)).await?;
    vc0.act(&machine(1), "destroy", "")?;
    node_stays(&api.client, &name(1), Duration::from_secs(4)).await?;
    // everything else works
    kubelet::register(&api.client, &kubelet::node(&name(2), &uuid(2))).await?;
    node_becomes(&api.client, &name(2), LIMIT, "initialized", is_initialized).await?;
    vc1.restart().map_err(|error| anyhow::anyhow!("{error}"))?;
    let began = Instant::now();
    node_vanishes(&api.client, &name(1), LIMIT).await?;
    println!("the other vCenter is back: the Node is gone after {} ms", began.elapsed().as_millis());
    let found = |node: &Node| {
        condition(node, "CloudProviderInstanceExists").is_some_and(|(status, _, _)| status == "True")
    };
    node_becomes(&api.client, &name(100), LIMIT, "is found again", found).await?;
    daemon.stop().await
}

async fn odd_machines(api: &Api) -> anyhow::Result<()> {
    let options = VcsimOptions { machines: 6, ..VcsimOptions::default() };
    let vcsim = Vcsim::start(&options).map_err(|error| anyhow::anyhow!("{error}"))?;
    // a copy that nothing tells apart
    vcsim.set_guest(&machine(1), json!({"uuid": uuid(0), "hostName": name(0)}))?;
    vcsim.set_guest(&machine(2), json!({"tools": "guestToolsNotRunning", "hostName": "", "nics": []}))?;
    vcsim.set_guest(
        &machine(3),
        json!({"nics": [{"network": "VM Network", "ips": ["10.20.0.4/16", "fe80::1/64", "fd00::4/64"]},
                        {"network": "", "deviceConfigId": -1, "ips": ["10.244.0.1/24", "fd01::1/64"]}]}),
    )?;
    let text = config(&[&vcsim])?.replace("    server:", "    ipFamily: [ipv4, ipv6]\n    server:");
    let environment = [("ENABLE_ALPHA_DUAL_STACK", "true")];
    let config = Config::parse(&text, &environment.into_iter().collect())?;
    let provider = Arc::new(VSphereProvider::new(config));
    let daemon = InProcess::start(&api.daemon_client, shared(&provider), &SOON)?;
    for number in [0, 2, 3] {
        kubelet::register(&api.client, &kubelet::node(&name(number), &uuid(number))).await?;
    }
    let waits = |words: &'static [&'static str]| {
        move |node: &Node| {
            condition(node, "CloudProviderInitialized").is_some_and(|(status, _, said)| {
                status == "False" && words.iter().all(|word| said.contains(word))
            })
        }
    };
    let both = waits(&["DC0_C0_RP0_VM0", "DC0_C0_RP0_VM1"]);
    node_becomes(&api.client, &name(0), LIMIT, "names both machines", both).await?;
    let tools = waits(&["VMware Tools"]);
    node_becomes(&api.client, &name(2), LIMIT, "says that the Tools are missing", tools).await?;
    let dual = node_becomes(&api.client, &name(3), LIMIT, "initialized", is_initialized).await?;
    let found = addresses(&dual);
    for wanted in ["InternalIP 10.20.0.4", "InternalIP fd00::4"] {
        ensure!(found.iter().any(|address| address == wanted), "{found:?}");
    }
    ensure!(!found.iter().any(|address| address.contains("10.244") || address.contains("fe80")), "{found:?}");
    // the faults are corrected
    vcsim.set_guest(&machine(1), json!({"uuid": uuid(1), "hostName": name(1)}))?;
    let nics = json!([{"network": "VM Network", "ips": ["10.20.0.1/16", "fd00::1/64"]}]);
    vcsim.set_guest(&machine(0), json!({"nics": nics}))?;
    node_becomes(&api.client, &name(0), LIMIT, "initialized", is_initialized).await?;
    daemon.stop().await
}
