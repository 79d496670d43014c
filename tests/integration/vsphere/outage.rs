//! The vCenter fails in various ways: no Node is deleted wrongly, and everything recovers without a restart.

use std::time::Duration;

use anyhow::ensure;
use sandbox::kubelet;
use serde_json::json;
use test_env::VcsimOptions;
use tokio::time::sleep;

use super::*;
use crate::{daemon::InProcess, scenarios::Trials};

const NODES: usize = 8;

pub(super) fn trials() -> Trials {
    Trials::new()
        .api_server("vsphere::a_killed_vcenter_deletes_nothing", killed)
        .api_server("vsphere::a_failing_vcenter_deletes_nothing", failing)
}

async fn begin(api: &Api) -> anyhow::Result<(Vcsim, Arc<VSphereProvider>, InProcess)> {
    let options = VcsimOptions { machines: u32::try_from(NODES)? + 2, ..VcsimOptions::default() };
    let vcsim = simulator(&options).map_err(|error| anyhow::anyhow!("{error}"))?;
    let provider = provider(&with_zones(&config(&[&vcsim])?))?;
    let daemon = InProcess::start(&api.daemon_client, shared(&provider), &SOON)?;
    for number in 0..NODES {
        kubelet::register(&api.client, &kubelet::node(&name(number), &uuid(number))).await?;
    }
    for number in 0..NODES {
        node_becomes(&api.client, &name(number), LIMIT, "initialized", is_initialized).await?;
        // NotReady, so that it is looked up all the time
        set_ready_unknown(&api.client, &name(number)).await?;
    }
    Ok((vcsim, provider, daemon))
}

/// A new Node is initialised, and an existing one follows its machine.
async fn works(api: &Api, vcsim: &Vcsim, new: usize) -> anyhow::Result<()> {
    kubelet::register(&api.client, &kubelet::node(&name(new), &uuid(new))).await?;
    followed(api, &name(new), "a new Node", || Ok(()), is_initialized).await?;
    let nics = json!({"nics": [{"network": "VM Network", "ips": [format!("10.20.8.{new}/16")]}]});
    let wanted = format!("InternalIP 10.20.8.{new}");
    followed(
        api,
        &name(0),
        "an address",
        || vcsim.set_guest(&machine(0), nics),
        |node| addresses(node).contains(&wanted),
    )
    .await?;
    for number in 0..NODES {
        nodes(&api.client).get(&name(number)).await?;
    }
    Ok(())
}

async fn killed(api: &Api) -> anyhow::Result<()> {
    let (mut vcsim, provider, daemon) = begin(api).await?;
    vcsim.kill()?;
    node_stays(&api.client, &name(0), Duration::from_secs(8)).await?;
    vcsim.restart().map_err(|error| anyhow::anyhow!("{error}"))?;
    tag(&vcsim)?;
    works(api, &vcsim, NODES).await?;
    let counts = vcsim.counts()?;
    println!("after the restart: {counts:?}");
    ensure!(counts["soap:Login"] <= 3 && counts.values().sum::<u64>() < 60, "{counts:?}");

    // All sessions end at once.
    vcsim.reset_counts()?;
    vcsim.expire_sessions()?;
    works(api, &vcsim, NODES + 1).await?;
    // the waiting call returned with the change, and the next one opens a session
    eventually(LIMIT, "one session", || async { Ok((vcsim.sessions()?.0 == 1).then_some(())) }).await?;
    let counts = vcsim.counts()?;
    println!("after the sessions ended: {counts:?}");
    ensure!(counts["soap:Login"] <= 2 && counts.values().sum::<u64>() < 30, "{counts:?}");
    daemon.stop().await?;
    provider.ended().await;
    ensure!(vcsim.sessions()?.0 == 0, "logged out");
    Ok(())
}

async fn failing(api: &Api) -> anyhow::Result<()> {
    let (vcsim, provider, daemon) = begin(api).await?;
    // 30 % of all calls fail, in three ways, and sessions are ended repeatedly.
    vcsim.reset_counts()?;
    vcsim.set_rules(&json!([
        {"methods": ["*"], "fault": "HostCommunication", "probability": 0.1},
        {"methods": ["*"], "status": 503, "probability": 0.11},
        {"methods": ["*"], "drop": true, "probability": 0.12},
    ]))?;
    for _ in 0..3 {
        vcsim.expire_sessions()?;
        sleep(Duration::from_secs(3)).await;
    }
    works(api, &vcsim, NODES).await?;
    let counts = vcsim.counts()?;
    let calls: u64 = counts.iter().filter(|(method, _)| !method.starts_with("hit:")).map(|(_, n)| n).sum();
    println!("{calls} calls while 30 % fail: {counts:?}");
    ensure!(calls < 500, "a storm: {counts:?}");

    // Every call takes 2 s.
    vcsim.set_rules(&json!([{"methods": ["*"], "delayMillis": 2000}]))?;
    vcsim.expire_sessions()?;
    works(api, &vcsim, NODES + 1).await?;
    vcsim.set_rules(&json!([]))?;
    daemon.stop().await?;
    provider.ended().await;
    Ok(())
}
