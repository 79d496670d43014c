//! The controllers of the bootstrap part: `KubeadmConfig`s, and the data by which kubeadm makes their machines Nodes.

use std::{sync::Arc, time::Duration};

use cluster_api::KubeadmConfig;
use component::{inspection::Inspection, watching};
use futures::FutureExt as _;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    bootstrap::Bootstrap,
    engine::{
        control::{self, Controller as _, LoopState, resync},
        metrics::LoopMetrics,
        stores::Store,
        writer::Writer,
    },
    gate::{PartTerm, Writers},
    kubeadm_config::KubeadmConfigController,
    options::LifecycleOptions,
    sources::saw,
    workload::{AllowedAddresses, Dial, Options, WorkloadClusters},
};

/// Runs the controllers of the part for one term, until `stop` is cancelled. Passes that have begun are finished first.
///
/// # Errors
/// Never: nothing of the controllers goes on.
pub async fn run(
    term: PartTerm,
    options: LifecycleOptions,
    metrics: LoopMetrics,
    stop: CancellationToken,
    inspection: Inspection,
) -> cloudprovider::Result<()> {
    let PartTerm { fence, clients, events, writers, .. } = term;
    let connector = Arc::new(Dial::new(AllowedAddresses::of_flag(options.workload_networks.clone())));
    let reader = watching::client(clients.unthrottled.clone());
    let of_clusters = Options { namespace: options.namespace.clone(), ..Options::default() };
    let bootstrap = Arc::new(Bootstrap {
        clusters: Store::default(),
        machines: Store::default(),
        configs: Store::default(),
        workload: WorkloadClusters::new(clients.client.clone(), fence, connector, of_clusters),
        writer: Writer::new(clients.client),
        events,
        watch_filter: options.watch_filter,
        token_ttl: options.bootstrap_token_ttl,
    });
    let mut watches = bootstrap.watch(&reader, options.namespace.as_deref(), &stop);
    watches.spawn(notice_others(bootstrap.configs.clone(), writers));
    work(bootstrap, watches, metrics, options.sync_period, stop, inspection).await;
    Ok(())
}

/// Tells the gate who writes the objects. It stops the part's writes in the namespaces where another manager writes.
async fn notice_others(configs: Store<KubeadmConfig>, writers: Writers) {
    let mut changes = configs.subscribe();
    loop {
        let keys = changes.next().await;
        saw(&configs, &keys, &writers);
    }
}

/// Runs until `stop` is cancelled. `watches` keep the caches up to date.
pub(crate) async fn work(
    bootstrap: Arc<Bootstrap>,
    mut watches: JoinSet<()>,
    metrics: LoopMetrics,
    sync_period: Duration,
    stop: CancellationToken,
    mut inspection: Inspection,
) {
    let stop = stop.child_token();
    let _ends_all = stop.clone().drop_guard();
    tokio::select! {
        () = stop.cancelled() => return,
        _ = watches.join_next() => return,
        () = inspection.beside(bootstrap.synced()) => {}
    }
    let mut loops = JoinSet::new();
    {
        let (workload, stop) = (bootstrap.workload.clone(), stop.clone());
        loops.spawn(async move { workload.run(stop).map(drop).await });
    }
    let controller = KubeadmConfigController::new(Arc::clone(&bootstrap));
    let (mut sources, state) = (controller.sources(), LoopState::default());
    let meter = metrics.of(KubeadmConfigController::KIND);
    sources.push(resync(bootstrap.configs.clone(), sync_period));
    loops.spawn(control::run(Arc::new(controller), sources, meter, stop.clone(), state.clone()));
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = watches.join_next() => break,
            _ = loops.join_next() => break,
            question = inspection.question() => question.answer(json!({
                "objects": {"kubeadmConfigs": bootstrap.configs.len()},
                "kubeadmConfigs": state.to_json(),
            })),
        }
    }
    stop.cancel();
    while loops.join_next().await.is_some() {}
}
