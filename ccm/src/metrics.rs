//! Metrics: upstream's names, labels, buckets and texts byte for byte, and our own under `cloud_controller_manager_`.

mod access;
mod build;
#[cfg(test)]
mod documentation;
mod inventory;
mod node_lifecycle;
mod process;
mod register;
mod rest_client;
mod text;
mod work_queue;

use std::sync::Arc;

use prometheus::{Histogram, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Registry};

pub use access::AccessMetrics;
pub use inventory::InventoryAge;
pub use node_lifecycle::NodeLifecycleMetrics;
pub use process::start_time;
pub use register::Described;
pub use rest_client::RestClientMetrics;
pub use text::encode;
pub use work_queue::{WorkQueueMeter, WorkQueueMetrics};

use process::Process;
use register::Register;

/// All metrics of the daemon. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Where everything below is registered. Shown by [`text`](Self::text).
    pub registry: Registry,
    /// What is registered, in the order of names.
    pub described: Arc<[Described]>,
    /// Upstream: requests to the API server.
    pub rest_client: RestClientMetrics,
    /// Upstream: who asks the secure port, and whether they may.
    pub access: AccessMetrics,
    /// Upstream: queues of the controllers.
    pub work_queues: WorkQueueMetrics,
    /// Upstream: 1 while the controller runs, by upstream's old name of it.
    pub running_controllers: IntGaugeVec,
    /// Upstream: 1 for a feature gate that is on, 0 for one that is off, by `name` and `stage`.
    pub features: IntGaugeVec,
    /// Upstream: seconds from a Node's creation to the removal of its uninitialized taint.
    pub taint_removal_delay: Histogram,
    /// Upstream: seconds from a Node's creation to the end of its first sync.
    pub initial_node_sync_delay: Histogram,
    /// Upstream: passes of the node-lifecycle controller, and the cloud's answers to it.
    pub node_lifecycle: NodeLifecycleMetrics,
    /// Upstream: 1 while this process leads on the Lease `name`, 0 while it does not.
    pub leader_election_master_status: IntGaugeVec,
    /// Upstream: renewals of the Lease `name` that had to read it first.
    pub leader_election_slowpath: IntCounterVec,
    /// Calls of the provider by `operation` and `result`.
    pub provider_calls: IntCounterVec,
    /// Seconds that a call of the provider takes, by `operation`.
    pub provider_call_duration: HistogramVec,
    /// Nodes in one call of the provider, by `operation`.
    pub provider_batch: HistogramVec,
    /// How old the provider's last good answer is.
    pub inventory_age: InventoryAge,
    /// Nodes that wait for their initialisation, by `reason`.
    pub uninitialized_nodes: IntGaugeVec,
    /// Deletions of Nodes that are held back now, by `reason`.
    pub deletions_held_back: IntGaugeVec,
    /// How often a deletion was held back, by `reason`; one Node counts once for each reason.
    pub deletions_held_back_total: IntCounterVec,
    /// 1 while the breaker stops deletions.
    pub deletion_breaker_open: IntGauge,
    /// Nodes deleted because their instance is gone.
    pub deleted_nodes: IntCounterVec,
    /// Events that were dropped, by `reason`.
    pub events_dropped: IntCounterVec,
    /// Files read again after a change, by `file` and `result`.
    pub config_reloads: IntCounterVec,
    /// 1 while the newest version of the `file` is refused and an older one is in force.
    pub config_reload_failed: IntGaugeVec,
    /// What would have been written without `--dry-run`, by `verb` and `resource`.
    pub dry_run_writes: IntCounterVec,
}

/// Upstream's buckets of the two node delays, seconds.
const NODE_DELAY_BUCKETS: [f64; 6] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];

/// A look-up in an inventory takes microseconds, one over the network up to the deadline. Seconds.
const CALL_BUCKETS: [f64; 8] = [0.000_1, 0.001, 0.01, 0.1, 0.5, 2.0, 10.0, 60.0];

/// Nodes.
const BATCH_BUCKETS: [f64; 7] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0];

impl Metrics {
    /// Registers everything in a new registry.
    ///
    /// # Errors
    /// Where a name is registered twice, which is a mistake in this file.
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let mut register = Register::new(&registry);
        build::register_build_info(&mut register)?;
        register.add("gauge", &Process::new()?)?;
        let inventory_age = InventoryAge::new()?;
        register.add("gauge", &inventory_age)?;
        let mut metrics = Self {
            rest_client: RestClientMetrics::new(&mut register)?,
            access: AccessMetrics::new(&mut register)?,
            work_queues: WorkQueueMetrics::new(&mut register)?,
            running_controllers: register.gauges(
                "running_managed_controllers",
                "[BETA] Indicates where instances of a controller are currently running",
                &["name", "manager"],
            )?,
            features: build::features(&mut register)?,
            taint_removal_delay: register.histogram(
                "node_controller_cloud_provider_taint_removal_delay_seconds",
                "[ALPHA] Number of seconds after node creation when NodeController removed the cloud-provider taint of a single node.",
                &NODE_DELAY_BUCKETS,
            )?,
            initial_node_sync_delay: register.histogram(
                "node_controller_initial_node_sync_delay_seconds",
                "[ALPHA] Number of seconds after node creation when NodeController finished the initial synchronization of a single node.",
                &NODE_DELAY_BUCKETS,
            )?,
            node_lifecycle: NodeLifecycleMetrics::new(&mut register)?,
            leader_election_master_status: register.gauges(
                "leader_election_master_status",
                "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
                &["name"],
            )?,
            leader_election_slowpath: register.counters(
                "leader_election_slowpath_total",
                "[ALPHA] Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the lease. Please make sure to group by name.",
                &["name"],
            )?,
            provider_calls: register.counters(
                "cloud_controller_manager_provider_calls_total",
                "Calls of the cloud provider.",
                &["operation", "result"],
            )?,
            provider_call_duration: register.histograms(
                "cloud_controller_manager_provider_call_duration_seconds",
                "Duration of calls of the cloud provider.",
                &["operation"],
                &CALL_BUCKETS,
            )?,
            provider_batch: register.histograms(
                "cloud_controller_manager_provider_batch_nodes",
                "Nodes that one call of the cloud provider asks about.",
                &["operation"],
                &BATCH_BUCKETS,
            )?,
            uninitialized_nodes: register.gauges(
                "cloud_controller_manager_uninitialized_nodes",
                "Nodes that wait for their initialization, by what stands in the way.",
                &["reason"],
            )?,
            deletions_held_back: register.gauges(
                "cloud_controller_manager_node_deletions_held_back",
                "Nodes whose instance is gone and that are not deleted, by what stands in the way.",
                &["reason"],
            )?,
            deletions_held_back_total: register.counters(
                "cloud_controller_manager_node_deletions_held_back_total",
                "How often the deletion of a node was held back.",
                &["reason"],
            )?,
            deletion_breaker_open: register.gauge(
                "cloud_controller_manager_node_deletion_breaker_open",
                "1 while deletions are stopped because too many nodes would vanish at once.",
            )?,
            deleted_nodes: register.counters(
                "cloud_controller_manager_deleted_nodes_total",
                "Nodes deleted because their instance is gone.",
                &["result"],
            )?,
            events_dropped: register.counters(
                "cloud_controller_manager_events_dropped_total",
                "Events that were not written.",
                &["reason"],
            )?,
            config_reloads: register.counters(
                "cloud_controller_manager_config_reloads_total",
                "Configuration, credentials and certificates that changed and were read again.",
                &["file", "result"],
            )?,
            config_reload_failed: register.gauges(
                "cloud_controller_manager_config_reload_failed",
                "1 while the newest version of a file is refused and an older one is in force.",
                &["file"],
            )?,
            dry_run_writes: register.counters(
                "cloud_controller_manager_dry_run_writes_total",
                "Different writes that would have been sent without --dry-run.",
                &["verb", "resource"],
            )?,
            inventory_age,
            described: Arc::default(),
            registry: registry.clone(),
        };
        register.described.sort_by(|a, b| a.name.cmp(&b.name));
        metrics.described = register.described.into();
        Ok(metrics)
    }

    /// Everything in Prometheus' text format.
    pub fn text(&self) -> String {
        encode(&self.registry.gather())
    }

    /// Says that a controller runs until the answer is dropped. `name` is upstream's of before 1.28: `cloud-node`.
    pub fn controller_runs(&self, name: &str) -> ControllerRuns {
        let gauge = self.running_controllers.with_label_values(&[name, "cloud-controller-manager"]);
        gauge.set(1);
        ControllerRuns(gauge)
    }
}

/// A controller runs.
#[derive(Debug)]
pub struct ControllerRuns(IntGauge);

impl Drop for ControllerRuns {
    fn drop(&mut self) {
        self.0.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_names_and_buckets() {
        let metrics = Metrics::new().expect("no name twice");
        metrics.taint_removal_delay.observe(0.5);
        let _running = metrics.controller_runs("cloud-node");
        drop(metrics.controller_runs("cloud-node-lifecycle"));
        let mut queue = metrics.work_queues.named("Nodes");
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
        let metrics = Metrics::new().expect("no name twice");
        assert!(metrics.described.windows(2).all(|pair| pair[0].name < pair[1].name));
        for family in metrics.registry.gather() {
            assert!(metrics.described.iter().any(|d| d.name == family.name()), "{}", family.name());
        }
    }
}
