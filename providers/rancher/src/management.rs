//! Rancher 2.x: the machines of one cluster, as the management server knows them.
//!
//! ```text
//!   look-ups ──> instances ──> resolve (pure) ──> inventory (memory) <── follow (task)
//!                                ├──> addresses (pure)                   ├──> cluster, nodes ──> norman::client ──> /v3
//!                                └──> history (pure)                     └──> provisioning, kinds, objects, mirror ──> transport ──> /apis
//! ```
//!
//! There are two sources of truth:
//!
//! - For a cluster whose machines Rancher makes, the Machines of Cluster API in the management cluster. They
//!   are watched. A Machine that is gone is proof that the machine is gone.
//! - For any other cluster the server's own nodes, which are watched, or listed by `/v3/nodes` if the token
//!   may not watch them. They mirror the cluster's own Nodes, so they prove nothing about a machine: no Node
//!   ever counts as gone.

mod addresses;
pub(crate) mod cluster;
pub(crate) mod clusters;
mod follow;
mod history;
pub(crate) mod instances;
mod inventory;
mod kinds;
mod machine;
mod mirror;
pub(crate) mod node_objects;
pub(crate) mod nodes;
pub(crate) mod objects;
mod provisioning;
mod resolve;
#[cfg(test)]
mod testing;
mod transport;
mod troubles;
mod watches;
