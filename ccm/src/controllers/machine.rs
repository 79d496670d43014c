//! The controller's row in the table of controllers.

use component::work_queue::WorkQueueMetrics;
use controller_kit::{cloud::Cloud, rbac::Permission};
use futures::FutureExt as _;

use crate::{
    controllers::{Build, Capability, ControllerContext, ControllerDescriptor, ControllerPermissions, Run},
    flags::MACHINE,
};
use machine_controller::{
    MachineController, MachineControllerOptions, MachineMetrics,
    names::{self, COMPONENT},
};

pub(crate) const DESCRIPTOR: ControllerDescriptor = ControllerDescriptor {
    names: MACHINE,
    client: COMPONENT,
    events_from: COMPONENT,
    needs: Some(Capability::Machines),
    build: Build::OnCloud(build),
    metrics: |metrics| metrics.get::<MachineMetrics>().map(drop),
    permissions,
    explain: None,
};

/// The name of the check that all kinds are served.
const KINDS_CHECK: &str = "machine-kinds";

/// The name of the queue in its metrics.
const QUEUE: &str = "machine";

/// Those of the provider's kinds are in [`crate::permissions::needed_for_machines`].
fn permissions() -> ControllerPermissions {
    let core = |resource: &'static str| {
        ["list", "watch"]
            .map(|verb| Permission::new(names::CORE_GROUP, resource, verb, "the owners of machines"))
    };
    let secret = Permission::new("", "secrets", "get", "bootstrap data of machines");
    ControllerPermissions {
        reads: [core("machines"), core("clusters")].concat().into_iter().chain([secret]).collect(),
        ..ControllerPermissions::default()
    }
}

fn build(context: ControllerContext<'_>, cloud: Cloud) -> anyhow::Result<Run> {
    let (kinds_check, queue) = (context.named(KINDS_CHECK), context.named(QUEUE));
    let ControllerContext { flags, services, fence, metrics, clients, events, health, .. } = context;
    let kinds = cloud.machine_kinds().ok_or_else(|| anyhow::anyhow!("the cloud provider has no machines"))?;
    let own = &flags.controllers.machine;
    let options = MachineControllerOptions {
        namespace: own.namespace(),
        watch_filter: own.watch_filter(),
        sync_period: own.sync_period,
        dry_run: flags.misc.dry_run,
        kinds_check,
    };
    let queue = metrics.get::<WorkQueueMetrics>()?.named(&queue);
    let own_metrics = metrics.get::<MachineMetrics>()?.of(&cloud.name());
    let controller = MachineController::new(
        kinds,
        (cloud, fence),
        (clients.client, clients.unthrottled),
        events,
        own_metrics,
        queue,
        health,
        options,
    );
    services.access.add_control_planes(controller.control_planes());
    Ok(Box::new(|stop, inspection| Box::pin(controller.run(stop, inspection).map(Ok))))
}
