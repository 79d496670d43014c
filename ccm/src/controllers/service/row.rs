//! The controller's row in the table of controllers.

use component::work_queue::WorkQueueMetrics;
use controller_kit::{
    clients::SERVICE_CONTROLLER_CLIENT, cloud::Cloud, rbac::Permission, services::ServiceWriter,
};

use super::{COMPONENT, ServiceController, ServiceControllerOptions, ServiceMetrics};
use crate::{
    controllers::{Build, Capability, ControllerContext, ControllerDescriptor, ControllerPermissions, Run},
    flags::SERVICE,
};

pub(crate) const DESCRIPTOR: ControllerDescriptor = ControllerDescriptor {
    names: SERVICE,
    client: SERVICE_CONTROLLER_CLIENT,
    events_from: COMPONENT,
    needs: Some(Capability::LoadBalancer),
    build: Build::OnCloud(build),
    metrics: |metrics| metrics.get::<ServiceMetrics>().map(drop),
    permissions,
    explain: None,
};

fn permissions() -> ControllerPermissions {
    let permission = |resource, verb, needed_for| Permission::new("", resource, verb, needed_for);
    ControllerPermissions {
        writes: vec![permission("services/status", "patch", "finalizers and addresses of Services")],
        reads: Vec::new(),
        watches: ["list", "watch"].map(|verb| permission("services", verb, "load balancers")).into(),
    }
}

fn build(context: ControllerContext<'_>, cloud: Cloud) -> anyhow::Result<Run> {
    let ControllerContext { flags, nodes, services, fence, metrics, clients, events, .. } = context;
    let own = &flags.controllers.service_lb;
    let options = ServiceControllerOptions {
        cluster_name: flags.generic.cluster_name.clone(),
        concurrent_syncs: own.syncs(),
        verification_period: own.verification_period(),
        dry_run: flags.misc.dry_run,
    };
    let (access, client) = (services.access, clients.client);
    let writing = (ServiceWriter::new(client.clone()), access.activity().clone());
    let stores = (services.store, nodes);
    // Upstream's name of this queue.
    let queue = metrics.get::<WorkQueueMetrics>()?.named("service");
    let controller = ServiceController::new(
        stores,
        (cloud, fence.clone()),
        writing,
        events.clone(),
        metrics.get()?,
        queue,
        options,
    );
    Ok(Box::new(move |stop, inspection| {
        Box::pin(async move {
            let term = access.begin_term(client, fence, events);
            controller.run(stop, inspection).await;
            // After the last call of the cloud, and before the Lease is given back.
            term.end().await
        })
    }))
}
