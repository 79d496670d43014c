//! The permissions that controllers need in the cluster.

use controller_kit::rbac::Permission;

/// The permissions that one controller needs for its own client, except for watching Nodes and writing
/// events: all controllers share these.
#[derive(Debug, Default)]
pub(crate) struct ControllerPermissions {
    /// Writes. The API server grants these to a controller's own service account by default.
    pub(crate) writes: Vec<Permission>,
    /// Reads. A controller's own service account needs a grant for these too.
    pub(crate) reads: Vec<Permission>,
    /// What the daemon watches for the controller, a standby's daemon too, with its own account.
    pub(crate) watches: Vec<Permission>,
}

/// The patches that both node controllers send.
pub(crate) fn node_patches() -> [Permission; 2] {
    [Permission::new("", "nodes", "patch", "initialising Nodes, labels, taints"), node_status_patch()]
}

/// The patch that the route controller sends too.
pub(crate) fn node_status_patch() -> Permission {
    Permission::new("", "nodes/status", "patch", "addresses and conditions of Nodes")
}
