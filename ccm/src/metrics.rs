//! The metrics of the daemon.

#[cfg(test)]
mod documentation;

use component::{
    api_client::ClientMetrics, command_line::FeatureMetrics, events::EventMetrics,
    leader_election::ElectionMetrics, reload::ReloadMetrics, serving::AccessMetrics,
    work_queue::WorkQueueMetrics,
};
use controller_kit::cloud::CloudMetrics;

pub use component::metrics::{Described, MetricSet, Metrics, Register, encode, start_time};

use crate::controllers::{CONTROLLERS, ControllerMetrics};

/// The prefix of the metrics that upstream does not have.
const NAMESPACE: &str = "cloud_controller_manager";

/// The metrics of all parts of the daemon. All are registered here, so that each is shown from the beginning,
/// whichever controllers run and whichever replica leads.
///
/// # Errors
/// A name is registered twice, which is a bug.
pub fn new_metrics() -> prometheus::Result<Metrics> {
    let metrics = Metrics::new(NAMESPACE)?;
    metrics.get::<ClientMetrics>()?;
    metrics.get::<AccessMetrics>()?;
    metrics.get::<WorkQueueMetrics>()?;
    metrics.get::<FeatureMetrics>()?;
    metrics.get::<ElectionMetrics>()?;
    metrics.get::<EventMetrics>()?;
    metrics.get::<ReloadMetrics>()?;
    metrics.get::<CloudMetrics>()?;
    metrics.get::<ControllerMetrics>()?;
    for controller in CONTROLLERS {
        (controller.metrics)(&metrics)?;
    }
    Ok(metrics)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::node::NodeMetrics;

    #[test]
    fn upstreams_names_and_buckets() {
        let metrics = new_metrics().expect("no name twice");
        let node = metrics.get::<NodeMetrics>().expect("metrics");
        node.taint_removal_delay.observe(0.5);
        let controllers = metrics.get::<ControllerMetrics>().expect("metrics");
        let _running = controllers.runs("cloud-node");
        drop(controllers.runs("cloud-node-lifecycle"));
        let mut queue = metrics.get::<WorkQueueMetrics>().expect("metrics").named("Nodes");
        queue.added("a");
        queue.taken("a");
        queue.done("a");
        let text = metrics.text();
        for line in [
            "# HELP node_controller_initial_node_sync_delay_seconds [ALPHA] Number of seconds after node creation",
            "# TYPE node_controller_initial_node_sync_delay_seconds histogram",
            "node_controller_cloud_provider_taint_removal_delay_seconds_bucket{le=\"1\"} 1",
            "node_controller_cloud_provider_taint_removal_delay_seconds_bucket{le=\"1024\"} 1",
            "node_controller_initial_node_sync_delay_seconds_bucket{le=\"64\"} 0",
            "cloud_controller_manager_node_deletion_breaker_open 0",
            "running_managed_controllers{manager=\"cloud-controller-manager\",name=\"cloud-node\"} 1",
            "running_managed_controllers{manager=\"cloud-controller-manager\",name=\"cloud-node-lifecycle\"} 0",
            "workqueue_queue_duration_seconds_bucket{name=\"Nodes\",le=\"9.999999999999999e-05\"} ",
            "workqueue_work_duration_seconds_count{name=\"Nodes\"} 1",
            "workqueue_unfinished_work_seconds{name=\"Nodes\"} 0",
            "workqueue_depth{name=\"Nodes\"} 0",
            "rest_client_exec_plugin_ttl_seconds +Inf",
            "process_resident_memory_bytes ",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn everything_is_described_once() {
        let metrics = new_metrics().expect("no name twice");
        let described = metrics.described();
        assert!(described.windows(2).all(|pair| pair[0].name < pair[1].name));
        for family in metrics.registry().gather() {
            assert!(described.iter().any(|d| d.name == family.name()), "{}", family.name());
        }
    }
}
