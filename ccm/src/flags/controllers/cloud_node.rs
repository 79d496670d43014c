//! The cloud-node controller, which initialises Nodes.

use clap::Args;
use component::command_line::{
    notes::{Note, differs, no_effect, ours},
    values::int32,
};
use serde_json::{Value, json};

use crate::flags::NodeLabels;

/// How much of its work is done at the same time.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cloud-node-controller flags")]
pub struct CloudNodeControllerFlags {
    /// How many Nodes are initialised or updated at the same time.
    #[arg(long, default_value = "32", value_name = "N", value_parser = int32)]
    pub concurrent_node_syncs: i32,

    /// How many Nodes get their addresses and labels updated at the same time in a periodic comparison; with 0 as many
    /// as --concurrent-node-syncs says.
    #[arg(long, default_value = "0", value_name = "N", value_parser = int32)]
    pub concurrent_node_status_updates: i32,

    /// Labels for every Node that the cloud knows: key=value, comma-separated. They never replace a label that somebody
    /// else set, and go when they are taken away here.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "KEY=VALUE,...", value_parser = NodeLabels::parse)]
    pub node_labels: NodeLabels,
}

pub(super) const NOTES: &[Note] = &[
    differs("concurrent-node-syncs", "Parallel by default; upstream initialises one Node at a time"),
    no_effect(
        "concurrent-node-status-updates",
        "initialisation and updates share the number of --concurrent-node-syncs",
    ),
    ours("node-labels", "vSphere's CPI has it too; here it is for every provider"),
];

impl CloudNodeControllerFlags {
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.concurrent_node_syncs <= 0 {
            let given = self.concurrent_node_syncs;
            faults.push(format!("--concurrent-node-syncs must be a positive number, but is {given}"));
        }
        if self.concurrent_node_status_updates < 0 {
            let given = self.concurrent_node_status_updates;
            faults.push(format!(
                "--concurrent-node-status-updates cannot be a negative number, but is {given}"
            ));
        }
        faults.extend(self.node_labels.faults());
        faults
    }

    /// Their place in `/configz`, and what stands there.
    pub(super) fn configz(&self) -> (&'static str, Value) {
        let section = json!({
            "ConcurrentNodeSyncs": self.concurrent_node_syncs,
            // Upstream shows the number that 0 stands for.
            "ConcurrentNodeStatusUpdates": self.status_updates(),
        });
        ("NodeController", section)
    }

    /// Nodes that are initialised at the same time.
    pub fn syncs(&self) -> usize {
        usize::try_from(self.concurrent_node_syncs).unwrap_or(1).max(1)
    }

    /// Nodes that are updated at the same time in a periodic comparison.
    pub fn status_updates(&self) -> usize {
        match usize::try_from(self.concurrent_node_status_updates) {
            Ok(number) if number > 0 => number,
            _ => self.syncs(),
        }
    }
}
