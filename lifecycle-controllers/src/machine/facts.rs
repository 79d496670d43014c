//! What one pass over a Machine works with.

use cluster_api::{Cluster, Machine, names::labels};
use kube::ResourceExt as _;

use super::{node::Found, related::RelatedObjects};
use crate::{
    core::{Core, Referenced, defined},
    engine::object::Meta as _,
    workload::WorkloadCluster,
};

/// What one pass works with.
pub(super) struct Pass<'a> {
    pub(super) core: &'a Core,
    pub(super) cluster: Option<&'a Cluster>,
    pub(super) connected: Option<WorkloadCluster>,
    pub(super) related: RelatedObjects,
    pub(super) node: Found,
    pub(super) now: i64,
}

impl Pass<'_> {
    /// Machines of the control plane that stay.
    pub(super) fn control_plane_machines(&self, machine: &Machine) -> usize {
        let of_cluster = |one: &Machine| {
            one.spec.cluster_name == machine.spec.cluster_name
                && one.labels().contains_key(labels::CONTROL_PLANE)
                && !one.is_deleting()
        };
        self.core.machines_in(machine.namespace_or_empty(), of_cluster).len()
    }

    /// The object of `spec.controlPlaneRef` of the Cluster.
    pub(super) async fn control_plane(&self) -> Option<Referenced> {
        let cluster = self.cluster?;
        let reference = defined(&cluster.spec.control_plane_ref)?;
        Some(self.core.referenced(cluster.namespace_or_empty(), reference).await)
    }
}
