//! Metrics of the node controller.

use component::metrics::{MetricSet, Register};
use prometheus::{Histogram, IntGaugeVec};

/// Upstream's buckets of the two delays, in seconds.
const DELAY_BUCKETS: [f64; 6] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];

/// How long Nodes wait for their initialisation, and for what.
#[derive(Clone, Debug)]
pub struct NodeMetrics {
    /// Upstream: seconds from a Node's creation to the removal of its uninitialized taint.
    pub taint_removal_delay: Histogram,
    /// Upstream: seconds from a Node's creation to the end of its first sync.
    pub initial_node_sync_delay: Histogram,
    /// Nodes that wait for their initialisation, by `reason`.
    pub uninitialized_nodes: IntGaugeVec,
}

impl MetricSet for NodeMetrics {
    fn register(register: &mut Register<'_>) -> prometheus::Result<Self> {
        let uninitialized = register.own("uninitialized_nodes");
        Ok(Self {
            taint_removal_delay: register.histogram(
                "node_controller_cloud_provider_taint_removal_delay_seconds",
                "[ALPHA] Number of seconds after node creation when NodeController removed the cloud-provider taint of a single node.",
                &DELAY_BUCKETS,
            )?,
            initial_node_sync_delay: register.histogram(
                "node_controller_initial_node_sync_delay_seconds",
                "[ALPHA] Number of seconds after node creation when NodeController finished the initial synchronization of a single node.",
                &DELAY_BUCKETS,
            )?,
            uninitialized_nodes: register.gauges(
                &uninitialized,
                "Nodes that wait for their initialization, by what stands in the way.",
                &["reason"],
            )?,
        })
    }
}
