//! The cloud-node-lifecycle controller, which taints and deletes Nodes. Its period is `--node-monitor-period`.

use std::time::Duration;

use clap::Args;

use super::{
    notes::{Note, ours},
    values::duration,
};

/// When a Node is deleted; upstream has none of these.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cloud-node-lifecycle-controller flags")]
pub struct CloudNodeLifecycleControllerFlags {
    /// Time between the two answers of the cloud that an instance is gone, which a deletion of its Node asks for.
    /// [default: one node monitor period, at least 5s]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub node_deletion_grace_period: Option<Duration>,

    /// A Node that is younger is not deleted.
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub node_deletion_minimum_age: Duration,

    /// Deletions stop while more than this many Nodes, and more than --node-deletion-breaker-percent, have no
    /// instance.
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub node_deletion_breaker_count: usize,

    /// See --node-deletion-breaker-count. 100 switches the breaker off.
    #[arg(long, default_value_t = 20, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub node_deletion_breaker_percent: u8,
}

pub(super) const NOTES: &[Note] = &[
    ours("node-deletion-grace-period", "Upstream deletes on one answer"),
    ours("node-deletion-minimum-age", "Upstream deletes Nodes of any age"),
    ours("node-deletion-breaker-count", "Upstream deletes any number at once"),
    ours("node-deletion-breaker-percent", "Upstream deletes any share at once"),
];
