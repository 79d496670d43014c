//! The controllers of the core part, for one term.

use std::sync::Arc;

use component::{inspection::Inspection, work_queue::WorkQueue};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Core;
use crate::{
    engine::control::{self, Controller, LoopState, Source},
    machine::MachineController,
    machine_deployment::MachineDeploymentController,
    machine_set::MachineSetController,
};

/// The queues of the controllers.
#[derive(Debug, Default)]
pub struct Queues {
    /// Of Machines.
    pub machines: WorkQueue,
    /// Of `MachineSet`s.
    pub machine_sets: WorkQueue,
    /// Of `MachineDeployment`s.
    pub machine_deployments: WorkQueue,
}

/// Runs until `stop` is cancelled. Passes that have begun are finished first. `watches` keep the caches of `core` up to date. It ends by
/// itself only after a panic, which the daemon notices.
pub async fn run(
    core: Arc<Core>,
    mut watches: JoinSet<()>,
    queues: Queues,
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
    let machines = MachineController::new(Arc::clone(&core));
    let (machine_sources, sets) = (machines.sources(), MachineSetController::new(Arc::clone(&core)));
    let (set_sources, deployments) = (sets.sources(), MachineDeploymentController::new(Arc::clone(&core)));
    let deployment_sources = deployments.sources();
    let states: [_; 3] = std::array::from_fn(|_| LoopState::default());
    let [of_machines, of_sets, of_deployments] = states.clone();
    start(&mut loops, (machines, machine_sources), queues.machines, &stop, of_machines);
    start(&mut loops, (sets, set_sources), queues.machine_sets, &stop, of_sets);
    start(&mut loops, (deployments, deployment_sources), queues.machine_deployments, &stop, of_deployments);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            // A cache without its watch, and a kind without its loop, would stay as they are for ever.
            _ = watches.join_next() => break,
            _ = loops.join_next() => break,
            question = inspection.question() => {
                let [machines, sets, deployments] = states.each_ref().map(LoopState::to_json);
                let stores = &core.stores;
                question.answer(json!({
                    "objects": {
                        "clusters": stores.clusters.len(),
                        "machines": stores.machines.len(),
                        "machineSets": stores.machine_sets.len(),
                        "machineDeployments": stores.machine_deployments.len(),
                    },
                    "machines": machines,
                    "machineSets": sets,
                    "machineDeployments": deployments,
                }));
            }
        }
    }
    stop.cancel();
    while loops.join_next().await.is_some() {}
}

fn start<C: Controller>(
    loops: &mut JoinSet<()>,
    (controller, sources): (C, Vec<Source>),
    queue: WorkQueue,
    stop: &CancellationToken,
    state: LoopState,
) {
    loops.spawn(control::run(Arc::new(controller), sources, queue, stop.clone(), state));
}
