//! The controller's row in the table of controllers.

use controller_kit::{cloud::Cloud, nodes::NodeWriter};
use futures::FutureExt as _;

use super::{
    COMPONENT, ClusterCidrs, InvalidClusterCidr, MaskSizes, RouteController, RouteControllerOptions,
    RouteMetrics, explain,
};
use crate::{
    controllers::{
        Build, Capability, ControllerContext, ControllerDescriptor, ControllerPermissions, NodeQuestion, Run,
        node_status_patch,
    },
    flags::{Flags, ROUTE},
};

pub(crate) const DESCRIPTOR: ControllerDescriptor = ControllerDescriptor {
    names: ROUTE,
    client: "route-controller",
    events_from: COMPONENT,
    needs: Some(Capability::Routes),
    build: Build::OnCloud(build),
    metrics: |metrics| metrics.get::<RouteMetrics>().map(drop),
    permissions: || ControllerPermissions {
        writes: vec![node_status_patch()],
        ..ControllerPermissions::default()
    },
    explain: Some(explain),
};

fn explain(asked: &NodeQuestion<'_>) -> Vec<String> {
    let Some(routes) = asked.routes else { return Vec::new() };
    explain::explain(asked.node, routes, cluster_cidrs(asked.flags))
}

fn cluster_cidrs(flags: &Flags) -> Result<ClusterCidrs, InvalidClusterCidr> {
    let least = MaskSizes {
        ipv4: flags.generic.node_cidr_mask_size_ipv4,
        ipv6: flags.generic.node_cidr_mask_size_ipv6,
    };
    Ok(ClusterCidrs::parse(&flags.generic.cluster_cidr)?.with_mask_sizes(least))
}

fn build(context: ControllerContext<'_>, cloud: Cloud) -> anyhow::Result<Run> {
    let ControllerContext { flags, nodes, fence, metrics, clients, events, .. } = context;
    let options = RouteControllerOptions {
        cluster_name: flags.generic.cluster_name.clone(),
        cluster_cidrs: cluster_cidrs(flags)?,
        period: flags.generic.route_period(),
        dry_run: flags.misc.dry_run,
    };
    let writer = NodeWriter::new(clients.client);
    let controller = RouteController::new(nodes, (cloud, fence), writer, events, metrics.get()?, options);
    Ok(Box::new(|stop, inspection| Box::pin(controller.run(stop, inspection).map(Ok))))
}
