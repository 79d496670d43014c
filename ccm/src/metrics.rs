//! Metrics: upstream's names byte for byte, and our own under `cloud_controller_manager_`.

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

/// All metrics of the daemon. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Where everything below is registered.
    pub registry: Registry,
    /// Upstream: seconds from a Node's creation to the removal of its uninitialized taint.
    pub taint_removal_delay: Histogram,
    /// Upstream: seconds from a Node's creation to the end of its first sync.
    pub initial_node_sync_delay: Histogram,
    /// Upstream: 1 while this process leads on the Lease `name`, 0 while it does not.
    pub leader_election_master_status: IntGaugeVec,
    /// Upstream: renewals of the Lease `name` that had to read it first.
    pub leader_election_slowpath: IntCounterVec,
    /// Calls of the provider by `operation` and `result`.
    pub provider_calls: IntCounterVec,
    /// Seconds that a call of the provider takes, by `operation`.
    pub provider_call_duration: HistogramVec,
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
}

/// Upstream's buckets of the two node delays, seconds.
const NODE_DELAY_BUCKETS: [f64; 6] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];

/// A look-up in an inventory takes microseconds, one over the network up to the deadline. Seconds.
const CALL_BUCKETS: [f64; 8] = [0.000_1, 0.001, 0.01, 0.1, 0.5, 2.0, 10.0, 60.0];

impl Metrics {
    /// Registers everything in a new registry.
    ///
    /// # Errors
    /// Where a name is registered twice, which is a mistake in this file.
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let histogram = |name: &str, help: &str| {
            let metric =
                Histogram::with_opts(HistogramOpts::new(name, help).buckets(NODE_DELAY_BUCKETS.to_vec()))?;
            registry.register(Box::new(metric.clone()))?;
            prometheus::Result::Ok(metric)
        };
        let counters = |name: &str, help: &str, labels: &[&str]| {
            let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(metric.clone()))?;
            prometheus::Result::Ok(metric)
        };
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            let metric = IntGaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(metric.clone()))?;
            prometheus::Result::Ok(metric)
        };
        let provider_call_duration = HistogramVec::new(
            HistogramOpts::new(
                "cloud_controller_manager_provider_call_duration_seconds",
                "Duration of calls of the cloud provider.",
            )
            .buckets(CALL_BUCKETS.to_vec()),
            &["operation"],
        )?;
        registry.register(Box::new(provider_call_duration.clone()))?;
        let deletion_breaker_open = IntGauge::new(
            "cloud_controller_manager_node_deletion_breaker_open",
            "1 while deletions are stopped because too many nodes would vanish at once.",
        )?;
        registry.register(Box::new(deletion_breaker_open.clone()))?;
        Ok(Self {
            taint_removal_delay: histogram(
                "node_controller_cloud_provider_taint_removal_delay_seconds",
                "Number of seconds after node creation when NodeController removed the cloud-provider taint of a single node.",
            )?,
            initial_node_sync_delay: histogram(
                "node_controller_initial_node_sync_delay_seconds",
                "Number of seconds after node creation when NodeController finished the initial synchronization of a single node.",
            )?,
            leader_election_master_status: gauges(
                "leader_election_master_status",
                "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
                &["name"],
            )?,
            leader_election_slowpath: counters(
                "leader_election_slowpath_total",
                "Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the lease. Please make sure to group by name.",
                &["name"],
            )?,
            provider_calls: counters(
                "cloud_controller_manager_provider_calls_total",
                "Calls of the cloud provider.",
                &["operation", "result"],
            )?,
            uninitialized_nodes: gauges(
                "cloud_controller_manager_uninitialized_nodes",
                "Nodes that wait for their initialization, by what stands in the way.",
                &["reason"],
            )?,
            deletions_held_back: gauges(
                "cloud_controller_manager_node_deletions_held_back",
                "Nodes whose instance is gone and that are not deleted, by what stands in the way.",
                &["reason"],
            )?,
            deletions_held_back_total: counters(
                "cloud_controller_manager_node_deletions_held_back_total",
                "How often the deletion of a node was held back.",
                &["reason"],
            )?,
            deleted_nodes: counters(
                "cloud_controller_manager_deleted_nodes_total",
                "Nodes deleted because their instance is gone.",
                &["result"],
            )?,
            events_dropped: counters(
                "cloud_controller_manager_events_dropped_total",
                "Events that were not written.",
                &["reason"],
            )?,
            config_reloads: counters(
                "cloud_controller_manager_config_reloads_total",
                "Configuration, credentials and certificates that changed and were read again.",
                &["file", "result"],
            )?,
            config_reload_failed: gauges(
                "cloud_controller_manager_config_reload_failed",
                "1 while the newest version of a file is refused and an older one is in force.",
                &["file"],
            )?,
            provider_call_duration,
            deletion_breaker_open,
            registry,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_names_and_buckets() {
        let metrics = Metrics::new().expect("no name twice");
        metrics.taint_removal_delay.observe(0.5);
        let text = prometheus::TextEncoder::new().encode_to_string(&metrics.registry.gather()).expect("text");
        for line in [
            "node_controller_cloud_provider_taint_removal_delay_seconds_bucket{le=\"1\"} 1",
            "node_controller_cloud_provider_taint_removal_delay_seconds_bucket{le=\"1024\"} 1",
            "node_controller_initial_node_sync_delay_seconds_bucket{le=\"64\"} 0",
            "cloud_controller_manager_node_deletion_breaker_open 0",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
