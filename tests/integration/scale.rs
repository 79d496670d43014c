//! A thousand Nodes: all are initialised, and the calls and writes are counted.

use std::{fmt::Write, time::Duration};

use anyhow::ensure;
use futures::{StreamExt, stream};
use kube::api::ListParams;
use sandbox::kubelet;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::{
    api::Api,
    daemon::InProcess,
    hypervisors::{name, provider, test_driver_file},
    scenarios::Trials,
    support::*,
};

const NODES: usize = 1000;

pub(crate) fn trials() -> Trials {
    Trials::in_real_time().api_server("libvirt::a_thousand_nodes", thousand)
}

async fn thousand(api: &Api) -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let mut config = String::from("hypervisors:\n");
    for (hypervisor, numbers) in [("kvm1", 0..NODES / 2), ("kvm2", NODES / 2..NODES)] {
        let file = folder.path().join(hypervisor);
        std::fs::write(&file, test_driver_file(numbers)?)?;
        writeln!(
            config,
            "- {{name: {hypervisor}, uri: 'test://{}', zone: {hypervisor}, region: lab}}",
            file.display()
        )?;
    }
    let provider = provider(&config)?;
    // Nodes are registered while the daemon runs: half of them before it starts, half after.
    let post = |numbers: std::ops::Range<usize>| {
        stream::iter(numbers).for_each_concurrent(8, |number| async move {
            let node = kubelet::node_of_real_size(&name(number), &uuid(number));
            kubelet::register(&api.client, &node).await.expect("posted");
        })
    };
    post(0..NODES / 2).await;
    let daemon = InProcess::start(&api.daemon_client, provider.clone(), &[])?;
    post(NODES / 2..NODES).await;

    let all = nodes(&api.client);
    let done = eventually(Duration::from_secs(120), "all nodes are initialized", || async {
        let list = all.list(&ListParams::default()).await?;
        sleep(Duration::from_millis(500)).await;
        Ok(list.items.iter().all(is_initialized).then_some(list.items))
    })
    .await?;
    ensure!(done.len() == NODES);
    for node in &done {
        ensure!(provider_id(node).is_some_and(|id| id.starts_with("libvirt:///")));
        ensure!(addresses(node).len() == 2 && label(node, "topology.kubernetes.io/zone").is_some());
    }
    // Two patches for each Node, and no other writes except events, which follow slowly.
    let writes = api.requests.writes();
    ensure!(
        writes == [("PATCH nodes".to_owned(), NODES), ("PATCH nodes/status".to_owned(), NODES)].into(),
        "{writes:?}"
    );
    // One listing of each hypervisor, whatever the number of Nodes and look-ups.
    let calls = provider.call_counts();
    println!("libvirt calls for {NODES} nodes: {calls:?}");
    ensure!(calls.get("list_domains") == Some(&2), "{calls:?}");

    // Settled: there are no writes, and no calls to libvirt.
    sleep(Duration::from_secs(10)).await;
    ensure!(api.requests.writes() == writes, "{:?}", api.requests.writes());
    ensure!(provider.call_counts() == calls, "{:?}", provider.call_counts());
    daemon.stop().await
}
