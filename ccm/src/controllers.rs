//! The controllers: one folder each, and one row in the table.

mod descriptor;
pub mod node;
pub mod node_lifecycle;
mod running;

pub(crate) use descriptor::{Capability, ControllerContext, ControllerDescriptor, Run};
pub use running::{ControllerMetrics, ControllerRuns};

use crate::flags::{ROUTE_CONTROLLER, SERVICE_CONTROLLER};

/// The controllers, in the order in which they start.
pub(crate) const CONTROLLERS: &[ControllerDescriptor] = &[
    node::DESCRIPTOR,
    node_lifecycle::DESCRIPTOR,
    ControllerDescriptor {
        name: SERVICE_CONTROLLER,
        running_as: "service",
        client: "service-controller",
        events_from: "service-controller",
        needs: Some(Capability::LoadBalancer),
        build: None,
    },
    ControllerDescriptor {
        name: ROUTE_CONTROLLER,
        running_as: "route",
        client: "route-controller",
        events_from: "route_controller",
        needs: Some(Capability::Routes),
        build: None,
    },
];
