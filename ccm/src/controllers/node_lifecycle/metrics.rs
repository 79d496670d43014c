//! Metrics of the node-lifecycle controller.

use std::time::Duration;

use cloudprovider::{ErrorKind, InstanceLookup};
use component::metrics::{MetricSet, Register};
use prometheus::{Histogram, IntCounterVec, IntGauge, IntGaugeVec, exponential_buckets};

const EXISTS: &str = "instance_exists";
const SHUTDOWN: &str = "instance_shutdown";

/// The duration of passes, the answers of the cloud, and the results for Nodes without an instance.
///
/// One look-up covers many Nodes. For each Node it replaces two calls of upstream: whether the instance
/// exists, and whether it is shut down. So each Node in a look-up counts as upstream's calls for it would.
#[derive(Clone, Debug)]
pub struct NodeLifecycleMetrics {
    monitor_duration: Histogram,
    calls: IntCounterVec,
    /// Number of Nodes whose deletion is held back now, by `reason`.
    pub deletions_held_back: IntGaugeVec,
    /// Number of times that a deletion was held back, by `reason`. Each reason counts once for a Node.
    pub deletions_held_back_total: IntCounterVec,
    /// 1 while the breaker stops deletions.
    pub deletion_breaker_open: IntGauge,
    /// Nodes deleted because their instance is gone.
    pub deleted_nodes: IntCounterVec,
}

impl MetricSet for NodeLifecycleMetrics {
    fn register(register: &mut Register<'_>) -> prometheus::Result<Self> {
        let held_back = register.own("node_deletions_held_back");
        let held_back_total = register.own("node_deletions_held_back_total");
        let breaker_open = register.own("node_deletion_breaker_open");
        let deleted_nodes = register.own("deleted_nodes_total");
        Ok(Self {
            monitor_duration: register.histogram(
                "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
                "[ALPHA] A metric measuring the duration in seconds of a single MonitorNodes loop execution.",
                &exponential_buckets(0.001, 2.0, 15)?,
            )?,
            calls: register.counters(
                "cloud_node_lifecycle_controller_cloud_provider_calls_total",
                "[ALPHA] The total number of cloud provider API calls, labeled by operation and result.",
                &["operation", "result"],
            )?,
            deletions_held_back: register.gauges(
                &held_back,
                "Nodes whose instance is gone and that are not deleted, by what stands in the way.",
                &["reason"],
            )?,
            deletions_held_back_total: register.counters(
                &held_back_total,
                "How often the deletion of a node was held back.",
                &["reason"],
            )?,
            deletion_breaker_open: register.gauge(
                &breaker_open,
                "1 while deletions are stopped because too many nodes would vanish at once.",
            )?,
            deleted_nodes: register.counters(
                &deleted_nodes,
                "Nodes deleted because their instance is gone.",
                &["result"],
            )?,
        })
    }
}

impl NodeLifecycleMetrics {
    /// Records the duration of a pass, including its writes.
    pub fn monitored(&self, took: Duration) {
        self.monitor_duration.observe(took.as_secs_f64());
    }

    /// Records look-ups of as many Nodes as there are answers.
    pub fn answered(&self, answers: &[InstanceLookup]) {
        for answer in answers {
            let (exists, shutdown) = results(answer);
            self.count(EXISTS, exists, 1);
            if let Some(shutdown) = shutdown {
                self.count(SHUTDOWN, shutdown, 1);
            }
        }
    }

    /// Records that a look-up of this many Nodes was cancelled because the controller stops.
    pub fn canceled(&self, nodes: usize) {
        self.count(EXISTS, "canceled", nodes);
    }

    fn count(&self, operation: &str, result: &str, calls: usize) {
        self.calls.with_label_values(&[operation, result]).inc_by(calls as u64);
    }
}

/// The results that upstream's two calls for one Node would have. The second call is made only if the
/// instance exists.
fn results(answer: &InstanceLookup) -> (&'static str, Option<&'static str>) {
    match answer {
        InstanceLookup::Present(_) => ("success", Some("success")),
        InstanceLookup::Absent => ("instance_not_found", None),
        InstanceLookup::Unknown(error) if error.kind() == ErrorKind::Unsupported => ("not_implemented", None),
        InstanceLookup::Unknown(_) => ("error", None),
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider::{Error, Instance, PowerState, ProviderId};

    use component::metrics::Metrics;

    use super::*;

    #[test]
    fn each_node_counts_as_upstreams_calls_for_it() {
        let metrics = Metrics::new("test").expect("metrics");
        let lifecycle = metrics.get::<NodeLifecycleMetrics>().expect("metrics");
        let instance = || Instance::new(ProviderId::new("x", "/1"), PowerState::Off);
        lifecycle.answered(&[
            instance().into(),
            instance().into(),
            InstanceLookup::Absent,
            Error::new(ErrorKind::Timeout, "late").into(),
            Error::new(ErrorKind::NotFound, "no folder").into(),
            Error::unsupported("never").into(),
        ]);
        lifecycle.canceled(3);
        lifecycle.monitored(Duration::from_millis(3));
        let text = metrics.text();
        let name = "cloud_node_lifecycle_controller_cloud_provider_calls_total";
        for (operation, result, count) in [
            ("instance_exists", "success", 2),
            ("instance_exists", "instance_not_found", 1),
            ("instance_exists", "error", 2),
            ("instance_exists", "not_implemented", 1),
            ("instance_exists", "canceled", 3),
            ("instance_shutdown", "success", 2),
        ] {
            let line = format!("{name}{{operation=\"{operation}\",result=\"{result}\"}} {count}\n");
            assert!(text.contains(&line), "{line} in {text}");
        }
        assert_eq!(text.matches(&format!("{name}{{")).count(), 6);
        let pass = "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds";
        assert!(text.contains(&format!("{pass}_bucket{{le=\"0.002\"}} 0\n")), "{text}");
        assert!(text.contains(&format!("{pass}_bucket{{le=\"0.004\"}} 1\n")), "{text}");
    }
}
