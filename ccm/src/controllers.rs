//! The controllers: each has a folder, and a row in the table.

mod descriptor;
pub mod node;
pub mod node_lifecycle;
mod permissions;
mod running;
pub mod service;

pub(crate) use descriptor::{
    Capability, ControllerContext, ControllerDescriptor, Implementation, NodeQuestion, Run,
};
pub(crate) use permissions::{ControllerPermissions, node_patches};
pub use running::{ControllerMetrics, ControllerRuns};

use crate::flags::ROUTE;

/// The controllers, in the order in which they start.
pub(crate) const CONTROLLERS: &[ControllerDescriptor] = &[
    node::DESCRIPTOR,
    node_lifecycle::DESCRIPTOR,
    service::DESCRIPTOR,
    ControllerDescriptor {
        names: ROUTE,
        client: "route-controller",
        events_from: "route_controller",
        needs: Some(Capability::Routes),
        implementation: None,
    },
];

#[cfg(test)]
mod tests {
    use super::CONTROLLERS;

    #[test]
    fn the_flags_know_the_controllers_of_the_table() {
        assert!(CONTROLLERS.iter().map(|controller| &controller.names).eq(crate::flags::CONTROLLERS));
        for controller in CONTROLLERS {
            assert_eq!(
                controller.names.exists,
                controller.implementation.is_some(),
                "{}",
                controller.names.name
            );
        }
    }
}
