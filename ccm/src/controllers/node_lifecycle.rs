//! cloud-node-lifecycle-controller: taints Nodes whose instance is shut down, and deletes Nodes whose instance is
//! gone, when that is certain.

mod absence;
mod availability;
mod breaker;
mod controller;
mod decide;
mod explain;
mod lease;
mod memory;
mod metrics;
mod renewal;
mod row;
mod silence;
mod unseen;
mod verdict;

pub use breaker::BreakerLimits;
pub use controller::{NodeLifecycleController, NodeLifecycleOptions};
pub use metrics::NodeLifecycleMetrics;
pub(crate) use row::DESCRIPTOR;

/// The taint of a Node whose instance is shut down; effect `NoSchedule`, no value.
pub const SHUTDOWN_TAINT: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// A Node with this label is never deleted, unless its value is a boolean "false".
pub const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-lifecycle-management";

/// A Node with this annotation set to `true` does not count towards the breaker and is deleted past it, also where no
/// other kubelet is heard.
pub const ALLOW_DELETION: &str = "node.cloudprovider.kubernetes.io/allow-deletion";

/// `source.component` of the events.
pub const COMPONENT: &str = "cloud-node-lifecycle-controller";
