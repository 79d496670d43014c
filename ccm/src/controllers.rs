//! The controllers: each has a folder, and a row in the table.

mod descriptor;
pub(crate) mod lifecycle;
mod machine;
pub mod node;
pub mod node_lifecycle;
mod permissions;
pub mod route;
mod running;
pub mod service;

pub(crate) use descriptor::{
    Build, Capability, ClusterRoutes, ControllerContext, ControllerDescriptor, NodeQuestion, Run, name_of,
};
pub(crate) use lifecycle::providers as lifecycle_providers;
pub(crate) use permissions::{ControllerPermissions, node_patches, node_status_patch};
pub use running::{ControllerMetrics, ControllerRuns};

/// The controllers, in the order in which they start.
pub(crate) const CONTROLLERS: &[ControllerDescriptor] = &[
    node::DESCRIPTOR,
    node_lifecycle::DESCRIPTOR,
    service::DESCRIPTOR,
    route::DESCRIPTOR,
    machine::DESCRIPTOR,
    lifecycle::CORE,
    lifecycle::BOOTSTRAP,
];

#[cfg(test)]
mod tests {
    use super::CONTROLLERS;

    #[test]
    fn the_flags_know_the_controllers_of_the_table() {
        assert!(CONTROLLERS.iter().map(|controller| &controller.names).eq(crate::flags::CONTROLLERS));
    }
}
