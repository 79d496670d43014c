//! node-route-controller: makes a route in the cloud for each pod CIDR of each Node, and says on the Node whether its
//! routes are there.

mod cidr;
mod claims;
mod condition;
mod controller;
mod explain;
mod jobs;
mod metrics;
mod pass;
mod plan;
mod progress;
mod retries;
mod row;
mod step;

pub use cidr::{ClusterCidrs, InvalidClusterCidr, MaskSizes};
pub use controller::{RouteController, RouteControllerOptions};
pub use metrics::RouteMetrics;
pub(crate) use row::DESCRIPTOR;

/// `source.component` of the events. Upstream spells it with an underscore.
pub const COMPONENT: &str = "route_controller";
