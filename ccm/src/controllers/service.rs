//! service-lb-controller: a load balancer in the cloud for each Service of type `LoadBalancer`.

mod action;
mod controller;
mod events;
mod explain;
mod memory;
mod metrics;
mod needs_update;
mod nodes;
mod outcome;
mod pass;
mod patch;
mod plan;
mod row;
mod status;
mod work;

pub use controller::{ServiceController, ServiceControllerOptions};
pub use explain::{LeftOutNode, ServicePlan, plan};
pub use metrics::ServiceMetrics;
pub(crate) use row::DESCRIPTOR;
pub(crate) use status::shown;

/// `source.component` of the events.
pub const COMPONENT: &str = "service-controller";
