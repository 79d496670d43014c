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
    /// Initialised Nodes that are not followed, by `reason`.
    pub unfollowed_nodes: IntGaugeVec,
}

impl MetricSet for NodeMetrics {
    fn register(register: &mut Register<'_>) -> prometheus::Result<Self> {
        let uninitialized = register.own("uninitialized_nodes");
        let unfollowed = register.own("unfollowed_nodes");
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
            unfollowed_nodes: register.gauges(
                &unfollowed,
                "Initialized nodes whose addresses and labels are not followed, since the cloud has no instance or several for them. \
                 Those without a provider ID are never deleted.",
                &["reason"],
            )?,
        })
    }
}

impl NodeMetrics {
    /// Counts a Node elsewhere than before, after what is remembered of it has changed.
    pub(super) fn recount(&self, before: Counted, now: Counted) {
        for (gauge, before, now) in [
            (&self.uninitialized_nodes, before.uninitialized, now.uninitialized),
            (&self.unfollowed_nodes, before.unfollowed, now.unfollowed),
        ] {
            if before != now {
                before.inspect(|reason| gauge.with_label_values(&[*reason]).dec());
                now.inspect(|reason| gauge.with_label_values(&[*reason]).inc());
            }
        }
    }
}

/// Under which reasons a Node is counted. By default under none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub uninitialized: Option<&'static str>,
    pub unfollowed: Option<&'static str>,
}
