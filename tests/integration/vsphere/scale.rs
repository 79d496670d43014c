//! A thousand Nodes: all are initialised, and the calls to vCenter are counted. Ten thousand machines: the
//! memory is measured.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::{StreamExt, stream};
use kube::api::ListParams;
use sandbox::kubelet;
use tempfile::TempDir;
use test_env::VcsimOptions;
use tokio::time::sleep;

use super::*;
use crate::{
    daemon::{DaemonProcess, InProcess, binary},
    scenarios::Trials,
    shipped_roles,
};

const NODES: usize = 1000;

/// The long poll, at first with pages of at most 100 objects. It reports changes and keeps the session alive.
const LONG_POLL: &str = "soap:WaitForUpdatesEx";

/// How many long polls end in this time because nothing changes. Each lasts 45 s.
fn polls_within(time: Duration) -> u64 {
    time.as_secs() / 45
}

pub(super) fn trials() -> Trials {
    Trials::new()
        .api_server("vsphere::a_thousand_nodes", thousand)
        .api_server("vsphere::ten_thousand_machines_fit_in_60_mb", ten_thousand)
}

/// The daemon as a separate process: 10,000 machines, of which 200 are Nodes.
async fn ten_thousand(api: &Api) -> anyhow::Result<()> {
    const NODES: usize = 200;
    /// 60 MB less what a release build maps of its binary, about 18 MB. A debug build maps more than twice as much.
    const MAX: u64 = 42_000_000;
    binary()?;
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let others = 10_000 - u32::try_from(NODES)?;
    let options = VcsimOptions { machines: u32::try_from(NODES)?, others, ..VcsimOptions::default() };
    let vcsim = simulator(&options).map_err(|error| anyhow::anyhow!("{error}"))?;
    stream::iter(0..NODES)
        .for_each_concurrent(8, |number| async move {
            let node = kubelet::node_of_real_size(&name(number), &uuid(number));
            kubelet::register(&api.client, &node).await.expect("posted");
        })
        .await;
    let folder = TempDir::new()?;
    let file = folder.path().join("vsphere.conf");
    std::fs::write(&file, with_zones(&config(&[&vcsim])?))?;
    let arguments = [
        "--cloud-provider=vsphere".to_owned(),
        format!("--cloud-config={}", file.display()),
        format!("--kubeconfig={}", shipped_roles::kubeconfig(control_plane).await?.display()),
    ];
    let mut daemon = DaemonProcess::start(&arguments, &folder.path().join("log"))?;
    let all = nodes(&api.client);
    eventually(LIMIT, "all nodes are initialized", || async {
        let list = all.list(&ListParams::default()).await?;
        sleep(Duration::from_millis(500)).await;
        Ok((list.items.len() == NODES && list.items.iter().all(is_initialized)).then_some(()))
    })
    .await
    .with_context(|| daemon.log())?;
    ensure!(daemon.log().contains("machines=10000"), "{}", daemon.log());
    let memory = std::fs::read_to_string(format!("/proc/{}/status", daemon.process().id()))?;
    let kilobytes = |name: &str| {
        let line = memory.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).context("a number")
    };
    let (peak, now) = (1024 * kilobytes("VmHWM:")?, 1024 * kilobytes("VmRSS:")?);
    let file = 1024 * kilobytes("RssFile:")?;
    let in_mb = [peak, now, file].map(|bytes| bytes / 1_000_000);
    println!("10,000 machines, {NODES} Nodes: MB at most, now, and of that from files: {in_mb:?}");
    ensure!(peak.saturating_sub(file) <= MAX, "of {peak} bytes {file} are mapped from files: {memory}");
    daemon.terminate()
}

async fn thousand(api: &Api) -> anyhow::Result<()> {
    let options = VcsimOptions { machines: u32::try_from(NODES)?, ..VcsimOptions::default() };
    let vcsim = simulator(&options).map_err(|error| anyhow::anyhow!("{error}"))?;
    let provider = provider(&with_zones(&config(&[&vcsim])?))?;
    stream::iter(0..NODES)
        .for_each_concurrent(8, |number| async move {
            let node = kubelet::node_of_real_size(&name(number), &uuid(number));
            kubelet::register(&api.client, &node).await.expect("posted");
        })
        .await;
    let began = Instant::now();
    let daemon = InProcess::start(&api.daemon_client, shared(&provider), &[])?;
    let all = nodes(&api.client);
    let done = eventually(Duration::from_secs(120), "all nodes are initialized", || async {
        let list = all.list(&ListParams::default()).await?;
        sleep(Duration::from_millis(500)).await;
        Ok(list.items.iter().all(is_initialized).then_some(list.items))
    })
    .await?;
    println!("{NODES} Nodes are initialised after {:.1} s", began.elapsed().as_secs_f32());
    ensure!(done.len() == NODES);
    for node in &done {
        let number: usize = node
            .metadata
            .name
            .as_deref()
            .and_then(|n| n.strip_prefix("node-"))
            .unwrap_or_default()
            .parse()?;
        ensure!(provider_id(node) == Some(format!("vsphere://{}", uuid(number))));
        ensure!(label(node, ZONE) == Some("z0") && label(node, REGION) == Some("r0"));
        ensure!(addresses(node).iter().any(|a| a.starts_with("InternalIP 10.20.")), "{:?}", addresses(node));
    }
    let counts = vcsim.counts()?;
    println!("calls: {counts:?}");
    let round_trips: u64 =
        counts.iter().filter(|(method, _)| *method != LONG_POLL).map(|(_, count)| count).sum();
    println!("{round_trips} round trips and the long poll");
    ensure!(round_trips <= 11, "{counts:?}");
    // vcsim puts 100 objects into an update set: those are the listing, and one more call is waiting
    let most = u64::try_from(NODES / 100)? + 2 + polls_within(began.elapsed());
    ensure!(counts[LONG_POLL] <= most, "{counts:?} in {:?}", began.elapsed());

    // Settled: there are no calls to vCenter except the long poll, and no writes.
    vcsim.reset_counts()?;
    let writes = api.requests.writes();
    let settled = Instant::now();
    sleep(Duration::from_secs(20)).await;
    let idle = vcsim.counts()?;
    ensure!(idle.keys().all(|method| method == LONG_POLL), "{idle:?}");
    ensure!(idle.values().sum::<u64>() <= 1 + polls_within(settled.elapsed()), "{idle:?}");
    ensure!(api.requests.writes() == writes, "{:?}", api.requests.writes());
    daemon.stop().await
}
