//! What controllers do in the cluster.

use crate::rbac::Permission;

/// What one controller does in the cluster with its own client. Watching Nodes and writing events are not in it: all
/// controllers share these.
#[derive(Debug, Default)]
pub(crate) struct ControllerPermissions {
    /// What it writes. The API server gives these by itself to a controller's own account.
    pub(crate) writes: Vec<Permission>,
    /// What it reads. These have to be given to a controller's own account too.
    pub(crate) reads: Vec<Permission>,
}

/// The writes that both node controllers do.
pub(crate) fn node_patches() -> [Permission; 2] {
    [
        Permission::new("", "nodes", "patch", "initialising Nodes, labels, taints"),
        Permission::new("", "nodes/status", "patch", "addresses and conditions of Nodes"),
    ]
}
