//! cloud-node-controller: fills new Nodes in and keeps their addresses and labels right.

mod addresses;
mod controller;
mod explain;
mod initialize;
mod labels;
mod metrics;
mod reminder;
mod repair;
mod row;
mod state;
mod sync;

pub use controller::{NodeController, NodeControllerOptions};
pub use explain::{Difference, NodePlan, plan};
pub use labels::ForeignValue;
pub use metrics::NodeMetrics;
pub(crate) use row::DESCRIPTOR;

/// The taint that a kubelet with `--cloud-provider=external` registers with. Value and effect do not matter.
pub const UNINITIALIZED_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Written by a kubelet that was started with `--node-ip`.
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// `source.component` of the events.
pub const COMPONENT: &str = "cloud-node-controller";
