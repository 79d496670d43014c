//! The controller's row in the table of controllers.

use component::work_queue::WorkQueueMetrics;
use controller_kit::{clients::NODE_CONTROLLER_CLIENT, cloud::Cloud, nodes::NodeWriter};
use futures::FutureExt as _;

use super::{COMPONENT, ForeignValue, NodeController, NodeControllerOptions, NodeMetrics, plan};
use crate::{
    controllers::{
        Build, Capability, ControllerContext, ControllerDescriptor, ControllerPermissions, Run, node_patches,
    },
    flags::NODE,
};

pub(crate) const DESCRIPTOR: ControllerDescriptor = ControllerDescriptor {
    names: NODE,
    client: NODE_CONTROLLER_CLIENT,
    events_from: COMPONENT,
    needs: Some(Capability::Instances),
    build: Build::OnCloud(build),
    metrics: |metrics| metrics.get::<NodeMetrics>().map(drop),
    permissions,
    explain: Some(|asked| {
        plan(asked.node, asked.answer, asked.provider, ForeignValue::of(asked.flags), asked.now).next
    }),
};

fn permissions() -> ControllerPermissions {
    ControllerPermissions { writes: node_patches().into(), ..ControllerPermissions::default() }
}

fn build(context: ControllerContext<'_>, cloud: Cloud) -> anyhow::Result<Run> {
    let ControllerContext { flags, nodes, metrics, clients, events, .. } = context;
    let options = NodeControllerOptions {
        concurrent_syncs: flags.controllers.cloud_node.syncs(),
        status_update_frequency: flags.misc.node_status_update_frequency,
        foreign_labels: ForeignValue::of(flags),
        dry_run: flags.misc.dry_run,
    };
    let writer = NodeWriter::new(clients.client);
    // Upstream's name of this queue.
    let queue = metrics.get::<WorkQueueMetrics>()?.named("Nodes");
    let controller = NodeController::new(nodes, cloud, writer, events, metrics.get()?, queue, options);
    Ok(Box::new(|stop, inspection| Box::pin(controller.run(stop, inspection).map(Ok))))
}
