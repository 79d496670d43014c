//! The cloud-node-lifecycle controller, which taints and deletes Nodes.

use std::time::Duration;

use clap::Args;
use component::command_line::{
    format_duration,
    notes::{Note, differs, ours},
    values::{duration, int32},
};
use serde_json::{Value, json};

/// How often and how much at once it looks at Nodes, and when it deletes one.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cloud-node-lifecycle-controller flags")]
pub struct CloudNodeLifecycleControllerFlags {
    /// How many Nodes are tainted, untainted or deleted, and how many kubelets' leases are read, at the same time. The
    /// cloud is asked about all Nodes at once whatever this says.
    #[arg(long, default_value = "16", value_name = "N", value_parser = int32)]
    pub concurrent_node_lifecycle_syncs: i32,

    /// Period of the comparison of all Nodes' existence and power state with the cloud.
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "DURATION")]
    pub node_monitor_period: Duration,

    /// Time between the two answers of the cloud that an instance is gone, which a deletion of its Node asks for.
    /// [default: one node monitor period, at least 5s]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub node_deletion_grace_period: Option<Duration>,

    /// As --node-deletion-grace-period, for an instance that the daemon, with its present configuration, has never seen: new
    /// credentials may merely see less. [default: 24 grace periods, at most 5m]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub node_deletion_unseen_grace_period: Option<Duration>,

    /// A Node that is younger is not deleted.
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub node_deletion_minimum_age: Duration,

    /// Deletions stop while more than this many Nodes, and more than --node-deletion-breaker-percent, have no
    /// instance.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = count)]
    pub node_deletion_breaker_count: usize,

    /// See --node-deletion-breaker-count. 100 switches the breaker off.
    #[arg(long, default_value_t = 20, value_name = "PERCENT", value_parser = percent)]
    pub node_deletion_breaker_percent: u8,
}

fn count(text: &str) -> Result<usize, &'static str> {
    text.parse().map_err(|_| "must be a whole number of 0 or more")
}

fn percent(text: &str) -> Result<u8, &'static str> {
    let percent = text.parse().ok().filter(|percent| *percent <= 100);
    percent.ok_or("must be a whole number from 0 to 100")
}

pub(super) const NOTES: &[Note] = &[
    differs(
        "concurrent-node-lifecycle-syncs",
        "Upstream looks at one Node at a time, and asks the cloud about each by itself",
    ),
    differs(
        "node-monitor-period",
        "All Nodes in one batch, and Ready ones too; providers push changes at once; 0 is refused",
    ),
    ours("node-deletion-grace-period", "Upstream deletes on one answer"),
    ours("node-deletion-unseen-grace-period", "Upstream deletes on one answer, the first one too"),
    ours("node-deletion-minimum-age", "Upstream deletes Nodes of any age"),
    ours("node-deletion-breaker-count", "Upstream deletes any number at once"),
    ours("node-deletion-breaker-percent", "Upstream deletes any share at once"),
];

impl CloudNodeLifecycleControllerFlags {
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.concurrent_node_lifecycle_syncs < 1 {
            let given = self.concurrent_node_lifecycle_syncs;
            faults.push(format!("--concurrent-node-lifecycle-syncs must be at least 1, but got {given}"));
        }
        if self.node_monitor_period.is_zero() {
            faults.push("--node-monitor-period must be greater than 0".to_owned());
        }
        faults
    }

    /// Their place in `/configz`, and what stands there.
    pub(super) fn configz(&self) -> (&'static str, Value) {
        let section = json!({
            "NodeMonitorPeriod": format_duration(self.node_monitor_period),
            "ConcurrentNodeLifecycleSyncs": self.concurrent_node_lifecycle_syncs,
        });
        ("NodeLifecycleController", section)
    }

    /// Requests to the API server that are under way at once.
    pub fn syncs(&self) -> usize {
        usize::try_from(self.concurrent_node_lifecycle_syncs).unwrap_or(1).max(1)
    }
}
