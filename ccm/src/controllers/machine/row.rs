//! The controller's row in the table of controllers.

use component::work_queue::WorkQueueMetrics;
use futures::FutureExt as _;

use super::{MachineController, MachineControllerOptions, MachineMetrics, names::COMPONENT};
use crate::{
    controllers::{Capability, ControllerContext, ControllerDescriptor, ControllerPermissions, Run},
    flags::MACHINE,
    rbac::Permission,
};

pub(crate) const DESCRIPTOR: ControllerDescriptor = ControllerDescriptor {
    names: MACHINE,
    client: COMPONENT,
    events_from: COMPONENT,
    needs: Some(Capability::Machines),
    build,
    metrics: |metrics| metrics.get::<MachineMetrics>().map(drop),
    permissions,
    explain: None,
};

/// Those of the provider's kinds are in [`crate::permissions::needed_for_machines`].
fn permissions() -> ControllerPermissions {
    let core = |resource: &'static str| {
        ["list", "watch"]
            .map(|verb| Permission::new(super::names::CORE_GROUP, resource, verb, "the owners of machines"))
    };
    let secret = Permission::new("", "secrets", "get", "bootstrap data of machines");
    ControllerPermissions {
        reads: [core("machines"), core("clusters")].concat().into_iter().chain([secret]).collect(),
        ..ControllerPermissions::default()
    }
}

fn build(context: ControllerContext<'_>) -> anyhow::Result<Run> {
    let ControllerContext { flags, cloud, fence, metrics, clients, events, health, .. } = context;
    let kinds = cloud.machine_kinds().ok_or_else(|| anyhow::anyhow!("the cloud provider has no machines"))?;
    let own = &flags.controllers.machine;
    let options = MachineControllerOptions {
        namespace: own.namespace(),
        watch_filter: own.watch_filter(),
        sync_period: own.sync_period,
        dry_run: flags.misc.dry_run,
    };
    let queue = metrics.get::<WorkQueueMetrics>()?.named("machine");
    let controller = MachineController::new(
        kinds,
        (cloud, fence),
        (clients.client, clients.unthrottled),
        events,
        metrics.get()?,
        queue,
        health,
        options,
    );
    Ok(Box::new(|stop, inspection| Box::pin(controller.run(stop, inspection).map(Ok))))
}
