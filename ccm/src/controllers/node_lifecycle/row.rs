//! The controller's row in the table of controllers.

use controller_kit::{clients::NODE_CONTROLLER_CLIENT, cloud::Cloud, rbac::Permission};
use futures::FutureExt as _;

use super::{
    BreakerLimits, COMPONENT, NodeLifecycleController, NodeLifecycleMetrics, NodeLifecycleOptions,
    explain::plan,
    lease::LEASE_NAMESPACE,
    unseen::{grace_period, unseen_grace_period},
};
use crate::{
    controllers::{
        Build, Capability, ControllerContext, ControllerDescriptor, ControllerPermissions, NodeQuestion, Run,
        node_patches,
    },
    flags::NODE_LIFECYCLE,
};

pub(crate) const DESCRIPTOR: ControllerDescriptor = ControllerDescriptor {
    names: NODE_LIFECYCLE,
    client: NODE_CONTROLLER_CLIENT,
    events_from: COMPONENT,
    needs: Some(Capability::Instances),
    build: Build::OnCloud(build),
    metrics: |metrics| metrics.get::<NodeLifecycleMetrics>().map(drop),
    permissions,
    explain: Some(explain),
};

fn permissions() -> ControllerPermissions {
    let deletion = Permission::new("", "nodes", "delete", "deleting Nodes whose instance is gone");
    // Every kubelet has a lease with the name of its Node.
    let lease =
        Permission::new("coordination.k8s.io", "leases", "get", "telling a dead kubelet from a living one");
    ControllerPermissions {
        writes: node_patches().into_iter().chain([deletion]).collect(),
        reads: vec![lease.in_namespace(LEASE_NAMESPACE).optional()],
        watches: Vec::new(),
    }
}

fn explain(asked: &NodeQuestion<'_>) -> Vec<String> {
    let lifecycle = &asked.flags.controllers.cloud_node_lifecycle;
    let grace = grace_period(lifecycle.node_deletion_grace_period, lifecycle.node_monitor_period);
    let unseen = unseen_grace_period(lifecycle.node_deletion_unseen_grace_period, grace);
    plan(asked.node, asked.answer, grace, unseen, lifecycle.node_deletion_minimum_age)
}

fn build(context: ControllerContext<'_>, cloud: Cloud) -> anyhow::Result<Run> {
    let ControllerContext { flags, nodes, metrics, clients, events, .. } = context;
    let lifecycle = &flags.controllers.cloud_node_lifecycle;
    let options = NodeLifecycleOptions {
        monitor_period: lifecycle.node_monitor_period,
        concurrent_syncs: lifecycle.syncs(),
        deletion_grace_period: lifecycle.node_deletion_grace_period,
        deletion_unseen_grace_period: lifecycle.node_deletion_unseen_grace_period,
        deletion_minimum_age: lifecycle.node_deletion_minimum_age,
        dry_run: flags.misc.dry_run,
        breaker: BreakerLimits {
            count: lifecycle.node_deletion_breaker_count,
            percent: lifecycle.node_deletion_breaker_percent,
        },
    };
    let (client, leases) = (clients.client, clients.unthrottled);
    let controller =
        NodeLifecycleController::new(nodes, cloud, client, leases, events, metrics.get()?, options);
    Ok(Box::new(|stop, inspection| Box::pin(controller.run(stop, inspection).map(Ok))))
}
