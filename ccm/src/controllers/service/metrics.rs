//! Upstream's metrics of the service controller.

use component::metrics::{MetricSet, Register};
use prometheus::{Histogram, IntCounter};

/// Upstream's buckets: 1 s doubling, to 16,384 s.
fn buckets() -> Vec<f64> {
    std::iter::successors(Some(1.0_f64), |bound| Some(bound * 2.0)).take(15).collect()
}

/// How load balancers follow the Nodes.
#[derive(Clone, Debug)]
pub struct ServiceMetrics {
    /// Calls that told a load balancer of its Nodes.
    pub load_balancer_syncs: IntCounter,
    /// Those of them that failed.
    pub node_sync_errors: IntCounter,
    /// Seconds from a change of the set of Nodes until every load balancer was told.
    pub node_sync_latency: Histogram,
    /// Seconds that telling one load balancer takes.
    pub update_latency: Histogram,
}

impl MetricSet for ServiceMetrics {
    fn register(register: &mut Register<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            load_balancer_syncs: register.counter(
                "service_controller_loadbalancer_sync_total",
                "[ALPHA] A metric counting the amount of times any load balancer has been configured, as an effect of service/node changes on the cluster",
            )?,
            node_sync_errors: register.counter(
                "service_controller_nodesync_error_total",
                "[ALPHA] A metric counting the amount of times any load balancer has been configured and errored, as an effect of node changes on the cluster",
            )?,
            node_sync_latency: register.histogram(
                "service_controller_nodesync_latency_seconds",
                "[ALPHA] A metric measuring the latency for nodesync which updates loadbalancer hosts on cluster node updates.",
                &buckets(),
            )?,
            update_latency: register.histogram(
                "service_controller_update_loadbalancer_host_latency_seconds",
                "[ALPHA] A metric measuring the latency for updating each load balancer hosts.",
                &buckets(),
            )?,
        })
    }
}
