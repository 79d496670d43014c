//! Rancher 2.x: the machines of one cluster, as the management server knows them.
//!
//! ```text
//!   look-ups ──> instances ──> judge (pure) ──> inventory (memory) <── follow (task)
//!                               ├──> addresses (pure)                    ├──> cluster, nodes ──> norman::client ──> /v3
//!                               └──> history (pure)                      └──> provisioning, kinds, objects ──> transport ──> /apis
//! ```
//!
//! There are two kinds of truth:
//!
//! - For a cluster whose machines Rancher makes, the Machines of Cluster API in the management cluster. They are watched. A
//!   Machine that is gone is proof that the machine is gone.
//! - For any other cluster, and for a token that may not read the `provisioning.cattle.io` cluster, `/v3/nodes`. It mirrors
//!   the cluster's own Nodes, so it proves nothing about a machine: no Node ever counts as gone. A token that may read that
//!   cluster and no Machines is an error.

mod addresses;
pub(crate) mod cluster;
pub(crate) mod clusters;
mod follow;
mod history;
pub(crate) mod instances;
mod inventory;
mod judge;
mod kinds;
mod machine;
pub(crate) mod nodes;
pub(crate) mod objects;
mod provisioning;
#[cfg(test)]
mod testing;
mod transport;
mod troubles;
