//! What is made in a session of vCenter, and sessions that are not opened by a user and a password.

use anyhow::{Context as _, ensure};
use futures::FutureExt;
use libtest_mimic::Trial;
use sandbox::kubelet;
use serde_json::json;
use test_env::VcsimOptions;

use super::*;
use crate::daemon::InProcess;

pub(super) fn trials() -> Vec<Trial> {
    on_both("a_property_collector_of_its_own", |api| collector(api).boxed_local())
}

/// Whether the last wait for changes asked the property collector that every session has.
fn asks_the_sessions_collector(vcsim: &Vcsim) -> anyhow::Result<bool> {
    let requests = vcsim.last_requests()?;
    let wait = requests.get("soap:WaitForUpdatesEx").context("nobody waits")?;
    Ok(wait.contains(">propertyCollector</_this>"))
}

/// A machine gets an address, and its Node shows it.
async fn gets_address(api: &Api, vcsim: &Vcsim, number: usize, address: &str) -> anyhow::Result<()> {
    let nics = json!({"nics": [{"network": "VM Network", "ips": [format!("{address}/16")]}]});
    let wanted = format!("InternalIP {address}");
    let change = || vcsim.set_guest(&machine(number), nics);
    followed(api, &name(number), "an address", change, |node| addresses(node).contains(&wanted)).await?;
    Ok(())
}

/// Changes are waited for by a property collector made for that, and where vCenter makes none, by the session's own.
async fn collector(api: &Api) -> anyhow::Result<()> {
    let vcsim = Vcsim::start(&VcsimOptions::default()).map_err(|error| anyhow::anyhow!("{error}"))?;
    let provider = provider(&config(&[&vcsim])?)?;
    let daemon = InProcess::start(&api.daemon_client, shared(&provider), &SOON)?;
    kubelet::register(&api.client, &kubelet::node(&name(0), &uuid(0))).await?;
    node_becomes(&api.client, &name(0), LIMIT, "initialized", is_initialized).await?;
    ensure!(!asks_the_sessions_collector(&vcsim)?, "{:?}", vcsim.last_requests()?);

    vcsim.set_rules(&json!([{"methods": ["soap:CreatePropertyCollector"], "fault": "NoPermission"}]))?;
    vcsim.expire_sessions()?;
    kubelet::register(&api.client, &kubelet::node(&name(1), &uuid(1))).await?;
    node_becomes(&api.client, &name(1), LIMIT, "initialized", is_initialized).await?;
    gets_address(api, &vcsim, 1, "10.20.8.1").await?;
    eventually(LIMIT, "the session's own property collector", || async {
        Ok(asks_the_sessions_collector(&vcsim)?.then_some(()))
    })
    .await?;
    let counts = vcsim.counts()?;
    ensure!(counts["hit:soap:CreatePropertyCollector"] == 1, "asked for once: {counts:?}");
    daemon.stop().await?;
    provider.ended().await;
    ensure!(vcsim.sessions()?.0 == 0, "logged out");
    Ok(())
}
