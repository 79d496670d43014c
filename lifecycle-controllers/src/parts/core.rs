//! The controllers of the core part, for one term.

use std::{sync::Arc, time::Duration};

use component::{inspection::Inspection, watching};
use controller_kit::cache::{Cache, CachedObject};
use kube::Client;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::{ClusterController, ClusterOptions},
    cluster_resource_set::{ClusterResourceSetBindingController, ClusterResourceSetController},
    core::{Core, CoreOptions},
    engine::{
        control::{self, Controller, LoopState, Source, resync},
        external::Externals,
        metrics::LoopMetrics,
        stores::Stores,
        writer::Writer,
    },
    gate::{PartTerm, Writers},
    machine::MachineController,
    machine_deployment::MachineDeploymentController,
    machine_health_check::MachineHealthCheckController,
    machine_set::MachineSetController,
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
    let (namespace, sync_period) = (options.namespace.clone(), options.sync_period);
    let reader = watching::client(clients.unthrottled.clone());
    let connector = Arc::new(Dial::new(AllowedAddresses::of_flag(options.workload_networks.clone())));
    // Its writes are behind the fence of the part.
    let of_clusters = Options { namespace: namespace.clone(), ..Options::default() };
    let workload = WorkloadClusters::new(clients.client.clone(), fence, connector, of_clusters);
    let core = Arc::new(Core {
        stores: Stores::default(),
        externals: Externals::new(reader.clone(), namespace.clone(), stop.clone()),
        writer: Writer::new(clients.client),
        workload,
        events,
        options: CoreOptions::new(&options),
    });
    let mut watches = core.stores.watch(&reader, namespace.as_deref(), &stop);
    watches.spawn(notice_others(core.stores.clone(), writers));
    work(core, reader, watches, metrics, sync_period, stop, inspection).await;
    Ok(())
}

/// Tells the gate who writes the objects. It stops the part's writes in the namespaces where another manager writes.
async fn notice_others(stores: Stores, writers: Writers) {
    let mut clusters = stores.clusters.subscribe();
    let mut deployments = stores.machine_deployments.subscribe();
    let mut sets = stores.machine_sets.subscribe();
    let mut checks = stores.machine_health_checks.subscribe();
    loop {
        tokio::select! {
            keys = clusters.next() => saw(&stores.clusters, &keys, &writers),
            keys = deployments.next() => saw(&stores.machine_deployments, &keys, &writers),
            keys = sets.next() => saw(&stores.machine_sets, &keys, &writers),
            keys = checks.next() => saw(&stores.machine_health_checks, &keys, &writers),
        }
    }
}

/// Runs until `stop` is cancelled. Passes that have begun are finished first. `watches` keep the caches of `core` up to date, and
/// `reader` watches what is read besides. It ends by itself only after a panic, which the daemon notices.
pub(crate) async fn work(
    core: Arc<Core>,
    reader: Client,
    mut watches: JoinSet<()>,
    metrics: LoopMetrics,
    sync_period: Duration,
    stop: CancellationToken,
    mut inspection: Inspection,
) {
    // Whatever ends ends all.
    let stop = stop.child_token();
    let _ends_all = stop.clone().drop_guard();
    let synced = core.stores.clone();
    tokio::select! {
        () = stop.cancelled() => return,
        _ = watches.join_next() => return,
        () = inspection.beside(synced.synced()) => {}
    }
    let mut loops = JoinSet::new();
    {
        let (core, stop) = (Arc::clone(&core), stop.clone());
        loops.spawn(async move { core.workload.run(stop).await });
    }
    let clusters = ClusterController::new(Arc::clone(&core), ClusterOptions::default());
    let machines = MachineController::new(Arc::clone(&core));
    let sets = MachineSetController::new(Arc::clone(&core));
    let deployments = MachineDeploymentController::new(Arc::clone(&core));
    let checks = MachineHealthCheckController::new(Arc::clone(&core));
    let resource_sets = ClusterResourceSetController::new(Arc::clone(&core));
    let bindings = ClusterResourceSetBindingController::new(Arc::clone(&core));
    let mut states = Vec::new();
    let stores = &core.stores;
    let mut starts = Starts { loops: &mut loops, stop: &stop, metrics: &metrics, sync_period };
    states.push(starts.start(clusters.sources(), &stores.clusters, clusters));
    states.push(starts.start(machines.sources(), &stores.machines, machines));
    states.push(starts.start(sets.sources(), &stores.machine_sets, sets));
    let of_deployments = deployments.sources();
    states.push(starts.start(of_deployments, &stores.machine_deployments, deployments));
    states.push(starts.start(checks.sources(), &stores.machine_health_checks, checks));
    states.push(starts.start(resource_sets.sources(&reader), &stores.cluster_resource_sets, resource_sets));
    states.push(starts.start(bindings.sources(), &stores.cluster_resource_set_bindings, bindings));
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            // A cache without its watch, and a kind without its loop, would stay as they are for ever.
            _ = watches.join_next() => break,
            _ = loops.join_next() => break,
            question = inspection.question() => question.answer(to_json(&core.stores, &states)),
        }
    }
    stop.cancel();
    while loops.join_next().await.is_some() {}
}

/// Starts loops.
struct Starts<'a> {
    loops: &'a mut JoinSet<()>,
    stop: &'a CancellationToken,
    metrics: &'a LoopMetrics,
    sync_period: Duration,
}

impl Starts<'_> {
    /// Starts that of a controller. `objects` are those that it reconciles.
    fn start<C: Controller, O: CachedObject>(
        &mut self,
        mut sources: Vec<Source>,
        objects: &Cache<O>,
        controller: C,
    ) -> (&'static str, LoopState) {
        let state = LoopState::default();
        sources.push(resync(objects.clone(), self.sync_period));
        let (stop, meter) = (self.stop.clone(), self.metrics.of(C::KIND));
        self.loops.spawn(control::run(Arc::new(controller), sources, meter, stop, state.clone()));
        (C::KIND, state)
    }
}

/// For `/debug/state`.
fn to_json(stores: &Stores, states: &[(&'static str, LoopState)]) -> Value {
    let loops: Map<_, _> = states.iter().map(|(kind, state)| ((*kind).to_owned(), state.to_json())).collect();
    json!({
        "objects": {
            "clusters": stores.clusters.len(),
            "machines": stores.machines.len(),
            "machineSets": stores.machine_sets.len(),
            "machineDeployments": stores.machine_deployments.len(),
        },
        "loops": loops,
    })
}
